-- complete: active -> completed.
-- Arguments: prefix, id, token.
-- Keys: job record (hash), queue's active and completed (zsets), events (stream).
-- Returns `ok`, or `moved`, `lost`, `gone`.

local _, id, token = unpack(ARGV)
open_when_full()
local now = now_ms()
local job, why = held(id, token)
if not job then return why end
let_go(job)
redis.call('HINCRBY', job_key(id), 'attempts_made', '1')
finish(job, 'completed', now)
event(job.queue, 'completed', id)
slot_freed(job.queue, now)
return 'ok'

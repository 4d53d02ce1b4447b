-- promote: delayed -> waiting (tail), by hand; what is due by the clock is promoted inside claim.
-- Arguments: prefix, id.
-- Keys: job record (hash), queue's delayed and wait (zsets), meta, wake, events.
-- Returns `ok`, `gone`, or the state that the job is in instead.

local _, id = unpack(ARGV)
open_when_full()
local job = record(id, 'state', 'queue', 'priority')
if not job.state then return 'gone' end
if job.state ~= 'delayed' then return job.state end
redis.call('ZREM', queue_key(job.queue, 'delayed'), id)
place(job, 0, 0, 'tail', 'due_at', now_ms())
return 'ok'

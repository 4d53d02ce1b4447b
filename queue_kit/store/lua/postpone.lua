-- postpone: a delayed job becomes due at another time, from now.
-- Arguments: prefix, id, delay_ms.
-- Keys: job record (hash), queue's delayed (zset), wake (list), events (stream).
-- Returns `ok`, `gone`, or the state that the job is in instead.

local _, id, delay = unpack(ARGV)
open_when_full()
local now = now_ms()
local job = record(id, 'state', 'queue', 'priority')
if not job.state then return 'gone' end
if job.state ~= 'delayed' then return job.state end
redis.call('ZREM', queue_key(job.queue, 'delayed'), id)
place(job, now, now + tonumber(delay), 'tail')
return 'ok'

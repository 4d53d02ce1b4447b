-- expire: waiting or delayed, its `expires` past -> cancelled, cause `expired`. Claim does the same to what it meets; this
-- is for the janitor, which finds jobs of queues that nobody claims from.
-- Arguments: prefix, id.
-- Keys: job record (hash), queue's wait, delayed and cancelled (zsets), notes, events.
-- Returns `expired`, `not due`, `gone`, or the state that the job is in instead.

local _, id = unpack(ARGV)
open_when_full()
local now = now_ms()
local job = record(id, 'state', 'queue', 'name', 'token', 'expires_at')
if not job.state then return 'gone' end
if job.state ~= 'waiting' and job.state ~= 'delayed' then return job.state end
if not job.expires_at or tonumber(job.expires_at) > now or (job.token or '') ~= '' then return 'not due' end
redis.call('ZREM', queue_key(job.queue, job.state == 'waiting' and 'wait' or 'delayed'), id)
leave_note(id, now)
cancelled(job, now, 'expired')
return 'expired'

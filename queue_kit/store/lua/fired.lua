-- fired: the job of one fire time has been sent; no beat sends that of an earlier one after it.
-- Arguments: prefix, id of the schedule, fire time (ms).
-- Keys: schedules:last (hash).
-- Returns 1 if that is news; 0 if another beat was first, or the schedule is gone.

local _, id, fire = unpack(ARGV)
open_when_full()
local key = PREFIX .. ':schedules:last'
local last = tonumber(redis.call('HGET', key, id) or nil)
if not last or last >= tonumber(fire) then return 0 end
redis.call('HSET', key, id, fire)
return 1

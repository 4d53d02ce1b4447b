-- unschedule: a schedule goes; jobs that it has sent stay.
-- Arguments: prefix, id.
-- Keys: schedules, schedules:last (hashes).
-- Returns 1, or 0 if there was none.

local _, id = unpack(ARGV)
redis.call('HDEL', PREFIX .. ':schedules:last', id)
return redis.call('HDEL', PREFIX .. ':schedules', id)

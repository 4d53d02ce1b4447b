-- schedule: a schedule is there, new or changed. Its next fire is counted from now if it is new or fires at other times.
-- Arguments: prefix, id, definition (JSON with a field `timing`).
-- Keys: schedules (hash: id -> definition), schedules:last (hash: id -> ms of the last fire, or since when it counts).
-- Returns `added` or `updated`.

local _, id, definition = unpack(ARGV)
local key = PREFIX .. ':schedules'
local before = redis.call('HGET', key, id)
redis.call('HSET', key, id, definition)
if not before or cjson.decode(before).timing ~= cjson.decode(definition).timing then
  redis.call('HSET', key .. ':last', id, now_ms())
end
return before and 'updated' or 'added'

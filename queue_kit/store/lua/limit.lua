-- limit: set or lift a queue's own limits.
-- Arguments: prefix, queue, then pairs of a field of its meta and a value ('' lifts it): `concurrency` (jobs that run at
--   once), `rate_max` and `rate_ms` (starts in each such window), `hold_ms` (give out none for so long, from now).
-- Keys: queue's meta (hash), rate (string), wait (zset), wake (list), queues (set).
-- Returns 1.

local _, queue = unpack(ARGV)
open_when_full()
local meta, now = queue_key(queue, 'meta'), now_ms()
redis.call('SADD', PREFIX .. ':queues', queue)
for index = 3, #ARGV, 2 do
  local field, value = ARGV[index], ARGV[index + 1]
  if field == 'hold_ms' then
    field, value = 'held_until', value ~= '' and now + tonumber(value) or ''
  end
  if field == 'rate_max' then redis.call('DEL', queue_key(queue, 'rate')) end
  if value == '' then redis.call('HDEL', meta, field) else redis.call('HSET', meta, field, value) end
end
if redis.call('ZCARD', queue_key(queue, 'wait')) > 0 then wake(queue) end
return 1

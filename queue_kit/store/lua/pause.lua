-- pause: a queue gives out no job until it is resumed; due jobs still move to waiting. It survives every worker's restart.
-- Arguments: prefix, queue, paused ('1' to pause, '' to resume).
-- Keys: queue's meta (hash), wait (zset), wake (list), events (stream), queues (set).
-- Returns 1 if that changed something, else 0.

local _, queue, paused = unpack(ARGV)
open_when_full()
local meta = queue_key(queue, 'meta')
if (redis.call('HEXISTS', meta, 'paused') == 1) == (paused == '1') then return 0 end
redis.call('SADD', PREFIX .. ':queues', queue)
if paused == '1' then
  redis.call('HSET', meta, 'paused', '1')
  event(queue, 'paused', '')
  return 1
end
redis.call('HDEL', meta, 'paused')
event(queue, 'resumed', '')
if redis.call('ZCARD', queue_key(queue, 'wait')) > 0 then wake(queue) end
return 1

-- discard: dead letters -> gone. The jobs' own records stay until they are trimmed.
-- Arguments: prefix, then ids of dead letters.
-- Keys: dead letters (hashes), their queues' dead (zsets), queues (set).
-- Returns for each id, in order, 1, or 0 if there was none.

open_when_full()
local answers, queues = {}, nil

-- A dead letter that lost its hash (an operator's DEL, an eviction) may stand in any queue's list.
local function struck_from_any(id)
  queues = queues or redis.call('SMEMBERS', PREFIX .. ':queues')
  local struck = 0
  for _, queue in ipairs(queues) do struck = struck + redis.call('ZREM', queue_key(queue, 'dead'), id) end
  return struck
end

for index = 2, #ARGV do
  local id = ARGV[index]
  local key = PREFIX .. ':dead:' .. id
  local queue = redis.call('HGET', key, 'queue')
  local struck = queue and redis.call('ZREM', queue_key(queue, 'dead'), id) or struck_from_any(id)
  answers[#answers + 1] = math.max(redis.call('DEL', key), math.min(struck, 1))
end
return answers

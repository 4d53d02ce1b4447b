-- What makes a send unique: the key that one job holds. The loader puts this file before `add`.

-- The job that holds the key. A key without a TTL whose job is gone or has ended is stale, and free.
local function holder(key)
  local owner = key ~= '' and redis.call('HMGET', key, 'id', 'state')
  if not owner or not owner[1] then return nil end
  local found = record(owner[1], 'state', 'queue', 'name', 'priority')
  local live = found.state == 'waiting' or found.state == 'delayed' or found.state == 'active'
  if not live and redis.call('PTTL', key) < 0 then return nil end
  found.state = found.state or owner[2] or 'unknown'
  return found
end

local function hold(key, id, mode, ttl)
  if key == '' then return end
  redis.call('DEL', key)
  redis.call('HSET', key, 'id', id, 'mode', mode)
  if ttl ~= '' then redis.call('PEXPIRE', key, ttl) end
end

-- What a send becomes whose key another job holds: nothing, or, by its mode, that job's new or next payload.
local function yield_to(found, sent, now, due, fields)
  if sent.mode == 'replace' and found.state == 'delayed' then
    redis.call('ZREM', queue_key(sent.queue, 'delayed'), found.id)
    found.priority = sent.priority
    found.state = place(found, now, due, 'tail', 'priority', sent.priority, unpack(fields))
  elseif sent.mode == 'keep_last' and found.state == 'active' then
    redis.call('HSET', sent.key, 'next_id', sent.id, 'next_message', sent.message, 'next_priority', sent.priority)
  end
  if sent.ttl ~= '' and (sent.mode == 'extend' or sent.mode == 'replace') then redis.call('PEXPIRE', sent.key, sent.ttl) end
  event(sent.queue, 'deduplicated', found.id, 'rejected', sent.id)
  count(sent.queue, sent.name, 'deduplicated')
end

-- Who holds a deduplication key, and what a second send of it changes. The loader puts this file before add.
-- A key is a hash: `id` of the job that holds it, `mode`, the job's last `state` once its record was trimmed, and with
-- `keep_last` the job to be added after it (`next_...`).

-- The job that holds the key. A key without a time to live whose job is gone, has ended or knows nothing of it is stale, and
-- free.
local function holder(key)
  local owner = redis.call('HMGET', key, 'id', 'state')
  if not owner[1] then return nil end
  local found = record(owner[1], 'state', 'queue', 'name', 'dedup', 'attempts_started')
  local live = found.state == 'waiting' or found.state == 'delayed' or found.state == 'active'
  if redis.call('PTTL', key) < 0 and not (live and found.dedup == key) then return nil end
  found.state, found.live = found.state or owner[2] or 'unknown', live
  return found
end

local function take_key(key, mode, ttl, id)
  redis.call('DEL', key)
  redis.call('HSET', key, 'id', id, 'mode', mode)
  if ttl ~= '' then redis.call('PEXPIRE', key, ttl) end
end

-- The last payload wins: its message goes into the record of the job that is there. Written first of all, so that a full
-- memory refuses it whole.
local function replace_delayed(found, now, due, priority, fields, parts)
  write(found.id, unpack(fields))
  redis.call('HDEL', job_key(found.id), 'expires_at', 'correlation_id', 'nesting')
  drop_rest(found.id, parts)
  redis.call('ZREM', queue_key(found.queue, 'delayed'), found.id)
  found.priority = priority
  found.state = place(found, now, due, 'tail', 'priority', priority, unpack(fields))
end

-- The last payload runs after the one that has begun: the key waits for that, whatever life it had.
local function keep_for_later(key, sent, due, fields)
  redis.call('HSET', key, 'mode', 'keep_last', 'next_id', sent.id, 'next_queue', sent.queue, 'next_priority', sent.priority,
    'next_due', due, 'next_fields', cjson.encode(fields))
  redis.call('PERSIST', key)
end

-- reap: the leases of all queues that ran out are stalls. Any number of workers may run it at once.
-- Arguments: prefix, max_stalled, dead_max, interval_ms (how often a worker reaps), grace_ms (one renewal interval),
--   batch (most leases handled in one call).
-- Keys: queues (set), reap (hash: last, hold_until), per queue active and reserved (zsets), and all that `stall` touches.
-- The tokens are not remembered as moved: whoever still holds one has lost its lease, and must hear so.
-- Returns a list of { id, queue, outcome, worker, trouble, name, correlation_id, attempts_started }. After an outage (nobody reaped for two intervals) it answers
--   nothing for one renewal interval, so that workers that live can renew first.

local _, max_stalled, dead_max, interval_ms, grace_ms, batch = unpack(ARGV)
open_when_full()
local now, key, found = now_ms(), PREFIX .. ':reap', {}
local last = redis.call('HMGET', key, 'last', 'hold_until')
local hold_until = math.min(tonumber(last[2] or 0), now + tonumber(grace_ms)) -- the clock may have been set back
if now - tonumber(last[1] or 0) > 2 * tonumber(interval_ms) then hold_until = now + tonumber(grace_ms) end
redis.call('HSET', key, 'last', now, 'hold_until', hold_until)
if now < hold_until then return found end

-- Newest first: each goes to the head, so the one that has waited longest ends up in front.
local function sweep(queue, part)
  local zset = queue_key(queue, part)
  for _, id in ipairs(redis.call('ZRANGE', zset, now, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, batch - #found)) do
    local job = record(id, 'state', 'queue', 'name', 'token', 'priority', 'cancel', 'worker', 'started_at', 'once',
      'attempts_started', 'correlation_id')
    redis.call('ZREM', zset, id)
    if job.token and job.token ~= '' then
      write(id, 'token', '')
      local outcome, trouble = stall(job, now, tonumber(max_stalled), tonumber(dead_max))
      found[#found + 1] = { id, queue, outcome, job.worker or '', trouble, job.name or '', job.correlation_id or id,
        job.attempts_started or '0' }
    end
  end
end

for _, queue in ipairs(redis.call('SMEMBERS', PREFIX .. ':queues')) do
  sweep(queue, 'active')
  sweep(queue, 'reserved')
  if #found >= tonumber(batch) then break end
end
return found

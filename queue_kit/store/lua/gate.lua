-- What a queue has open for a claim: jobs that came due, and its limits. The loader puts this file before claim.

local PROMOTED_AT_ONCE = 1000 -- due jobs moved by one script, so that no script runs for long

local function promote_due(queue, now)
  local key = queue_key(queue, 'delayed')
  for _, id in ipairs(redis.call('ZRANGE', key, '-inf', now, 'BYSCORE', 'LIMIT', 0, PROMOTED_AT_ONCE)) do
    redis.call('ZREM', key, id)
    local job = record(id, 'priority', 'state')
    if job.state == 'delayed' then
      write(id, 'state', 'waiting')
      to_wait(id, queue, job.priority, 'tail')
      event(queue, 'waiting', id, 'prev', 'delayed')
    end
  end
end

-- How many jobs may be taken now in this queue, and for how long none may (nil: no known end). A reserved job has its place
-- already: it begins without asking again.
local function gate(queue, now)
  local rules, room = rules_of(queue), math.huge
  if rules.paused then return 0 end
  if rules.held_until and rules.held_until > now then return 0, rules.held_until - now end
  if rules.concurrency then
    room = rules.concurrency - redis.call('ZCARD', queue_key(queue, 'active')) - redis.call('ZCARD', queue_key(queue, 'reserved'))
  end
  if rules.rate_max and rules.rate_ms then
    local left = rules.rate_max - tonumber(redis.call('GET', queue_key(queue, 'rate')) or 0)
    if left < 1 then return 0, math.max(1, redis.call('PTTL', queue_key(queue, 'rate'))) end
    room = math.min(room, left)
  end
  return math.max(0, room)
end

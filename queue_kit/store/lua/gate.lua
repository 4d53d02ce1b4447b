-- What a queue has open: jobs that came due, and its limits. The loader puts this file before claim and begin.

local PROMOTED_AT_ONCE = '1000' -- due jobs moved by one script, so that no script runs for long

local asides = {} -- see `aside`

local function promote_due(queue, now)
  local key = queue_key(queue, 'delayed')
  for _, id in ipairs(redis.call('ZRANGE', key, '-inf', now, 'BYSCORE', 'LIMIT', '0', PROMOTED_AT_ONCE)) do
    redis.call('ZREM', key, id)
    local job = record(id, 'priority', 'state', 'queue', 'name', 'correlation_id', 'attempts_started')
    if job.state == 'delayed' then
      write(id, 'state', 'waiting')
      to_wait(id, queue, job.priority, 'tail')
      event(queue, 'waiting', id, 'prev', 'delayed')
      asides[#asides + 1] = aside(job, 'delayed', 'waiting', 'due')
    end
  end
end

-- How many starts a queue's rate, pause and hold-off leave now, and for how long there are none (nil: no known end).
local function starts_left(queue, now)
  local rules = rules_of(queue)
  if rules.paused then return 0 end
  if rules.held_until and rules.held_until > now then return 0, rules.held_until - now end
  if not (rules.rate_max and rules.rate_ms) then return math.huge end
  local left = rules.rate_max - tonumber(redis.call('GET', queue_key(queue, 'rate')) or 0)
  if left < 1 then return 0, math.max(1, redis.call('PTTL', queue_key(queue, 'rate'))) end
  return left
end

-- How many jobs may be taken now in this queue, and for how long none may. A reserved job has its place already.
local function gate(queue, now)
  local room, closed_ms = starts_left(queue, now)
  local most = rules_of(queue).concurrency
  if room > 0 and most then
    local taken = redis.call('ZCARD', queue_key(queue, 'active')) + redis.call('ZCARD', queue_key(queue, 'reserved'))
    room = math.min(room, most - taken)
  end
  return math.max(0, room), closed_ms
end

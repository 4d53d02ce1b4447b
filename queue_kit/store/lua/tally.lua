-- tally: what a monitor reads of one queue, without a write.
-- Arguments: prefix, queue.
-- Keys: queue's wait, reserved, delayed, active, completed, failed, cancelled, dead (zsets), counts (hash), job records (hashes).
-- Returns { waiting, delayed, active, completed, failed, cancelled, dead letters, oldest_ms (how long that job has waited which
--   has waited longest; 0: none does), fields and values of counts }.

local _, queue = unpack(ARGV)
local now, wait, oldest = now_ms(), queue_key(queue, 'wait'), 0

local function size(part) return redis.call('ZCARD', queue_key(queue, part)) end

local function exactly(score, border) return (border or '') .. string.format('%.17g', score) end

local function look_at(ids)
  local job = ids[1] and record(ids[1], 'added_at', 'due_at')
  local since = job and tonumber(job.due_at or job.added_at)
  if since then oldest = math.max(oldest, now - since) end
end

-- In each level two may have waited longest: the first that came to its tail, and the first that was put back to its head.
local function look_into(level)
  local low, middle, high = level * TIER, level * TIER + MIDDLE, (level + 1) * TIER
  look_at(redis.call('ZRANGE', wait, exactly(middle), exactly(high, '('), 'BYSCORE', 'LIMIT', '0', '1'))
  look_at(redis.call('ZRANGE', wait, exactly(middle, '('), exactly(low), 'BYSCORE', 'REV', 'LIMIT', '0', '1'))
end

local from = '-inf'
while true do
  local score = redis.call('ZRANGE', wait, from, '+inf', 'BYSCORE', 'LIMIT', '0', '1', 'WITHSCORES')[2]
  if not score then break end
  local level = math.floor(score / TIER)
  look_into(level)
  from = exactly((level + 1) * TIER)
end

return { size('wait') + size('reserved'), size('delayed'), size('active'), size('completed'), size('failed'), size('cancelled'),
  size('dead'), oldest, redis.call('HGETALL', queue_key(queue, 'counts')) }

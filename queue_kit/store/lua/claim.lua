-- claim: waiting -> active, for as many jobs as the worker has room for; due delayed jobs are promoted on the way.
-- Arguments: prefix, worker, token (base of this claim's tokens), lease_ms, limit (most to take), begin (how many of them
--   begin at once; the rest are reserved: leased, still waiting), suspects (how many stalled jobs may be taken now),
--   max_stalled, traits (JSON objects `once`, `reserve`: names of tasks; `avoid`: ids not to take), the queues in order.
-- Keys: per queue meta (hash), delayed, wait, reserved, active (zsets), wake (list), events (stream); job records (hashes).
-- Returns { wait_ms, job, job, ... }: how long until something is due by the clock (-1: nothing is), then for each job
--   { id, queue, token, begun, message, attempts_started, attempts_made, stalled_count, expires_at or '', replays }.

local _, worker, base, lease_ms, limit, begin, suspects, max_stalled, traits = unpack(ARGV)
open_when_full()
local now = now_ms()
limit, begin, suspects, max_stalled = tonumber(limit), tonumber(begin), tonumber(suspects), tonumber(max_stalled)
traits = cjson.decode(traits)
local lease_end = now + tonumber(lease_ms)
local soonest, taken, left_suspects = -1, {}, false

local function due_in(ms)
  if ms and (soonest < 0 or ms < soonest) then soonest = math.max(0, math.ceil(ms)) end
end

local function take(job)
  local starts = begin > 0 and not traits.reserve[job.name]
  local token = base .. '.' .. #taken
  redis.call('ZREM', queue_key(job.queue, 'wait'), job.id)
  redis.call('ZADD', queue_key(job.queue, starts and 'active' or 'reserved'), lease_end, job.id)
  if starts then
    begin = begin - 1
    job.attempts_started = begin_run(job, token, worker, now, traits.once[job.name])
  else
    write(job.id, 'token', token, 'worker', worker)
  end
  taken[#taken + 1] = { job.id, job.queue, token, starts and 1 or 0, job.message, tonumber(job.attempts_started or 0),
    tonumber(job.attempts_made or 0), tonumber(job.stalled_count or 0), job.expires_at or '', tonumber(job.replays or 0) }
end

local function expire(job)
  redis.call('ZREM', queue_key(job.queue, 'wait'), job.id)
  cancelled(job, now, 'expired')
  leave_note(job.id, now)
end

local function consider(id, queue)
  local job = record(id, 'state', 'name', 'message', 'stalled_count', 'attempts_started', 'attempts_made', 'expires_at', 'replays')
  job.queue = queue
  local stalls = tonumber(job.stalled_count or 0)
  local suspect = stalls > 0 and stalls >= max_stalled
  if job.state ~= 'waiting' then
    redis.call('ZREM', queue_key(queue, 'wait'), id) -- its record went another way: an operator's DEL, an eviction
  elseif job.expires_at and tonumber(job.expires_at) <= now then
    expire(job)
  elseif suspect and suspects < 1 then
    left_suspects = true
  elseif not traits.avoid[id] then
    if suspect then suspects = suspects - 1 end
    take(job)
  end
end

-- Jobs that may not be taken stay in place; the page moves past them, so that they hold nobody up.
local function drain(queue, room)
  local key, passed = queue_key(queue, 'wait'), 0
  while room > 0 do
    local had, before = #taken, redis.call('ZCARD', key)
    local page = redis.call('ZRANGE', key, passed, passed + room - 1)
    if #page == 0 then return end
    for _, id in ipairs(page) do consider(id, queue) end
    passed = passed + #page - (before - redis.call('ZCARD', key))
    room = room - (#taken - had)
  end
end

for index = 10, #ARGV do
  local queue, had = ARGV[index], #taken
  promote_due(queue, now)
  local room, closed_ms = gate(queue, now)
  due_in(closed_ms)
  left_suspects = false
  drain(queue, math.min(limit - #taken, room))
  local more = #taken >= limit or (left_suspects and #taken > had)
  if more and redis.call('ZCARD', queue_key(queue, 'wait')) > 0 then wake(queue) end
  if #taken >= limit then break end
  local first = redis.call('ZRANGE', queue_key(queue, 'delayed'), 0, 0, 'WITHSCORES')
  if first[2] then due_in(first[2] - now) end
end
table.insert(taken, 1, soonest)
return taken

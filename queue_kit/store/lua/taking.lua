-- How a claim deals with each waiting job: take it, drop it, or leave it to others. The loader puts this file before claim.
-- `visit` is what the claim knows: now, worker, base, lease_end, begin, suspects, max_stalled, traits, and the jobs `taken`.

local LOOKED_AT = 1000 -- waiting jobs that one claim looks at in a queue, so that no script runs for long

local function take(visit, job)
  local starts = visit.begin > 0 and not visit.traits.reserve[job.name]
  local token = visit.base .. '.' .. #visit.taken
  redis.call('ZREM', queue_key(job.queue, 'wait'), job.id)
  redis.call('ZADD', queue_key(job.queue, starts and 'active' or 'reserved'), visit.lease_end, job.id)
  if starts then
    visit.begin = visit.begin - 1
    job.attempts_started = begin_run(job, token, visit.worker, visit.now, visit.traits.once[job.name])
  else
    write(job.id, 'token', token, 'worker', visit.worker)
  end
  visit.taken[#visit.taken + 1] = { job.id, job.queue, token, starts and 1 or 0, message_in(job),
    tonumber(job.attempts_started or 0), tonumber(job.attempts_made or 0), tonumber(job.stalled_count or 0),
    job.expires_at or '', tonumber(job.replays or 0),
    math.max(0, visit.now - tonumber(job.due_at or job.added_at or visit.now)), job.name }
end

-- Answers whether the job was left where it is.
local function consider(visit, id, queue)
  local job = whole_record(id)
  job.queue = queue
  local stalls = tonumber(job.stalled_count or 0)
  local suspect = stalls > 0 and stalls >= visit.max_stalled
  if job.state ~= 'waiting' then
    redis.call('ZREM', queue_key(queue, 'wait'), id) -- its record went another way: an operator's DEL, an eviction
  elseif job.expires_at and tonumber(job.expires_at) <= visit.now then
    redis.call('ZREM', queue_key(queue, 'wait'), id)
    leave_note(id, visit.now)
    asides[#asides + 1] = aside(job, 'waiting', cancelled(job, visit.now, 'expired'), 'expired')
  elseif visit.traits.avoid[id] or (suspect and visit.suspects < 1) then
    return true
  else
    if suspect then visit.suspects = visit.suspects - 1 end
    take(visit, job)
  end
  return false
end

-- Jobs that are left stay in place; the page moves past them, so that they hold nobody up. Answers whether some were left that
-- another worker might take, and whether it had enough before the end.
local function drain(visit, queue, room)
  local key, had, passed, looked = queue_key(queue, 'wait'), #visit.taken, 0, 0
  while #visit.taken - had < room and looked < LOOKED_AT do
    local page = redis.call('ZRANGE', key, passed, passed + room - (#visit.taken - had) - 1)
    if #page == 0 then return passed > 0, false end
    for _, id in ipairs(page) do
      if consider(visit, id, queue) then passed = passed + 1 end
    end
    looked = looked + #page
  end
  return true, looked >= LOOKED_AT and looked > passed
end

-- Most queues of a worker that has many: nothing waits, nothing is due. Says so in three commands: answers in how many ms
-- something will be due (infinity: nothing will), or nothing where there is more to see to.
local function nothing_in(queue, now)
  if redis.call('ZCARD', queue_key(queue, 'wait')) > 0 then return end
  local first = redis.call('ZRANGE', queue_key(queue, 'delayed'), '0', '0', 'WITHSCORES')[2]
  if first and first - now <= 0 then return end
  redis.call('DEL', queue_key(queue, 'wake'))
  return first and first - now or math.huge
end

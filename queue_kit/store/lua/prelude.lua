-- What all scripts share: names of keys, the clock, the fence, and the steps that several moves have in common.
-- The loader puts this file before each script. Every script gets the key prefix as its first argument and derives
-- key names from it, since a job's queue is known from its record alone; a cluster, which would forbid that, is refused.

-- Numbers that are known here are written as text: Redis prints each number that Lua hands it, with 17 digits.

local PREFIX = ARGV[1]
local TIER = 2 ^ 49 -- one priority level in a score of `wait`; ten levels fit a double without loss
local MIDDLE = 2 ^ 48 -- where a level begins: the tail counts up from here, the head down
local RUNS_KEPT = 50 -- attempt-history entries that a job keeps
local REASON_KEPT = 500 -- bytes of a reason in one of them
local MARK_KEPT_MS = 1800000 -- of a claim nobody waits for: longer than a sender's kernel goes on trying to deliver it

local function job_key(id) return PREFIX .. ':job:' .. id end

-- Of one claim, or of a whole worker that is dead.
local function recalled_key(base) return PREFIX .. ':recalled:' .. base end

local function queue_key(queue, part) return PREFIX .. ':q:' .. queue .. ':' .. part end

-- When memory is full Redis lets a script write only after a write that it allows then; ZREM is one.
local function open_when_full() redis.call('ZREM', PREFIX .. ':notes', '') end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function record(id, ...)
  local values = redis.call('HMGET', job_key(id), ...)
  local named = { id = id }
  for index, field in ipairs({ ... }) do named[field] = values[index] or nil end
  return named
end

local function write(id, ...) redis.call('HSET', job_key(id), ...) end

-- A queue's own switches and limits, read once a script.
local known_rules = {}
local function rules_of(queue)
  if not known_rules[queue] then
    local fields = { 'events_max', 'paused', 'concurrency', 'held_until', 'rate_max', 'rate_ms' }
    local values, named = redis.call('HMGET', queue_key(queue, 'meta'), unpack(fields)), {}
    for index, field in ipairs(fields) do named[field] = tonumber(values[index] or nil) end
    known_rules[queue] = named
  end
  return known_rules[queue]
end

-- Event stream: `event`, `id`, then pairs. `events_max` 0 in the queue's meta switches it off.
local function event(queue, kind, id, ...)
  local most = rules_of(queue).events_max
  if not most or most > 0 then
    redis.call('XADD', queue_key(queue, 'events'), 'MAXLEN', '~', most or '10000', '*', 'event', kind, 'id', id, ...)
  end
end

local function count(queue, name, what) redis.call('HINCRBY', queue_key(queue, 'counts'), what .. ' ' .. name, '1') end

-- One idle worker is woken at a time: the claim that leaves jobs behind sets the mark again.
local function wake(queue)
  local key = queue_key(queue, 'wake')
  if redis.call('LLEN', key) == 0 then redis.call('LPUSH', key, '1') end
end

local function to_wait(id, queue, priority, side)
  local turn = redis.call('HINCRBY', queue_key(queue, 'meta'), side, '1')
  if side == 'head' then turn = -turn end
  redis.call('ZADD', queue_key(queue, 'wait'), tonumber(priority or 0) * TIER + MIDDLE + turn, id)
  wake(queue)
end

-- A score for `at` behind all of the same millisecond: ties keep their order through a fraction that a double holds exactly.
local function behind(key, at)
  local ceiling = string.format('(%.17g', at + 1)
  local last = redis.call('ZRANGE', key, ceiling, at, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')[2]
  return last and math.min(last + 1 / 2048, at + 2047 / 2048) or at
end

local function to_delayed(id, queue, due)
  local key = queue_key(queue, 'delayed')
  redis.call('ZADD', key, behind(key, due), id)
  if redis.call('ZRANK', key, id) == 0 then wake(queue) end
end

-- Into delayed if `due` lies ahead, else into waiting at `side`; with the event. Answers the state.
local function place(job, now, due, side, ...)
  if due > now then
    write(job.id, 'state', 'delayed', 'queue', job.queue, 'due_at', due, ...)
    to_delayed(job.id, job.queue, due)
    event(job.queue, 'delayed', job.id, 'due_at', due)
    return 'delayed'
  end
  write(job.id, 'state', 'waiting', 'queue', job.queue, ...)
  to_wait(job.id, job.queue, job.priority, side)
  event(job.queue, 'waiting', job.id, 'prev', job.state or '')
  return 'waiting'
end

-- When a job is due: from now, or at an instant of the caller's clock; 0: at once.
local function due_at(now, delay, instant)
  if delay ~= '' then return now + tonumber(delay) end
  return instant ~= '' and tonumber(instant) or 0
end

-- What a script that has moved a job beside what it was called for tells of it: the log of whoever called it has a line for each.
local function aside(job, from, to, cause)
  return { job.id, job.queue, job.name or '', job.correlation_id or job.id, job.attempts_started or '0', from, to, cause }
end

-- A run begins. `once`: the task asked to run at most once, so its loss must not run it again.
local function begin_run(job, token, worker, now, once)
  local started = tonumber(job.attempts_started or 0) + 1
  write(job.id, 'state', 'active', 'token', token, 'worker', worker, 'started_at', now, 'attempts_started', started,
    'once', once and '1' or '')
  local rules = rules_of(job.queue)
  if rules.rate_max and rules.rate_ms and redis.call('INCR', queue_key(job.queue, 'rate')) == 1 then
    redis.call('PEXPIRE', queue_key(job.queue, 'rate'), rules.rate_ms)
  end
  event(job.queue, 'active', job.id, 'worker', worker, 'attempts_started', started)
  count(job.queue, job.name, 'started')
  return started
end

-- A job's token joins those of its last moves, three in all, newest first: a move sent again after a broken connection may
-- find that others have moved the job since.
local function remembered(job) return string.match(job.token .. ' ' .. (job.moved or ''), '^%S+ ?%S* ?%S*') end

-- The fence. Answers the record when `token` holds the job, else the word for why not: `moved` (a move of this token's own
-- took the job on), `lost` (another holds it, or nobody), `gone` (no record).
local function held(id, token)
  local job = record(id, 'state', 'queue', 'name', 'token', 'moved', 'priority', 'cancel', 'worker', 'started_at',
    'attempts_started', 'once', 'dedup')
  job.dedup = job.dedup or false
  if not job.state then return nil, 'gone' end
  if token == '' then return nil, 'lost' end
  if job.token == token then return job end
  return nil, string.find(' ' .. (job.moved or '') .. ' ', ' ' .. token .. ' ', 1, true) and 'moved' or 'lost'
end

-- End a held job's lease by a move of its holder, whose token is remembered. A lease that is taken away is not let go: what
-- its holder still sends is told `lost`.
local function let_go(job)
  redis.call('ZREM', queue_key(job.queue, job.state == 'active' and 'active' or 'reserved'), job.id)
  write(job.id, 'token', '', 'moved', remembered(job))
end

-- Cut where a character begins: half of one could not be read again.
local function brief(text)
  if #text <= REASON_KEPT then return text end
  return (string.gsub(string.sub(text, 1, REASON_KEPT), '[\192-\255][\128-\191]*$', ''))
end

-- One line of attempt history: a run that ended otherwise than by completing.
local function remember_run(job, now, cause, reason)
  local key = job_key(job.id) .. ':runs'
  redis.call('RPUSH', key, cjson.encode({
    started_at = tonumber(job.started_at or now), ended_at = now, worker = job.worker or '', cause = cause,
    reason = brief(reason or '') }))
  redis.call('LTRIM', key, -RUNS_KEPT, -1)
end

local function attempt(job, now, cause, reason)
  remember_run(job, now, cause, reason)
  return redis.call('HINCRBY', job_key(job.id), 'attempts_made', 1)
end

-- Said once for each time that the queue ran dry: not again before another job has waited.
local function drained(queue)
  local meta = queue_key(queue, 'meta')
  local seen = redis.call('HMGET', meta, 'tail', 'head', 'drained')
  local turns = (seen[1] or 0) + (seen[2] or 0)
  if turns == tonumber(seen[3] or 0) then return end
  redis.call('HSET', meta, 'drained', turns)
  event(queue, 'drained', '')
end

-- After a slot came free: a worker that a limit kept away is woken, or the queue is said to be drained.
local function slot_freed(queue, now)
  if redis.call('ZCARD', queue_key(queue, 'wait')) > 0 then
    if rules_of(queue).concurrency then wake(queue) end
  elseif redis.call('ZCARD', queue_key(queue, 'active')) == 0 and redis.call('ZCARD', queue_key(queue, 'reserved')) == 0
    and redis.call('ZCOUNT', queue_key(queue, 'delayed'), '-inf', now) == 0 then
    drained(queue)
  end
end

-- Write a job that is not there yet, waiting or delayed, with its events. `fields`: what its record holds beside its place.
local function new_job(job, now, due, fields)
  event(job.queue, 'added', job.id, 'name', job.name)
  count(job.queue, job.name, 'enqueued')
  redis.call('SADD', PREFIX .. ':queues', job.queue)
  if tonumber(job.priority) > 0 then fields[#fields + 1], fields[#fields + 2] = 'priority', job.priority end
  return place(job, now, due, 'tail', 'name', job.name, 'added_at', now, unpack(fields))
end

-- The job that holds a deduplication key has ended, or goes. A key without a TTL is free then; with mode `keep_last` the
-- payload that came last while the job ran becomes the next job, which holds the key.
local function release_key(job, now)
  local key = job.dedup
  if key == nil then key = redis.call('HGET', job_key(job.id), 'dedup') end
  if not key then return end
  local owner = redis.call('HMGET', key, 'id', 'mode', 'next_id', 'next_queue', 'next_priority', 'next_due', 'next_fields')
  if owner[1] ~= job.id or owner[2] == 'ttl' or owner[2] == 'extend' or owner[2] == 'replace' then return end
  redis.call('DEL', key)
  if not owner[3] or record(owner[3], 'state').state then return end
  redis.call('HSET', key, 'id', owner[3], 'mode', owner[2])
  local following = { id = owner[3], queue = owner[4], name = job.name, priority = owner[5] }
  new_job(following, now, tonumber(owner[6]), cjson.decode(owner[7]))
end

local function finish(job, state, now, ...)
  write(job.id, 'state', state, 'finished_at', now, ...)
  redis.call('ZADD', queue_key(job.queue, state), now, job.id)
  count(job.queue, job.name, state)
  release_key(job, now)
end

-- Whoever waits for a job that ended outside its own run is told by a worker's thread, which takes the note away.
local function leave_note(id, now) redis.call('ZADD', PREFIX .. ':notes', now, id) end

-- A job that expires has made an attempt, if without a run.
local function cancelled(job, now, cause)
  if cause == 'expired' then redis.call('HINCRBY', job_key(job.id), 'attempts_made', 1) end
  finish(job, 'cancelled', now, 'cause', cause)
  event(job.queue, 'cancelled', job.id, 'cause', cause)
  slot_freed(job.queue, now)
  return 'cancelled'
end

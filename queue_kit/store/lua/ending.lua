-- What the moves share that may end a job for good: its dead letter, and the loss of its worker.
-- The loader puts this file after the prelude for the scripts that ask for it.

-- The record of a job that will not run again by itself. Written in protected mode after the settle: what goes wrong
-- here is answered, and never undoes the failure itself. Answers '' or the error.
local function dead_letter(job, now, most, failure)
  local facts = record(job.id, 'added_at', 'correlation_id', 'attempts_made', 'attempts_started', 'stalled_count')
  local id = 'dlq-' .. job.queue .. '-' .. job.id .. '-' .. (facts.attempts_made or '0')
  local key, index = PREFIX .. ':dead:' .. id, queue_key(job.queue, 'dead')
  local wrote = redis.pcall('HSET', key, 'version', '2', 'queue', job.queue, 'job', job.id, 'name', job.name,
    'message', message_of(job.id), 'reason', failure.reason, 'error_class', failure.error_class, 'stack', failure.stack,
    'cause', failure.cause, 'attempts_made', facts.attempts_made or '0', 'attempts_started', facts.attempts_started or '0',
    'stalled_count', facts.stalled_count or '0', 'correlation_id', facts.correlation_id or job.id,
    'added_at', facts.added_at or '', 'failed_at', now)
  if type(wrote) == 'table' and wrote.err then return wrote.err end
  local readable, place = pcall(behind, index, now)
  wrote = redis.pcall('ZADD', index, readable and place or now, id)
  if type(wrote) == 'table' and wrote.err then
    redis.call('DEL', key) -- a record that no list names would stay for ever
    return wrote.err
  end
  event(job.queue, 'dead-lettered', job.id, 'record', id, 'cause', failure.cause)
  count(job.queue, job.name, 'dead_lettered')
  while redis.call('ZCARD', index) > most do
    redis.call('DEL', PREFIX .. ':dead:' .. redis.call('ZPOPMIN', index)[1])
    redis.call('HINCRBY', queue_key(job.queue, 'counts'), 'dead_letter_evicted', 1)
  end
  return ''
end

-- A job let go fails for good, with its dead letter. `failure`: cause, reason, error_class, stack, exhausted ('1' or '').
local function failed(job, now, most, failure)
  local made = attempt(job, now, failure.cause, failure.reason)
  finish(job, 'failed', now, 'cause', failure.cause, 'reason', failure.reason, 'error_class', failure.error_class)
  event(job.queue, 'failed', job.id, 'cause', failure.cause, 'attempts_made', made)
  if failure.exhausted == '1' then event(job.queue, 'retries-exhausted', job.id, 'attempts_made', made) end
  local trouble = dead_letter(job, now, most, failure)
  slot_freed(job.queue, now)
  return trouble
end

local function past_the_limit(job)
  if job.once == '1' then
    return { cause = 'lost', error_class = 'JobLostError', stack = '', exhausted = '',
      reason = 'worker lost in a job that may run at most once' }
  end
  return { cause = 'stalled', error_class = 'JobStalledError', stack = '', exhausted = '',
    reason = 'job stalled more than allowable limit' }
end

-- The worker of a job is lost, its lease over. Answers what became of the job: its new state, or `released` if it had not
-- begun; then the trouble that writing a dead letter had, or ''.
local function stall(job, now, max_stalled, dead_max)
  if job.state ~= 'active' then
    to_wait(job.id, job.queue, job.priority, 'head')
    return 'released', ''
  end
  local stalls = redis.call('HINCRBY', job_key(job.id), 'stalled_count', 1)
  count(job.queue, job.name, 'stalled')
  if not job.cancel and job.once ~= '1' and stalls <= max_stalled then
    remember_run(job, now, 'stalled', 'its worker was lost')
    local state = place(job, now, 0, 'head', 'due_at', now)
    event(job.queue, 'stalled', job.id, 'stalled_count', stalls)
    return state, ''
  end
  event(job.queue, 'stalled', job.id, 'stalled_count', stalls)
  leave_note(job.id, now)
  if job.cancel then
    remember_run(job, now, 'stalled', 'its worker was lost')
    return cancelled(job, now, job.cancel), ''
  end
  return 'failed', failed(job, now, dead_max, past_the_limit(job))
end

-- replay: failed or cancelled -> waiting (tail); the same job, its attempts to be counted anew by its message, its counters
-- going on. A job whose record was trimmed, or is gone, is rebuilt from its dead letter. `expires` is cleared.
-- Arguments: prefix, id, dead letter's id ('': the job's own record is enough), message (with no retry counted), its priority
--   and nesting, by (who asks for it), dry ('1': answer what would be, write nothing).
-- Keys: dead letters (hashes), job record (hash), queue's failed, cancelled, wait (zsets), meta, wake, notes, events, queues.
-- Returns { outcome, by, at }: `ok` (done: with a fourth, see `aside`); `replayed` (this dead letter was, by whom and when); `unknown` (no such dead letter);
--   `gone` (no record, and no dead letter to rebuild it from); or the state that the job is in instead.

local STALE = { 'expires_at', 'cancel', 'canvas_failed', 'cause', 'reason', 'error_class', 'finished_at', 'due_at',
  'started_at', 'worker', 'once', 'trimmed' }
local REBUILT = { 'name', 'correlation_id', 'added_at', 'attempts_made', 'attempts_started', 'stalled_count' }

local _, id, letter, message, priority, nesting, by, dry = unpack(ARGV)
open_when_full()
local now = now_ms()
local job = record(id, 'state', 'queue', 'trimmed', 'attempts_made', 'replays')

local function letter_key(letter_id) return PREFIX .. ':dead:' .. letter_id end

local function dead_letter_fields(...) return redis.call('HMGET', letter_key(letter), ...) end

if letter ~= '' then
  local facts = dead_letter_fields('queue', 'failed_at', 'replayed_at', 'replayed_by')
  if not facts[1] then return { 'unknown', '', 0 } end
  -- A mark older than the failure is another job's, which had the same id.
  if facts[3] and tonumber(facts[3]) >= tonumber(facts[2]) then return { 'replayed', facts[4] or '', tonumber(facts[3]) } end
  job.queue = job.queue or facts[1]
end
if job.state and job.state ~= 'failed' and job.state ~= 'cancelled' then return { job.state, '', 0 } end
local rebuilt = not job.state or job.trimmed
if rebuilt and letter == '' then return { 'gone', '', 0 } end
if dry == '1' then return { 'ok', '', 0 } end

for _, part in ipairs({ 'failed', 'cancelled' }) do redis.call('ZREM', queue_key(job.queue, part), id) end
redis.call('ZREM', PREFIX .. ':notes', id)
local replays = tonumber(job.replays or 0) + 1
if rebuilt then
  redis.call('DEL', job_key(id)) -- with its time to live
  for index, value in ipairs(dead_letter_fields(unpack(REBUILT))) do write(id, REBUILT[index], value or '') end
  job.attempts_made = redis.call('HGET', job_key(id), 'attempts_made')
  replays = tonumber(job.attempts_made) -- how many there were is lost; each was followed by an attempt, so this one is new
  redis.call('SADD', PREFIX .. ':queues', job.queue)
end
redis.call('HDEL', job_key(id), unpack(STALE))
job.priority = priority
local fields, parts = message_fields(message)
place(job, now, 0, 'tail', 'token', '', 'priority', priority, 'nesting', nesting, 'replays', replays, 'due_at', now, unpack(fields))
drop_rest(id, parts)
for _, marked in ipairs({ letter, 'dlq-' .. job.queue .. '-' .. id .. '-' .. (job.attempts_made or 0) }) do
  if redis.call('EXISTS', letter_key(marked)) == 1 then
    redis.call('HSET', letter_key(marked), 'replayed_at', now, 'replayed_by', by)
  end
end
local told = record(id, 'queue', 'name', 'correlation_id', 'attempts_started')
return { 'ok', '', 0, aside(told, job.state or '', 'waiting', 'replayed') }

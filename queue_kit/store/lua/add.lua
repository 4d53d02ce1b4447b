-- add: a new job, waiting or delayed; or the next part of a job that replaced itself.
-- Arguments: prefix, id, queue, name, priority (0..9), message (opaque), delay_ms (from now) or '', due_at (ms) or '',
--   expires_at (ms) or '', nesting (how often the job has replaced itself), correlation_id or ''.
-- Keys: job record (hash), queue's wait or delayed (zset), meta (hash), wake (list), events (stream), queues (set).
-- Returns { outcome, state }: `added`; `continued` (the id has replaced itself and not ended; counters stay);
--   `duplicated` (the id is there already, its first message kept), with the state found.
-- The only script that does not work when memory is full: nothing is half-written, the caller gets Redis's own error.

local _, id, queue, name, priority, message, delay, instant, expires_at, nesting, correlation_id = unpack(ARGV)
local now = now_ms()
local job = record(id, 'state', 'queue', 'token', 'nesting')
local live = job.state == 'waiting' or job.state == 'delayed' or job.state == 'active'

if job.state and not (live and tonumber(nesting) > tonumber(job.nesting or 0)) then
  event(job.queue or queue, 'duplicated', id)
  return { 'duplicated', job.state }
end

local fields = { 'name', name, 'message', message, 'nesting', nesting }
local function note(field, value)
  if value ~= '' then fields[#fields + 1], fields[#fields + 2] = field, value end
end
note('priority', priority)
note('expires_at', expires_at)
note('correlation_id', correlation_id)
if job.state then
  for _, part in ipairs({ 'wait', 'reserved', 'active', 'delayed' }) do redis.call('ZREM', queue_key(job.queue, part), id) end
  note('moved', job.token or '')
  fields[#fields + 1], fields[#fields + 2] = 'token', ''
else
  note('added_at', now)
  event(queue, 'added', id, 'name', name)
  count(queue, name, 'enqueued')
end

local outcome = job.state and 'continued' or 'added'
job.queue, job.priority = queue, priority
local state = place(job, now, due_at(now, delay, instant), 'tail', unpack(fields))
redis.call('SADD', PREFIX .. ':queues', queue)
return { outcome, state }

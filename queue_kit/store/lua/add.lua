-- add: a new job, waiting or delayed; or the next part of a job that replaced itself.
-- Arguments: prefix, id, queue, name, priority (0..9), message (opaque), delay_ms (from now) or '', due_at (ms) or '',
--   expires_at (ms) or '', nesting (how often the job has replaced itself), correlation_id or '', deduplication key or '',
--   its mode (`ttl`, `until_finished`, `extend`, `replace`, `keep_last`), its ttl_ms or ''.
-- Keys: job record (hash), queue's wait or delayed (zset), meta (hash), wake (list), events (stream), queues (set), the
--   deduplication key (hash: id of the job that holds it, mode, last state, what comes next).
-- Returns { outcome, state, id }: `added`; `continued` (the id has replaced itself and not ended; counters stay);
--   `duplicated` (the id is there already, its first message kept), with the state found; a job that replaced itself after
--   it was asked to stop ends here, as `cancelled`; `deduplicated` (another job holds the key), with its id and state.
-- A new job is the only thing that is refused when memory is full: nothing is half-written, the caller gets Redis's own error.

local _, id, queue, name, priority, message, delay, instant, expires_at, nesting, correlation_id, key, mode, ttl = unpack(ARGV)
local now = now_ms()
local due = due_at(now, delay, instant)
local job = record(id, 'state', 'queue', 'name', 'token', 'moved', 'nesting', 'cancel')
local live = job.state == 'waiting' or job.state == 'delayed' or job.state == 'active'

if job.state and not (live and tonumber(nesting) > tonumber(job.nesting or 0)) then
  open_when_full()
  event(job.queue or queue, 'duplicated', id)
  return { 'duplicated', job.state, id }
end

local fields = { 'message', message, 'nesting', nesting }
local function note(field, value)
  if value ~= '' then fields[#fields + 1], fields[#fields + 2] = field, value end
end
note('expires_at', expires_at)
note('correlation_id', correlation_id)
note('dedup', key)

-- Where the job was when its canvas had ended: running still, reserved, waiting for a rerun, or replaced.
if job.state then
  local left = job.queue
  for _, part in ipairs({ 'wait', 'reserved', 'active', 'delayed' }) do redis.call('ZREM', queue_key(left, part), id) end
  redis.call('HDEL', job_key(id), 'expires_at', 'canvas_failed')
  if (job.token or '') ~= '' then write(id, 'token', '', 'moved', remembered(job)) end
  if job.cancel then
    leave_note(id, now)
    return { 'duplicated', cancelled(job, now, job.cancel), id }
  end
  job.queue, job.priority = queue, priority
  local state = place(job, now, due, 'tail', 'name', name, 'priority', priority, unpack(fields))
  redis.call('SADD', PREFIX .. ':queues', queue)
  slot_freed(left, now)
  return { 'continued', state, id }
end

local sent = { id = id, queue = queue, name = name, priority = priority, message = message, key = key, mode = mode, ttl = ttl }
local found = holder(key)
if found then
  open_when_full()
  yield_to(found, sent, now, due, fields)
  return { 'deduplicated', found.state, found.id }
end
hold(key, id, mode, ttl)
return { 'added', new_job(sent, now, due, fields), id }

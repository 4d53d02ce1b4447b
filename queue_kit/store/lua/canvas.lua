-- What becomes of a job whose run has replaced itself by a canvas, when that comes back to it. The loader puts this file
-- before add.

-- Where the job was when its canvas had ended: running still, reserved, waiting for a rerun, or replaced.
local function continue_replaced(job, now, due, queue, name, priority, fields, parts)
  local left = job.queue
  for _, part in ipairs({ 'wait', 'reserved', 'active', 'delayed' }) do redis.call('ZREM', queue_key(left, part), job.id) end
  redis.call('HDEL', job_key(job.id), 'expires_at', 'canvas_failed')
  if (job.token or '') ~= '' then write(job.id, 'token', '', 'moved', remembered(job)) end
  if job.cancel then
    leave_note(job.id, now)
    return { 'duplicated', cancelled(job, now, job.cancel), job.id }
  end
  job.queue, job.priority = queue, priority
  fields[#fields + 1], fields[#fields + 2] = 'due_at', math.max(due, now)
  local state = place(job, now, due, 'tail', 'name', name, 'priority', priority, unpack(fields))
  drop_rest(job.id, parts)
  redis.call('SADD', PREFIX .. ':queues', queue)
  slot_freed(left, now)
  return { 'continued', state, job.id }
end

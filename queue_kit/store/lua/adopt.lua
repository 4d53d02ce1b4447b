-- adopt: a message that stock Celery has -> a new job, waiting or delayed. It is taken away and added by one script, so that
-- no kill comes between the two.
-- Arguments: prefix, source (a list of messages, or the hash of those that stock workers hold), tag ('' for a list; else the
--   field of the hash), index (the sorted set beside that hash, or ''), content (the message as it lies there), id, queue,
--   name, priority (0..9), message (opaque), due_at (ms) or '', expires_at (ms) or '', nesting, correlation_id.
-- Keys: the source and its index; job record (hash), queue's wait or delayed (zset), meta, wake, events, queues (set).
-- Returns `waiting` or `delayed`; `duplicated` (its id is a job of this queue already, which stays as it is); `gone` (somebody
--   else has taken the message).
-- One id in two queues is two messages: the second one's job gets an id that follows from the first, as with any other send.

local _, source, tag, index, content, id, queue, name, priority, message, instant, expires_at, nesting, correlation_id = unpack(ARGV)
open_when_full()
local now = now_ms()

local function taken_away()
  if tag == '' then return redis.call('LREM', source, -1, content) == 1 end
  if redis.call('HGET', source, tag) ~= content then return false end
  redis.call('ZREM', index, tag)
  return redis.call('HDEL', source, tag) == 1
end

local fields, parts = fields_of(message, nesting, expires_at, correlation_id)

if not taken_away() then return 'gone' end
local due = due_at(now, '', instant)
local job = record(id, 'state', 'queue', 'token', 'moved', 'nesting', 'cancel')
local live = job.state == 'waiting' or job.state == 'delayed' or job.state == 'active'
if live and tonumber(nesting) > tonumber(job.nesting or 0) then
  return continue_replaced(job, now, due, queue, name, priority, fields, parts)[2]
end
if job.state and job.queue ~= queue then
  id = id .. '@' .. queue
  job = record(id, 'state')
end
if job.state then
  count(queue, name, 'duplicated')
  event(queue, 'duplicated', id)
  return 'duplicated'
end
return new_job({ id = id, queue = queue, name = name, priority = priority }, now, due, fields)

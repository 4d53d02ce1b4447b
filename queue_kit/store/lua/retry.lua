-- retry: active -> delayed, or waiting (tail) if the delay is 0. Also what a run publishes under its own id.
-- Arguments: prefix, id, token, delay_ms or '', due_at (ms) or '', counted ('1': an attempt was made, '' for a job that
--   replaces itself by one task), cause, reason, then for a new message: message or '' (keep), queue, name, nesting.
-- Keys: job record (hash), the old queue's active, the new one's wait or delayed (zsets), meta, wake, notes, events.
-- Returns `delayed` or `waiting`; `cancelled` if a cancel was asked for meanwhile (its callers are told); or `moved`, `lost`,
--   `gone`.

local _, id, token, delay, instant, counted, cause, reason, message, queue, name, nesting = unpack(ARGV)
open_when_full()
local now = now_ms()
local job, why = held(id, token)
if not job then return why end
local due = due_at(now, delay, instant)
let_go(job)
if counted == '1' then
  attempt(job, now, cause, reason)
  write(id, 'reason', reason)
else
  remember_run(job, now, 'replaced')
end
if job.cancel then
  leave_note(id, now)
  return cancelled(job, now, job.cancel)
end
if counted == '1' then count(job.queue, job.name, 'retrying') end
local left = job.queue
if message ~= '' then
  local fields, parts = message_fields(message)
  write(id, 'name', name, 'nesting', nesting, unpack(fields))
  drop_rest(id, parts)
  job.queue = queue
  redis.call('SADD', PREFIX .. ':queues', queue)
end
local state = place(job, now, due, 'tail', 'due_at', math.max(due, now))
slot_freed(left, now)
return state

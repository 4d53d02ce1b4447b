-- release: active -> delayed (snooze), or waiting (given back, rate limited, shutdown); no attempt is counted.
-- A reserved job only loses its lease: back to the head, no event, no counter.
-- Arguments: prefix, id, token, side (`head` or `tail`), delay_ms ('' for none), hold_ms (hold the whole queue off, or ''),
--   reason (for the history).
-- Keys: job record (hash), queue's active or reserved, wait or delayed (zsets), meta, wake, notes, events.
-- Returns `delayed` or `waiting`; `cancelled` if a cancel was asked for meanwhile (its callers are told); or `moved`, `lost`,
--   `gone`.

local _, id, token, side, delay, hold, reason = unpack(ARGV)
open_when_full()
local now = now_ms()
local job, why = held(id, token)
if not job then return why end
let_go(job)
if hold ~= '' then -- the longest of several asked for
  local held_until = math.max(now + tonumber(hold), tonumber(redis.call('HGET', queue_key(job.queue, 'meta'), 'held_until') or 0))
  redis.call('HSET', queue_key(job.queue, 'meta'), 'held_until', held_until)
end
if job.state ~= 'active' then
  to_wait(id, job.queue, job.priority, 'head')
  return 'waiting'
end
remember_run(job, now, 'released', reason)
if job.cancel then
  leave_note(id, now)
  return cancelled(job, now, job.cancel)
end
local due = math.max(now, due_at(now, delay, ''))
local state = place(job, now, due, side, 'due_at', due)
slot_freed(job.queue, now)
return state

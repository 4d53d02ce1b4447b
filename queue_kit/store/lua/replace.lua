-- replace: a run that replaced itself by a canvas ends; the job stays `waiting` without a lease and in no list, held by
-- the token `replaced`, until the canvas adds its id again or a step of it fails for good.
-- Arguments: prefix, id, token, dead_max (dead letters that the queue keeps).
-- Keys: job record (hash), queue's active (zset), notes, dead letters, events.
-- Returns `ok`; `cancelled` if a cancel was asked for meanwhile (what the canvas still adds under the id is a duplicate);
--   `failed` if a step of the canvas has failed for good already; or `moved` (the canvas was quicker), `lost`, `gone`.

local _, id, token, dead_max = unpack(ARGV)
open_when_full()
local now = now_ms()
local job, why = held(id, token)
if not job then return why end
let_go(job)
remember_run(job, now, 'replaced')
if job.cancel then
  leave_note(id, now)
  return cancelled(job, now, job.cancel)
end
local seen = record(id, 'canvas_failed', 'nesting')
local failure = cjson.decode(seen.canvas_failed or '{}')
if failure.nesting == tonumber(seen.nesting or 0) + 1 then
  failure.stack, failure.exhausted = '', ''
  leave_note(id, now)
  failed(job, now, tonumber(dead_max), failure)
  return 'failed'
end
write(id, 'state', 'waiting', 'token', 'replaced')
slot_freed(job.queue, now)
return 'ok'

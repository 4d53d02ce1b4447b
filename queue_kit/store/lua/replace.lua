-- replace: a run that replaced itself by a canvas ends; the job stays `waiting` without a lease and in no list, held by
-- the token `replaced`, until the canvas adds its id again or a step of it fails for good.
-- Arguments: prefix, id, token.
-- Keys: job record (hash), queue's active (zset), notes, events.
-- Returns `ok`; `cancelled` if a cancel was asked for meanwhile (what the canvas still adds under the id is a duplicate); or
--   `moved` (the canvas was quicker), `lost`, `gone`.

local _, id, token = unpack(ARGV)
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
write(id, 'state', 'waiting', 'token', 'replaced')
slot_freed(job.queue, now)
return 'ok'

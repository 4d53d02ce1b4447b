-- replace: a run that replaced itself by a canvas ends; the job stays `waiting` without a lease and in no list, held by
-- the token `replaced`, until the canvas adds its id again or a step of it fails for good.
-- Arguments: prefix, id, token.
-- Keys: job record (hash), queue's active (zset).
-- Returns `ok`, or `moved` (the canvas was quicker), `lost`, `gone`.

local _, id, token = unpack(ARGV)
open_when_full()
local now = now_ms()
local job, why = held(id, token)
if not job then return why end
let_go(job)
write(id, 'state', 'waiting', 'token', 'replaced')
slot_freed(job.queue, now)
return 'ok'

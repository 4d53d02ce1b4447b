-- progress: a run says how far it has come.
-- Arguments: prefix, id, token, value (JSON).
-- Keys: job record (hash), events (stream).
-- Returns `ok`, or `moved`, `lost`, `gone`.

local _, id, token, value = unpack(ARGV)
open_when_full()
local job, why = held(id, token)
if not job then return why end
write(id, 'progress', value)
event(job.queue, 'progress', id, 'value', value)
return 'ok'

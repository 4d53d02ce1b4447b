-- keep: a run keeps what its function has returned in its job's record, for as long as that is kept.
-- Arguments: prefix, id, token, value (JSON).
-- Keys: job record (hash).
-- Returns `ok`, or `moved`, `lost`, `gone`.

local _, id, token, value = unpack(ARGV)
open_when_full()
local job, why = held(id, token)
if not job then return why end
write(id, 'result', value)
return 'ok'

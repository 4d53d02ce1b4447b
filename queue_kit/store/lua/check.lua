-- check: whether a token still holds its job; asked by a run that has lasted nearly its lease or has failed, before it stores
--   anything.
-- Arguments: prefix, id, token. Keys: job record (hash), queue's active (zset).
-- Returns `ok`, `cancel:<cause>` (held, but the run should stop), or `moved`, `lost`, `gone`. A lease that ran out and is unreaped counts as held: nobody else has the job.

local _, id, token = unpack(ARGV)
local job, why = held(id, token)
if not job then return why end
return job.cancel and 'cancel:' .. job.cancel or 'ok'

-- check: whether a token still holds its job; asked by a run that has lasted nearly its lease, before it stores anything.
-- Arguments: prefix, id, token. Keys: job record (hash), queue's active (zset).
-- Returns `ok`, or `moved`, `lost`, `gone`. A lease that ran out and is unreaped counts as held: nobody else has the job.

local _, id, token = unpack(ARGV)
local job, why = held(id, token)
return job and 'ok' or why

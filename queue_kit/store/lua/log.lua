-- log: a run writes a line into its job's own log, which keeps the last thousand over all runs.
-- Arguments: prefix, id, token, line.
-- Keys: job record (hash), its log (list of JSON).
-- Returns `ok`, or `moved`, `lost`, `gone`.

local LINES_KEPT = 1000

local _, id, token, line = unpack(ARGV)
open_when_full()
local job, why = held(id, token)
if not job then return why end
redis.call('RPUSH', job_key(id) .. ':log', cjson.encode({ at = now_ms(), attempt = tonumber(job.attempts_started), line = line }))
redis.call('LTRIM', job_key(id) .. ':log', -LINES_KEPT, -1)
return 'ok'

-- fail: active -> failed, with its dead letter.
-- Arguments: prefix, id, token, dead_max (dead letters that the queue keeps), cause, reason, error_class, stack,
--   exhausted ('1' when attempts ran out on a retryable cause), tell ('1': nobody has told its callers yet), nesting (of the
--   canvas whose step has failed, or 0).
-- Keys: job record (hash), queue's active and failed (zsets), dead letters, notes, events.
-- Returns { outcome, trouble }: `ok`, `cancelled` (a cancel was asked for), `moved`, `lost`, `gone`; trouble: what kept the
--   dead letter from being written, or ''.
-- A job that replaced itself by a canvas is held by the token `replaced`. A step of the canvas may have failed before the run
-- that sent it is settled: that is noted (answer `later`), and `replace` then fails the job.

local _, id, token, dead_max, cause, reason, error_class, stack, exhausted, tell, nesting = unpack(ARGV)
open_when_full()
local now = now_ms()
local job, why = held(id, token)

-- A canvas of another nesting is not that of the latest run: it came back to the job long ago, or the job is no more than the
-- next step of a chain.
local function its_own_canvas() return tonumber(nesting) == tonumber(record(id, 'nesting').nesting or 0) + 1 end

if job and token == 'replaced' and nesting ~= '0' and not its_own_canvas() then return { 'moved', '' } end
if not job then
  local state = record(id, 'state').state
  local live = state == 'active' or state == 'waiting' or state == 'delayed'
  if token ~= 'replaced' or not live or not its_own_canvas() then return { why, '' } end
  write(id, 'canvas_failed', cjson.encode({ cause = cause, reason = brief(reason), error_class = error_class,
    nesting = tonumber(nesting) }))
  return { 'later', '' }
end
let_go(job)
if tell == '1' then leave_note(id, now) end
if job.cancel then
  attempt(job, now, cause, reason)
  return { cancelled(job, now, job.cancel), '' }
end
return { 'ok', failed(job, now, tonumber(dead_max),
  { cause = cause, reason = reason, error_class = error_class, stack = stack, exhausted = exhausted }) }

-- stall: active -> waiting (head of its priority), or past the limit -> failed. For one job whose worker is known to be
-- lost while its parent lives; `reap` does the same for leases that ran out.
-- Arguments: prefix, id, token, max_stalled, dead_max (dead letters that the queue keeps).
-- Keys: job record (hash), queue's active or reserved, wait or failed (zsets), dead letters, notes, events.
-- Returns { outcome, trouble }: `waiting`, `failed`, `cancelled`, `released` (it had not begun), `moved`, `lost`, `gone`;
--   trouble: what kept the dead letter from being written, or ''.

local _, id, token, max_stalled, dead_max = unpack(ARGV)
open_when_full()
local now = now_ms()
local job, why = held(id, token)
if not job then return { why, '' } end
let_go(job)
local outcome, trouble = stall(job, now, tonumber(max_stalled), tonumber(dead_max))
return { outcome, trouble }

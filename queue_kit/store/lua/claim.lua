-- claim: waiting -> active, for as many jobs as the worker has room for; due delayed jobs are promoted on the way.
-- Arguments: prefix, worker, token (base of this claim's tokens), lease_ms, limit (most to take), begin (how many of them
--   begin at once; the rest are reserved: leased, still waiting; of a queue with a limit none is), suspects (how many
--   stalled jobs may be taken now), max_stalled, traits (JSON objects `once`, `reserve`: names of tasks; `avoid`: ids not
--   to take), the queues in order.
-- Keys: recalled marks (strings); per queue meta (hash), delayed, wait, reserved, active (zsets), wake (list), events (stream);
--   job records (hashes).
-- Returns { wait_ms, asides, job, job, ... }: how long until something is due by the clock (-1: nothing is); what came due or
--   had expired on the way (see `aside`); then for each job { id, queue, token, begun, message, attempts_started, attempts_made,
--   stalled_count, expires_at or '', replays, waited_ms, name }.

local HANDED_ON_MS = 1000 -- no idle worker waits longer before it claims again, and learns of what is due later

local _, worker, base, lease_ms, limit, begin, suspects, max_stalled, traits = unpack(ARGV)
open_when_full()
if redis.call('EXISTS', recalled_key(base), recalled_key(worker)) > 0 then return { 0, asides } end -- nobody waits for the answer
local now = now_ms()
limit = tonumber(limit)
local visit = { now = now, worker = worker, base = base, lease_end = now + tonumber(lease_ms), begin = tonumber(begin),
  suspects = tonumber(suspects), max_stalled = tonumber(max_stalled), traits = cjson.decode(traits), taken = {} }
local soonest = -1

local function due_in(ms)
  if ms and ms < math.huge and (soonest < 0 or ms < soonest) then soonest = math.max(0, math.ceil(ms)) end
end

local function visit_queue(queue)
  promote_due(queue, now)
  local room, had = gate(queue, now), #visit.taken
  if rules_of(queue).concurrency or rules_of(queue).rate_max then room = math.min(room, visit.begin) end
  local left, enough = drain(visit, queue, math.min(limit - #visit.taken, room))
  if enough then due_in(0) end
  return left and #visit.taken > had
end

-- A worker that still has room comes back in time by itself, and tells others only of what it may not take (if it took
-- something: else two workers that both may not would wake each other for ever). A full one hands the watch on.
local function hand_on(queue, left)
  local open, closed_ms = gate(queue, now)
  local waiting = redis.call('ZCARD', queue_key(queue, 'wait')) > 0
  local first = redis.call('ZRANGE', queue_key(queue, 'delayed'), '0', '0', 'WITHSCORES')[2]
  local full = #visit.taken >= limit
  if not full then
    if waiting then due_in(closed_ms) else redis.call('DEL', queue_key(queue, 'wake')) end
    due_in(first and first - now)
  end
  if waiting and (open > 0 and (full or left) or full and closed_ms) then wake(queue) end
  if full and first and first - now < HANDED_ON_MS then wake(queue) end
end

for index = 10, #ARGV do
  local queue, full = ARGV[index], #visit.taken >= limit
  local due_ms = not full and nothing_in(queue, now)
  if due_ms then due_in(due_ms) else hand_on(queue, not full and visit_queue(queue)) end
end
table.insert(visit.taken, 1, soonest)
table.insert(visit.taken, 2, asides)
return visit.taken

-- abandon: all that one worker has leased goes back as stalls, since it is known for certain that this worker is dead (or has
-- left in order: then nothing is leased). Whoever knows it may say so, any number of times. A claim of that worker's that is
-- still on its way takes nothing when it gets here. Of one that is only inferred to be dead it does: it may live, and go on.
-- Arguments: prefix, nonce, max_stalled, dead_max (dead letters that a queue keeps), batch (most leases handled in one call),
--   heard_at ('' if it is certain; else the last word it is inferred from: nothing is done if it has been heard again).
-- Keys: recalled mark (string), queues (set), per queue active and reserved (zsets: one entry for each job that runs somewhere),
--   all that `stall` touches; roster (see `enrol`).
-- The tokens are not remembered as moved, as in `reap`.
-- Returns a list of { id, queue, outcome, worker, trouble, name, correlation_id, attempts_started }; as many as a batch: there may be more.

local _, worker, max_stalled, dead_max, batch, heard_at = unpack(ARGV)
open_when_full()
local now, found = now_ms(), {}
if heard_at == '' then
  redis.call('SET', recalled_key(worker), '1', 'PX', MARK_KEPT_MS)
elseif redis.call('ZSCORE', HEARD, worker) ~= heard_at or listeners(worker) > 0 then
  return found
end

-- Newest first: each goes to the head, so the one that has waited longest ends up in front.
local function sweep(queue, part)
  for _, id in ipairs(redis.call('ZRANGE', queue_key(queue, part), 0, -1, 'REV')) do
    if #found >= tonumber(batch) then return end
    local token = redis.call('HGET', job_key(id), 'token') or ''
    if string.sub(token, 1, #worker + 1) == worker .. '.' then
      local job = record(id, 'state', 'queue', 'name', 'priority', 'cancel', 'worker', 'started_at', 'once',
        'attempts_started', 'correlation_id')
      redis.call('ZREM', queue_key(queue, part), id)
      write(id, 'token', '')
      local outcome, trouble = stall(job, now, tonumber(max_stalled), tonumber(dead_max))
      found[#found + 1] = { id, queue, outcome, worker, trouble, job.name or '', job.correlation_id or id, job.attempts_started or '0' }
    end
  end
end

for _, queue in ipairs(redis.call('SMEMBERS', PREFIX .. ':queues')) do
  sweep(queue, 'active')
  sweep(queue, 'reserved')
end
if #found < tonumber(batch) then strike_worker(worker) end
return found

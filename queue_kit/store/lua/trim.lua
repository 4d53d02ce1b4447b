-- trim: the oldest records of a final state -> gone. The id stays known for a while, so that a late duplicate is seen.
-- Arguments: prefix, queue, state (`completed`, `failed`, `cancelled`), keep (records to keep), age_ms (records that ended
--   longer ago go, whatever their number), known_ms (how long the id stays known), batch (most in one call).
-- Keys: queue's final zset, job records (hashes), their runs and logs (lists), notes (zset).
-- Returns how many records went. One whose callers have still to be told stays until they are.

local _, queue, state, keep, age_ms, known_ms, batch = unpack(ARGV)
open_when_full()
local key, gone = queue_key(queue, state), 0
local excess = redis.call('ZCARD', key) - tonumber(keep)
local aged = redis.call('ZCOUNT', key, '-inf', '(' .. now_ms() - tonumber(age_ms))
local going = math.min(math.max(excess, aged), tonumber(batch))
if going < 1 then return 0 end
for _, id in ipairs(redis.call('ZRANGE', key, 0, going - 1)) do
  if not redis.call('ZSCORE', PREFIX .. ':notes', id) then
    redis.call('ZREM', key, id)
    local dedup = redis.call('HGET', job_key(id), 'dedup')
    if dedup and redis.call('HGET', dedup, 'id') == id then redis.call('HSET', dedup, 'state', state) end
    redis.call('DEL', job_key(id), job_key(id) .. ':runs', job_key(id) .. ':log')
    write(id, 'state', state, 'queue', queue, 'trimmed', '1')
    if dedup then write(id, 'dedup', dedup) end
    redis.call('PEXPIRE', job_key(id), known_ms)
    gone = gone + 1
  end
end
return gone

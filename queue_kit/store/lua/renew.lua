-- renew: active -> active; the leases that one worker holds last a whole term from now.
-- Arguments: prefix, lease_ms, grace_ms (how long after its end an unreaped lease may be taken back), then id, token pairs.
-- Keys: job records (hashes), queues' active and reserved (zsets).
-- Returns a word for each pair, in order: `ok`; `cancel:<cause>` (renewed, but the run should stop); `moved` (its own
--   publish took the job on); `lost` (another holds it, or the lease ran out too long ago); `gone`.

open_when_full()
local now, lease_ms, grace_ms = now_ms(), tonumber(ARGV[2]), tonumber(ARGV[3])
local answers = {}
for index = 4, #ARGV, 2 do
  local job, answer = held(ARGV[index], ARGV[index + 1])
  if job then
    local key = queue_key(job.queue, job.state == 'active' and 'active' or 'reserved')
    local lease_end = redis.call('ZSCORE', key, job.id)
    answer = 'lost'
    if lease_end and lease_end + grace_ms > now then
      redis.call('ZADD', key, now + lease_ms, job.id)
      answer = job.cancel and 'cancel:' .. job.cancel or 'ok'
    end
  end
  answers[#answers + 1] = answer
end
return answers

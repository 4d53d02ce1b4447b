-- add_many: new jobs that differ in id and message alone, waiting or delayed, each as `add` would make it.
-- Arguments: prefix, queue, name, priority (0..9), delay_ms (from now) or '', due_at (ms) or '', expires_at (ms) or '', nesting,
--   correlation_id or '', then id and message of each.
-- Keys: job records (hashes), queue's wait or delayed (zset), meta (hash), wake (list), events (stream), queues (set).
-- Returns the state of each; '' where the id is known already: what that means, `add` says.
-- Refused as a whole when memory is full.

local _, queue, name, priority, delay, instant, expires_at, nesting, correlation_id = unpack(ARGV, 1, 9)
local now, states = now_ms(), {}
local due = due_at(now, delay, instant)

for index = 10, #ARGV, 2 do
  local id, state = ARGV[index], ''
  if redis.call('EXISTS', job_key(id)) == 0 then
    local fields = fields_of(ARGV[index + 1], nesting, expires_at, correlation_id)
    state = new_job({ id = id, queue = queue, name = name, priority = priority }, now, due, fields)
  end
  states[#states + 1] = state
end
return states

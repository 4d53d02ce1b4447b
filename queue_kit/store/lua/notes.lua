-- notes: take a few notes about jobs that ended outside their run, to tell whoever waits for them. A note stays until it is
-- struck out; one whose teller died comes up again.
-- Arguments: prefix, most, again_ms (when a note comes up again if it is not struck out).
-- Keys: notes (zset), job records (hashes).
-- Returns a list of { id, state, cause, reason, message, name, queue }.

local _, most, again_ms = unpack(ARGV)
open_when_full()
local now, found, key = now_ms(), {}, PREFIX .. ':notes'
for _, id in ipairs(redis.call('ZRANGE', key, '-inf', now, 'BYSCORE', 'LIMIT', 0, most)) do
  redis.call('ZADD', key, now + tonumber(again_ms), id)
  local job = record(id, 'state', 'cause', 'reason', 'name', 'queue')
  found[#found + 1] = { id, job.state or '', job.cause or '', job.reason or '', message_of(id), job.name or '', job.queue or '' }
end
return found

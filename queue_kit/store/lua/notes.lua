-- notes: take a few notes about jobs that ended outside their run, to tell whoever waits for them. A note stays until it is
-- struck out; one whose teller died comes up again.
-- Arguments: prefix, most, again_ms (when a note comes up again if it is not struck out), mark (1 to 2047: who takes them; the
--   fraction of their scores says so), lost ('1': what this teller has taken before has never reached it; it comes up now).
-- Keys: notes (zset), job records (hashes).
-- Returns a list of { id, state, cause, reason, message, name, queue }.

local _, most, again_ms, mark, lost = unpack(ARGV)
open_when_full()
local now, found, key = now_ms(), {}, PREFIX .. ':notes'
local mine = tonumber(mark) / 2048
if lost == '1' then
  local taken = redis.call('ZRANGE', key, '(' .. now, '+inf', 'BYSCORE', 'WITHSCORES')
  for at = 2, #taken, 2 do
    if tonumber(taken[at]) % 1 == mine then redis.call('ZADD', key, now, taken[at - 1]) end
  end
end
for _, id in ipairs(redis.call('ZRANGE', key, '-inf', now, 'BYSCORE', 'LIMIT', 0, most)) do
  redis.call('ZADD', key, now + tonumber(again_ms) + mine, id)
  local job = record(id, 'state', 'cause', 'reason', 'name', 'queue')
  found[#found + 1] = { id, job.state or '', job.cause or '', job.reason or '', message_of(id), job.name or '', job.queue or '' }
end
return found

-- look: a worker that can be heard says that it lives, and sees which others have been silent for a while.
-- Arguments: prefix, nonce, silent_ms (how long a silence has to be), keep_ms (how long the last word of a silent worker stays).
-- Keys: workers:beats (zset: see `enrol`), workers:heard (zset: by nonce, the last word of those that somebody listened for then),
--   channels worker:<nonce>, on which nobody speaks: a subscription that ends tells of a process that has.
-- Returns now, then for each silent one: nonce, its last word, how many subscriptions it has.

local _, nonce, silent_ms, keep_ms = unpack(ARGV)
open_when_full()
local now = now_ms()
if redis.call('ZSCORE', BEATS, nonce) and listeners(nonce) > 0 then
  redis.call('ZADD', HEARD, now, nonce)
  redis.call('PEXPIRE', HEARD, keep_ms)
end
local found = { now }
local silent = redis.call('ZRANGE', HEARD, '-inf', now - tonumber(silent_ms), 'BYSCORE', 'WITHSCORES')
for index = 1, #silent, 2 do
  found[#found + 1] = silent[index]
  found[#found + 1] = silent[index + 1]
  found[#found + 1] = listeners(silent[index])
end
return found

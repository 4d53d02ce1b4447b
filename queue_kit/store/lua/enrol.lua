-- enrol: a worker says that it lives, and hears which others are on its kernel. Who has been silent for long is struck out;
-- when all are, the whole roster goes by itself.
-- Arguments: prefix, nonce, facts (JSON object, `kernel` in it), kernel, witness (where others on the kernel can see whether it
--   lives; '' for nowhere), keep_ms (how long a silent worker stays).
-- Keys: workers (hash: facts by nonce), workers:beats (zset: last word by nonce), kernel (hash: witness by nonce).
-- Returns a flat list of nonce, witness of the others on that kernel.

local STRUCK_AT_ONCE = '100'

local _, nonce, facts, kernel, witness, keep_ms = unpack(ARGV)
open_when_full()
local now, others = now_ms(), {}
redis.call('ZADD', BEATS, now, nonce)
redis.call('HSET', WORKERS, nonce, facts)
if witness ~= '' then redis.call('HSET', kernel_key(kernel), nonce, witness) end
for _, silent in ipairs(redis.call('ZRANGE', BEATS, '-inf', now - tonumber(keep_ms), 'BYSCORE', 'LIMIT', '0', STRUCK_AT_ONCE)) do
  strike_worker(silent)
end
for _, key in ipairs({ BEATS, WORKERS, kernel_key(kernel) }) do redis.call('PEXPIRE', key, keep_ms) end
local all = witness ~= '' and redis.call('HGETALL', kernel_key(kernel)) or {}
for index = 1, #all, 2 do
  if all[index] ~= nonce then
    others[#others + 1] = all[index]
    others[#others + 1] = all[index + 1]
  end
end
return others

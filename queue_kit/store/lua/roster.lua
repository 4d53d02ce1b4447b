-- Who is on the roster of workers. The loader puts this file before enrol and abandon.

local WORKERS, BEATS = PREFIX .. ':workers', PREFIX .. ':workers:beats'

-- Of the workers on one kernel: where each can be seen to live.
local function kernel_key(kernel) return PREFIX .. ':kernel:' .. kernel end

local function strike_worker(nonce)
  local facts = redis.call('HGET', WORKERS, nonce)
  if facts then redis.call('HDEL', kernel_key(cjson.decode(facts).kernel), nonce) end
  redis.call('HDEL', WORKERS, nonce)
  redis.call('ZREM', BEATS, nonce)
end

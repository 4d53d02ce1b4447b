-- Who is on the roster of workers. The loader puts this file before enrol, look and abandon.

local WORKERS, BEATS, HEARD = PREFIX .. ':workers', PREFIX .. ':workers:beats', PREFIX .. ':workers:heard'

-- Of the workers on one kernel: where each can be seen to live.
local function kernel_key(kernel) return PREFIX .. ':kernel:' .. kernel end

-- How many subscriptions a worker has open, its own and its warden's.
local function listeners(nonce) return redis.call('PUBSUB', 'NUMSUB', PREFIX .. ':worker:' .. nonce)[2] end

local function strike_worker(nonce)
  local readable, facts = pcall(cjson.decode, redis.call('HGET', WORKERS, nonce) or '')
  local kernel = readable and type(facts) == 'table' and facts.kernel
  if type(kernel) == 'string' then redis.call('HDEL', kernel_key(kernel), nonce) end
  redis.call('HDEL', WORKERS, nonce)
  redis.call('ZREM', BEATS, nonce)
  redis.call('ZREM', HEARD, nonce)
end

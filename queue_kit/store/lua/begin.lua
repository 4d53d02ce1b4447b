-- begin: a reserved job (leased, still waiting) becomes active, just before it reaches the pool.
-- Arguments: prefix, id, token, once ('1': the task runs at most once, else '').
-- Keys: job record (hash), queue's reserved and active (zsets), events (stream).
-- Returns { outcome, attempts_started }: `ok`, or `moved`, `lost`, `gone`; `cancelled` if it was cancelled meanwhile.

local _, id, token, once = unpack(ARGV)
open_when_full()
local now = now_ms()
local job, why = held(id, token)
if not job then return { record(id, 'state').state == 'cancelled' and 'cancelled' or why, 0 } end
if job.state == 'active' then return { 'ok', tonumber(job.attempts_started) } end
local lease_end = redis.call('ZSCORE', queue_key(job.queue, 'reserved'), id)
if not lease_end then return { 'lost', 0 } end
redis.call('ZREM', queue_key(job.queue, 'reserved'), id)
redis.call('ZADD', queue_key(job.queue, 'active'), lease_end, id)
return { 'ok', begin_run(job, token, job.worker, now, once == '1') }

-- begin: a reserved job (leased, still waiting) becomes active, just before it reaches the pool.
-- Arguments: prefix, id, token, once ('1': the task runs at most once, else '').
-- Keys: job record (hash), queue's reserved, active and wait (zsets), meta, rate (string), wake, events (stream).
-- Returns { outcome, attempts_started }: `ok`, or `moved`, `lost`, `gone`; `cancelled` if it was cancelled meanwhile; `closed`
--   if its queue gives out nothing any more (paused, held off, at a limit that was set meanwhile): it waits again, at the head.

local _, id, token, once = unpack(ARGV)
open_when_full()
local now = now_ms()
local job, why = held(id, token)
if not job then return { record(id, 'state').state == 'cancelled' and 'cancelled' or why, 0 } end
if job.state == 'active' then return { 'ok', tonumber(job.attempts_started) } end
local lease_end = redis.call('ZSCORE', queue_key(job.queue, 'reserved'), id)
if not lease_end then return { 'lost', 0 } end
local most = rules_of(job.queue).concurrency
if starts_left(job.queue, now) < 1 or most and redis.call('ZCARD', queue_key(job.queue, 'active')) >= most then
  let_go(job)
  to_wait(id, job.queue, job.priority, 'head')
  return { 'closed', 0 }
end
redis.call('ZREM', queue_key(job.queue, 'reserved'), id)
redis.call('ZADD', queue_key(job.queue, 'active'), lease_end, id)
return { 'ok', begin_run(job, token, job.worker, now, once == '1') }

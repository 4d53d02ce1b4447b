-- remove: any but active -> gone, with its history; the deduplication key that it holds is free.
-- Arguments: prefix, id.
-- Keys: job record (hash), its runs and log (lists), all zsets of its queue, events.
-- Returns `ok`, `gone`, or `active` (it runs or is reserved: cancel it first).

local _, id = unpack(ARGV)
open_when_full()
local job = record(id, 'state', 'queue', 'token', 'dedup')
if not job.state then return 'gone' end
if job.state == 'active' or redis.call('ZSCORE', queue_key(job.queue, 'reserved'), id) then return 'active' end
for _, part in ipairs({ 'wait', 'delayed', 'completed', 'failed', 'cancelled' }) do
  redis.call('ZREM', queue_key(job.queue, part), id)
end
redis.call('ZREM', PREFIX .. ':notes', id)
if job.dedup and redis.call('HGET', job.dedup, 'id') == id then redis.call('DEL', job.dedup) end
redis.call('DEL', job_key(id), job_key(id) .. ':runs', job_key(id) .. ':log')
event(job.queue, 'removed', id, 'prev', job.state)
slot_freed(job.queue, now_ms())
return 'ok'

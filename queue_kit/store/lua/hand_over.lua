-- hand_over: waiting or delayed -> a message in a list of stock Celery's; the job is gone here, with its history. By one
-- script, so that no kill comes between the two.
-- Arguments: prefix, id, message (the job's, of which the content was made), list, content (what stock Celery reads).
-- Keys: job record (hash), its runs and log (lists), queue's wait and delayed (zsets), the list, events, deduplication key.
-- Returns `ok`; `gone`; `changed` (another message has taken its place: make a new content); `held` (a worker has taken it
--   ahead, or a canvas will come back to it); or the state that it is in instead.

local _, id, message, list, content = unpack(ARGV)
open_when_full()
local job = record(id, 'state', 'queue', 'token', 'dedup')
if not job.state then return 'gone' end
if job.state ~= 'waiting' and job.state ~= 'delayed' then return job.state end
if (job.token or '') ~= '' then return 'held' end
if message_of(id) ~= message then return 'changed' end
redis.call('LPUSH', list, content)
for _, part in ipairs({ 'wait', 'delayed' }) do redis.call('ZREM', queue_key(job.queue, part), id) end
if job.dedup and redis.call('HGET', job.dedup, 'id') == id then redis.call('DEL', job.dedup) end
redis.call('DEL', job_key(id), job_key(id) .. ':runs', job_key(id) .. ':log')
event(job.queue, 'removed', id, 'prev', job.state)
slot_freed(job.queue, now_ms())
return 'ok'

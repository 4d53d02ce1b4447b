-- free: a deduplication key is let go; the job that held it goes on without. A payload that waited for the end of that job
-- becomes a job at once, since nothing would bring it up any more.
-- Arguments: prefix, deduplication key, name (of the jobs that it is for).
-- Keys: the deduplication key (hash); for a payload that waited: job record (hash), queue's wait or delayed (zset), meta, wake,
--   events, queues.
-- Returns the id of the job that held it, or ''.

local _, key, name = unpack(ARGV)
open_when_full()
local owner = redis.call('HMGET', key, 'id', 'next_id', 'next_queue', 'next_priority', 'next_due', 'next_fields')
redis.call('DEL', key)
if owner[2] and not record(owner[2], 'state').state then
  local following = { id = owner[2], queue = owner[3], name = name, priority = owner[4] }
  new_job(following, now_ms(), tonumber(owner[5]), cjson.decode(owner[6]))
end
return owner[1] or ''

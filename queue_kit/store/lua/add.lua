-- add: a new job, waiting or delayed; or the next part of a job that replaced itself.
-- Arguments: prefix, id, queue, name, priority (0..9), message (opaque), delay_ms (from now) or '', due_at (ms) or '',
--   expires_at (ms) or '', nesting (how often the job has replaced itself), correlation_id or '', again ('1': this very
--   message may have been added already), deduplication key or '', its mode (`ttl`, `until_finished`, `extend`, `replace`,
--   `keep_last`), its ttl_ms or ''.
-- Keys: job record (hash), queue's wait or delayed (zset), meta (hash), wake (list), events (stream), queues (set), the
--   deduplication key (hash).
-- Returns { outcome, state, id }: `added`; `continued` (the id has replaced itself and not ended; counters stay);
--   `duplicated` (the id is there already, its first message kept), with the state found; a job that replaced itself after
--   it was asked to stop ends here, as `cancelled`; `deduplicated` (another job holds the key), with its id and state.
-- A new job, and a payload that takes another's place, are all that is refused when memory is full: nothing is half-written,
-- the caller gets Redis's own error.

local _, id, queue, name, priority, message, delay, instant, expires_at, nesting, correlation_id, again, key, mode, ttl = unpack(ARGV)
local now = now_ms()
local due = due_at(now, delay, instant)
local job = record(id, 'state', 'queue', 'name', 'token', 'moved', 'nesting', 'cancel')
local live = job.state == 'waiting' or job.state == 'delayed' or job.state == 'active'

local fields, parts = fields_of(message, nesting, expires_at, correlation_id)
if key ~= '' then fields[#fields + 1], fields[#fields + 2] = 'dedup', key end

if live and tonumber(nesting) > tonumber(job.nesting or 0) then
  return continue_replaced(job, now, due, queue, name, priority, fields, parts)
end
if job.state then
  open_when_full()
  count(queue, name, 'duplicated') -- a write in any case: whoever waits for a replica waits for the last one
  if again == '1' and message_of(id) == message then return { 'added', job.state, id } end
  event(job.queue or queue, 'duplicated', id)
  return { 'duplicated', job.state, id }
end

local found, sent = key ~= '' and holder(key), { id = id, queue = queue, name = name, priority = priority }
if not found then
  local state = new_job(sent, now, due, fields)
  if key ~= '' then take_key(key, mode, ttl, id) end
  return { 'added', state, id }
end
if mode == 'replace' and found.state == 'delayed' then
  replace_delayed(found, now, due, priority, fields, parts)
elseif mode == 'keep_last' and found.live and found.attempts_started then
  keep_for_later(key, sent, due, fields)
end
open_when_full()
if ttl ~= '' and (mode == 'extend' or mode == 'replace') and redis.call('PTTL', key) >= 0 then
  redis.call('PEXPIRE', key, ttl)
end
event(queue, 'deduplicated', found.id, 'rejected', id)
count(queue, name, 'deduplicated')
return { 'deduplicated', found.state, found.id }

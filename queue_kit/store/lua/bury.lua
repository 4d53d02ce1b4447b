-- bury: a dead letter for a job that has ended without one: it could not be written then, or the job has expired and the
-- setting asks for one. Written already, it stays as it is.
-- Arguments: prefix, id, dead_max (dead letters that the queue keeps), expired ('1': for an expired job too), reason,
--   error_class, stack (what the job's own record does not say is taken from these).
-- Keys: job record (hash), dead letters (hashes), queue's dead (zset), counts, events.
-- Returns { outcome, trouble }: `buried`; `known` (it has one); `live` (it has not ended); `none` (it ended in a way that leaves
--   none, or so long ago that it would be the next to go, or its record is gone); `unwritten`, with what kept it from being
--   written.

local _, id, dead_max, expired, reason, error_class, stack = unpack(ARGV)
open_when_full()
local job = record(id, 'state', 'queue', 'name', 'trimmed', 'finished_at', 'attempts_made', 'cause', 'reason', 'error_class')
if job.state == 'waiting' or job.state == 'delayed' or job.state == 'active' then return { 'live', '' } end
local due = job.state == 'failed' or expired == '1' and job.state == 'cancelled' and job.cause == 'expired'
if not due or job.trimmed then return { 'none', '' } end

local function known()
  local letter = 'dlq-' .. job.queue .. '-' .. id .. '-' .. (job.attempts_made or '0')
  return redis.pcall('HGET', PREFIX .. ':dead:' .. letter, 'failed_at') == job.finished_at
end

-- It may have been written, and have made room for newer ones since.
local function outdated()
  local index = queue_key(job.queue, 'dead')
  local size = redis.pcall('ZCARD', index)
  return type(size) == 'number' and size >= tonumber(dead_max)
    and tonumber(redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')[2]) >= tonumber(job.finished_at)
end

local function said(field, otherwise) return (job[field] or '') ~= '' and job[field] or otherwise end

if known() then return { 'known', '' } end
if outdated() then return { 'none', '' } end
local trouble = dead_letter(job, tonumber(job.finished_at), tonumber(dead_max), {
  cause = job.cause or 'exhausted', reason = said('reason', reason), error_class = said('error_class', error_class),
  stack = stack })
return { trouble == '' and 'buried' or 'unwritten', trouble }

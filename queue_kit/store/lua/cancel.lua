-- cancel: waiting or delayed -> cancelled; active -> flagged, unless its holder asks: then cancelled at once.
-- Arguments: prefix, id, token (the holder's, or '' for anybody else), cause (`cancelled`, `revoked`, `expired`), tell ('1':
--   the holder has told nobody).
-- Keys: job record (hash), queue's wait, delayed, reserved, active, cancelled (zsets), notes, events.
-- Returns `cancelled`; `flagged` (it runs: its token will fire); the final state it is in already; `moved`, `lost`, `gone`.

local _, id, token, cause, tell = unpack(ARGV)
open_when_full()
local now, job = now_ms(), nil
if token ~= '' then
  local why
  job, why = held(id, token)
  if not job then return why end
  let_go(job)
  if job.state == 'active' then remember_run(job, now, cause) end
  if tell == '1' then leave_note(id, now) end
  return cancelled(job, now, cause)
end
job = record(id, 'state', 'queue', 'name', 'token', 'moved')
if not job.state then return 'gone' end
if job.state == 'active' then
  write(id, 'cancel', cause)
  return 'flagged'
end
if job.state ~= 'waiting' and job.state ~= 'delayed' then return job.state end
for _, part in ipairs({ 'wait', 'reserved', 'delayed' }) do redis.call('ZREM', queue_key(job.queue, part), id) end
if (job.token or '') ~= '' then write(id, 'token', '', 'moved', remembered(job)) end
leave_note(id, now)
return cancelled(job, now, cause)

-- recall: jobs that a claim took whose answer never arrived go back where they were: head, no counter but the start. One
-- that was asked to stop meanwhile is cancelled, and its callers are told. A claim that is still on its way (held up in a
-- network that was cut) finds a mark when it gets here, and takes nothing.
-- Arguments: prefix, token (base of that claim's tokens), then the queues it named.
-- Keys: recalled mark (string), queues' active and reserved (zsets: one entry for each job that runs somewhere), job records
--   (hashes), wait, notes, events.
-- Returns what has become of each (see `aside`).

local _, base = unpack(ARGV)
open_when_full()
local now, back = now_ms(), {}
redis.call('SET', recalled_key(base), '1', 'PX', MARK_KEPT_MS)
for index = 3, #ARGV do
  for _, part in ipairs({ 'active', 'reserved' }) do
    for _, id in ipairs(redis.call('ZRANGE', queue_key(ARGV[index], part), 0, -1)) do
      local token = redis.call('HGET', job_key(id), 'token') or ''
      if string.sub(token, 1, #base + 1) == base .. '.' then
        local job, state = held(id, token), 'waiting'
        let_go(job)
        if job.cancel then
          leave_note(id, now)
          state = cancelled(job, now, job.cancel)
        elseif part == 'active' then
          place(job, now, 0, 'head')
        else
          to_wait(id, job.queue, job.priority, 'head')
        end
        job.correlation_id = record(id, 'correlation_id').correlation_id
        back[#back + 1] = aside(job, job.state, state, job.cancel or 'recalled')
      end
    end
  end
end
return back

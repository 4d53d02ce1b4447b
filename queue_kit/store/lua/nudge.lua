-- nudge: a queue whose waiting jobs a claim passed over (it held the same ids) is looked at again.
-- Arguments: prefix, queue. Keys: queue's wait (zset), wake (list).
-- Returns how many jobs wait.

local _, queue = unpack(ARGV)
open_when_full()
local waiting = redis.call('ZCARD', queue_key(queue, 'wait'))
if waiting > 0 then wake(queue) end
return waiting

-- put_off: a note could not be acted on; it comes up again later, for whichever teller is first.
-- Arguments: prefix, id, again_ms. Keys: notes (zset).
-- Returns 1, or 0 if it was struck out meanwhile.

open_when_full()
return redis.call('ZADD', PREFIX .. ':notes', 'XX', 'CH', now_ms() + tonumber(ARGV[3]), ARGV[2])

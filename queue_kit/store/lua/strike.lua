-- strike: a note has been acted on.
-- Arguments: prefix, id. Keys: notes (zset).
-- Returns 1, or 0 if it was struck out already.

return redis.call('ZREM', PREFIX .. ':notes', ARGV[2])

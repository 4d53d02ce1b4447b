-- A job's message in its record. Redis keeps a hash packed only while no value in it is longer than 64 bytes; as a table it takes
-- a kilobyte more. So a message is cut into fields `1`, `2`, ...; one too long for them is one field, `message`.
-- The loader puts this file before the scripts that ask for it.

local PART_BYTES = 63 -- shorter ones have a shorter header
local PARTS = { '1', '2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12', '13', '14', '15', '16', '17', '18', '19', '20',
  '21', '22', '23', '24', '25', '26', '27', '28', '29', '30', '31', '32' }

-- Fields and values of a message, and in how many parts it is (0: it is whole).
local function message_fields(message)
  if #message > PART_BYTES * #PARTS then return { 'message', message }, 0 end
  local fields, parts = {}, 0
  for from = 1, #message, PART_BYTES do
    parts = parts + 1
    fields[#fields + 1] = PARTS[parts]
    fields[#fields + 1] = string.sub(message, from, from + PART_BYTES - 1)
  end
  return fields, parts
end

-- The same with what else a job is added with, where that is anything.
local function fields_of(message, nesting, expires_at, correlation_id)
  local fields, parts = message_fields(message)
  local function also(field, value) fields[#fields + 1], fields[#fields + 2] = field, value end
  if nesting ~= '0' then also('nesting', nesting) end
  if expires_at ~= '' then also('expires_at', expires_at) end
  if correlation_id ~= '' then also('correlation_id', correlation_id) end
  return fields, parts
end

-- What is left of the message that a record had before the one of so many parts was written over it.
local function drop_rest(id, parts)
  redis.call('HDEL', job_key(id), parts > 0 and 'message' or '', unpack(PARTS, parts + 1))
end

-- The message in a record of which all fields are known by name.
local function message_in(named)
  local parts = {}
  for index, name in ipairs(PARTS) do
    if not named[name] then break end
    parts[index] = named[name]
  end
  return named.message or table.concat(parts)
end

-- A record with all that it holds.
local function whole_record(id)
  local flat, named = redis.call('HGETALL', job_key(id)), { id = id }
  for index = 1, #flat, 2 do named[flat[index]] = flat[index + 1] end
  return named
end

local function message_of(id) return message_in(whole_record(id)) end

-- Tries every command that curtsy's scripts need. KEYS: text, table, order, stream, which are empty before and after.
-- Returns the names of the commands that the user may not call.
local text, hash, order, stream = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refused = {}

local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    refused[#refused + 1] = string.lower((...))
  end
end

try('TIME')
try('SET', text, '1')
try('GET', text)
try('PEXPIRE', text, 60000)
try('PTTL', text)
try('HSET', hash, 'a', '1')
try('HGET', hash, 'a')
try('HMGET', hash, 'a', 'b')
try('HGETALL', hash)
try('HINCRBY', hash, 'a', 1)
try('HDEL', hash, 'b')
try('ZADD', order, 1, 'a')
try('ZCARD', order)
try('ZRANK', order, 'a')
try('ZSCORE', order, 'a')
try('ZRANGE', order, 0, -1)
try('ZRANGEBYSCORE', order, 0, 1)
try('ZREM', order, 'b')
try('XADD', stream, '*', 'a', '1')
try('XRANGE', stream, '-', '+')
for _, key in ipairs(KEYS) do
  redis.pcall('PEXPIRE', key, 60000)
end
try('DEL', text, hash, order, stream)
return refused

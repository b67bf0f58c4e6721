-- steer: what an operator changes about a host.
-- KEYS host. ARGV: 1 now ('' = TIME), 2 overrides ('-' = as before), 3 paused until (-1 = as before), 4 lift, 5 forget.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000000 + tonumber(t[2])
end
local host = KEYS[1]
local version = redis.call('HINCRBY', host, 'v', 1)
if ARGV[2] ~= '-' then redis.call('HSET', host, 'o', ARGV[2]) end
if tonumber(ARGV[3]) >= 0 then redis.call('HSET', host, 'x', ARGV[3]) end
if ARGV[4] == '1' then
  local held = tonumber(redis.call('HGET', host, 'h') or '0')
  if held > now then redis.call('HSET', host, 'h', string.format('%.0f', now)) end
end
if ARGV[5] == '1' then redis.call('HDEL', host, 'r', 'o', 's') end
redis.call('PEXPIRE', host, 31622400000)
return version

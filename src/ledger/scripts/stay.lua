-- stay: counts a request that lasts longer than its turn implies, for 30 s.
-- KEYS host. ARGV: 1 now ('' = TIME), 2 end of its window, 3 keep_ms.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000000 + tonumber(t[2])
end
local f = redis.call('HMGET', KEYS[1], 'p', 'z', 'l')
local places = {ARGV[2] .. '=' .. string.format('%.0f', now + 30000000)}
for id, till in string.gmatch(f[1] or '', '(%d+)=(%d+)') do
  if tonumber(id) ~= tonumber(ARGV[2]) then places[#places + 1] = id .. '=' .. till end
end
redis.call('HSET', KEYS[1], 'p', table.concat(places, ','), 'z', f[2] or f[3] or string.format('%.0f', now))
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return now

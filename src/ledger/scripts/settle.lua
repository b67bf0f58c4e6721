-- settle: takes back what a node does not use, and notes starts that were not claimed.
-- KEYS host. ARGV: 1 unused end, 2 before, 3 number, 4 sent, 5 place, 6 keep_ms.
local function n(i) return tonumber(ARGV[i]) or 0 end
local host = KEYS[1]
local f = redis.call('HMGET', host, 'l', 'q', 'g', 'p')
local last, drawn, served = tonumber(f[1]), tonumber(f[2]) or 0, tonumber(f[3]) or 0
if not (f[1] or f[2]) and n(4) == 0 then return 0 end
local gone = n(5)
if n(1) > 0 and last == n(1) then
  redis.call('HSET', host, 'l', ARGV[2])
  last, gone = n(2), gone > 0 and gone or n(1)
end
if n(3) > served and n(3) == drawn then redis.call('HSET', host, 'q', string.format('%.0f', drawn - 1)) end
if n(4) > 0 and (not last or n(4) > last) then redis.call('HSET', host, 'l', ARGV[4], 'k', '0') end
if gone > 0 and f[4] then
  local left = {}
  for id, till in string.gmatch(f[4], '(%d+)=(%d+)') do
    if tonumber(id) ~= gone then left[#left + 1] = id .. '=' .. till end
  end
  redis.call('HSET', host, 'p', table.concat(left, ','))
end
if n(6) > 0 and redis.call('PTTL', host) < n(6) then redis.call('PEXPIRE', host, n(6)) end
return 1

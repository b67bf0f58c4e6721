-- beat: notes that a node is there, and tells it who else is.
-- KEYS nodes (by joining time), beats (by last heartbeat), layout. ARGV: 1 now ('' = TIME), 2 until, 3 node, 4 leaves,
-- 5 layout. Answers {now, name, nodes, rank, evicted keys, ranks of missing nodes…}; {now} if it comes too late;
-- {now, layout} if the keys have another layout.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000000 + tonumber(t[2])
end
if now > tonumber(ARGV[2]) then return {now} end
local layout = redis.call('GET', KEYS[3])
if layout and layout ~= ARGV[5] then return {now, tonumber(layout) or 0} end
redis.call('SET', KEYS[3], ARGV[5], 'PX', 2592000000)
local text = string.format('%.0f', now)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - 60000000))) do
  redis.call('ZREM', KEYS[1], gone)
  redis.call('ZREM', KEYS[2], gone)
end
if ARGV[4] == '1' then
  redis.call('ZREM', KEYS[1], ARGV[3])
  redis.call('ZREM', KEYS[2], ARGV[3])
else
  redis.call('ZADD', KEYS[1], 'NX', text, ARGV[3])
  redis.call('ZADD', KEYS[2], text, ARGV[3])
end
redis.call('PEXPIRE', KEYS[1], 600000)
redis.call('PEXPIRE', KEYS[2], 600000)
local name, evicted = 0, 0
local info = redis.pcall('INFO', 'server')
local id = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
if id then name = tonumber(string.sub(id, 1, 12), 16) end
info = redis.pcall('INFO', 'stats')
if type(info) == 'string' then evicted = tonumber(string.match(info, 'evicted_keys:(%d+)') or '0') end
local answer = {now, name, redis.call('ZCARD', KEYS[1]), redis.call('ZRANK', KEYS[1], ARGV[3]) or 0, evicted}
for _, node in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', '(' .. string.format('%.0f', now - 1600000))) do
  answer[#answer + 1] = redis.call('ZRANK', KEYS[1], node) or 0
end
return answer

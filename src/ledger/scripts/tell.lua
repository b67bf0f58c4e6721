-- tell: takes a hold, and a record if it was learned from the version that is stored.
-- KEYS host. ARGV: 1 version, 2 held, 3 record ('' = none), 4 keep_ms.
-- Answers {1 if the versions agree, version, held, paused, record, overrides}.
local host = KEYS[1]
local f = redis.call('HMGET', host, 'v', 'h', 'x', 'r', 'o')
local version, held = tonumber(f[1]) or 0, tonumber(f[2]) or 0
local fits, record = version == tonumber(ARGV[1]), f[4] or ''
if tonumber(ARGV[2]) > held then
  held = tonumber(ARGV[2])
  redis.call('HSET', host, 'h', ARGV[2])
end
if fits and ARGV[3] ~= '' then
  version, record = version + 1, ARGV[3]
  redis.call('HSET', host, 'v', version, 'r', record)
  redis.call('HDEL', host, 's')
end
if tonumber(ARGV[4]) > 0 and redis.call('PTTL', host) < tonumber(ARGV[4]) then redis.call('PEXPIRE', host, ARGV[4]) end
return {fits and 1 or 0, version, held, tonumber(f[3]) or 0, record, f[5] or ''}

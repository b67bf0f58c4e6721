-- notices: what was told since the last look.
-- KEYS news, stops. ARGV: 1 id of the last notice ('' = first look), 2 version of the stops that the node knows.
-- Answers {last id, version of the stops, hosts, stops if the version differs}.
local last, hosts, stops = ARGV[1], {}, {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], last == '' and '-' or '(' .. last, '+')) do
  last = entry[1]
  hosts[#hosts + 1] = entry[2][2]
end
local version = redis.call('HGET', KEYS[2], ':version') or '0'
if version ~= ARGV[2] then stops = redis.call('HGETALL', KEYS[2]) end
return {last == '' and '0-0' or last, version, hosts, stops}

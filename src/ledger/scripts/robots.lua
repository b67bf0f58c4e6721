-- robots: the copy of an origin's robots.txt, or who fetches it.
-- KEYS copy, fetching. ARGV: 1 node. Answers the copy; 1 if this node is to fetch it; 0 if another node does.
local copy = redis.call('GET', KEYS[1])
if copy then return copy end
if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', 30000) then return 1 end
return redis.call('GET', KEYS[2]) == ARGV[1] and 1 or 0

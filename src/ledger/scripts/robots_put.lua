-- robots_put: keeps a copy that a node has fetched, and lets others fetch again if there is none.
-- KEYS copy, fetching. ARGV: 1 copy ('' = the fetch failed), 2 how long it is fresh, in milliseconds.
if ARGV[1] ~= '' and tonumber(ARGV[2]) > 0 then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
redis.call('DEL', KEYS[2])
return 1

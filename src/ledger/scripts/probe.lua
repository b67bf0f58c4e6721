-- probe: tells the time to a node that is alone, if it can store anything. KEYS probe, layout.
-- Answers {now, layout of the keys; 0 if there are none}.
redis.call('SET', KEYS[1], '1', 'PX', 1000)
local t = redis.call('TIME')
return {t[1] * 1000000 + t[2], tonumber(redis.call('GET', KEYS[2]) or '0')}

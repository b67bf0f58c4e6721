-- host: shows a host to people and changes nothing. KEYS host.
-- Answers {now, last start, last number drawn, last served, held until, paused until}, as claim keeps them.
local t = redis.call('TIME')
local f = redis.call('HMGET', KEYS[1], 'l', 'q', 'g', 'h', 'x')
return {string.format('%.0f', tonumber(t[1]) * 1000000 + tonumber(t[2])), f[1], f[2], f[3], f[4], f[5]}

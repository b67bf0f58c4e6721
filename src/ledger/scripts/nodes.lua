-- nodes: lists the nodes that a server knows. KEYS nodes (by joining time), beats (by last heartbeat).
-- Answers {now, node, joined, last heartbeat, node, …}, oldest first; times are texts in microseconds.
local t = redis.call('TIME')
local answer = {string.format('%.0f', tonumber(t[1]) * 1000000 + tonumber(t[2]))}
local beats = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
local last = {}
for i = 1, #beats, 2 do last[beats[i]] = beats[i + 1] end
local nodes = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #nodes, 2 do
  answer[#answer + 1] = nodes[i]
  answer[#answer + 1] = nodes[i + 1]
  answer[#answer + 1] = last[nodes[i]] or '0'
end
return answer

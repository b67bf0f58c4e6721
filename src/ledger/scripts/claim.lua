-- claim: grants a start at a host, or says when to ask again. Shared::claim in src/politeness/fleet/shared.rs is the same.
-- KEYS host, era. ARGV: 1 now ('' = TIME), 2 until, 3 delay, 4 window, 5 early, 6 reach, 7 number, 8 more, 9 version,
-- 10 doubt, 11 keep_ms, 12 name, 13 slot step; then if not usual: 14 unused end, 15 before, 16 held, 17 burst,
-- 18 limit (0 = none), 19 track, 20 own phase (-1 = claims decide), 21 round, 22… phases of missing nodes.
-- Fields of a host: l last start, q last number drawn, g last served, h held, x paused, v version, k tokens, r record,
-- o overrides, p places ("end=until,…"), z last start that is not counted.
-- Answers {kind, now, name, …}: 0 too late; 1 news; 2 not until; 3 go.
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000000 + tonumber(t[2])
end
local function n(i) return tonumber(ARGV[i]) or 0 end
local name = 0
if n(12) == 1 then
  local info = redis.pcall('INFO', 'server')
  local id = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
  if id then name = tonumber(string.sub(id, 1, 12), 16) end
end
if now > n(2) then return {0, now, name} end
local host = KEYS[1]
local f = redis.call('HMGET', host, 'l', 'q', 'g', 'h', 'x', 'v', 'k', 'z')
local l, drawn, served = tonumber(f[1]), tonumber(f[2]) or 0, tonumber(f[3]) or 0
local held, closed, version = tonumber(f[4]) or 0, tonumber(f[5]) or 0, tonumber(f[6]) or 0
local tokens, counting = tonumber(f[7]) or 0, tonumber(f[8])
if version ~= n(9) then
  local m = redis.call('HMGET', host, 'r', 'o')
  return {1, now, name, version, held, closed, m[1] or '', m[2] or ''}
end
local delay, window, number, burst = n(3), n(4), n(7), n(17)
local step, limit, track = delay + window, n(18), n(19) == 1
local set = {}
local function put(field, value) set[#set + 1] = field; set[#set + 1] = string.format('%.0f', value) end
local function tokens_at(last, left, at)
  local function refill(from, to) return to > from and math.floor((to - from) * 1000000 / delay) or 0 end
  if last >= held then return math.min(left + refill(last, at), burst * 1000000) end
  local kept = math.min(left + refill(last, math.min(at, held)), 1000000)
  return math.min(kept + refill(held, at), burst * 1000000)
end
local function spaced(last, left)
  if burst <= 1 then return last + delay end
  local from = math.max(last, held)
  return from + math.ceil(math.max(0, 1000000 - tokens_at(last, left, from)) * delay / 1000000)
end
local last, back = l, false
if not l then
  last, tokens = tonumber(redis.call('GET', KEYS[2]) or ''), 0
  if not last or last > now + 10000000 then
    last = now + 100000
    redis.call('SET', KEYS[2], string.format('%.0f', last), 'PX', 604800000)
  else
    redis.call('PEXPIRE', KEYS[2], 604800000)
  end
elseif l > now + 10000000 then
  l, last, tokens = now, now, 0
  put('l', last); put('k', tokens)
elseif n(14) > 0 and n(14) == l then
  back = true
  if burst > 1 then tokens = tokens + 1000000 else last = n(15) end
  l = last
  put('l', last); put('k', tokens)
end
local places, taken = {}, 0
if counting or track then
  for id, till in string.gmatch(redis.call('HGET', host, 'p') or '', '(%d+)=(%d+)') do
    if tonumber(till) > now and not (back and tonumber(id) == n(14)) then
      taken = taken + 1
      places[taken] = id .. '=' .. till
    end
  end
  if back then set[#set + 1] = 'p'; set[#set + 1] = table.concat(places, ',') end
end
if n(10) > last then last, tokens = n(10), 0 end
if n(16) > held then held = n(16); put('h', held) end
local free = spaced(last, tokens)
local outstanding = served < number and number <= drawn
if not outstanding then
  number = drawn + 1
  drawn = number
  put('q', drawn)
end
local at = math.max(free, held, closed) + (back and 0 or number - served - 1) * step
at = math.max(at, now + n(6))
if burst > 1 and l then at = math.max(at, l + 1 - window) end
local slot, round = n(13), n(21)
if #ARGV >= 20 and n(20) >= 0 then
  local past = (at - n(20)) % round
  if past > 0 then at = at + round - past end
else
  for _ = 22, #ARGV + 1 do
    for i = 22, #ARGV do
      local past = (at - n(i)) % round
      if past < slot then at = at + slot - past
      elseif round - past < step then at = at + round - past + slot end
    end
  end
end
local function answer(kind, ...)
  if #set > 0 then redis.call('HSET', host, unpack(set)) end
  local keep = math.max(n(11), math.ceil((math.max(at, held) - now) / 1000) + 60000)
  if version == 0 or redis.call('PTTL', host) < keep then redis.call('PEXPIRE', host, keep) end
  return {kind, now, name, ...}
end
local others = drawn - served - 1
if limit > 0 then
  if track and not counting then counting = last; put('z', last)
  elseif counting and not track and taken == 0 then counting = nil; redis.call('HDEL', host, 'z', 'p') end
  if counting then
    local past, all = math.max(0, now - counting), limit * delay
    local implied = past < all and math.min(math.floor((all - past) / delay) + 1, limit) or 0
    if taken + implied >= limit then
      at = math.max(at, now + math.max(delay, 50000) * (number - served))
      return answer(2, at, number, others, 3)
    end
  end
end
if at - now > n(5) then
  local why = closed > math.max(free, held) and 2 or held > free and 1 or 0
  return answer(2, at, number, others, why)
end
local finish = at + window
if counting and limit > 0 then
  places[taken + 1] = string.format('%.0f=%.0f', finish, finish + 30000000)
  set[#set + 1] = 'p'; set[#set + 1] = table.concat(places, ',')
end
tokens = burst > 1 and math.max(0, tokens_at(last, tokens, finish) - 1000000) or 0
put('l', finish)
if burst > 1 or f[7] then put('k', tokens) end
local following = (back and outstanding) and number or 0
if not back then served = number; put('g', served)
elseif following == 0 then drawn = drawn - 1; put('q', drawn) end
if n(8) == 1 and following == 0 then
  drawn = drawn + 1
  following = drawn
  put('q', drawn)
end
local due = following > 0 and spaced(finish, tokens) + (following - served - 1) * step or 0
others = math.max(0, drawn - served - (following > 0 and 1 or 0))
return answer(3, at, last, following, due, others, (counting and limit > 0) and 1 or 0)

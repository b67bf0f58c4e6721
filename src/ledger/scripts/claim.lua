-- claim: grants a start at a host, or says when to ask again. The same as Shared::claim in politeness/fleet/shared.rs.
-- KEYS host, era. ARGV: 1 now ('' = TIME), 2 until, 3 delay, 4 window, 5 early, 6 reach, 7 number, 8 more, 9 version,
-- 10 doubt, 11 keep_ms, 12 name, 13 limit (0 = none), 14 track; then if not usual: 15 held, 16 unused end, 17 before,
-- 18 burst, 19 praise (-1 = the row is broken), 20 own phase (-1 = claims decide), 21 round, 22 slot, 23… the missing.
-- Fields of a host: l last start, q last number drawn, g last served, h held, x paused, v version, k tokens, r record,
-- o overrides, s successes in a row, p places ("end=until,…"), z last start that is not counted.
-- Answers {kind, now, name, …}: 0 too late; 1 news; 2 not until; 3 go.
local function n(i) return tonumber(ARGV[i]) or 0 end
local time = redis.call('TIME')
local now = tonumber(ARGV[1]) or time[1] * 1000000 + time[2]
local name = 0
if n(12) == 1 then
  local info = redis.pcall('INFO', 'server')
  local id = type(info) == 'string' and string.match(info, 'run_id:(%x+)')
  name = id and tonumber(string.sub(id, 1, 12), 16) or 0
end
if now > n(2) then return {0, now, name} end
local host = KEYS[1]
local f = redis.call('HMGET', host, 'l', 'q', 'g', 'h', 'x', 'v', 'k', 'z')
local last, drawn, served = tonumber(f[1]), tonumber(f[2]) or 0, tonumber(f[3]) or 0
local held, closed, version = tonumber(f[4]) or 0, tonumber(f[5]) or 0, tonumber(f[6]) or 0
local tokens, counting = tonumber(f[7]) or 0, tonumber(f[8])
if version ~= n(9) then
  local m = redis.call('HMGET', host, 'r', 'o')
  return {1, now, name, version, held, closed, m[1] or '', m[2] or ''}
end
local row = 0
if n(19) < 0 then redis.call('HDEL', host, 's') end
if n(19) > 0 then row = redis.call('HINCRBY', host, 's', ARGV[19]) end
local delay, window, number, limit, burst = n(3), n(4), n(7), n(13), n(18)
local step, track = delay + window, n(14) == 1
local set = {}
local function put(field, value)
  set[#set + 1] = field
  set[#set + 1] = string.format(type(value) == 'number' and '%.0f' or '%s', value)
end
local function tokens_at(start, left, at)
  local function refill(from, to) return to > from and math.floor((to - from) * 1000000 / delay) or 0 end
  if start >= held then return math.min(left + refill(start, at), burst * 1000000) end
  local kept = math.min(left + refill(start, math.min(at, held)), 1000000)
  return math.min(kept + refill(held, at), burst * 1000000)
end
local function spaced(start, left)
  if burst <= 1 then return start + delay end
  local from = math.max(start, held)
  return from + math.ceil(math.max(0, 1000000 - tokens_at(start, left, from)) * delay / 1000000)
end
local back = false
if not last then
  last, tokens = tonumber(redis.call('GET', KEYS[2]) or ''), 0
  if not last or last > now + 10000000 then last = now + 100000 end
  redis.call('SET', KEYS[2], string.format('%.0f', last), 'PX', 604800000)
elseif last > now + 10000000 then
  last, tokens = now, 0
  put('l', last); put('k', tokens)
elseif n(16) == last and burst <= 1 then
  back, last = true, n(17)
  put('l', last)
end
local places = {}
if counting or track then
  for id, till in string.gmatch(redis.call('HGET', host, 'p') or '', '(%d+)=(%d+)') do
    if tonumber(till) > now and not (back and tonumber(id) == n(16)) then places[#places + 1] = id .. '=' .. till end
  end
  if back then put('p', table.concat(places, ',')) end
end
if n(10) > last then last, tokens = n(10), 0 end
if n(15) > held then held = n(15); put('h', held) end
local free = spaced(last, tokens)
local outstanding = served < number and number <= drawn
if not outstanding then
  number, drawn = drawn + 1, drawn + 1; put('q', drawn)
end
local at = math.max(math.max(free, held, closed) + (back and 0 or number - served - 1) * step, now + n(6))
if burst > 1 then at = math.max(at, last + 1 - window) end
local slot, round = n(22), n(21)
if round > 0 and n(20) >= 0 then
  at = at + (n(20) - at) % round
else
  for _ = 23, #ARGV + 1 do
    for i = 23, #ARGV do
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
  return {kind, now, name, row, ...}
end
local others = drawn - served - 1
if track and limit > 0 and not counting then counting = last; put('z', last)
elseif counting and limit > 0 and not track and #places == 0 then counting = nil; redis.call('HDEL', host, 'z', 'p') end
if counting and limit > 0 then
  local left = limit * delay - math.max(0, now - counting)
  local implied = left > 0 and math.min(math.floor(left / delay) + 1, limit) or 0
  if #places + implied >= limit then
    at = math.max(at, now + math.max(delay, 50000) * (number - served))
    return answer(2, at, number, others, 3)
  end
end
local why = closed > math.max(free, held) and 2 or held > free and 1 or 0
if at - now > n(5) then return answer(2, at, number, others, why) end
local finish = at + window
if counting and limit > 0 then
  places[#places + 1] = string.format('%.0f=%.0f', finish, finish + 30000000)
  put('p', table.concat(places, ','))
end
put('l', finish)
tokens = burst > 1 and math.max(0, tokens_at(last, tokens, finish) - 1000000) or 0
if burst > 1 or f[7] then put('k', tokens) end
local following = (back and outstanding) and number or 0
if not back then served = number; put('g', served)
elseif following == 0 then drawn = drawn - 1; put('q', drawn) end
if n(8) == 1 and following == 0 then drawn, following = drawn + 1, drawn + 1; put('q', drawn) end
local due = following > 0 and spaced(finish, tokens) + (following - served - 1) * step or 0
others = math.max(0, drawn - served - (following > 0 and 1 or 0))
return answer(3, at, last, following, due, others, (counting and limit > 0) and 1 or 0)

-- notice: tells all nodes what an operator did, or which client was stopped.
-- KEYS news, stops. ARGV: 1 'host', 'stop' or 'resume', 2 host or client, 3 the stop as text.
if ARGV[1] == 'host' then
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', '1000', '*', 'h', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], 86400000)
  return 1
end
if ARGV[1] == 'stop' then
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
else
  redis.call('HDEL', KEYS[2], ARGV[2])
end
redis.call('HINCRBY', KEYS[2], ':version', 1)
redis.call('PEXPIRE', KEYS[2], 31622400000)
return 1

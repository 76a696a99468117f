-- The seed design's bucket: one hash, one script per tier, the caller's clock.
-- KEYS[1] the bucket; ARGV: rate per second, burst, now in seconds, cost.
local rate, burst, now, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'last_refill_at')
local tokens = tonumber(bucket[1]) or burst
local last = tonumber(bucket[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - last) * rate)
local allowed, retry = 0, 0
if tokens >= cost then
  tokens = tokens - cost
  allowed = 1
else
  retry = math.ceil((cost - tokens) / rate * 1000)
end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'last_refill_at', now)
redis.call('EXPIRE', KEYS[1], math.ceil(burst / rate * 2))
return {allowed, math.floor(tokens * 1000), retry}

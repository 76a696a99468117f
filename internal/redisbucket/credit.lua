-- Credits one bucket, atomically, on Redis's clock. It settles the bucket as take.lua does, which also
-- says what a bucket's value is, and then computes what enforce.Bucket.Credit computes.
--
--   KEYS[1]  the bucket
--   ARGV[1]  the caller's limit, 20 bytes as in take.lua, and the amount in millionths (double)
--   ARGV[2]  the time in microseconds, from tests only; else empty
--   KEYS[2]  where a credit that may be repeated is remembered, and
--   ARGV[3]  its fingerprint, and
--   ARGV[4]  for how long, in milliseconds; these three only for such a credit
--
-- The reply is one string: the level before and the level after, each micros (double) and fraction (32
-- bits); the limit in force (20 bytes); and a byte: 1 if the value was broken, 2 if it has a version that
-- this script does not know and so was left as it is, 3 if KEYS[2] remembers a credit of another
-- fingerprint, 4 if it remembers this one, which then answers as it did before; else 0.

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local min, max = math.min, math.max

local FRACTIONS = 4294967296
local SLACK = 10000
local YEAR = 31536000000

local function earn(micros, fraction, elapsed, rate, full)
  local part = rate % 1
  local gain = elapsed * part
  local spill = gain % 1
  micros = micros + elapsed * (rate - part) + (gain - spill)
  local sum = spill * FRACTIONS + 0.5
  fraction = fraction + (sum - sum % 1)
  if fraction >= FRACTIONS then
    micros = micros + 1
    fraction = fraction - FRACTIONS
  end
  if micros >= full then return full, 0 end
  return micros, fraction
end

local once, fingerprint = KEYS[2], ARGV[3]
local past = once and call('GET', once)
if past then
  if string.sub(past, 1, #fingerprint) ~= fingerprint then
    return pack('<dIdIdIdB', 0, 0, 0, 0, 0, 0, 0, 3)
  end
  return string.sub(past, #fingerprint + 1, -2) .. string.char(4)
end

local now, slack = ARGV[2], SLACK
if now ~= '' then
  now = tonumber(now)
  slack = 300000 -- keys expire by Redis's own clock, which goes on however slow a test's steps follow
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local rate, burst, since, amount = unpack_struct('<dIdd', ARGV[1])
local level, fraction = burst * 1000000, 0
local broken = 0
local state = call('MGET', KEYS[1])[1] -- false for a key of another type, where GET fails
if state then
  local version, m, f, stamp, own_rate, own_burst, own_since
  if #state == 41 then
    version, m, f, stamp, own_rate, own_burst, own_since = unpack_struct('<BdIddId', state)
  end
  if version == 1 and m >= -1 and m <= own_burst * 1000000 and m % 1 == 0
      and stamp >= 0 and stamp <= 9007199254740992 and stamp % 1 == 0
      and own_rate >= 1e-6 and own_rate <= 1e9 and own_burst >= 1 and own_burst <= 1e9
      and own_since % 1 == 0 then
    stamp = min(stamp, now)
    if since > own_since then
      local edit = min(max(since, stamp), now)
      m, f = earn(m, f, edit - stamp, own_rate, own_burst * 1000000)
      stamp = edit
    else
      rate, burst, since = own_rate, own_burst, own_since
    end
    level, fraction = earn(m, f, now - stamp, rate, burst * 1000000)
  else
    local first = string.byte(state) or 0
    if first >= 2 and first <= 31 then
      return pack('<dIdIdIdB', 0, 0, 0, 0, rate, burst, since, 2)
    end
    broken = 1
  end
end

local full = burst * 1000000
local after, after_fraction = level + amount, fraction
if after >= full then
  after, after_fraction = full, 0
elseif after < 0 then
  after, after_fraction = 0, 0
end

-- What nobody used and is still full is left alone. A full bucket is kept for callers that hold an
-- older limit, as after a take. The reply is made first: nothing may fail once this was written.
local reply = pack('<dIdIdIdB', level, fraction, after, after_fraction, rate, burst, since, broken)
if state or after ~= level then
  local ttl = (full - after - after_fraction / FRACTIONS) / rate / 1000
  if not (ttl < YEAR) then ttl = YEAR end
  call('SET', KEYS[1], pack('<BdIddId', 1, after, after_fraction, now, rate, burst, since),
    'PX', string.format('%.0f', ttl - ttl % 1 + 1 + slack))
end
if once then
  call('SET', once, fingerprint .. reply, 'PX', ARGV[4])
end
return reply

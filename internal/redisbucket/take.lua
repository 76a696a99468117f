-- Answers up to 64 checks of one tenant, all or nothing each, in order. It computes what
-- enforce.Bucket computes, step by step on the same doubles; a change there is a change here.
--
--   KEYS     the distinct buckets
--   ARGV[1]  the wiring, 16-bit numbers: for each key the place of its limit in ARGV[3]; then for
--            each check how many tiers it has and, for each tier, 2 × its key's place, + 1 for shadow
--   ARGV[2]  the checks' costs in millionths of a token, doubles
--   ARGV[3]  the distinct limits, 20 bytes each: rate (double), burst (32 bits), since (double)
--   ARGV[4]  the time in microseconds, from tests only
--
-- A bucket's value is 41 bytes, so that Redis keeps it inside the object (44 is the most):
--
--   version (byte, 1)  micros (double)  fraction (32 bits)  stamp (double)  limit in force (as above)
--
-- The reply is one string: for each check and tier 2 × micros (double), + 1 if the bucket held the
-- cost, and the fraction (32 bits); then how many values were no bucket (32 bits); then, for each key
-- with a limit in force that is not the caller's, its place (16 bits) and that limit (20 bytes).
-- All numbers are little-endian; places count from 0.

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local min, max, rep, sub = math.min, math.max, string.rep, string.sub

local FRACTIONS = 4294967296 -- in a millionth of a token
local HALF = 2147483648
local SLACK = 10000 -- ms that a full bucket stays, for callers that hold an older limit
local YEAR = 31536000000 -- ms
local CHUNK = 2000 -- numbers at a time on Lua's stack, which takes 8000

-- Reads a string of equal numbers.
local function numbers(format, size, text)
  local count = #text / size
  if count <= CHUNK then
    return {unpack_struct('<' .. rep(format, count), text)}
  end
  local all = {}
  for first = 0, count - 1, CHUNK do
    local n = min(CHUNK, count - first)
    local some = {unpack_struct('<' .. rep(format, n), text, first * size + 1)}
    for i = 1, n do all[first + i] = some[i] end
  end
  return all
end

-- Level.earn: what elapsed microseconds of a rate add to a level, capped. `x - x % 1` is floor(x).
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

local now
if ARGV[4] then
  now = tonumber(ARGV[4])
else
  local time = call('TIME') -- once: it moves while a script runs
  now = time[1] * 1000000 + time[2]
end

local limit_texts, limit_rates, limit_fulls, limit_sinces = {}, {}, {}, {}
for i = 0, #ARGV[3] / 20 - 1 do
  local rate, burst, since = unpack_struct('<dId', ARGV[3], i * 20 + 1)
  limit_texts[i], limit_rates[i] = sub(ARGV[3], i * 20 + 1, i * 20 + 20), rate
  limit_fulls[i], limit_sinces[i] = burst * 1000000, since
end

local keys = #KEYS
local states = {}
if keys <= CHUNK then
  states = call('MGET', unpack(KEYS))
else
  for first = 1, keys, CHUNK do
    local some = call('MGET', unpack(KEYS, first, min(first + CHUNK - 1, keys)))
    for i = 1, #some do states[first + i - 1] = some[i] end
  end
end

-- Settle every bucket. From here on they are these columns.
local wiring = numbers('H', 2, ARGV[1])
local micros, fractions, rates, fulls, texts, changed = {}, {}, {}, {}, {}, {}
local broken, foreign = 0, {}
for i = 1, keys do
  local place = wiring[i]
  local text, rate, full = limit_texts[place], limit_rates[place], limit_fulls[place]
  local level, fraction, must_write = full, 0, false -- a bucket that nobody used
  local state = states[i]
  if state then
    local version, m, f, stamp, own, own_rate, own_full, own_since
    if #state == 41 then
      version, m, f, stamp, own = unpack_struct('<BdIdc20', state)
      if own == text then
        own_rate, own_full = rate, full
      else
        local burst
        own_rate, burst, own_since = unpack_struct('<dId', own)
        own_full = burst * 1000000
        if not (own_rate >= 1e-6 and own_rate <= 1e9 and burst >= 1 and burst <= 1e9
            and own_since % 1 == 0) then
          version = nil
        end
      end
    end
    -- NaN is in no range, and inf % 1 is NaN.
    if version == 1 and m >= -1 and m <= own_full and m % 1 == 0
        and stamp >= 0 and stamp <= 9007199254740992 and stamp % 1 == 0 then
      if stamp > now then stamp, must_write = now, true end
      if own ~= text then
        local since = limit_sinces[place]
        if since > own_since then
          local edit = min(max(since, stamp), now)
          m, f = earn(m, f, edit - stamp, own_rate, own_full)
          stamp, must_write = edit, true
        else
          text, rate, full = own, own_rate, own_full
          foreign[#foreign + 1] = pack('<Hc20', i - 1, own)
        end
      end
      level, fraction = earn(m, f, now - stamp, rate, full)
    else
      broken, must_write = broken + 1, true
    end
  end
  micros[i], fractions[i], rates[i], fulls[i], texts[i] = level, fraction, rate, full, text
  if must_write then changed[i] = true end
end

-- Walk the checks in order.
local reply, n = {}, 0
local costs = numbers('d', 8, ARGV[2])
local at = keys + 1
for check = 1, #ARGV[2] / 8 do
  local cost = costs[check]
  local first, last = at + 1, at + wiring[at]
  local first_reply = n
  local allowed = true
  for tier = first, last do
    local shadow = wiring[tier] % 2
    local i = (wiring[tier] - shadow) / 2 + 1
    local level, fraction = micros[i], fractions[i]
    local holds = 0
    if level >= cost or (level == cost - 1 and fraction >= HALF) then
      holds = 1
    elseif shadow == 0 then
      allowed = false
    end
    reply[n + 1], reply[n + 2] = level * 2 + holds, fraction
    n = n + 2
  end
  if allowed and cost > 0 then
    local r = first_reply
    for tier = first, last do
      if reply[r + 1] % 2 == 1 then
        local i = (wiring[tier] - wiring[tier] % 2) / 2 + 1
        micros[i], changed[i] = micros[i] - cost, true
        reply[r + 1] = reply[r + 1] - cost * 2
      end
      r = r + 2
    end
  end
  at = last + 1
end

-- Write what changed. Nothing was written before this line, and nothing below can fail but for want
-- of memory, which Redis tells at the first write.
for i in pairs(changed) do
  local ttl = (fulls[i] - micros[i] - fractions[i] / FRACTIONS) / rates[i] / 1000
  if not (ttl < YEAR) then ttl = YEAR end
  call('SET', KEYS[i], pack('<BdIdc20', 1, micros[i], fractions[i], now, texts[i]),
    'PX', ttl - ttl % 1 + 1 + SLACK)
end

local parts = {}
for first = 1, n, CHUNK do
  local last = min(first + CHUNK - 1, n)
  parts[#parts + 1] = pack('<' .. rep('dI', (last - first + 1) / 2), unpack(reply, first, last))
end
parts[#parts + 1] = pack('<I', broken)
return table.concat(parts) .. table.concat(foreign)

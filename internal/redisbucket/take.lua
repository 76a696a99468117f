-- Answers up to 64 checks, all or nothing each, in order. It computes what
-- enforce.Bucket computes, step by step on the same doubles; a change there is a change here.
--
--   KEYS     the distinct buckets
--   ARGV[1]  the wiring, 16-bit numbers: for each key the place of its limit in ARGV[3]; then for
--            each check how many tiers it has and, for each tier, 2 × its key's place, + 1 for shadow
--   ARGV[2]  the checks' costs in millionths of a token, doubles
--   ARGV[3]  the distinct limits, 20 bytes each: rate (double), burst (32 bits), since (double); then
--            when the caller last read all limits (double)
--   ARGV[4]  the time in microseconds, from tests only
--
-- A bucket's value is 41 bytes, so that Redis keeps it inside the object (44 is the most):
--
--   version (byte, 1)  micros (double)  fraction (32 bits)  stamp (double)  limit in force (as above)
--
-- The rule for later formats, because old and new processes share buckets during an upgrade:
--
--   * The first byte is the version, 1 to 31. Whatever changes the meaning of the bytes after it, or adds
--     to them, takes the next version. No version is used again.
--   * A script refuses a version that it does not know. It answers UNKNOWN for the bucket, takes nothing
--     from any bucket of that check, and leaves the value as it is. To replace it by a full bucket would
--     refill every bucket of the newer format.
--   * A script writes version 1 whenever that can hold the state, and a later version only when it cannot.
--   * Every script that reads a value reads all versions which its release knows.
--
-- A value is broken, and replaced by a full bucket, if its version is known and the rest makes no sense, or
-- if its first byte is no version, as in text that somebody else wrote.
--
-- The reply is one string: for each check and tier 2 × micros (double), + 1 if the bucket held the
-- cost, and the fraction (32 bits); then how many values were broken (32 bits); then, for each key
-- with a limit in force that is not the caller's, its place (16 bits) and that limit (20 bytes). Micros
-- of UNKNOWN are those of a bucket in a version that this script does not know; the check got no answer.
-- All numbers are little-endian; places count from 0.

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local min, max, rep, format = math.min, math.max, string.rep, string.format
local KEYS, ARGV = KEYS, ARGV

local FRACTIONS = 4294967296 -- in a millionth of a token
local HALF = 2147483648
local SLACK = 10000 -- ms that a full bucket stays, for callers that hold an older limit
local YEAR = 31536000000 -- ms
local INTEGER = 2147000000 -- what %d can write everywhere
local CHUNK = 2000 -- values at a time on Lua's stack, which takes 8000
local UNKNOWN = -2 -- for micros, which are never below -1
local COMMIT_TIME = 10000000 -- µs; enforce.CommitTime

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

local now, slack = ARGV[4], SLACK
if now then
  now = tonumber(now)
  slack = 300000 -- keys expire by Redis's own clock, which goes on however slow a test's steps follow
else
  local time = call('TIME') -- once: it moves while a script runs
  now = time[1] * 1000000 + time[2]
end

-- The limits, as columns. Those in force that no caller named are appended below.
local rates, bursts, sinces = {}, {}, {}
local last_limit = (#ARGV[3] - 8) / 20 - 1
for place = 0, last_limit do
  rates[place], bursts[place], sinces[place] = unpack_struct('<dId', ARGV[3], place * 20 + 1)
end

local keys = #KEYS
local states, wiring
if keys <= CHUNK then
  states = call('MGET', unpack(KEYS))
else
  states = {}
  for first = 1, keys, CHUNK do
    local some = call('MGET', unpack(KEYS, first, min(first + CHUNK - 1, keys)))
    for i = 1, #some do states[first + i - 1] = some[i] end
  end
end

local words = #ARGV[1] / 2
if words <= CHUNK then
  wiring = {unpack_struct('<' .. rep('H', words), ARGV[1])}
else
  wiring = {}
  for first = 1, words, CHUNK do
    local n = min(CHUNK, words - first + 1)
    local some = {unpack_struct('<' .. rep('H', n), ARGV[1], first * 2 - 1)}
    for i = 1, n do wiring[first + i - 1] = some[i] end
  end
end

-- Settle every bucket. From here on they are columns too, and the first words of the wiring are the
-- places of the limits in force.
local micros, fractions, changed = {}, {}, {}
local broken, foreign = 0, nil -- a table when there is one, which is seldom
for i = 1, keys do
  local place = wiring[i]
  local rate, burst, since = rates[place], bursts[place], sinces[place]
  local level, fraction, must_write = burst * 1000000, 0, false -- a bucket that nobody used
  local state = states[i]
  if state then
    local version, m, f, stamp, own_rate, own_burst, own_since
    if #state == 41 then
      version, m, f, stamp, own_rate, own_burst, own_since = unpack_struct('<BdIddId', state)
    end
    -- NaN is in no range, and inf % 1 is NaN.
    if version == 1 and m >= -1 and m <= own_burst * 1000000 and m % 1 == 0
        and stamp >= 0 and stamp <= 9007199254740992 and stamp % 1 == 0
        and own_rate >= 1e-6 and own_rate <= 1e9 and own_burst >= 1 and own_burst <= 1e9
        and own_since % 1 == 0 then
      if stamp > now then stamp, must_write = now, true end
      if since > own_since then
        local edit = min(max(since, stamp), now)
        m, f = earn(m, f, edit - stamp, own_rate, own_burst * 1000000)
        stamp, must_write = edit, true
      elseif since < own_since or rate ~= own_rate or burst ~= own_burst then
        if rate ~= own_rate or burst ~= own_burst then
          local read_at = unpack_struct('<d', ARGV[3], #ARGV[3] - 7)
          if own_since + COMMIT_TIME < read_at then -- the database lost the edit that made the bucket's limit
            local edit = min(max(read_at, stamp), now)
            m, f = earn(m, f, edit - stamp, own_rate, own_burst * 1000000)
            stamp, must_write = edit, true
            own_rate, own_burst, own_since = rate, burst, read_at - COMMIT_TIME
          end
        end
        last_limit = last_limit + 1
        wiring[i], rates[last_limit], bursts[last_limit], sinces[last_limit] = last_limit, own_rate, own_burst, own_since
        foreign = foreign or {}
        foreign[#foreign + 1] = pack('<HdId', i - 1, own_rate, own_burst, own_since)
        rate, burst = own_rate, own_burst
      end
      level, fraction = earn(m, f, now - stamp, rate, burst * 1000000)
    else
      local first = string.byte(state) or 0
      if first >= 2 and first <= 31 then
        level = UNKNOWN
      else
        must_write = true
        broken = broken + 1
      end
    end
  end
  micros[i], fractions[i], changed[i] = level, fraction, must_write
end

-- Walk the checks in order.
local reply, n = {}, 0
local costs = ARGV[2]
local at = keys + 1
for check = 1, #costs, 8 do
  local cost = unpack_struct('<d', costs, check)
  local first, last = at + 1, at + wiring[at]
  local r = n
  local allowed = true
  for tier = first, last do
    local wire = wiring[tier]
    local shadow = wire % 2
    local i = (wire - shadow) / 2 + 1
    local level, fraction = micros[i], fractions[i]
    local holds = 0
    if level >= cost or (level == cost - 1 and fraction >= HALF) then
      holds = 1
    elseif shadow == 0 or level == UNKNOWN then
      allowed = false
    end
    reply[n + 1], reply[n + 2] = level * 2 + holds, fraction
    n = n + 2
  end
  if allowed and cost > 0 then
    for tier = first, last do
      if reply[r + 1] % 2 == 1 then
        local wire = wiring[tier]
        local i = (wire - wire % 2) / 2 + 1
        micros[i], changed[i] = micros[i] - cost, true
        reply[r + 1] = reply[r + 1] - cost * 2
      end
      r = r + 2
    end
  end
  at = last + 1
end

-- Write what changed. Nothing was written before this line, and nothing below can fail but for want
-- of memory, which Redis tells at the first write. The expiry is formatted here because redis.call
-- takes 1.6 µs for it (Redis 7.0; 2.8 µs for the whole SET) and format 0.3 or, with %d, even less.
for i = 1, keys do
  if changed[i] then
    local place = wiring[i]
    local rate, burst = rates[place], bursts[place]
    local ttl = (burst * 1000000 - micros[i] - fractions[i] / FRACTIONS) / rate / 1000
    if not (ttl < YEAR) then ttl = YEAR end
    call('SET', KEYS[i], pack('<BdIddId', 1, micros[i], fractions[i], now, rate, burst, sinces[place]),
      'PX', format(ttl < INTEGER and '%d' or '%.0f', ttl - ttl % 1 + 1 + slack))
  end
end

local answers = ''
for first = 1, n, CHUNK do
  local last = min(first + CHUNK - 1, n)
  answers = answers .. pack('<' .. rep('dI', (last - first + 1) / 2), unpack(reply, first, last))
end
answers = answers .. pack('<I', broken)
if foreign then answers = answers .. table.concat(foreign) end
return answers

-- Answers up to 64 checks, all or nothing each, in order. settle.lua comes before it.
--
--   KEYS     the distinct buckets
--   ARGV[1]  the wiring, 16-bit numbers: for each key the place of its limit in ARGV[3]; then for each check how
--            many tiers it has, its flags (1: a look, 2: no delay), and, for each tier, 2 × its key's place, + 1
--            for shadow
--   ARGV[2]  the checks' costs in millionths of a token, doubles
--   ARGV[3]  the distinct limits, 32 bytes each; then when the caller last read all limits (double)
--   ARGV[4]  the calendars of these limits, 32 bytes each
--   ARGV[5]  the checks' holders, 8 bytes each; empty if no limit has places
--   ARGV[6]  the time in microseconds, from tests only
--
-- The reply is one string: for each check and tier 2 × what is left in micros (double), + 1 if the bucket held the
-- cost, and the fraction (32 bits); then how many values were broken (32 bits), the time (double), and how many
-- limits in force are not the caller's (16 bits); then, for each of these, its key's place (16 bits) and the limit (32
-- bytes); then, for each tier whose limit in force is a window that slides, after how many microseconds it holds
-- the cost and when it is full (doubles). Left is UNKNOWN for a bucket in a version that this script does not know, and
-- OUTSIDE for one whose windows are all before or after the time: the check got no answer.
-- Places count from 0.

local KEYS, ARGV = KEYS, ARGV
local HALF = 2147483648
local CHUNK = 2000 -- values at a time on Lua's stack, which takes 8000
local LOOK, NO_DELAY = 1, 2

now, slack = read_clock(ARGV[6])
local last_limit = (#ARGV[3] - 8) / 32 - 1
read_limits(ARGV[3], last_limit + 1, ARGV[4])

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

-- Settle every bucket. A bucket whose state is nothing but a level is two columns from here on; any other is in
-- buckets.
local micros, fractions, changed, buckets = {}, {}, {}, {}
local broken, foreign, tools = 0, {}, nil
for i = 1, keys do
  local place = wiring[i]
  local kind, state = kinds[place], states[i]
  local is_settled = false
  if kind <= FIXED_WINDOW and opens[place] ~= OUTSIDE then
    local rate, burst, interval = rates[place], bursts[place], intervals[place]
    if not state then
      micros[i], fractions[i], is_settled = burst * TOKEN, 0, true -- a bucket that nobody used
    else
      local version, own_kind, m, f, stamp, own_rate, own_burst, since, own_interval = 0, 0, 0, 0, 0, 0, 0, 0, 0
      if #state == 41 then
        version, m, f, stamp, own_rate, own_burst, since = unpack_struct('<BdIddId', state)
      elseif #state == 58 then
        version, own_kind, m, f, stamp, own_rate, own_burst, since, own_interval = unpack_struct('<BBdIddIdd', state)
        version = version - 1
      end
      -- The caller's limit, in force as long as the caller knows, and a level and stamp that make sense.
      if version == 1 and own_kind == kind and own_rate == rate and own_burst == burst and own_interval == interval
          and since == sinces[place] and m >= -1 and m <= burst * TOKEN and m % 1 == 0
          and stamp >= 0 and stamp <= now and stamp % 1 == 0 then
        if kind == FIXED_WINDOW then
          if opens[place] > stamp then m, f = burst * TOKEN, 0 end
        elseif interval == 0 then
          m, f = earn(m, f, now - stamp, rate, burst * TOKEN)
        else
          m, f = earn(m, f, now - now % interval - (stamp - stamp % interval), rate, burst * TOKEN)
        end
        micros[i], fractions[i], is_settled = m, f, true
      end
    end
  end
  if not is_settled then
    tools = tools or make_tools()
    local read_at = unpack_struct('<d', ARGV[3], #ARGV[3] - 7)
    local b, must_write, is_broken = tools.settle(place, state, read_at)
    if is_broken then broken = broken + 1 end
    micros[i], fractions[i], changed[i] = b.micros, b.fraction, must_write
    if b.since ~= sinces[place] or b.rate ~= rates[place] or b.burst ~= bursts[place]
        or b.interval ~= intervals[place] or b.kind ~= kinds[place] then
      last_limit = last_limit + 1
      wiring[i] = last_limit
      rates[last_limit], bursts[last_limit], sinces[last_limit] = b.rate, b.burst, b.since
      intervals[last_limit], kinds[last_limit] = b.interval, b.kind
      if b.place then opens[last_limit], closes[last_limit], b.place = opens[b.place], closes[b.place], last_limit end
      foreign[#foreign + 1] = pack('<HdIddHH', i - 1, b.rate, b.burst, b.since, b.interval, b.kind, 0)
    end
    if b.kind > LEAKY_BUCKET then buckets[i] = b end
  end
end

-- Walk the checks in order.
local reply, n, waits = {}, 0, {}
local costs = ARGV[2]
local at = keys + 1
for check = 1, #costs, 8 do
  local cost = unpack_struct('<d', costs, check)
  local flags = wiring[at + 1]
  local first, last = at + 2, at + 1 + wiring[at]
  local r = n
  local allowed, listed = true, false
  for tier = first, last do
    local wire = wiring[tier]
    local shadow = wire % 2
    local i = (wire - shadow) / 2 + 1
    local level, fraction, needed = micros[i], fractions[i], cost
    local b = buckets[i]
    if b and b.kind > FIXED_WINDOW and level > OUTSIDE then
      level, needed, listed = max(0, tools.left(b)), tools.charge(b.kind, cost), true
    elseif flags >= NO_DELAY and cost > 0 and kinds[wiring[i]] == LEAKY_BUCKET then
      needed = max(cost, bursts[wiring[i]] * TOKEN) -- an empty queue
    end
    local holds = 0
    if level >= needed or (level == needed - 1 and fraction >= HALF) then
      holds = 1
    elseif shadow == 0 or level <= OUTSIDE then
      allowed = false
    end
    reply[n + 1], reply[n + 2] = level * 2 + holds, fraction
    n = n + 2
  end
  if allowed and cost > 0 and flags % 2 ~= LOOK then
    local r = r
    for tier = first, last do
      if reply[r + 1] % 2 == 1 then
        local wire = wiring[tier]
        local i = (wire - wire % 2) / 2 + 1
        local b = buckets[i]
        changed[i] = true
        if b and b.kind > FIXED_WINDOW then
          tools.take(b, tools.charge(b.kind, cost), sub(ARGV[5], check, check + 7))
          reply[r + 1] = max(0, tools.left(b)) * 2 + 1
        else
          micros[i] = micros[i] - cost
          reply[r + 1] = reply[r + 1] - cost * 2
        end
      end
      r = r + 2
    end
  end
  if listed then
    for tier = first, last do
      local wire = wiring[tier]
      local b = buckets[(wire - wire % 2) / 2 + 1]
      if b and (b.kind == SLIDING_WINDOW or b.kind == LOG) and b.micros > OUTSIDE then
        local wait, amount = 0, tools.charge(b.kind, cost)
        if reply[r + 1] % 2 == 0 and amount <= b.burst * TOKEN then wait = tools.wait(b, amount) end
        waits[#waits + 1] = pack('<dd', wait, tools.time_to_full(b))
      end
      r = r + 2
    end
  end
  at = last + 1
end

-- Write what changed. Nothing was written before this line, and nothing below can fail but for want of memory, which
-- Redis tells at the first write.
for i = 1, keys do
  if changed[i] then
    local b = buckets[i]
    if b then
      if b.kind == FIXED_WINDOW then b.micros = micros[i] end
      tools.write(KEYS[i], b)
    else
      local place = wiring[i]
      local rate, burst, interval, kind = rates[place], bursts[place], intervals[place], kinds[place]
      local value, full_in
      if kind == 0 and interval == 0 and micros[i] >= -1 then
        value = pack('<BdIddId', 1, micros[i], fractions[i], now, rate, burst, sinces[place])
      else
        local former = kind == FIXED_WINDOW and interval < 0 and closes[place] or 0
        value = pack('<BBdIddIddd', 2, kind, micros[i], fractions[i], now, rate, burst, sinces[place], interval, former)
      end
      if kind == FIXED_WINDOW then
        full_in = closes[place] - now
      else
        full_in = (burst * TOKEN - micros[i] - fractions[i] / FRACTIONS) / rate + interval
      end
      call('SET', KEYS[i], value, 'PX', expiry(full_in))
    end
  end
end

local answers = ''
for first = 1, n, CHUNK do
  local last = min(first + CHUNK - 1, n)
  answers = answers .. pack('<' .. rep('dI', (last - first + 1) / 2), unpack(reply, first, last))
end
return answers .. pack('<IdH', broken, now, #foreign) .. table.concat(foreign) .. table.concat(waits)

-- Answers up to 64 checks in order, each all or nothing.
--
--   KEYS     the distinct buckets; then the eras of tenants with long limits; then, for a check that reserves, the
--            reservation and its tenant's index; or for a record with an id, its set of the tenant's 256 sets of ids,
--            and their counts
--   ARGV[1]  the wiring, 16-bit numbers: for each key the index of its limit in ARGV[3]; then for each check its
--            number of tiers, its flags (1: a look, 2: no delay, 4: mixed, 8: a record), and for each tier 4 × the
--            index of its key, + 1 for shadow, + 2 if it is charged after, as each tier of a record is
--   ARGV[2]  the checks' costs in millionths of a token, doubles; for a mixed check the largest, then one per tier
--   ARGV[3]  the distinct limits, 32 bytes each; then when the caller last read all limits (double)
--   ARGV[4]  the calendars of these limits, 32 bytes each
--   ARGV[5]  the checks' holders, 8 bytes each; empty without a concurrency limit
--   ARGV[6]  for a check that reserves, which is alone in its script: the reservation's life in microseconds (double;
--            below 0: the check passes without a reservation if there are too many), its id (16 bytes), its
--            version, and its owner; for a record with an id, also alone: 0 (double) and the id (16 bytes); else empty
--   ARGV[7]  absent or empty without a long limit; else the number of eras, and for each bucket the number of its era,
--            from 1, or 0 if its limit is not long (16 bits each); then for each era its expected value (57 bytes)
--   ARGV[8]  the time in microseconds, from tests only
--
-- The reply is one string; indexes count from 0:
--
--   for each check and tier:
--     left       2 × micros (double), + 1 if the bucket held the cost; UNKNOWN for an unknown version, LOST for a long
--                limit whose state may be lost, and OUTSIDE if no window that was sent has the time: the check then
--                has no answer
--     fraction   (32 bits)
--   broken       number of broken values (32 bits)
--   time         (double)
--   foreign      number of limits in force that are not the caller's (16 bits)
--   exhausted    (byte) 1: denied for too many open reservations or ids of records, 2: passed without a reservation,
--                3: the record's id was charged before
--   forgotten    number of reservations that ended without a settlement (32 bits)
--   lent         number of tiers whose bucket has lent tokens, or has had a window before the clock stepped back
--                (16 bits)
--   for each foreign limit:
--     index of its key (16 bits), limit (32 bytes)
--   for each of these tiers:
--     index (16 bits), lent amount (double), number of processes (32 bits), State.Former (double)
--   for each tier that is charged after, of the checks that took:
--     the charge (double)
--   for each tier that has lent or has a sliding window:
--     microseconds until it holds the cost, and until it is full; the use of a sliding window's former window (doubles)
--   with eras: their values if one differs from what was expected; then a byte, 1 if they do, else 0

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local min, max, rep, sub, format = math.min, math.max, string.rep, string.sub, string.format
local KEYS, ARGV = KEYS, ARGV

local now, slack = read_clock(ARGV[8])
local last_limit = (#ARGV[3] - 8) / 32 - 1
local rates, bursts, sinces, intervals, kinds, opens, closes, nexts = read_limits(ARGV[3], last_limit + 1, ARGV[4], now)

local life = #ARGV[6] > 0 and unpack_struct('<d', ARGV[6])
local reserves, is_optional, record_id = life and life ~= 0, life and life < 0, life == 0 and sub(ARGV[6], 9)
local holders = ARGV[5]
local eras = ARGV[7] and #ARGV[7] > 0 and unpack_struct('<H', ARGV[7]) or 0
local read = life and #KEYS - 2 or #KEYS -- keys
local keys = read - eras
local states, wiring
if read <= CHUNK then
  states = call('MGET', unpack(KEYS, 1, read))
else
  states = {}
  for first = 1, read, CHUNK do
    local some = call('MGET', unpack(KEYS, first, min(first + CHUNK - 1, read)))
    for i = 1, #some do states[first + i - 1] = some[i] end
  end
end

local function numbers(code, size, packed)
  local unpack_struct, rep, count = struct.unpack, string.rep, #packed / size
  if count <= CHUNK then return {unpack_struct('<' .. rep(code, count), packed)} end
  local all = {}
  for first = 1, count, CHUNK do
    local n = math.min(CHUNK, count - first + 1)
    local some = {unpack_struct('<' .. rep(code, n), packed, (first - 1) * size + 1)}
    for i = 1, n do all[first + i - 1] = some[i] end
  end
  return all
end

local words = #ARGV[1] / 2
wiring = numbers('H', 2, ARGV[1])

-- A value has 20 bytes of limit, or 28 with an interval; comparing bytes beats unpacking four numbers.
local limit_bytes = {[0] = '', '', '', ''}
for column = 0, last_limit do
  local size = kinds[column] == 0 and intervals[column] == 0 and 20 or 28
  limit_bytes[column] = sub(ARGV[3], column * 32 + 1, column * 32 + size)
end

-- begun is nil for a bucket that cannot be lost; earliest has each era's earliest time.
local begun, earliest, era_reply = nil, {}, ''
if eras > 0 then
  local times, values, firsts, at = {}, {}, {}, 3 + keys * 2
  for e = 1, eras do
    local expected = sub(ARGV[7], at, at + 56)
    times[e], values[e], firsts[e] = read_era(KEYS[keys + e], states[keys + e], expected, now)
    if values[e] ~= expected then era_reply = '\1' end
    if times[e] then begun = begun or {} end
    at = at + 57
  end
  if begun then
    for i = 1, keys do
      local e = unpack_struct('<H', ARGV[7], 1 + i * 2)
      begun[i], earliest[i] = times[e], firsts[e]
    end
  end
  era_reply = era_reply == '\1' and table.concat(values) .. '\1' or '\0'
end

-- A bucket without a list is two columns from here on, others are in buckets; steps are expiries of the fast path. The
-- tables have room for a check of four tiers, as in read_limits.
local micros, fractions, changed, buckets = {0, 0, 0, 0}, {0, 0, 0, 0}, {false, false, false, false}, {}
local steps = {false, false, false, false}
local broken, foreign, waits, lent, tools = 0, {}, {}, {}, nil
for i = 1, keys do
  local column, state = wiring[i], states[i]
  local kind, interval, full = kinds[column], intervals[column], bursts[column] * TOKEN
  local m, f, stamp, former, step = nil, 0, now, 0, false
  if kind > SLIDING_WINDOW or opens[column] == OUTSIDE then
  elseif begun and begun[i] and is_lost(state, begun[i], earliest[i], now, kind, rates[column], bursts[column],
      sinces[column], interval, opens[column]) then
    m = LOST
    if state then -- kept: if an edit made the limit long, only this state knows what was used
      local full_at = closes[column]
      if kind <= LEAKY_BUCKET then
        full_at = full_since(begun[i], rates[column], bursts[column], sinces[column], interval)
      elseif kind == SLIDING_WINDOW then
        full_at = full_at + interval
      end
      call('SET', KEYS[i], state, 'PXAT', expiry(full_step(now, full_at - now), slack))
    end
  elseif not state then
    m = full -- a bucket that nobody used
  else
    local version, own_kind, in_force = nil, 0, nil
    if #state == 41 then
      version, m, f, stamp, in_force = unpack_struct('<BdIdc20', state)
    elseif #state == 58 then
      version, own_kind, m, f, stamp, in_force, former = unpack_struct('<BBdIdc28d', state)
      version = version - 1
    end
    -- The fast path handles valid values of the caller's limit.
    if version == 1 and in_force == limit_bytes[column] and own_kind == kind and m >= -1 and m <= full and m % 1 == 0
        and stamp >= 0 and stamp <= now and stamp % 1 == 0 then
      if former > 0 and (kind <= LEAKY_BUCKET or kind == FIXED_WINDOW
          and (former > closes[column] or former == closes[column] and opens[column] > stamp)) then
        m = nil -- the clock stepped back
      elseif kind <= LEAKY_BUCKET then
        local rate = rates[column]
        step = full_step(stamp, (full - m - f / FRACTIONS) / rate + interval)
        if interval == 0 then
          m, f = earn(m, f, now - stamp, rate, full)
        else
          m, f = earn(m, f, now - now % interval - (stamp - stamp % interval), rate, full)
        end
      elseif opens[column] > stamp then -- another window
        former = kind == SLIDING_WINDOW and stamp >= opens[column] - interval and full - m or 0
        m, f = full, 0
      elseif interval > 0 and m < full then -- bucket.lua lets a full window expire at once
        step = full_step(stamp, (kind == FIXED_WINDOW and closes[column] or closes[column] + interval) - stamp)
      end
    else
      m = nil
    end
  end
  if m then
    if kind == SLIDING_WINDOW then
      buckets[i] = {
        micros = m, fraction = f, stamp = now, former = former, entries = '', windows = column,
        rate = rates[column], burst = bursts[column], since = sinces[column], interval = interval, kind = kind,
        had = 0,
      }
    end
  else
    local read_at = unpack_struct('<d', ARGV[3], #ARGV[3] - 7)
    tools = tools or make_tools(now, slack, make_lender, earn, full_step, expiry,
      rates, bursts, sinces, intervals, kinds, opens, closes, nexts)
    local b, must_write, is_broken = tools.advance(column, state, read_at)
    if is_broken then broken = broken + 1 end
    m, f, changed[i] = b.micros, b.fraction, must_write
    if b.since ~= sinces[column] or b.rate ~= rates[column] or b.burst ~= bursts[column]
        or b.interval ~= interval or b.kind ~= kind then
      last_limit = last_limit + 1
      wiring[i] = last_limit
      rates[last_limit], bursts[last_limit], sinces[last_limit] = b.rate, b.burst, b.since
      intervals[last_limit], kinds[last_limit] = b.interval, b.kind
      if b.windows then
        opens[last_limit], closes[last_limit], b.windows = opens[b.windows], closes[b.windows], last_limit
      end
      limit_bytes[last_limit] = pack(b.kind == 0 and b.interval == 0 and '<dId' or '<dIdd',
        b.rate, b.burst, b.since, b.interval)
      foreign[#foreign + 1] = pack('<HdIddHH', i - 1, b.rate, b.burst, b.since, b.interval, b.kind, 0)
    end
    local had = b.kind <= FIXED_WINDOW and b.micros > OUTSIDE and tools.had(b) or 0
    if b.kind >= FIXED_WINDOW or had > 0 then
      buckets[i], b.had, b.out, b.holders = b, had, 0, 0
    elseif #b.entries > 0 then
      local lender = tools.lend()
      local slots = lender.read(b)
      buckets[i], b.had, b.out, b.holders = b, 0, lender.sum(slots, 2), lender.sum(slots, 3)
    end
  end
  micros[i], fractions[i], steps[i] = m, f, step
end

local function left(b, level, now)
  if b.kind <= FIXED_WINDOW or b.micros <= OUTSIDE then return level end
  if b.kind ~= SLIDING_WINDOW then return math.max(0, b.micros) end
  local weighed = b.former * ((b.interval - now % b.interval) / b.interval) / TOKEN + 0.5
  return math.max(0, b.micros - (weighed - weighed % 1) * TOKEN)
end

-- State.takeMore for a tier that is charged after.
local function fitting(amount, b, level, kind, burst, now)
  level = kind == 0 and level + burst * TOKEN or b and left(b, level, now) or level
  return math.min(amount, math.max(0, level))
end

local reply, n = {0, 0, 0, 0, 0, 0, 0, 0}, 0
local charges = {} -- of the tiers that are charged after
local exhausted, forgotten, reserved = 0, 0, nil
local slot, latest, counted -- of a record id that must be remembered
local costs = numbers('d', 8, ARGV[2])
local at, check, cost_at = keys + 1, -7, 1
while at <= words do
  check = check + 8
  local largest = costs[cost_at]
  cost_at = cost_at + 1
  local flags = wiring[at + 1]
  local first, last = at + 2, at + 1 + wiring[at]
  local cost, own_costs = largest, nil
  local records = false
  if flags >= MIXED then
    if flags >= RECORD then records, flags = true, flags - RECORD end
    if flags >= MIXED then
      flags = flags - MIXED
      own_costs = cost_at - first -- the cost of a tier is at own_costs + tier
      cost_at = cost_at + wiring[at]
    end
  end
  local r = n
  local allowed, slides = true, false
  for tier = first, last do
    local wire = wiring[tier]
    local mode = wire % 4
    local i = (wire - mode) / 4 + 1
    local level, fraction, needed = micros[i], fractions[i], cost
    local b = buckets[i]
    if own_costs then
      cost = costs[own_costs + tier]
      needed = cost
    end
    if b then
      level = left(b, level, now)
      if b.kind >= LOG then needed = tools.charge(b.kind, cost) end
      slides = slides or b.kind == SLIDING_WINDOW or b.kind == LOG or b.had > 0 or b.kind == 0 and b.out > 0
    elseif flags >= NO_DELAY and cost > 0 and kinds[wiring[i]] == LEAKY_BUCKET then
      needed = max(cost, bursts[wiring[i]] * TOKEN) -- an empty queue
    end
    if mode >= 2 then needed = records and OUTSIDE + 1 or 1 end
    local holds = 0
    if level >= needed or (level == needed - 1 and fraction >= HALF) then
      holds = 1
    elseif mode % 2 == 0 or level <= OUTSIDE then
      allowed = false
    end
    reply[n + 1], reply[n + 2] = level * 2 + holds, fraction
    n = n + 2
  end
  if allowed and reserves then
    local index = KEYS[read + 2]
    local ended = call('ZCOUNT', index, '-inf', format('%.0f', now))
    if ended > 0 then -- few at a time: a hundred thousand would take 20 ms
      forgotten = call('ZREMRANGEBYRANK', index, 0, min(ended, 1000) - 1)
    end
    if call('ZCARD', index) - (ended - forgotten) < MAX_RESERVATIONS then
      reserved = {} -- the tiers that are charged, if only by a cost of 0
    elseif is_optional then
      holders, exhausted = '', 2 -- it takes no slot, because nobody could release it
    else
      allowed, exhausted = false, 1
    end
  end
  if allowed and record_id then
    local set = KEYS[read + 1]
    slot = (now - now % RECORD_SLOT) / RECORD_SLOT
    local oldest = slot - RECORD_SLOTS
    local seen = call('ZSCORE', set, record_id)
    if seen and tonumber(seen) >= oldest then
      exhausted = 3
    else
      local past, shift, total = call('MGET', KEYS[read + 2])[1], 0, 0
      past = past and #past == RECORD_SLOTS * 4 + 12 and {unpack_struct('<d' .. rep('I', RECORD_SLOTS + 1), past)}
        or {slot}
      latest, counted = max(slot, past[1]), {} -- a clock that went back counts on in the latest slot
      shift = latest - past[1]
      for i = 1, RECORD_SLOTS + 1 do
        counted[i] = i > shift and past[i + 1 - shift] or 0
        total = total + counted[i]
      end
      local ended = call('ZCOUNT', set, '-inf', format('(%.0f', oldest))
      if ended > 0 then -- few at a time, as of reservations
        ended = ended - call('ZREMRANGEBYRANK', set, 0, min(ended, 1000) - 1)
      end
      if total >= MAX_RECORD_IDS or call('ZCARD', set) - ended >= MAX_IN_SET then
        allowed, exhausted, counted = false, 1, nil
      else
        counted[1] = counted[1] + 1
      end
    end
  end
  local takes = allowed and largest > 0 and flags % 2 ~= LOOK and exhausted ~= 3
  if takes or reserved then
    local r = r
    for tier = first, last do
      local wire = wiring[tier]
      local mode = wire % 4
      local i = (wire - mode) / 4 + 1
      local b, amount = buckets[i], 0
      if own_costs then cost = costs[own_costs + tier] end
      if takes and cost > 0 and reply[r + 1] % 2 == 1 and not (records and b and b.kind == CONCURRENCY) then
        amount = b and b.kind >= LOG and tools.charge(b.kind, cost) or cost
        if mode >= 2 then
          amount = fitting(amount, b, micros[i], kinds[wiring[i]], bursts[wiring[i]], now)
        end
        changed[i] = true
        if b and b.kind >= LOG then
          if amount > 0 then tools.take(b, amount, string.sub(holders, check, check + 7)) end
          reply[r + 1] = left(b, 0, now) * 2 + 1
        else
          micros[i] = micros[i] - amount
          reply[r + 1] = reply[r + 1] - amount * 2
          if b then b.micros = micros[i] end
        end
      end
      if takes and mode >= 2 then charges[#charges + 1] = pack('<d', amount) end
      if reserved and reply[r + 1] % 2 == 1 then
        local column = wiring[i]
        reserved[#reserved + 1] = pack('<H', #KEYS[i]) .. KEYS[i] .. pack('<dIddHHd',
          rates[column], bursts[column], sinces[column], intervals[column], kinds[column],
          (tier - first) * 4 + mode, amount)
      end
      r = r + 2
    end
  end
  if slides then
    for tier = first, last do
      local wire = wiring[tier]
      local mode = wire % 4
      local b = buckets[(wire - mode) / 4 + 1]
      if b and (b.kind == SLIDING_WINDOW or b.kind == LOG or b.kind == 0 and b.out > 0) and b.micros > OUTSIDE then
        local wait, full_in = 0, nil
        if reply[r + 1] % 2 == 0 then
          tools = tools or make_tools(now, slack, make_lender, earn, full_step, expiry,
            rates, bursts, sinces, intervals, kinds, opens, closes, nexts)
          local needed = own_costs and costs[own_costs + tier] or cost
          if mode >= 2 then needed = 1 end
          wait = tools.wait(b, needed)
        end
        if b.kind == LOG or b.kind == 0 then
          full_in = tools.time_to_full(b)
        else
          local ends = b.interval - now % b.interval
          full_in = b.micros < b.burst * TOKEN and ends + b.interval or b.former > 0 and ends or 0
        end
        waits[#waits + 1] = pack('<ddd', wait, full_in, b.former)
        if b.kind == 0 then lent[#lent + 1] = pack('<HdId', r / 2, b.out, b.holders, 0) end
      elseif b and b.had > 0 then
        lent[#lent + 1] = pack('<HdId', r / 2, 0, 0, b.had)
      end
      r = r + 2
    end
  end
  at = last + 1
end

-- No bucket was changed before this line, and below it only a lack of memory can fail, which Redis reports at the first
-- write.
local expiries = {}
for i = 1, keys do
  if changed[i] then
    local column, b = wiring[i], buckets[i]
    local interval, kind = intervals[column], kinds[column]
    if b and (kind >= LOG or not b.windows or kind == 0 or b.had > 0) then
      tools.write(KEYS[i], b, begun and begun[i])
    else
      local value, in_force, former, full_in = nil, limit_bytes[column], 0, nil
      if kind <= LEAKY_BUCKET then
        full_in = (bursts[column] * TOKEN - micros[i] - fractions[i] / FRACTIONS) / rates[column] + interval
      elseif kind == FIXED_WINDOW then
        if interval < 0 then former = closes[column] end
        full_in = closes[column] - now
      else
        former, full_in = b.former, closes[column] + interval - now
      end
      if kind == 0 and interval == 0 and micros[i] >= -1 then
        value = pack('<BdIdc20', 1, micros[i], fractions[i], now, in_force)
      else
        if #in_force == 20 then in_force = in_force .. pack('<d', interval) end
        value = pack('<BBdIdc28d', 2, kind, micros[i], fractions[i], now, in_force, former)
      end
      if begun and begun[i] and kind <= LEAKY_BUCKET then -- a missing bucket would count as lost until then
        full_in = max(full_in, full_since(begun[i], rates[column], bursts[column], sinces[column], interval) - now)
      end
      local step = full_step(now, full_in)
      if step == steps[i] then
        call('SET', KEYS[i], value, 'KEEPTTL')
      else
        expiries[step] = expiries[step] or expiry(step, slack)
        call('SET', KEYS[i], value, 'PXAT', expiries[step])
      end
    end
  end
end

if reserved then
  local life, id = math.abs((unpack_struct('<d', ARGV[6]))), string.sub(ARGV[6], 9, 24)
  local ms = format('%.0f', math.ceil(life / 1000))
  call('SET', KEYS[read + 1],
    string.sub(ARGV[6], 25, 25) .. pack('<ddd', now, costs[1], life) .. string.sub(ARGV[6], 26)
      .. table.concat(reserved), 'PX', ms)
  call('ZADD', KEYS[read + 2], format('%.0f', now + life), id)
  call('PEXPIRE', KEYS[read + 2], MAX_RESERVE_FOR)
end

-- A tenant's counts are the latest time slot (double), and back from it each remembered slot's number of ids (32 bits).
if counted then
  call('ZADD', KEYS[read + 1], format('%.0f', slot), record_id)
  call('PEXPIRE', KEYS[read + 1], RECORD_LIFE)
  call('SET', KEYS[read + 2], pack('<d' .. rep('I', RECORD_SLOTS + 1), latest, unpack(counted)), 'PX', RECORD_LIFE)
end

local answers = ''
for first = 1, n, CHUNK do
  local last = min(first + CHUNK - 1, n)
  answers = answers .. pack('<' .. rep('dI', (last - first + 1) / 2), unpack(reply, first, last))
end
return answers .. pack('<IdHBIH', broken, now, #foreign, exhausted, forgotten, #lent)
  .. table.concat(foreign) .. table.concat(lent) .. table.concat(charges) .. table.concat(waits) .. era_reply

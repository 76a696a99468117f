-- Every script begins with this code: the format of a bucket, and how to advance it. The doubles are those of
-- enforce.State; change both together.
--
-- A bucket's value is one string with little-endian numbers.
--
--   version 1, a token bucket that refills continuously, in 41 bytes, so that Redis keeps it inside the
--   object (44 is the most):
--     version (byte, 1)  micros (double)  fraction (32 bits)  stamp (double)
--     the limit in force: rate (double)  burst (32 bits)  since (double)
--   version 2, any bucket:
--     version (byte, 2)  kind (byte)  micros (double)  fraction (32 bits)  stamp (double)
--     the limit in force: rate (double)  burst (32 bits)  since (double)  interval (double)
--     former (double): the amount used in a sliding window's former window; or the first end of a concurrency
--       slot; or the end of a calendar window; or State.Former of another fixed window or a refill in steps
--     entries of a log or of concurrency slots; see state.go
--   version 3, a token bucket that has lent tokens; see lent.go: as version 2, with the kind 0 and, as entries,
--     epoch (double), then time slots of slot (double)  out (double)  holders (32 bits)
--
-- The rules for later formats, because old and new processes share buckets during an upgrade:
--
--   * The first byte is the version, 1 to 31. A change of the bytes after it takes the next version.
--     No version is used again.
--   * A script refuses an unknown version. It answers UNKNOWN for the bucket, takes nothing from any bucket
--     of that check, and leaves the value alone. A full bucket in its place would refill every bucket of the
--     newer format.
--   * A script writes version 1 whenever that can hold the state, and a later version only when it cannot.
--   * Every script that reads a value reads all versions that its release knows.
--
-- A value is broken, and replaced by a full bucket, if the rest of a known version is invalid or the first byte is no
-- version.
--
-- Names in capitals are constants; see sources.go. Variables are arguments, because Lua 5.1 would capture outer ones at
-- every call, which takes longer.

-- Level.earnUpTo; `x - x % 1` is floor(x).
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

-- Keys expire by Redis's clock even if a test passes the time, so TEST_SLACK covers slow tests.
local function read_clock(given)
  local time = redis.call('TIME') -- once: it moves while a script runs
  local now = time[1] * 1000000 + time[2]
  if given then
    return tonumber(given), TEST_SLACK + (now - given) / 1000
  end
  return now, SLACK
end

-- A limit has 32 bytes: rate (double), burst (32 bits), since and interval (doubles), kind and calendar's number (16
-- bits each; 0: none). A calendar has the starts of four windows, the former one first. opens and closes bound the
-- window that holds now; nexts, of calendars only, ends the one after. The tables have room for four limits, because
-- growing a table takes half a microsecond per entry.
local function read_limits(packed, count, calendars, now)
  local rates, bursts, sinces = {[0] = 0, 0, 0, 0}, {[0] = 0, 0, 0, 0}, {[0] = 0, 0, 0, 0}
  local intervals, kinds, opens, closes, nexts = {[0] = 0, 0, 0, 0}, {[0] = 0, 0, 0, 0}, {}, {}, nil
  local unpack_struct = struct.unpack
  for column = 0, count - 1 do
    local rate, burst, since, interval, kind, calendar = unpack_struct('<dIddHH', packed, column * 32 + 1)
    rates[column], bursts[column], sinces[column], intervals[column], kinds[column] = rate, burst, since, interval, kind
    if kind == FIXED_WINDOW or kind == SLIDING_WINDOW then
      if calendar == 0 then
        opens[column] = now - now % interval
        closes[column] = opens[column] + interval
      else
        local a, b, c, d = unpack_struct('<dddd', calendars, calendar * 32 - 31)
        nexts = nexts or {}
        if now >= a and now < b then
          opens[column], closes[column], nexts[column] = a, b, c
        elseif now >= b and now < c then
          opens[column], closes[column], nexts[column] = b, c, d
        elseif now >= c and now < d then
          opens[column], closes[column], nexts[column] = c, d, d
        else
          opens[column] = OUTSIDE -- Redis's clock and the caller's are more than a window apart
        end
      end
    end
  end
  return rates, bursts, sinces, intervals, kinds, opens, closes, nexts
end

-- An era has the server's run id (40 bytes), its earliest time (double), and when the server first saw the tenant's
-- data (double). A last byte of 1 says that no bucket of a long limit was used before. The times differ once the clock
-- has stepped back.

-- read_era returns an era's start (false if no long limit's bucket can be lost), value and earliest time. The run id is
-- looked at only if expected differs from kept. A 1 at the end of expected: the caller found out that no bucket was
-- used before.
local run_id
local function read_era(key, kept, expected, now)
  local sub, byte = string.sub, string.byte
  if kept ~= expected then
    if kept and sub(kept, 1, 56) == sub(expected, 1, 56) then
      if byte(expected, 57) == 1 then
        kept = expected
        redis.call('SET', key, kept)
      end
    else
      if not run_id then
        local info = redis.pcall('INFO', 'server') -- 30 µs; without the right to it, only an empty Redis is noticed
        run_id = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
        run_id = sub(run_id .. string.rep('0', 40), 1, 40)
      end
      if not kept or #kept ~= 57 or sub(kept, 1, 40) ~= run_id then
        kept = run_id .. struct.pack('<dd', now, now) .. '\0'
        redis.call('SET', key, kept)
      end
    end
  end
  if byte(kept, 57) ~= 0 then return false, kept end
  local earliest, begun = struct.unpack('<dd', kept, 41)
  if earliest > now then -- the clock stepped back, and what is written now must be of the era
    earliest, kept = now, sub(kept, 1, 40) .. struct.pack('<d', now) .. sub(kept, 49)
    redis.call('SET', key, kept)
  end
  return begun, kept, earliest
end

local function full_since(begun, rate, burst, since, interval)
  return math.max(begun, since) + 2 * (burst * TOKEN / rate + interval)
end

-- is_lost: the bucket is missing or from before its era, and would not surely be full by now. A debt refills in twice
-- the time; open is the start of the present window.
local function is_lost(state, begun, earliest, now, kind, rate, burst, since, interval, open)
  if state then
    local version = string.byte(state) or 0
    if version < 1 or version > 3 or #state < 41 then return false end
    if struct.unpack('<d', state, version == 1 and 14 or 15) >= earliest then return false end
  end
  local from = math.max(begun, since)
  if kind == FIXED_WINDOW then return open <= from end
  if kind == SLIDING_WINDOW then return open - interval <= from end
  return now <= full_since(begun, rate, burst, since, interval)
end

-- full_step rounds up to EXPIRY_STEP: most writes of a busy bucket then keep its expiry, which halves Redis's time.
local function full_step(now, time_to_full)
  if not (time_to_full < LONGEST * 1000) then time_to_full = LONGEST * 1000 end
  local at = now + time_to_full
  return at - at % EXPIRY_STEP + EXPIRY_STEP
end

-- redis.call takes 1.6 µs to format a number (Redis 7.0), and would rewrite PX for replicas.
local function expiry(step, slack)
  return string.format('%.0f', step / 1000 + slack)
end

local function make_lender(earn, full_step)
  local lender = {}
  local pack, unpack_struct, floor = struct.pack, struct.unpack, math.floor

  -- State.lent.
  local function read(b)
    local l = {n = 0, epoch = 0}
    local entries = b.entries
    if #entries > 0 then
      l.epoch = unpack_struct('<d', entries)
      for at = 9, #entries, 20 do
        l[l.n + 1], l[l.n + 2], l[l.n + 3] = unpack_struct('<ddI', entries, at)
        l.n = l.n + 3
      end
    end
    return l
  end

  -- State.keep.
  local function keep(b, l)
    local entries = ''
    if l.n > 0 then
      entries = pack('<d', l.epoch)
      for i = 1, l.n, 3 do entries = entries .. pack('<ddI', l[i], l[i + 1], l[i + 2]) end
    end
    b.entries = entries
  end

  local function sum(l, column)
    local total = 0
    for i = column, l.n, 3 do total = total + l[i] end
    return total
  end

  local function room(b, l)
    return math.max(0, b.burst * TOKEN - sum(l, 2))
  end

  local function ticks(b, at)
    if b.interval > 0 then return at - at % b.interval end
    return at
  end

  local function forgotten(l) return (l[1] + 1) * SLOT_LENGTH + SLOT_GUARD end

  local function forget(l)
    for i = 1, l.n do l[i] = l[i + 3] end
    l.n = l.n - 3
  end

  -- State.earnBeside.
  local function earn_beside(b, to)
    local l, now, forgot = read(b), b.stamp, false
    while true do
      local till = to
      if l.n > 0 then till = math.min(to, math.max(now, forgotten(l))) end
      b.micros, b.fraction = earn(b.micros, b.fraction, ticks(b, till) - ticks(b, now), b.rate, room(b, l))
      now = till
      if l.n == 0 or forgotten(l) > to then break end
      forget(l)
      forgot = true
    end
    if forgot then keep(b, l) end
  end

  -- latest_step ignores earnings until the last time slot is forgotten, to save a look at each slot.
  local function latest_step(b)
    local ends = (unpack_struct('<d', b.entries, #b.entries - 19) + 1) * SLOT_LENGTH + SLOT_GUARD
    return full_step(b.stamp, math.max(0, ends - b.stamp) + (b.burst * TOKEN - b.micros) / b.rate + b.interval)
  end

  -- State.stepBack.
  local function step_back(b, now)
    local l = read(b)
    if l.n == 0 then return end
    keep(b, {n = 3, epoch = now, floor((now + LEASE_LIFE) / SLOT_LENGTH), sum(l, 2), sum(l, 3)})
  end

  -- State.untilBeside.
  local function until_beside(b, amount)
    local later = {
      micros = b.micros, fraction = b.fraction, rate = b.rate, burst = b.burst, interval = b.interval,
      entries = b.entries, stamp = b.stamp,
    }
    while true do
      local l = read(later)
      local wait = later.stamp - b.stamp
      if room(later, l) >= amount then
        local missing, first = amount - later.micros - later.fraction / FRACTIONS, 0
        if later.micros < amount and missing > 0 then
          first = math.min(math.max(1, math.ceil(missing / b.rate - math.min(0.01, 0.25 / b.rate))), 1e15)
          if b.interval > 0 then
            first = floor((first + b.interval - 1) / b.interval) * b.interval - later.stamp % b.interval
          end
          first = math.min(first, LONGEST * 1000)
        end
        wait = wait + first
        if l.n == 0 or b.stamp + wait < forgotten(l) then return wait end
      end
      local to = forgotten(l)
      earn_beside(later, to)
      later.stamp = to
    end
  end

  lender.read, lender.keep, lender.sum, lender.room = read, keep, sum, room
  lender.earn_beside, lender.step_back, lender.until_beside = earn_beside, step_back, until_beside
  lender.latest_step = latest_step
  return lender
end

-- make_tools costs microseconds, so take.lua's fast path does without, for buckets of the caller's limit without a
-- list.
--
-- A bucket b is enforce.State with its limit's fields; b.windows indexes the limit whose windows it has, or is nil.
local function make_tools(now, slack, make_lender, earn, full_step, expiry,
    rates, bursts, sinces, intervals, kinds, opens, closes, nexts)
  local tools = {}
  local pack, unpack_struct, sub = struct.pack, struct.unpack, string.sub
  local min, max, floor, ceil = math.min, math.max, math.floor, math.ceil

  local function fill(b)
    b.micros, b.fraction, b.former, b.entries = b.burst * TOKEN, 0, 0, ''
  end

  local lender = nil
  local function lend()
    lender = lender or make_lender(earn, full_step)
    return lender
  end

  -- State.logTake.
  local function log_take(b, amount)
    local entries, count, last = b.entries, amount / TOKEN, #b.entries - 9
    if last > 0 then
      local time, held = unpack_struct('<dH', entries, last)
      if time == b.stamp then
        entries, count = sub(entries, 1, last - 1), count + held
      end
    end
    b.entries = entries .. pack('<dH', b.stamp, count)
  end

  -- State.take.
  local function take(b, amount, holder)
    if b.kind == CONCURRENCY and (#holder == 0 or holder == '\0\0\0\0\0\0\0\0') then
      return -- nobody could release it
    end
    b.micros = b.micros - amount
    if b.kind == LOG then
      log_take(b, amount)
    elseif b.kind == CONCURRENCY then
      local ends = b.stamp + b.interval
      b.former = #b.entries > 0 and min(b.former, ends) or ends
      b.entries = b.entries .. holder .. pack('<d', ends)
    end
  end

  -- State.dropEntries.
  local function drop_entries(b, to)
    local entries, size = b.entries, #b.entries
    if b.kind == LOG then
      local at, last = 1, to - b.interval
      while at <= size do
        local time, count = unpack_struct('<dH', entries, at)
        if time > last then break end
        b.micros = b.micros + count * TOKEN
        at = at + 10
      end
      if at > 1 then b.entries = sub(entries, at) end
    elseif size > 0 and b.former <= to then
      local kept, first = {}, nil
      for at = 1, size, 16 do
        local ends = unpack_struct('<d', entries, at + 8)
        if ends > to then
          kept[#kept + 1] = sub(entries, at, at + 15)
          first = min(first or ends, ends)
        else
          b.micros = b.micros + TOKEN
        end
      end
      b.entries, b.former = table.concat(kept), first or 0
    end
  end

  -- State.limitEntries.
  local function limit_entries(b)
    local entries = b.entries
    if b.kind == LOG then
      local late, count = #entries, 0
      while late > 0 do
        local time, held = unpack_struct('<dH', entries, late - 9)
        if time <= b.stamp then break end
        late, count = late - 10, count + held
      end
      b.entries = sub(entries, 1, late)
      if count > 0 then log_take(b, count * TOKEN) end
    elseif b.kind == CONCURRENCY and #entries > 0 then
      local kept, latest = {}, b.stamp + b.interval
      for at = 1, #entries, 16 do
        local ends = min(unpack_struct('<d', entries, at + 8), latest)
        kept[#kept + 1] = sub(entries, at, at + 7) .. pack('<d', ends)
      end
      b.entries, b.former = table.concat(kept), min(b.former, latest)
    end
  end

  -- weighed in state.go.
  local function weighed(former, rest, interval)
    return floor(former * (rest / interval) / TOKEN + 0.5) * TOKEN
  end

  -- State.left.
  local function left(b)
    if b.kind ~= SLIDING_WINDOW then return b.micros end
    return max(0, b.micros - weighed(b.former, b.interval - b.stamp % b.interval, b.interval))
  end

  -- State.keepWindow. The end of a calendar window is there already.
  local function keep_window(b)
    local interval, had, ends, next = b.interval, b.former, nil, nil
    if b.kind > FIXED_WINDOW or interval == 0 or #b.entries > 0 then return end
    if interval > 0 then
      had = max(had, b.stamp - b.stamp % interval + interval)
      ends = now - now % interval + interval
      next = ends + interval
    elseif b.windows then
      ends, next = closes[b.windows], nexts[b.windows]
    else
      return
    end
    b.former = had > ends and min(had, next) or 0
  end

  local function had(b)
    local interval, former = b.interval, b.former
    if b.kind == SLIDING_WINDOW or former == 0 then return former end
    local ends = interval > 0 and now - now % interval + interval or b.windows and closes[b.windows] or former
    return former > ends and former or 0
  end

  -- State.earnUntil. Without a calendar only the end of the state's window is known.
  local function earn_until(b, to)
    local interval = b.interval
    if b.kind == 0 and #b.entries > 0 then
      lend().earn_beside(b, to)
    elseif b.kind <= LEAKY_BUCKET then
      local ticks, from = to, b.stamp
      if interval > 0 then
        ticks, from = to - to % interval, from - from % interval
        if b.former > 0 then
          local ended = b.former - interval
          if ended <= ticks then b.former = 0 end
          from = max(from, min(ended, ticks)) -- processes of another release move the stamp and keep former
        end
      end
      b.micros, b.fraction = earn(b.micros, b.fraction, ticks - from, b.rate, b.burst * TOKEN)
    elseif b.kind == FIXED_WINDOW then
      local open, ends
      if interval > 0 then
        open = to - to % interval
        ends = open + interval
      elseif b.windows and to == now then
        open, ends = opens[b.windows], closes[b.windows]
      else
        open, ends = b.former > 0 and to >= b.former and b.former or 0, math.huge
      end
      if open > b.stamp and b.former < ends then fill(b) end
      if interval > 0 and b.former <= ends then b.former = 0 end
    elseif b.kind == SLIDING_WINDOW then
      local open = to - to % interval
      if open > b.stamp then
        local used = b.stamp >= open - interval and b.burst * TOKEN - b.micros or 0
        fill(b)
        b.former = used
      end
    else
      drop_entries(b, to)
    end
    b.stamp = to
  end

  local function charge(kind, cost)
    if kind == LOG then return ceil(cost / TOKEN) * TOKEN end
    if kind == CONCURRENCY then return cost > 0 and TOKEN or 0 end
    return cost
  end

  -- State.edit, to the limit of a column, with its own since.
  local function edit(b, column, to_since)
    local was_burst, was_kind, was_interval, was_rate = b.burst, b.kind, b.interval, b.rate
    local used = b.burst * TOKEN - left(b)
    b.rate, b.burst, b.since = rates[column], bursts[column], to_since
    b.interval, b.kind = intervals[column], kinds[column]
    b.windows = column
    local kind, full = b.kind, b.burst * TOKEN
    local keeps_shape = kind == was_kind and b.interval == was_interval
    if kind == 0 and was_kind == 0 then
      -- A lower burst caps later earnings, and the debt.
      if b.micros < -full then b.micros, b.fraction = -full, 0 end
      if b.interval ~= was_interval then b.former = 0 end
    elseif keeps_shape and b.rate == was_rate and b.burst == was_burst then
    elseif kind == was_kind and kind >= LOG then
      b.micros = b.micros + (b.burst - was_burst) * TOKEN
    elseif kind == CONCURRENCY or was_kind == CONCURRENCY then
      fill(b)
    elseif kind >= FIXED_WINDOW and keeps_shape then
      b.micros = max(0, full - (was_burst * TOKEN - b.micros))
    else
      fill(b)
      used = charge(kind, min(used, full))
      if used > 0 then take(b, used, '') end
    end
    limit_entries(b)
  end

  local function read(b, state)
    local version, kind, interval, former, entries = string.byte(state) or 0, 0, 0, 0, ''
    local micros, fraction, stamp, rate, burst, since
    if version == 1 and #state == 41 then
      version, micros, fraction, stamp, rate, burst, since = unpack_struct('<BdIddId', state)
    elseif version == 2 and #state >= 58 then
      version, kind, micros, fraction, stamp, rate, burst, since, interval, former = unpack_struct('<BBdIddIddd', state)
      if kind > CONCURRENCY then return UNKNOWN end
      entries = sub(state, 59)
      local size = kind == LOG and 10 or kind == CONCURRENCY and 16 or #entries + 1 -- it has none
      if #entries % size ~= 0 or interval % 1 ~= 0 or not (former >= 0 and former < 1e16)
          or kind > FIXED_WINDOW and interval <= 0 then
        return nil
      end
    elseif version == 3 and #state > 66 then
      version, kind, micros, fraction, stamp, rate, burst, since, interval, former = unpack_struct('<BBdIddIddd', state)
      entries = sub(state, 59)
      if kind ~= 0 or (#entries - 8) % 20 ~= 0 or interval < 0 or interval % 1 ~= 0 or #entries > 128 then
        return nil
      end
      local epoch, latest = unpack_struct('<d', entries), -1
      if epoch % 1 ~= 0 then return nil end
      for at = 9, #entries, 20 do
        local index, out = unpack_struct('<dd', entries, at)
        if index <= latest or index > 1e13 or index % 1 ~= 0
            or not (out >= 0 and out <= 1e15) or out % 1 ~= 0 then
          return nil
        end
        latest = index
      end
    else
      return version > 3 and version <= 31 and UNKNOWN or nil
    end
    -- NaN is in no range, and inf % 1 is NaN.
    if micros >= (version == 1 and -1 or -1e15) and micros <= burst * TOKEN and micros % 1 == 0
        and stamp >= 0 and stamp <= 9007199254740992 and stamp % 1 == 0
        and (kind > LEAKY_BUCKET or rate >= 1e-6 and rate <= 1e9) and burst >= 1 and burst <= 1e9
        and since % 1 == 0 then
      b.kind, b.micros, b.fraction, b.stamp = kind, micros, fraction, stamp
      b.rate, b.burst, b.since, b.interval = rate, burst, since, interval
      b.former, b.entries = former, entries
      if version == 3 then b.step = lend().latest_step(b) end
      return true
    end
  end

  -- advance also returns whether the bucket must be written, and whether the value was broken; b.micros may be UNKNOWN
  -- or OUTSIDE.
  local function advance(column, state, read_at)
    local b = {}
    local found
    if opens[column] == OUTSIDE then
      found, b.micros = UNKNOWN, OUTSIDE
    else
      found = state and read(b, state)
      if found == UNKNOWN then b.micros = UNKNOWN end
    end
    if found ~= true then
      b.rate, b.burst, b.since, b.interval, b.kind =
        rates[column], bursts[column], sinces[column], intervals[column], kinds[column]
      b.windows, b.stamp = column, now
      if found == UNKNOWN then
        b.fraction, b.former, b.entries = 0, 0, ''
        return b, false, false
      end
      fill(b)
      return b, state ~= false, state ~= false
    end
    local must_write = false
    if b.kind == kinds[column] and b.interval == intervals[column] then b.windows = column end
    if b.stamp > now then
      keep_window(b)
      b.stamp, must_write = now, true
      limit_entries(b)
      if b.kind == 0 and #b.entries > 0 then lend().step_back(b, now) end
    end
    local same = b.rate == rates[column] and b.burst == bursts[column]
      and b.interval == intervals[column] and b.kind == kinds[column]
    local since = sinces[column]
    local from = since
    if since <= b.since then
      if same or b.since + COMMIT_TIME >= read_at then
        from = nil
      else -- the database lost the edit that made the bucket's limit
        from, since = read_at, read_at - COMMIT_TIME
      end
    end
    if from then
      earn_until(b, min(max(from, b.stamp), now))
      edit(b, column, since)
      must_write = true
    end
    earn_until(b, now)
    return b, must_write, false
  end

  -- See State.slidingWait and State.logWait; 0 is never.
  local function wait(b, cost)
    local amount = charge(b.kind, cost)
    if amount > b.burst * TOKEN then return 0 end
    if b.kind == 0 then return lend().until_beside(b, amount) end
    if b.kind == LOG then
      local missing = amount - b.micros
      for at = 1, #b.entries, 10 do
        local time, count = unpack_struct('<dH', b.entries, at)
        missing = missing - count * TOKEN
        if missing <= 0 then return time + b.interval - now end
      end
      return 0
    end
    local ends = now - now % b.interval + b.interval
    local room, used, least = b.micros - amount, b.former, 1
    if room < 0 then
      local full = b.burst * TOKEN
      least = ends - now
      room, used, ends = full - amount, full - b.micros, ends + b.interval
    end
    local rest = math.ceil(b.interval * ((floor(room / TOKEN) + 0.5) * TOKEN / used)) - 1
    if weighed(used, rest, b.interval) > room then rest = rest - 1 end
    return max(least, ends - now - rest)
  end

  -- time_to_full is nil for a calendar window that no caller sent.
  local function time_to_full(b)
    local full, interval = b.burst * TOKEN, b.interval
    if b.kind == 0 and #b.entries > 0 then
      return lend().until_beside(b, full)
    elseif b.kind <= LEAKY_BUCKET then
      return (full - b.micros - b.fraction / FRACTIONS) / b.rate + interval + max(0, had(b) - now)
    elseif b.kind == FIXED_WINDOW then
      if b.micros >= full then return 0 end
      if interval > 0 then return max(interval - now % interval, b.former - now) end
      return b.windows and max(closes[b.windows], b.former) - now
    elseif b.kind == SLIDING_WINDOW then
      local ends = interval - now % interval
      return b.micros < full and ends + interval or b.former > 0 and ends or 0
    elseif b.kind == LOG then
      if #b.entries == 0 then return 0 end
      return unpack_struct('<d', b.entries, #b.entries - 9) + interval - now
    end
    return interval -- no slot is held for longer
  end

  -- With begun, the key lasts until a missing bucket would surely be full, so it never looks lost.
  local function write(key, b, begun)
    local value
    if b.kind == 0 and #b.entries == 0 and b.interval == 0 and b.micros >= -1 then
      value = pack('<BdIddId', 1, b.micros, b.fraction, b.stamp, b.rate, b.burst, b.since)
    else
      if b.kind == FIXED_WINDOW and b.interval < 0 then
        b.former = max(b.windows and closes[b.windows] or 0, b.former)
      end
      value = pack('<BBdIddIddd', b.kind == 0 and #b.entries > 0 and 3 or 2, b.kind, b.micros, b.fraction, b.stamp,
        b.rate, b.burst, b.since, b.interval, b.former)
        .. b.entries
    end
    if b.kind == 0 and #b.entries > 0 then
      local step = lend().latest_step(b)
      if step == b.step then
        redis.call('SET', key, value, 'KEEPTTL')
      else
        redis.call('SET', key, value, 'PXAT', expiry(step, slack))
      end
      return
    end
    local full_in = time_to_full(b)
    if full_in and begun and b.kind <= LEAKY_BUCKET then
      full_in = max(full_in, full_since(begun, b.rate, b.burst, b.since, b.interval) - now)
    end
    if full_in then
      redis.call('SET', key, value, 'PXAT', expiry(full_step(now, full_in), slack))
    else
      redis.call('SET', key, value, 'KEEPTTL')
    end
  end

  -- State.release; given ends, State.extend.
  local function release(b, holder, ends)
    for at = 1, #b.entries, 16 do
      if sub(b.entries, at, at + 7) == holder then
        local kept = ends and holder .. pack('<d', ends) or ''
        b.entries = sub(b.entries, 1, at - 1) .. kept .. sub(b.entries, at + 16)
        if ends then
          b.former = min(b.former, ends)
        else
          b.micros = b.micros + TOKEN
        end
        return true
      end
    end
    return false
  end

  -- State.giveBack.
  local function give_back(b, amount, taken)
    local full, kind = b.burst * TOKEN, b.kind
    if kind == 0 and #b.entries > 0 then full = lend().room(b, lend().read(b)) end
    if kind == FIXED_WINDOW then
      local open = b.interval > 0 and now - now % b.interval or b.windows and opens[b.windows] or now
      if open > taken then return 0 end
    elseif kind == SLIDING_WINDOW then
      local open = now - now % b.interval
      if taken < open then
        if taken < open - b.interval then amount = 0 end
        amount = min(amount, b.former)
        b.former = b.former - amount
        return amount
      end
    elseif kind == LOG then
      for at = 1, #b.entries, 10 do
        local time, count = unpack_struct('<dH', b.entries, at)
        if time == taken then
          amount = min(amount, count * TOKEN)
          b.micros, count = b.micros + amount, count - amount / TOKEN
          local kept = count > 0 and pack('<dH', time, count) or ''
          b.entries = sub(b.entries, 1, at - 1) .. kept .. sub(b.entries, at + 10)
          return amount
        end
      end
      return 0
    end
    amount = min(amount, max(0, full - b.micros))
    b.micros = b.micros + amount
    if b.micros == full then b.fraction = 0 end
    return amount
  end

  -- State.takeMore.
  local function take_more(b, amount)
    if b.kind == 0 then
      amount = min(amount, max(0, b.micros + b.burst * TOKEN))
      b.micros = b.micros - amount
      return amount
    end
    amount = min(amount, max(0, left(b)))
    if amount > 0 then take(b, amount, '') end
    return amount
  end

  tools.release, tools.give_back, tools.take_more = release, give_back, take_more
  tools.advance, tools.take, tools.left, tools.charge, tools.write = advance, take, left, charge, write
  tools.wait, tools.time_to_full, tools.fill, tools.lend, tools.had = wait, time_to_full, fill, lend, had
  return tools
end

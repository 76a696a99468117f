-- Takes a lease owner's reports, and lends it tokens of one tenant's buckets; see State.Lease.
--
--   KEYS     the buckets
--   ARGV[1]  their limits, 32 bytes each
--   ARGV[2]  the requests, in the same order: epoch, presence, held, need, want, since (doubles),
--            number of returns (16 bits), and for each return: slot, spent, back (doubles)
--   ARGV[3]  absent or empty without a long limit; else the expected value of the era, whose key is behind the buckets,
--            and for each bucket whether its limit is long (byte)
--   ARGV[4]  the time in microseconds, from tests only
--
-- The reply is one string: the number of broken values (32 bits), and for each bucket
--
--   status   (byte) 0: lent, 1: refused, 2: the value has an unknown version, 3: it may be lost
--   grant    amount, slot, epoch, micros (doubles), fraction (32 bits), out (double), holders (32 bits), wait (double)
--   limit    the limit in force (32 bytes)

local call, pack, unpack_struct, sub = redis.call, struct.pack, struct.unpack, string.sub
local KEYS, limits, asks = KEYS, ARGV[1], ARGV[2]

local now, slack = read_clock(ARGV[4])
local states = call('MGET', unpack(KEYS))
local count, begun, earliest, _ = #KEYS, nil, nil, nil
if ARGV[3] and #ARGV[3] > 0 then
  count = count - 1
  begun, _, earliest = read_era(KEYS[count + 1], states[count + 1], sub(ARGV[3], 1, 57), now)
end
local slot = (now + LEASE_LIFE) / SLOT_LENGTH
slot = slot - slot % 1

local function make_all_tools()
  local rates, bursts, sinces, intervals, kinds, opens, closes, nexts = read_limits(limits, count, '', now)
  return make_tools(now, slack, make_lender, earn, full_step, expiry,
    rates, bursts, sinces, intervals, kinds, opens, closes, nexts)
end

local slot_formats = {'<ddI', '<ddIddI', '<ddIddIddI', '<ddIddIddIddI', '<ddIddIddIddIddI', '<ddIddIddIddIddIddI'}
local value_formats = {
  '<BBdIdc28ddddI', '<BBdIdc28ddddIddI', '<BBdIdc28ddddIddIddI', '<BBdIdc28ddddIddIddIddI',
  '<BBdIdc28ddddIddIddIddIddI',
  '<BBdIdc28ddddIddIddIddIddIddI',
}

local parsed, expiries = {}, {} -- limits by their bytes, and expiries by their step
local replies, broken, at, tools = {}, 0, 1, nil
for i = 1, count do
  local ask_epoch, presence, held, need, want, since, returns = unpack_struct('<ddddddH', asks, at)
  at = at + 50
  local in_force, state = sub(limits, i * 32 - 31, i * 32), states[i]
  local limit = parsed[in_force]
  if not limit then
    local rate, burst, _, interval, kind = unpack_struct('<dIddH', in_force)
    limit = {rate, burst * TOKEN, sub(in_force, 1, 20), sub(in_force, 1, 28), kind == 0 and interval == 0}
    parsed[in_force] = limit
  end
  local rate, full = limit[1], limit[2]

  -- The fast path handles valid values of the caller's limit without debt; l has three numbers for each time slot,
  -- first to last.
  local micros, fraction, stamp, former, epoch, l, first, last, step = nil, 0, now, 0, 0, nil, 1, 0, nil
  if limit[5] then
    local size = state and #state
    if not state then
      micros = full -- a bucket that nobody used
    elseif size == 41 then
      local version, own
      version, micros, fraction, stamp, own = unpack_struct('<BdIdc20', state)
      if version ~= 1 or own ~= limit[3] then micros = nil end
    elseif size > 66 and size <= 186 and (size - 66) % 20 == 0 then
      local version, kind, own
      version, kind, micros, fraction, stamp, own, former, epoch = unpack_struct('<BBdIdc28dd', state)
      if version == 3 and kind == 0 and own == limit[4] and epoch % 1 == 0 then
        local slots = (size - 66) / 20
        l, last = {unpack_struct(slot_formats[slots], state, 67)}, slots * 3
        local latest = -1
        for j = 1, last, 3 do
          local index, out = l[j], l[j + 1]
          if index <= latest or index > 1e13 or index % 1 ~= 0
              or not (out >= 0 and out <= 1e15) or out % 1 ~= 0 then
            micros = nil
          end
          latest = index
        end
      else
        micros = nil
      end
    end
  end
  local b, must_write, is_broken
  if begun and string.byte(ARGV[3], 57 + i) == 1 then
    local r, burst, began, interval, kind = unpack_struct('<dIddH', sub(limits, i * 32 - 31, i * 32))
    if is_lost(state, begun, earliest, now, kind, r, burst, began, interval, now) then micros = LOST end
  end
  if micros == LOST then
  elseif micros and micros >= -1 and micros <= full and micros % 1 == 0
      and stamp >= 0 and stamp <= now and stamp % 1 == 0 then
    if last == 0 then
      micros, fraction = earn(micros, fraction, now - stamp, rate, full)
    else -- lender.earn_beside
      local ends = (l[last - 2] + 1) * SLOT_LENGTH + SLOT_GUARD
      step = full_step(stamp, (ends > stamp and ends - stamp or 0) + (full - micros) / rate)
      local out = 0
      for j = 2, last, 3 do out = out + l[j] end
      while true do
        local till, forgotten = now, now + 1
        if first < last then
          forgotten = (l[first] + 1) * SLOT_LENGTH + SLOT_GUARD
          if forgotten < now then till = forgotten > stamp and forgotten or stamp end
        end
        micros, fraction = earn(micros, fraction, till - stamp, rate, full > out and full - out or 0)
        if forgotten > now then break end
        stamp, out, first = till, out - l[first + 1], first + 3
      end
    end
  else
    tools = tools or make_all_tools()
    b, must_write, is_broken = tools.advance(i - 1, state, 0)
    if is_broken then broken = broken + 1 end
    micros, fraction, former, step = b.micros, b.fraction, b.former, b.step
    rate, full = b.rate, b.burst * TOKEN
    in_force = pack('<dIddHH', rate, b.burst, b.since, b.interval, b.kind, 0)
  end

  if micros <= OUTSIDE then
    replies[i] = pack('<BddddIdIdc32', micros == LOST and 3 or 2, 0, 0, 0, 0, 0, 0, 0, 0, in_force)
    at = at + returns * 24
  elseif b and (b.kind ~= 0 or b.interval ~= 0) then
    local level = tools.left(b)
    if b.kind >= SLIDING_WINDOW then level = math.max(0, level) end
    replies[i] = pack('<BddddIdIdc32', 1, 0, 0, 0, level, fraction, 0, 1, 0, in_force)
    if must_write then tools.write(KEYS[i], b) end
    at = at + returns * 24
  else
    if b then
      l = tools.lend().read(b)
      first, last, epoch = 1, l.n, l.epoch
    end
    local out, holders = 0, 0
    for j = first, last, 3 do out, holders = out + l[j + 1], holders + l[j + 2] end
    if first > last then
      l, first, last, epoch = {}, 1, 0, now
    elseif ask_epoch == epoch then -- State.takeBack
      local back = 0
      for from = at, at + returns * 24 - 1, 24 do
        local index, spent, given = unpack_struct('<ddd', asks, from)
        for j = first, last, 3 do
          if l[j] == index then
            local left = l[j + 1]
            spent = spent < 0 and 0 or spent < left and spent or left
            left = left - spent
            given = given < 0 and 0 or given < left and given or left
            l[j + 1] = left - given
            out, back = out - spent - given, back + given
            break
          end
        end
      end
      if back > 0 then
        local room = full > out and full - out or 0
        micros = micros + back < room and micros + back or room
      end
      for j = first, last, 3 do
        if l[j] == presence and l[j + 2] > 0 then
          l[j + 2] = l[j + 2] - 1
          holders = holders - 1
        end
      end
    end
    at = at + returns * 24

    local short, amount, sharers = need > held and need - held or 0, 0, holders + 1
    local refused = not (micros >= short or (micros == short - 1 and fraction >= HALF))
    if not refused then
      local free, most = micros - short, want - (need > held and need or held)
      if free < most then most = free end
      local share, earned = 0.5 * free / sharers, (since < HORIZON and since or HORIZON) * rate / sharers
      if earned > share then share = earned end
      local lendable = 0.5 * full - (out + short)
      if share < most then most = share end
      if lendable < most then most = lendable end
      amount = most > 0 and short + (most - most % 1) or short
      micros = micros - amount
    end
    if amount > 0 or want > 0 or need > 0 then -- slots.lend
      local j = last - 2
      while j >= first and l[j] ~= slot do j = j - 3 end
      if j < first then
        if last - first == 17 then
          l[first + 4], l[first + 5] = l[first + 4] + l[first + 1], l[first + 5] + l[first + 2]
          first = first + 3
        end
        j, last = last + 1, last + 3
        l[j], l[j + 1], l[j + 2] = slot, 0, 0
      end
      l[j + 1], l[j + 2], out = l[j + 1] + amount, l[j + 2] + 1, out + amount
    end

    local value, wait = nil, 0
    if first < last then
      value = pack(value_formats[(last - first + 1) / 3], 3, 0, micros, fraction, now,
        b and sub(in_force, 1, 28) or limit[4], former, epoch, unpack(l, first, last))
      local ends = (l[last - 2] + 1) * SLOT_LENGTH + SLOT_GUARD
      local next_step = full_step(now, (ends > now and ends - now or 0) + (full - micros) / rate)
      if next_step == step then
        call('SET', KEYS[i], value, 'KEEPTTL')
      else
        expiries[next_step] = expiries[next_step] or expiry(next_step, slack)
        call('SET', KEYS[i], value, 'PXAT', expiries[next_step])
      end
    elseif b then
      b.micros, b.entries = micros, ''
      if state then tools.write(KEYS[i], b) end
    elseif state then
      value = pack('<BdIdc20', 1, micros, fraction, now, limit[3])
      call('SET', KEYS[i], value, 'PXAT', expiry(full_step(now, (full - micros - fraction / FRACTIONS) / rate), slack))
    end
    if refused and short <= full then
      tools = tools or make_all_tools()
      wait = tools.lend().until_beside({
        micros = micros, fraction = fraction, rate = rate, burst = full / TOKEN, interval = 0, stamp = now,
        entries = first < last and sub(value, 59) or '',
      }, short)
    end
    replies[i] = pack('<BddddIdIdc32', refused and 1 or 0, amount, slot, epoch, micros, fraction, out, sharers, wait,
      in_force)
  end
end
return pack('<I', broken) .. table.concat(replies)

-- Settles or extends a reservation, once.
--
-- A reservation, with the charges of a check, is beside the tenant's buckets under a random id:
--
--   version (byte)  time (double)  cost (double)  life in µs (double)
--   the owner: length of the API key's id (byte)  that id
--     in version 2 also: length (32 bits)  the user and the costs, see AppendUse  the meters of the check's tiers,
--     each after a zero
--   for each bucket: length of the key (16 bits)  key  limit (30 bytes)
--     4 × the index of its tier, + 1 for shadow, + 2 if it is charged after (16 bits)  charge (double)
--
-- Version 1 has only enforced rules that count requests before the work, and no user and costs.
--
--   KEYS[1]  the reservation
--   KEYS[2]  the tenant's index: open reservations by their end
--   KEYS[3…] its buckets, in its order
--   ARGV[1]  the reservation as the caller read it
--   ARGV[2]  the limits of the buckets, 32 bytes each
--   ARGV[3]  the calendars of these limits
--   ARGV[4]  the act (byte; 0: settle, 1: extend), and the cost of each bucket (doubles; -1: keep the estimate). An
--            extension decides a higher cost like a check and ignores a lower one. For an extension follow: whether
--            each bucket can deny (bytes); the new owner
--   ARGV[5]  the id (16 bytes)
--   ARGV[6]  absent or empty without a long limit; else the expected value of the era, whose key is the last, and for
--            each bucket whether its limit is long (byte)
--   ARGV[7]  the time in microseconds, from tests only
--
-- The reply is one string:
--
--   status   (byte) 0: the reservation is gone
--            1: the reservation has changed since it was read
--            2: a bucket has an unknown version; nothing was changed
--            3: done
--            4: denied, because a bucket does not hold a higher cost; nothing was changed
--            5: a bucket has no window that has the time; nothing was changed
--            6: a bucket may be lost; nothing was changed
--
-- If done, also:
--
--   charges  what each bucket was charged in the end (doubles; -1: it counts no cost)
--   time     (double)
--   buckets  for each that it changed, without lists: index of the key (16 bits), level (double, 32 bits), used in the
--            former window and taken (doubles), limit (32 bytes)

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local min, ceil, format = math.min, math.ceil, string.format

local stored = call('GET', KEYS[1])
if not stored then return '\0' end
if stored ~= ARGV[1] then return '\1' end

local now, slack = read_clock(ARGV[7])
local ends = call('ZSCORE', KEYS[2], ARGV[5])
if not ends or tonumber(ends) <= now then return '\0' end
local version, taken, _, life, key_length = unpack_struct('<BdddB', stored)
local extends, denied = string.byte(ARGV[4]) == 1, false
local eras = ARGV[6] or ''
local count = #KEYS - (#eras > 0 and 3 or 2)
local begun, earliest, _
if #eras > 0 then
  begun, _, earliest = read_era(KEYS[#KEYS], call('MGET', KEYS[#KEYS])[1], string.sub(eras, 1, 57), now)
end
local rates, bursts, sinces, intervals, kinds, opens, closes, nexts = read_limits(ARGV[2], count, ARGV[3], now)
local tools = make_tools(now, slack, make_lender, earn, full_step, expiry,
  rates, bursts, sinces, intervals, kinds, opens, closes, nexts)
local holder = string.sub(ARGV[5], 1, 8)

-- Nothing may be written if one bucket cannot be settled.
local buckets, at, kept_from = {}, 27 + key_length, 1
if version > 1 then at = at + 4 + unpack_struct('<I', stored, at) end
local charges, changed, kept = {}, {}, {} -- kept is an extended reservation
if extends then kept[1], kept_from = string.sub(stored, 1, 25) .. string.sub(ARGV[4], 9 * count + 2), at end
local latest = taken + MAX_RESERVE_FOR * 1000
for i = 1, count do
  local key_size = unpack_struct('<H', stored, at)
  local kind, tier, estimate = unpack_struct('<HHd', stored, at + 2 + key_size + 28)
  at = at + 2 + key_size + 40
  local state, c = call('MGET', KEYS[i + 2])[1], i - 1
  if begun and string.byte(eras, 57 + i) == 1 and opens[c] ~= OUTSIDE
      and is_lost(state, begun, earliest, now, kinds[c], rates[c], bursts[c], sinces[c], intervals[c], opens[c]) then
    return '\6'
  end
  local b, is_changed = tools.advance(c, state, 0)
  if b.micros <= OUTSIDE then return b.micros == OUTSIDE and '\5' or '\2' end
  buckets[i] = b
  local now_charged = -1
  if b.kind == CONCURRENCY then
    is_changed = tools.release(b, holder, extends and min(now + b.interval, latest)) or is_changed
  elseif kind ~= CONCURRENCY then
    local amount = tools.charge(b.kind, estimate)
    now_charged = amount
    local cost = unpack_struct('<d', ARGV[4], 8 * i - 6)
    if cost >= 0 then
      local more = tools.charge(b.kind, cost) - amount
      if extends and more > 0 then
        local needed, level = tier % 4 >= 2 and 1 or more, tools.left(b)
        if level < needed - 1 or level == needed - 1 and b.fraction < HALF then
          more, denied = 0, denied or string.byte(ARGV[4], 8 * count + 1 + i) == 1
        end
      end
      if more < 0 then
        if not extends then now_charged = amount - tools.give_back(b, -more, taken) end
      else
        more = tools.take_more(b, more)
        now_charged = amount + more
      end
      if now_charged ~= amount then
        is_changed = true
        if b.kind <= SLIDING_WINDOW then
          changed[#changed + 1] = pack('<HdIdddIddHH', i - 1, b.micros, b.fraction,
            tools.had(b), now_charged - amount,
            b.rate, b.burst, b.since, b.interval, b.kind, 0)
        end
      end
    end
    if extends and now_charged > estimate then
      kept[#kept + 1] = string.sub(stored, kept_from, at - 9) .. pack('<d', now_charged)
      kept_from = at
    end
  end
  charges[i] = pack('<d', now_charged)
  b.is_changed = is_changed
end
if denied then return '\4' end
for i = 1, count do
  if buckets[i].is_changed then
    tools.write(KEYS[i + 2], buckets[i], begun and string.byte(eras, 57 + i) == 1 and begun)
  end
end

if extends then
  ends = min(now + life, taken + MAX_RESERVE_FOR * 1000)
  call('ZADD', KEYS[2], format('%.0f', ends), ARGV[5])
  local ms = format('%.0f', math.max(1, ceil((ends - now) / 1000)))
  call('SET', KEYS[1], table.concat(kept) .. string.sub(stored, kept_from), 'PX', ms)
  call('PEXPIRE', KEYS[2], MAX_RESERVE_FOR)
else
  call('DEL', KEYS[1])
  call('ZREM', KEYS[2], ARGV[5])
end
return '\3' .. table.concat(charges) .. pack('<d', now) .. table.concat(changed)

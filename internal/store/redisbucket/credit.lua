-- Credits one bucket; see State.Credit.
--
--   KEYS[1]  the bucket
--   ARGV[1]  the caller's limit, 32 bytes, and the amount in millionths (double)
--   ARGV[2]  the limit's calendar, 32 bytes, if it has one
--   ARGV[3]  the time in microseconds, from tests only; else empty
--
--   ARGV[4]  the expected value of the era, whose key is the last, for a long limit; else empty
--
--   only for a credit with an idempotency key:
--   KEYS[2]  the credit's own key
--   ARGV[5]  its fingerprint
--   ARGV[6]  its life in milliseconds
--
-- The reply is one string:
--
--   before   micros (double), fraction (32 bits)
--   after    micros (double), fraction (32 bits)
--   limit    the limit in force (32 bytes)
--   time     (double)
--   status   (byte) 0, or
--            1: the value was broken
--            2: the value has an unknown version; it is unchanged
--            3: KEYS[2] has another fingerprint
--            4: KEYS[2] has this fingerprint, and the reply is the first one
--            5: no window that was sent has the time; the value is unchanged
--            6: the value may be lost, and is unchanged

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local min, max, floor, sub = math.min, math.max, math.floor, string.sub

local era = #ARGV[4] > 0 and KEYS[#KEYS]
local once, fingerprint = ARGV[5] and KEYS[2], ARGV[5]
local past = once and call('GET', once)
local REPLY = '<dIdIdIddHHdB'
if past then
  if sub(past, 1, #fingerprint) ~= fingerprint then
    return pack(REPLY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3)
  end
  return sub(past, #fingerprint + 1, -2) .. string.char(4)
end

local now, slack = read_clock(ARGV[3] ~= '' and ARGV[3])
local amount = unpack_struct('<d', ARGV[1], 33)
local rates, bursts, sinces, intervals, kinds, opens, closes, nexts = read_limits(ARGV[1], 1, ARGV[2], now)
local tools = make_tools(now, slack, make_lender, earn, full_step, expiry,
  rates, bursts, sinces, intervals, kinds, opens, closes, nexts)
local state = call('MGET', KEYS[1])[1] -- false for a key of another type, where GET fails
local begun, earliest, _
if era then begun, _, earliest = read_era(era, call('MGET', era)[1], ARGV[4], now) end
if begun and opens[0] ~= OUTSIDE
    and is_lost(state, begun, earliest, now, kinds[0], rates[0], bursts[0], sinces[0], intervals[0], opens[0]) then
  return pack(REPLY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, now, 6)
end
local b, _, is_broken = tools.advance(0, state, 0)
if b.micros <= OUTSIDE then
  return pack(REPLY, 0, 0, 0, 0, b.rate, b.burst, b.since, b.interval, b.kind, 0, now, b.micros == OUTSIDE and 5 or 2)
end

local full = b.burst * TOKEN
local has_lent = b.kind == 0 and #b.entries > 0
if has_lent then full = tools.lend().room(b, tools.lend().read(b)) end
local function left()
  local level = tools.left(b)
  if b.kind >= SLIDING_WINDOW then level = max(0, level) end
  return level, b.fraction
end
local before, before_fraction = left()
local is_changed = true
if amount >= full - tools.left(b) then
  is_changed = b.micros ~= full or b.fraction ~= 0 or b.former ~= 0
  if b.kind == 0 then -- what is lent stays so
    b.micros, b.fraction = full, 0
  else
    tools.fill(b)
  end
elseif b.kind == SLIDING_WINDOW then
  b.micros = b.micros + max(amount, -tools.left(b))
  if b.micros > full then
    b.former, b.micros = max(0, b.former - (b.micros - full)), full
  end
elseif b.kind == LOG and amount < 0 then
  amount = min(tools.charge(LOG, -amount), max(0, b.micros))
  if amount > 0 then tools.take(b, amount) end
elseif b.kind == LOG then
  while amount >= TOKEN do -- State.logGiveBack
    local last = #b.entries - 9
    local time, count = unpack_struct('<dH', b.entries, last)
    local back = min(count, floor(amount / TOKEN))
    amount = amount - back * TOKEN
    b.micros = b.micros + back * TOKEN
    b.entries = sub(b.entries, 1, last - 1)
    if count > back then b.entries = b.entries .. pack('<dH', time, count - back) end
  end
elseif b.kind == CONCURRENCY then
  is_changed = amount >= TOKEN
  while amount >= TOKEN do
    b.entries, b.micros, amount = sub(b.entries, 17), b.micros + TOKEN, amount - TOKEN
  end
elseif b.micros + amount < min(b.micros, 0) then
  b.micros, b.fraction = min(b.micros, 0), b.micros < 0 and b.fraction or 0
else
  b.micros = b.micros + amount
end

-- Only an unused full bucket is left alone, because callers may hold an older limit. The reply is made before the
-- write, after which nothing may fail.
local after, after_fraction = left()
local reply = pack(REPLY, before, before_fraction, after, after_fraction,
  b.rate, b.burst, b.since, b.interval, b.kind, 0, now, is_broken and 1 or 0)
if state or is_changed then tools.write(KEYS[1], b, begun) end
if once then
  call('SET', once, fingerprint .. reply, 'PX', ARGV[6])
end
return reply

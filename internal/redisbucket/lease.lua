-- Takes the reports of a holder and lends it tokens, of many buckets of one tenant; State.Lease. settle.lua comes before it.
--
--   KEYS     the buckets, distinct
--   ARGV[1]  their limits, 32 bytes each
--   ARGV[2]  the asks, in the same order: epoch, presence, held, need, want, since (doubles; since is -1 for a loan), how many
--            returns follow (16 bits), and these: slot, spent, back (doubles)
--   ARGV[3]  the time in microseconds, from tests only
--
-- The reply is one string: how many values were broken (32 bits), and for each bucket a byte, 0 if it has lent, 1 if it
-- refused, 2 if it has a version that this script does not know; the grant: amount, slot, epoch, micros (doubles),
-- fraction (32 bits), out (double), holders (32 bits), wait (double); and the limit in force (32 bytes).

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local min, max, floor = math.min, math.max, math.floor
local REPLY = '<BddddIdIddIddHH'

local now, slack = read_clock(ARGV[3])
local rates, bursts, sinces, intervals, kinds, opens, closes = read_limits(ARGV[1], #KEYS, '', now)
local tools = make_tools(now, slack, make_lender, earn, full_step, expiry, rates, bursts, sinces, intervals, kinds, opens, closes)
local lender = tools.lend()
local states = call('MGET', unpack(KEYS))

-- slot returns where the numbers of a slot stand, or nil.
local function find(l, index)
  for i = 1, l.n, 3 do
    if l[i] == index then return i end
  end
end

-- take_back is State.takeBack.
local function take_back(b, l, returns, count, presence)
  local back = 0
  for i = 1, count * 3, 3 do
    local at = find(l, returns[i])
    if at then
      local spent = min(max(0, returns[i + 1]), l[at + 1])
      local given = min(max(0, returns[i + 2]), l[at + 1] - spent)
      l[at + 1] = l[at + 1] - spent - given
      back = back + given
    end
  end
  if back > 0 then b.micros = min(lender.room(b, l), b.micros + back) end
  local at = find(l, presence)
  if at and l[at + 2] > 0 then l[at + 2] = l[at + 2] - 1 end
end

-- lend is slots.lend.
local function lend(l, index, amount, holders)
  local at = find(l, index)
  if not at then
    if l.n == 18 then
      l[5], l[6] = l[5] + l[2], l[6] + l[3]
      for i = 1, 18 do l[i] = l[i + 3] end
      l.n = 15
    end
    at = l.n + 1
    l[at], l[at + 1], l[at + 2] = index, 0, 0
    l.n = l.n + 3
  end
  l[at + 1], l[at + 2] = l[at + 1] + amount, l[at + 2] + holders
end

local replies, broken, at = {}, 0, 1
for i = 1, #KEYS do
  local epoch, presence, held, need, want, since, count = unpack_struct('<ddddddH', ARGV[2], at)
  local returns = {unpack_struct('<' .. string.rep('d', count * 3), ARGV[2], at + 50)}
  at = at + 50 + count * 24
  local b, must_write, is_broken = tools.settle(i - 1, states[i], 0)
  if is_broken then broken = broken + 1 end
  if b.micros <= OUTSIDE then
    replies[i] = pack(REPLY, 2, 0, 0, 0, 0, 0, 0, 0, 0, b.rate, b.burst, b.since, b.interval, b.kind, 0)
  elseif b.kind ~= 0 or b.interval ~= 0 then
    local level = tools.left(b)
    if b.kind >= SLIDING_WINDOW then level = max(0, level) end
    replies[i] = pack(REPLY, 1, 0, 0, 0, level, b.fraction, 0, 1, 0, b.rate, b.burst, b.since, b.interval, b.kind, 0)
    if must_write then tools.write(KEYS[i], b) end
  else
    local l = lender.read(b)
    if l.n == 0 then
      l.epoch = now
    elseif epoch == l.epoch then
      take_back(b, l, returns, count, presence)
    end
    local slot, holders = floor((now + LEASE_LIFE) / SLOT_LENGTH), lender.sum(l, 3) + 1
    local short, amount = max(0, need - held), 0
    local refused = not (b.micros >= short or (b.micros == short - 1 and b.fraction >= HALF))
    if not refused then
      local free = b.micros - short
      local earned = min(since, HORIZON) * b.rate
      local most = min(want - max(need, held), free)
      if since >= 0 then
        most = min(most, max(0.5 * free / holders, earned / holders), 0.5 * (b.burst * TOKEN) - (lender.sum(l, 2) + short))
      end
      amount = short + floor(max(0, most))
      b.micros = b.micros - amount
    end
    if want > 0 or need > 0 then lend(l, slot, amount, since < 0 and 0 or 1) end
    lender.keep(b, l)
    local wait = 0
    if refused and short <= b.burst * TOKEN then wait = lender.until_beside(b, short) end
    replies[i] = pack(REPLY, refused and 1 or 0, amount, slot, l.epoch, b.micros, b.fraction, lender.sum(l, 2), holders, wait,
      b.rate, b.burst, b.since, b.interval, b.kind, 0)
    if states[i] or #b.entries > 0 then tools.write(KEYS[i], b) end
  end
end
return pack('<I', broken) .. table.concat(replies)

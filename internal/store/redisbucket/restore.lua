-- Restores buckets of a tenant that may be lost, or only begins its era.
--
--   KEYS       the buckets; then the era of their tenant
--   ARGV[1]    the limits of the buckets, 32 bytes each
--   ARGV[2]    the calendars of these limits
--   ARGV[3]    the expected value of the era; see read_era
--   ARGV[4]    the time in microseconds, from tests only; else empty
--   ARGV[5…]   for each bucket: when its state was known (double), and the state as a bucket's value; empty if nobody
--              used it
--
-- The reply is the value of the era.

local call, unpack_struct = redis.call, struct.unpack
local count, now, slack = #KEYS - 1, read_clock(ARGV[4] ~= '' and ARGV[4])
local stored = call('MGET', unpack(KEYS))
local begun, value, earliest = read_era(KEYS[count + 1], stored[count + 1], ARGV[3], now)
if not begun or count == 0 then return value end

local rates, bursts, sinces, intervals, kinds, opens, closes, nexts = read_limits(ARGV[1], count, ARGV[2], now)
local tools = make_tools(now, slack, make_lender, earn, full_step, expiry,
  rates, bursts, sinces, intervals, kinds, opens, closes, nexts)
for i = 1, count do
  local c, state, known = i - 1, stored[i], ARGV[4 + i]
  if opens[c] ~= OUTSIDE
      and is_lost(state, begun, earliest, now, kinds[c], rates[c], bursts[c], sinces[c], intervals[c], opens[c]) then
    if #known > 0 then
      local known_at, other = unpack_struct('<d', known), string.sub(known, 9)
      local own = state and tools.advance(c, state, 0)
      local stamp = state and unpack_struct('<d', state, string.byte(state) == 1 and 14 or 15)
      if not state or known_at > stamp
          or known_at == stamp and tools.left(tools.advance(c, other, 0)) < tools.left(own) then
        state = other
      end
    end
    local b = tools.advance(c, state, 0)
    if b.micros > OUTSIDE then tools.write(KEYS[i], b, begun) end -- at the present, so in the era
  end
end
return value

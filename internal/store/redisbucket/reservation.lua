-- Settles or extends a reservation, once. bucket.lua comes before it.
--
-- A record has the charges of a check, and is stored beside the tenant's buckets under a random id:
--
--   version (byte, 1)  time (double)  cost (double)  life in µs (double)
--   length of the API key's id (byte)  that id
--   for each bucket: length of the key (16 bits)  key  limit (32 bytes)  charge (double)
--
--   KEYS[1]  the record
--   KEYS[2]  the tenant's index: open reservations by their end
--   KEYS[3…] the buckets of the record, in its order
--   ARGV[1]  the record as the caller read it
--   ARGV[2]  the limits of the buckets, 32 bytes each
--   ARGV[3]  the calendars of these limits
--   ARGV[4]  the act (byte; 0: settle, 1: extend), and the cost of each bucket (doubles; -1: keep the estimate)
--   ARGV[5]  the id (16 bytes)
--   ARGV[6]  the time in microseconds, from tests only
--
-- The reply is one string:
--
--   status   (byte) 0: the record is gone
--            1: the record has changed since it was read
--            2: a bucket has an unknown version; nothing was changed
--            3: done
--            5: a bucket has no window that has the time; nothing was changed
--
-- If done, also:
--
--   charges  what each bucket was charged in the end (doubles; -1: it counts no cost)
--   time     (double)
--   windows  for each fixed window from which it took more: index of the key (16 bits), rest and surcharge (doubles),
--            limit (32 bytes)

local call, pack, unpack_struct = redis.call, struct.pack, struct.unpack
local min, ceil, format = math.min, math.ceil, string.format

local record = call('GET', KEYS[1])
if not record then return '\0' end
if record ~= ARGV[1] then return '\1' end

local now, slack = read_clock(ARGV[6])
local ends = call('ZSCORE', KEYS[2], ARGV[5])
if not ends or tonumber(ends) <= now then return '\0' end
local version, taken, _, life, key_length = unpack_struct('<BdddB', record)
local extends = string.byte(ARGV[4]) == 1
local count = #KEYS - 2
local tools = make_tools(now, slack, make_lender, earn, full_step, expiry, read_limits(ARGV[2], count, ARGV[3], now))
local holder = string.sub(ARGV[5], 1, 8)

-- Advance the buckets first, because nothing may be written if one of them cannot be settled.
local buckets, at = {}, 27 + key_length
local charges, windows = {}, {}
local latest = taken + MAX_RESERVE_FOR * 1000
for i = 1, count do
  local key_size = unpack_struct('<H', record, at)
  local kind = unpack_struct('<H', record, at + 2 + key_size + 28)
  local amount = unpack_struct('<d', record, at + 2 + key_size + 32)
  at = at + 2 + key_size + 40
  local b, is_changed = tools.advance(i - 1, call('MGET', KEYS[i + 2])[1], 0)
  if b.micros <= OUTSIDE then return b.micros == OUTSIDE and '\5' or '\2' end
  buckets[i] = b
  local now_charged = -1
  if extends then
    if b.kind == CONCURRENCY then is_changed = tools.release(b, holder, min(now + b.interval, latest)) or is_changed end
  elseif b.kind == CONCURRENCY then
    is_changed = tools.release(b, holder) or is_changed
  elseif kind ~= CONCURRENCY then
    amount = tools.charge(b.kind, amount)
    now_charged = amount
    local cost = unpack_struct('<d', ARGV[4], 8 * i - 6)
    if cost >= 0 then
      local wanted = tools.charge(b.kind, cost)
      if wanted < amount then
        now_charged = amount - tools.give_back(b, amount - wanted, taken)
      else
        local more = tools.take_more(b, wanted - amount)
        now_charged = amount + more
        if b.kind == FIXED_WINDOW and more > 0 then
          windows[#windows + 1] = pack('<HdddIddHH', i - 1, b.micros, more,
            b.rate, b.burst, b.since, b.interval, b.kind, 0)
        end
      end
      is_changed = is_changed or now_charged ~= amount
    end
  end
  charges[i] = pack('<d', now_charged)
  b.is_changed = is_changed
end
for i = 1, count do
  if buckets[i].is_changed then tools.write(KEYS[i + 2], buckets[i]) end
end

if extends then
  ends = min(now + life, taken + MAX_RESERVE_FOR * 1000)
  call('ZADD', KEYS[2], format('%.0f', ends), ARGV[5])
  call('PEXPIRE', KEYS[1], format('%.0f', math.max(1, ceil((ends - now) / 1000))))
  call('PEXPIRE', KEYS[2], MAX_RESERVE_FOR)
else
  call('DEL', KEYS[1])
  call('ZREM', KEYS[2], ARGV[5])
end
return '\3' .. table.concat(charges) .. pack('<d', now) .. table.concat(windows)

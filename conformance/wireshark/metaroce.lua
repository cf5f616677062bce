-- MetaRoCE, draft 0: a dissector for Wireshark 3.6 and later. README.md in this folder says how to install it.
-- The byte layouts are those of metaroce-core/src/wire/, and so is what counts as malformed.

local metaroce = Proto("metaroce", "MetaRoCE, RDMA over lossy multipath Ethernet")

metaroce.prefs.ports = Pref.range("UDP ports", "4795", "UDP ports on which endpoints receive", 65535)
metaroce.prefs.verify = Pref.bool("Verify CRC32C", true, "Compute the checksum of every packet that has one")

-- Lua 5.4 has operators for bits, Lua 5.2 has only libraries, and reads no source with such operators.
local bits = rawget(_G, "bit32") or rawget(_G, "bit")
local band, bxor, rshift
if bits then
  band, bxor, rshift = bits.band, bits.bxor, bits.rshift
else
  band = load("return function(a, b) return a & b end")()
  bxor = load("return function(a, b) return a ~ b end")()
  rshift = load("return function(a, n) return a >> n end")()
end
local function has(value, flag) return band(value, flag) ~= 0 end

-- ==== Names =====================================================================================================
local TYPES = { "DATA", "ACK", "CONTROL", "PROBE", "PROBE_REPLY" }
local KINDS = { "CONNECT", "ACCEPT", "CONFIRM", "REJECT", "RETRY", "CLOSE", "CLOSE_ACK", "RESET" }
local FRAMES = { "REFUSED", "NACK", "CREDIT", "PLANE", "START", "ACK" }
local FRAME_BYTES = { 32, 8, 8, 8, 4, 64 }
local NACK_REASONS = { "no receive", "no slot", "ended", "order", "access", "closed" }
local REJECT_REASONS = { "no listener", "limits", "version", "busy", "closed" }
local CLOSE_REASONS = { [0] = "drained", [1] = "flushed" }
local STATUSES = {
  [0] = "success", "remote access", "remote operation", "remote invalid", "receiver not ready", "peer closed",
  "flushed",
}
local CHECKSUM_STATUSES = { [0] = "bad", "good", "unverified", "not present" }

local LAST, IMMEDIATE, INVALIDATE, TAGGED, SIGNAL, SOLICITED, ACK_NOW = 1, 2, 4, 8, 16, 32, 64
local OP_FLAGS = {
  { LAST, "last", "Last packet" }, { IMMEDIATE, "immediate", "Immediate" }, { INVALIDATE, "invalidate", "Invalidate" },
  { TAGGED, "tagged", "Tagged" }, { SIGNAL, "signal", "Signal" }, { SOLICITED, "solicited", "Solicited" },
  { ACK_NOW, "ack_now", "Acknowledge now" },
}

-- Name, flags allowed, flags required.
local OPCODES = {
  [0x01] = { "SEND", 0x6f, 0 }, [0x02] = { "WRITE", 0x73, 0 }, [0x03] = { "READ_REQUEST", 0x61, LAST },
  [0x04] = { "READ_RESPONSE", 0x61, 0 }, [0x05] = { "ATOMIC_RESPONSE", 0x61, LAST },
  [0x06] = { "RESULT", 0x63, IMMEDIATE }, [0x07] = { "VOID", 0x41, 0 },
  [0x08] = { "STREAM_RESET", 0x63, IMMEDIATE }, [0x09] = { "DATAGRAM", 0x63, LAST },
}
for i, name in ipairs({ "FETCH_ADD", "COMPARE_SWAP", "SWAP", "MIN", "MAX", "AND", "OR", "XOR" }) do
  OPCODES[0x0f + i] = { name, 0x61, LAST }
end
local OPCODE_NAMES = {}
for code, row in pairs(OPCODES) do OPCODE_NAMES[code] = row[1] end
local SEND, WRITE, READ_REQUEST, READ_RESPONSE, ATOMIC_RESPONSE = 1, 2, 3, 4, 5
local RESULT, VOID, STREAM_RESET, DATAGRAM, FIRST_ATOMIC = 6, 7, 8, 9, 0x10

-- ==== Fields: F["csn"] is `metaroce.csn` ========================================================================
local F, fields = {}, {}
local function def(kind, name, label, ...)
  F[name] = ProtoField[kind]("metaroce." .. name, label, ...)
  fields[#fields + 1] = F[name]
end
local function defs(kind, base_, rows)
  for _, row in ipairs(rows) do def(kind, row[1], row[2], base_, row[3]) end
end
local flag_fields = {}
local function flags(parent, rows)
  flag_fields[parent] = {}
  for i, row in ipairs(rows) do
    flag_fields[parent][i] = parent .. "." .. row[2]
    def("bool", flag_fields[parent][i], row[3], 8, nil, row[1])
  end
end

def("uint8", "version", "Version", base.DEC, nil, 0xf0)
def("uint8", "type", "Type", base.DEC, TYPES, 0x0f)
defs("uint8", base.HEX, {
  { "flags", "Flags" }, { "opcode", "Opcode", OPCODE_NAMES }, { "opflags", "Op flags" }, { "ack.flags", "Flags" },
  { "credit.flags", "Flags" }, { "connect.flags", "Flags" }, { "close.flags", "Flags" }, { "reset.flags", "Flags" },
})
defs("uint8", base.DEC, {
  { "path", "Path" }, { "epoch", "Path epoch" }, { "ack.path", "Path" }, { "ack.epoch", "Path epoch" },
  { "checksum.status", "Checksum status", CHECKSUM_STATUSES }, { "frame.type", "Frame", FRAMES },
  { "frame.length", "Length" }, { "nack.reason", "Reason", NACK_REASONS }, { "control.kind", "Kind", KINDS },
  { "connect.paths", "Paths" }, { "connect.plane_count", "Plane addresses" }, { "connect.plane.family", "Family" },
  { "close.reason", "Reason", CLOSE_REASONS },
})
defs("uint16", base.DEC, {
  { "stream", "Stream" }, { "nack.stream", "Stream" }, { "credit.stream", "Stream" }, { "probe.stream", "Stream" },
  { "private_length", "Bytes of private data" }, { "connect.streams", "Streams granted" },
  { "connect.reads", "Outstanding READs and atomics granted" }, { "connect.held", "Held operations granted" },
  { "connect.plane.port", "Port" }, { "reject.reason", "Reason", REJECT_REASONS },
})
defs("uint32", base.HEX, {
  { "connection", "Destination connection" }, { "checksum", "CRC32C" }, { "remote.key", "Region key" },
  { "immediate", "Immediate" }, { "invalidate", "Key to invalidate" }, { "signal.key", "Signal: region key" },
  { "datagram.key", "Queue key" }, { "plane.silent", "Planes silent" }, { "plane.unreachable", "Planes unreachable" },
  { "connect.connection", "Connection of the sender" }, { "connect.service", "Service" },
  { "close.sender", "Connection of the sender" }, { "reset.yours", "Connection of the receiver" },
  { "reset.mine", "Connection of the sender" },
})
defs("uint32", base.DEC, {
  { "psn", "PSN" }, { "timestamp", "Transmit timestamp, 16 ns" }, { "csn", "CSN" }, { "msn", "MSN" },
  { "offset", "Offset in message" }, { "length", "Message length" }, { "receive_index", "Receive index" },
  { "demand", "Demand, KiB" }, { "payload_length", "Payload length" }, { "datagram.source_queue", "Source queue" },
  { "datagram.destination_queue", "Destination queue" }, { "result.status", "Status", STATUSES },
  { "stream_reset.reason", "Reason", STATUSES }, { "ack.largest", "Largest PSN" },
  { "ack.accepted_count", "Accepted" }, { "ack.missing_count", "Missing" },
  { "ack.echo", "Echoed timestamp, 16 ns" }, { "ack.hold", "Hold time, 16 ns" }, { "ack.packets", "Packets received" },
  { "ack.marked", "Packets marked CE" }, { "ack.cumulative", "Cumulative CSN" }, { "ack.share", "Rate share, kbit/s" },
  { "nack.delay", "Retry delay, us" }, { "credit.posted", "Receives posted" }, { "start.allowance", "Allowance, KiB" },
  { "connect.mtu", "Largest UDP payload" }, { "connect.message_window", "Message window" },
  { "connect.csn_window", "CSN window" }, { "connect.initial_credits", "Initial credits" },
  { "connect.start_allowance", "Start allowance, KiB" }, { "close.next_csn", "Next CSN" },
})
defs("uint64", base.HEX, {
  { "remote.address", "Remote address" }, { "match_bits", "Match bits" }, { "signal.address", "Signal: address" },
  { "probe.token", "Token" }, { "connect.nonce", "Nonce" }, { "connect.incarnation", "Incarnation" },
  { "connect.features", "Features" }, { "echoed_nonce", "Echoed nonce" }, { "nonce_xor", "Xor of both nonces" },
})
defs("uint64", base.DEC, {
  { "operand0", "Operand 0" }, { "operand1", "Operand 1" }, { "signal.addend", "Signal: addend" },
})
for _, row in ipairs({
  { "payload", "Payload" }, { "padding", "Padding" }, { "ack.vector", "Vector" }, { "refused.vector", "Vector" },
  { "cookie", "Cookie" }, { "private_data", "Private data" }, { "quote", "Quoted header" }, { "frame.body", "Body" },
}) do def("bytes", row[1], row[2]) end
for _, row in ipairs({
  { "ack.accepted", "PSNs accepted" }, { "ack.missing", "PSNs missing" }, { "refused.psns", "PSNs refused" },
}) do def("string", row[1], row[2]) end
def("ipv4", "connect.plane.ipv4", "Address")
def("ipv6", "connect.plane.ipv6", "Address")
def("framenum", "retransmission_of", "Retransmission of the packet in", base.NONE, frametype.RETRANS_PREV)
def("framenum", "duplicate_of", "Duplicate of", base.NONE, frametype.DUP_ACK)
def("framenum", "void_of", "Closes the packet in", base.NONE)
def("framenum", "request_in", "Request in", base.NONE, frametype.REQUEST)
def("framenum", "ack.newest_in", "Largest PSN sent in", base.NONE, frametype.ACK)
flags("opflags", OP_FLAGS)
flags("ack.flags", { { 1, "empty", "Nothing received yet" } })
flags("credit.flags", { { 1, "none_needed", "None needed" } })
flags("connect.flags", { { 1, "wants_checksum", "Wants checksum" }, { 2, "implicit", "Implicit" } })
flags("close.flags", { { 1, "with_quote", "With quote" } })
flags("reset.flags", { { 1, "with_ids", "With ids" } })
metaroce.fields = fields

local E = {}
for _, row in ipairs({
  { "malformed", "Malformed", "MALFORMED", "ERROR" }, { "checksum", "Bad checksum", "CHECKSUM", "ERROR" },
  { "cut", "Cut short by the capture", "UNDECODED", "NOTE" }, { "unknown", "Unknown frame", "UNDECODED", "NOTE" },
  { "ended", "A connection or stream failed", "RESPONSE_CODE", "WARN" },
  { "refused", "Packets refused", "SEQUENCE", "NOTE" }, { "retransmission", "Retransmission", "SEQUENCE", "NOTE" },
  { "duplicate", "The same transmission again", "SEQUENCE", "NOTE" },
}) do
  local name, text, group, severity = table.unpack(row)
  E[name] = ProtoExpert.new("metaroce.expert." .. name, text, expert.group[group], expert.severity[severity])
end
metaroce.experts = E

-- ==== What was learned in the first pass over a capture =========================================================
local endpoints   -- "address port": receives MetaRoCE; the heuristic relies on it
local peer        -- connection id: that of the other end
local checked     -- connection id: packets to it must have a checksum
local first_csn   -- "connection csn": frame, path and PSN of the first copy
local sent        -- "connection path psn": frame
local requests    -- "connection stream msn": frame of the request
local tokens      -- token: frame of the PROBE
local notes       -- frame: what was found out about it
local crc_right   -- frame: whether its checksum is right

local function forget()
  endpoints, peer, checked, first_csn, sent, requests, tokens, notes, crc_right = {}, {}, {}, {}, {}, {}, {}, {}, {}
end
forget()
metaroce.init = forget

-- ==== CRC32C, two bytes a look-up ===============================================================================
local low_words, high_words, crc_step
local function crc_tables()
  local bytes = {}
  for i = 0, 255 do
    local state = i
    for _ = 1, 8 do state = bxor(rshift(state, 1), band(state, 1) * 0x82f63b78) end
    bytes[i] = state
  end
  local function step(state) return bxor(rshift(state, 8), bytes[band(state, 255)]) end
  low_words, high_words = {}, {}
  for i = 0, 65535 do
    high_words[i] = step(step(i))
    low_words[i] = step(step(high_words[i]))
  end
  return step
end

local function crc32c(data)
  crc_step = crc_step or crc_tables()
  local state, byte, whole = 0xffffffff, string.byte, #data - #data % 4
  for i = 1, whole, 4 do
    local a, b, c, d = byte(data, i, i + 3)
    state = bxor(state, a + b * 0x100 + c * 0x10000 + d * 0x1000000)
    state = bxor(low_words[band(state, 0xffff)], high_words[rshift(state, 16)])
  end
  for i = whole + 1, #data do state = crc_step(bxor(state, byte(data, i))) end
  return bxor(state, 0xffffffff) % 0x100000000
end

local function checksum_is_right(tvb)
  local rest = tvb:len() > 20 and tvb:raw(20) or ""
  return crc32c(tvb:raw(0, 16) .. "\0\0\0\0" .. rest) == tvb(16, 4):uint()
end

-- ==== A cursor that adds fields to a tree =======================================================================
local Cursor = {}
Cursor.__index = Cursor

-- Ends the dissection of this packet.
local function malformed(text) error({ text = text }, 0) end

function Cursor:left() return self.stop - self.at end

function Cursor:range(count)
  if count > self:left() then malformed("needs " .. count - self:left() .. " bytes more") end
  local range = self.tvb(self.at, count)
  self.at = self.at + count
  return range
end

-- Adds a field and returns its number, or its range if it is longer than four bytes.
function Cursor:add(name, count, tree)
  local range = self:range(count)
  local item = (tree or self.tree):add(F[name], range)
  return count <= 4 and range:uint() or range, item
end

-- Adds fields whose values nobody asks for: name, bytes, name, bytes, ...
function Cursor:all(rows)
  for i = 1, #rows, 2 do self:add(rows[i], rows[i + 1]) end
end

-- Adds a byte of flags, and each flag below it.
function Cursor:flags(name)
  local value, item = self:add(name, 1)
  for _, flag in ipairs(flag_fields[name]) do item:add(F[flag], self.tvb(self.at - 1, 1)) end
  return value
end

-- The same cursor, adding to another tree, up to `count` bytes from here.
function Cursor:inside(tree, count)
  return setmetatable({ tvb = self.tvb, at = self.at, stop = self.at + count, tree = tree }, Cursor)
end

local function generated(tree, name, value, range)
  local item = range and tree:add(F[name], range, value) or tree:add(F[name], value)
  item:set_generated()
  return item
end

local function path(cursor, name)
  local number, item = cursor:add(name, 1)
  if number > 63 then malformed("path " .. number .. " is above 63") end
  return number, item
end

-- ==== Acknowledgements and frames ===============================================================================
-- Bit i of a vector speaks of the PSN largest - i; bit 0 is the most significant of the first byte.
local function vector_bits(data)
  local set = {}
  for i = 0, 255 do
    set[i] = has(rshift(string.byte(data, math.floor(i / 8) + 1), 7 - i % 8), 1)
  end
  return set
end

-- The PSNs of those bits from `oldest` to 0 that `wanted` picks, as ranges, and how many they are.
local function ranges(largest, oldest, wanted)
  local parts, count, start = {}, 0
  for i = oldest, -1, -1 do
    local take = i >= 0 and wanted(i)
    if take then
      count = count + 1
      start = start or i
    elseif start then
      local from, to = (largest - start) % 0x100000000, (largest - i - 1) % 0x100000000
      parts[#parts + 1] = string.format(from == to and "%.0f" or "%.0f-%.0f", from, to)
      start = nil
    end
  end
  return table.concat(parts, ", "), count
end

-- One block of 64 bytes; returns its largest PSN, and what to say of it in the info column.
local function ack_body(c, connection)
  local whole = c.tvb(c.at, math.min(64, c:left()))
  local tree = c.tree:add(whole, "Acknowledgement")
  local inner = c:inside(tree, c:left())
  local number = path(inner, "ack.path")
  inner:add("ack.epoch", 1)
  local empty = has(inner:flags("ack.flags"), 1)
  inner:range(1)
  local largest = inner:add("ack.largest", 4)
  local vector = inner:add("ack.vector", 32)
  local accepted, refused = vector_bits(vector:raw()), {}
  local after = c.at + 64
  -- The frame that follows may tell which of those not accepted did arrive.
  local has_refused = c.tvb:len() >= after + 34 and c.tvb(after, 2):uint() == 0x0120
  if has_refused then refused = vector_bits(c.tvb:raw(after + 2, 32)) end
  local oldest = 255
  while oldest >= 0 and not accepted[oldest] and not refused[oldest] do oldest = oldest - 1 end
  local have, have_count = ranges(largest, 255, function(i) return accepted[i] end)
  local lack, lack_count = ranges(largest, oldest, function(i) return not accepted[i] and not refused[i] end)
  generated(tree, "ack.accepted", have, vector)
  generated(tree, "ack.accepted_count", have_count, vector)
  generated(tree, "ack.missing", lack, vector)
  generated(tree, "ack.missing_count", lack_count, vector)
  local newest = sent[string.format("%s %d %.0f", tostring(peer[connection]), number, largest)]
  if newest and not empty then generated(tree, "ack.newest_in", newest) end
  inner:all({ "ack.echo", 4, "ack.hold", 4, "ack.packets", 4, "ack.marked", 4 })
  local cumulative = inner:add("ack.cumulative", 4)
  local share = inner:add("ack.share", 4)
  c.at = inner.at
  local text = string.format("PSN<=%.0f", largest) .. (lack_count > 0 and " missing " .. lack or "")
  if empty then text = "nothing yet" end
  tree:set_text(string.format("Acknowledgement of path %d: %s", number, text))
  return largest, string.format("Path=%d %s CSN<%.0f Share=%.0f", number, text, cumulative, share)
end

local FRAME = {}

FRAME[1] = function(c, state)
  local vector, item = c:add("refused.vector", 32)
  local set = vector_bits(vector:raw())
  local psns, count = ranges(state.largest, 255, function(i) return set[i] end)
  generated(c.tree, "refused.psns", psns, vector)
  item:add_proto_expert_info(E.refused, count .. " packets refused: PSN " .. psns)
  return "PSN " .. psns
end
FRAME[2] = function(c)
  local stream = c:add("nack.stream", 2)
  local reason, item = c:add("nack.reason", 1)
  local name = NACK_REASONS[reason] or malformed("unknown NACK reason " .. reason)
  item:add_proto_expert_info(E.refused, "Packets of stream " .. stream .. " refused: " .. name)
  c:range(1)
  return string.format("Stream=%d %s Delay=%.0fus", stream, name, (c:add("nack.delay", 4)))
end
FRAME[3] = function(c)
  local stream = c:add("credit.stream", 2)
  local none_needed = has(c:flags("credit.flags"), 1)
  c:range(1)
  local posted = c:add("credit.posted", 4)
  return "Stream=" .. stream .. (none_needed and " none needed" or string.format(" Posted=%.0f", posted))
end
FRAME[4] = function(c)
  local silent, unreachable = c:add("plane.silent", 4), (c:add("plane.unreachable", 4))
  return string.format("Silent=%x Unreachable=%x", silent, unreachable)
end
FRAME[5] = function(c) return string.format("Allowance=%.0fKiB", (c:add("start.allowance", 4))) end
FRAME[6] = function(c, state)
  local largest, text = ack_body(c, state.connection)
  state.largest = largest
  return text
end

local function frames(c, state, info)
  while c:left() > 0 do
    local tree = c.tree:add(c.tvb(c.at, math.min(c:left(), 2)), "Frame")
    local header = c:inside(tree, c:left())
    local kind, item = header:add("frame.type", 1)
    local length = header:add("frame.length", 1)
    local name = FRAMES[kind] or "unknown " .. kind
    tree:set_text("Frame: " .. name)
    if FRAME_BYTES[kind] and FRAME_BYTES[kind] ~= length then malformed(name .. " frame of " .. length .. " bytes") end
    if length > header:left() then malformed(name .. " frame is cut short") end
    tree:set_len(2 + length)
    local body = header:inside(tree, length)
    if FRAME[kind] then
      local text = FRAME[kind](body, state)
      tree:append_text(" " .. text)
      info[#info + 1] = string.format("[%s %s]", name, text)
    else
      item:add_proto_expert_info(E.unknown)
      if length > 0 then body:add("frame.body", length) end
    end
    c.at = header.at + length
  end
end

-- ==== Bodies by packet type; each returns what to say in the info column ========================================
local function flags_are_permitted(opcode, value)
  local _, allowed, required = table.unpack(OPCODES[opcode])
  local last, immediate = has(value, LAST), has(value, IMMEDIATE)
  return band(value, allowed) == value and band(value, required) == required
    and not (immediate and has(value, INVALIDATE))
    and not (has(value, SIGNAL) and (immediate or not last))
    and not (opcode == WRITE and immediate and not last)
end

local function place_is_sound(opcode, last, offset, length, payload)
  if opcode == SEND or opcode == WRITE or opcode == READ_RESPONSE then
    local stop = offset + payload
    return stop <= length and last == (stop == length) and (payload == 0) == (length == 0)
  elseif opcode == DATAGRAM then
    return payload == length
  end
  local sound = payload == (opcode == ATOMIC_RESPONSE and 8 or 0)
  if opcode == RESULT or opcode == VOID or opcode == STREAM_RESET then return sound end
  return sound and offset == 0 and (opcode == READ_REQUEST or length == 8)
end

-- First pass: remembers a packet with a CSN, and whether it was there before.
local function learn_data(p, d, note)
  local id = string.format("%.0f ", p.connection)
  if d.opcode ~= DATAGRAM and not note.duplicate_of then
    local key = id .. string.format("%.0f", d.csn)
    local first = first_csn[key]
    if not first then
      first_csn[key] = { frame = p.frame, opcode = d.opcode }
    elseif d.opcode == VOID and first.opcode ~= VOID then
      note.void_of = first.frame
    else
      note.retransmission_of = first.frame
    end
  end
  local answered = d.opcode <= READ_REQUEST or d.opcode >= FIRST_ATOMIC
  local message = string.format("%d %.0f", d.stream, d.msn)
  if answered and d.offset == 0 and not note.retransmission_of then
    requests[id .. message] = p.frame
  elseif d.opcode >= READ_RESPONSE and d.opcode <= RESULT and peer[p.connection] then
    note.request_in = requests[string.format("%.0f ", peer[p.connection]) .. message]
  end
end

local function data_extensions(c, opcode, value)
  local atomic = opcode >= FIRST_ATOMIC
  if atomic or opcode == WRITE or opcode == READ_REQUEST then c:all({ "remote.key", 4, "remote.address", 8 }) end
  if atomic then c:all({ "operand0", 8, "operand1", 8 }) end
  if has(value, TAGGED) then c:add("match_bits", 8) end
  if has(value, INVALIDATE) then
    c:add("invalidate", 4)
  elseif has(value, IMMEDIATE) then
    local name = opcode == RESULT and "result.status" or opcode == STREAM_RESET and "stream_reset.reason" or "immediate"
    local number, item = c:add(name, 4)
    if name ~= "immediate" then
      item:add_proto_expert_info(E.ended, OPCODE_NAMES[opcode] .. ": " .. (STATUSES[number] or number))
    end
  end
  if has(value, SIGNAL) then c:all({ "signal.key", 4, "signal.address", 8, "signal.addend", 8 }) end
end

local function data(c, p)
  local opcode = c:add("opcode", 1)
  local name = OPCODE_NAMES[opcode] or malformed("unknown opcode " .. opcode)
  local value = band(c:flags("opflags"), 0x7f)
  local d = { opcode = opcode, stream = c:add("stream", 2), csn = c:add("csn", 4) }
  local datagram = opcode == DATAGRAM
  d.msn = c:add(datagram and "datagram.source_queue" or "msn", 4)
  d.offset = c:add(datagram and "datagram.destination_queue" or "offset", 4)
  local length = c:add("length", 4)
  c:add(datagram and "datagram.key" or "receive_index", 4)
  c:add("demand", 4)
  if not flags_are_permitted(opcode, value) then malformed(string.format("%s with flags 0x%02x", name, value)) end
  data_extensions(c, opcode, value)
  local payload = c:left() + c.beyond
  generated(c.tree, "payload_length", payload)
  local flag_names = {}
  for _, row in ipairs(OP_FLAGS) do
    if has(value, row[1]) then flag_names[#flag_names + 1] = row[2] end
  end
  local place = datagram and string.format("Queue=%.0f->%.0f", d.msn, d.offset)
    or string.format("CSN=%.0f Stream=%d MSN=%.0f Off=%.0f", d.csn, d.stream, d.msn, d.offset)
  p.cols.info:append(string.format(" %s Path=%d PSN=%.0f %s Len=%.0f/%.0f [%s]",
    name, p.path, p.psn, place, payload, length, table.concat(flag_names, ",")))
  if not place_is_sound(opcode, has(value, LAST), d.offset, length, payload) then
    malformed(string.format("%s with offset %.0f, length %.0f, payload %.0f", name, d.offset, length, payload))
  end
  if c:left() > 0 then c:add("payload", c:left()) end
  if p.learn then learn_data(p, d, p.learn) end
end

local function ack(c, p)
  local largest, text = ack_body(c, p.connection)
  local info = { text }
  frames(c, { largest = largest, connection = p.connection }, info)
  p.cols.info:append(" " .. table.concat(info, " "))
end

local function padding(c)
  if c:left() > 0 then c:add("padding", c:left()) end
end

local function probe(c, p)
  local stream = c:add("probe.stream", 2)
  c:range(2)
  local demand = c:add("demand", 4)
  local token = tostring(c:add("probe.token", 8):bytes())
  padding(c)
  if p.learn and not p.learn.duplicate_of then tokens[token] = p.frame end
  p.cols.info:append(string.format(" Path=%d PSN=%.0f%s Demand=%.0fKiB", p.path, p.psn,
    stream == 0xffff and "" or " Stream=" .. stream, demand))
end

local function probe_reply(c, p)
  local token = tostring(c:add("probe.token", 8):bytes())
  if p.learn then p.learn.request_in = tokens[token] end
  ack(c, p)
end

local KIND = {}

local function private_data(c, count)
  if count > 256 then malformed(count .. " bytes of private data") end
  if count > 0 then c:add("private_data", count) end
end

local function plane_address(c)
  local family = c:add("connect.plane.family", 1)
  c:range(1)
  c:add("connect.plane.port", 2)
  if family ~= 4 and family ~= 6 then malformed("address family " .. family) end
  c:add(family == 4 and "connect.plane.ipv4" or "connect.plane.ipv6", family == 4 and 4 or 16)
  if family == 4 then c:range(12) end
end

KIND[1] = function(c, p, kind)
  local wants = has(c:flags("connect.flags"), 1)
  local private_length = c:add("private_length", 2)
  local connection = c:add("connect.connection", 4)
  c:all({ "connect.nonce", 8, "connect.incarnation", 8, "connect.features", 8 })
  local mtu = c:add("connect.mtu", 4)
  local service = c:add("connect.service", 4)
  c:add("connect.streams", 2)
  local paths = c:add("connect.paths", 1)
  local planes = c:add("connect.plane_count", 1)
  c:all({ "connect.reads", 2, "connect.held", 2, "connect.message_window", 4, "connect.csn_window", 4 })
  c:all({ "connect.initial_credits", 4, "connect.start_allowance", 4, "echoed_nonce", 8, "cookie", 16 })
  if paths == 0 or paths > 64 then malformed(paths .. " paths") end
  if planes > 8 then malformed(planes .. " plane addresses") end
  for _ = 1, planes do plane_address(c) end
  private_data(c, private_length)
  if p.learn then
    checked[connection] = wants
    if kind == 2 then peer[connection], peer[p.connection] = p.connection, connection end
    endpoints[p.source] = true
  end
  return string.format(" Id=0x%08x Service=0x%x MTU=%.0f Paths=%d", connection, service, mtu, paths)
end
KIND[2] = KIND[1]

KIND[3] = function(c)
  c:range(3)
  c:add("echoed_nonce", 8)
end
KIND[4] = function(c)
  c:range(1)
  local reason, item = c:add("reject.reason", 2)
  local name = REJECT_REASONS[reason] or reason >= 0x100 and "application " .. reason
    or malformed("unknown REJECT reason " .. reason)
  item:add_proto_expert_info(E.ended, "REJECT: " .. name)
  c:add("echoed_nonce", 8)
  local length = c:add("private_length", 2)
  c:range(2)
  private_data(c, length)
  return " " .. name
end
KIND[5] = function(c)
  c:range(3)
  c:all({ "echoed_nonce", 8, "cookie", 16 })
end
KIND[6] = function(c)
  local quoted = has(c:flags("close.flags"), 1)
  local reason = c:add("close.reason", 1)
  c:range(1)
  local csn = c:add("close.next_csn", 4)
  c:all({ "close.sender", 4, "nonce_xor", 8 })
  if quoted then c:add("quote", 20) end
  return string.format(" %s NextCSN=%.0f", CLOSE_REASONS[reason] or "reason " .. reason, csn)
end
KIND[7] = KIND[6]

KIND[8] = function(c)
  local with_ids = has(c:flags("reset.flags"), 1)
  c.tree:add_proto_expert_info(E.ended, "RESET")
  c:range(2)
  c:all(with_ids and { "reset.yours", 4, "reset.mine", 4, "nonce_xor", 8 } or { "quote", 20 })
end

local function control(c, p)
  local kind = c:add("control.kind", 1)
  local dissect = KIND[kind] or malformed("unknown CONTROL kind " .. kind)
  p.cols.info:append(" " .. KINDS[kind])
  p.cols.info:append(dissect(c, p, kind) or "")
  padding(c)
end

-- ==== The whole packet ==========================================================================================
local BODIES = { data, ack, control, probe, probe_reply }
local DATA, CONTROL, PROBE = 1, 3, 4
local BAD, GOOD, UNVERIFIED, NOT_PRESENT = 0, 1, 2, 3

local function checksum_status(tvb, p)
  if tvb:reported_len() > tvb:len() or not metaroce.prefs.verify then return UNVERIFIED end
  if tvb(16, 4):uint() == 0 and p.kind ~= CONTROL and not checked[p.connection] then return NOT_PRESENT end
  if crc_right[p.frame] == nil then crc_right[p.frame] = checksum_is_right(tvb) end
  return crc_right[p.frame] and GOOD or BAD
end

local function show_notes(tree, p, note)
  if note.void_of then generated(tree, "void_of", note.void_of) end
  if note.request_in then generated(tree, "request_in", note.request_in) end
  for _, name in ipairs({ "duplicate", "retransmission" }) do
    local frame = note[name .. "_of"]
    if frame then
      generated(tree, name .. "_of", frame):add_proto_expert_info(E[name])
      p.cols.info:append(string.format(" [%s of %d]", name, frame))
    end
  end
end

local function packet(c, pinfo, tree)
  local first = c:range(1)
  local p = { frame = pinfo.number, cols = pinfo.cols, source = tostring(pinfo.src) .. " " .. pinfo.src_port }
  tree:add(F.version, first)
  tree:add(F.type, first)
  if first:uint() >= 16 then malformed("version " .. rshift(first:uint(), 4)) end
  p.kind = first:uint()
  if not TYPES[p.kind] then malformed("unknown packet type " .. p.kind) end
  pinfo.cols.info:set(TYPES[p.kind])
  c:add("flags", 1)
  p.path = path(c, "path")
  c:add("epoch", 1)
  p.connection = c:add("connection", 4)
  p.psn = c:add("psn", 4)
  c:add("timestamp", 4)
  local checksum = c:range(4)
  local item = tree:add(F.checksum, checksum)
  local status = checksum_status(c.tvb, p)
  item:append_text(" [" .. CHECKSUM_STATUSES[status] .. "]")
  generated(tree, "checksum.status", status, checksum)
  tree:append_text(string.format(", %s, connection 0x%08x, path %d", TYPES[p.kind], p.connection, p.path))
  if status == BAD then
    item:add_proto_expert_info(E.checksum)
    pinfo.cols.info:append(" [bad checksum]")
  elseif not pinfo.visited then
    p.learn = {}
    notes[p.frame] = p.learn
    if p.kind == DATA or p.kind == PROBE then
      local key = string.format("%.0f %d %.0f", p.connection, p.path, p.psn)
      p.learn.duplicate_of = sent[key]
      sent[key] = sent[key] or p.frame
    end
  end
  BODIES[p.kind](c, p)
  if notes[p.frame] then show_notes(tree, p, notes[p.frame]) end
end

local function dissect(tvb, pinfo, tree)
  if tvb:len() == 0 then return 0 end
  pinfo.cols.protocol = "MetaRoCE"
  local root = tree:add(metaroce, tvb())
  local beyond = tvb:reported_len() - tvb:len()
  local c = setmetatable({ tvb = tvb, at = 0, stop = tvb:len(), tree = root, beyond = beyond }, Cursor)
  local ok, problem = pcall(packet, c, pinfo, root)
  if ok then return tvb:len() end
  if type(problem) ~= "table" then error(problem, 0) end
  if beyond > 0 then
    root:add_proto_expert_info(E.cut)
  else
    root:add_proto_expert_info(E.malformed, "Malformed: " .. problem.text)
    pinfo.cols.info:append(" [malformed: " .. problem.text .. "]")
  end
  return tvb:len()
end
metaroce.dissector = dissect

-- Claims what has a right checksum, and what goes where such packets went.
local BODY_BYTES = { 28, 64, 4, 16, 72 }
local function heuristic(tvb, pinfo, tree)
  if tvb:len() < 20 or tvb:reported_len() > tvb:len() then return false end
  local least = BODY_BYTES[tvb(0, 1):uint()]
  if not least or tvb:len() < 20 + least or tvb(1, 1):uint() ~= 0 or tvb(2, 1):uint() > 63 then return false end
  local destination = tostring(pinfo.dst) .. " " .. pinfo.dst_port
  if not endpoints[destination] then
    if not checksum_is_right(tvb) then return false end
    endpoints[destination] = true
  end
  dissect(tvb, pinfo, tree)
  return true
end
metaroce:register_heuristic("udp", heuristic)

local udp_ports = DissectorTable.get("udp.port")
local registered
local function register_ports()
  if registered == metaroce.prefs.ports then return end
  if registered then udp_ports:remove(registered, metaroce) end
  registered = metaroce.prefs.ports
  udp_ports:add(registered, metaroce)
end
register_ports()
metaroce.prefs_changed = register_ports

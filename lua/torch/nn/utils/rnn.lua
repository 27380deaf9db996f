--- torch.nn.utils.rnn: sequences of different lengths as one padded tensor, or
--- packed, so that recurrent layers skip what is padding.
--- Source: PyTorch documentation, torch.nn.utils.rnn.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

local function torch()
  return require("torch")
end

---@class torch.nn.utils.rnn.PackedSequence
---@field data torch.Tensor [sum of lengths, …]: step after step, longest sequences first
---@field batch_sizes torch.Tensor int64 [longest]: the sequences that last to each step
---@field sorted_indices torch.Tensor? where the sequences stood
---@field unsorted_indices torch.Tensor? where they are now
local PackedSequence = class.new("PackedSequence")
M.PackedSequence = PackedSequence

function PackedSequence:init(data, batch_sizes, sorted_indices, unsorted_indices)
  self.data, self.batch_sizes = data, batch_sizes
  self.sorted_indices, self.unsorted_indices = sorted_indices, unsorted_indices
end

--- The same packing of other data.
function PackedSequence:with(data)
  return PackedSequence(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)
end

--- Where the numbers 0 … n-1 stand in a permutation of them.
local function inverse(permutation)
  local n = permutation:size(0)
  return torch().zeros_like(permutation):scatter(0, permutation, torch().arange(n))
end

-- Lengths as a list of integers. They are the shape of what is packed.
local function lengths_of(lengths, n, where)
  errors.check(not core.is_traced(lengths), "RuntimeError", "%s: lengths: inside a compiled "
    .. "program they must be known while it is traced, like a shape; here they are an input or "
    .. "computed: pass a list of integers, or pad and mask", where)
  lengths = core.is_tensor(lengths) and lengths:tolist() or check.table(lengths,
    where .. ": lengths")
  errors.check(#lengths == n, "ValueError",
    "%s: lengths: expected %d of them, got %d", where, n, #lengths)
  for i, v in ipairs(lengths) do
    errors.check(math.type(v) == "integer" and v > 0, "RuntimeError",
      "%s: Length of all samples has to be greater than 0, but found %s at place %d", where,
      tostring(v), i - 1)
  end
  return lengths
end

-- The places of the lengths from the longest to the shortest.
local function order_of(lengths, enforce, where)
  local order = {}
  for i = 1, #lengths do
    order[i] = i
  end
  if enforce then
    for i = 2, #lengths do
      errors.check(lengths[i] <= lengths[i - 1], "RuntimeError", "%s: `lengths` array must be "
        .. "sorted in decreasing order when `enforce_sorted` is true; pass "
        .. "{enforce_sorted = false}", where)
    end
    return order
  end
  table.sort(order, function(a, b)
    return lengths[a] > lengths[b] or lengths[a] == lengths[b] and a < b
  end)
  return order
end

--- Packs sequences of a padded tensor.
---@param input torch.Tensor [time, batch, …], with batch_first [batch, time, …]
---@param lengths torch.Tensor|integer[] of the sequences
---@param ... any batch_first = false, enforce_sorted = true
---@return torch.nn.utils.rnn.PackedSequence
function M.pack_padded_sequence(input, lengths, ...)
  local where = "pack_padded_sequence"
  local a = check.arguments(where, { "input", "lengths", "batch_first", "enforce_sorted" }, nil,
    input, lengths, ...)
  local x = check.bool(a[3] or false, where .. ": batch_first") and a[1]:transpose(0, 1) or a[1]
  local enforce = a[4] ~= false
  local sizes = lengths_of(a[2], x:size(1), where)
  local order = order_of(sizes, enforce, where)
  errors.check(#sizes > 0 and sizes[order[1]] <= x:size(0), "RuntimeError",
    "%s: lengths: %s steps are there, the longest sequence has %s", where, x:size(0),
    tostring(sizes[order[1]]))
  local sorted
  if not enforce then
    local places = {}
    for i, at in ipairs(order) do
      places[i] = at - 1
    end
    sorted = torch().tensor(places, { dtype = torch().int64 })
    x = x:index_select(1, sorted)
  end
  local rows, counts = {}, {}
  for t = 1, sizes[order[1]] do
    local n = 0
    while n < #order and sizes[order[n + 1]] >= t do
      n = n + 1
    end
    rows[t], counts[t] = x[t - 1]:narrow(0, 0, n), n
  end
  return PackedSequence(torch().cat(rows, 0), torch().tensor(counts, { dtype = torch().int64 }),
    sorted, sorted and inverse(sorted))
end

--- The padded tensor of a packed sequence, and the lengths.
---@param sequence torch.nn.utils.rnn.PackedSequence
---@param ... any batch_first = false, padding_value = 0.0, total_length = nil
---@return torch.Tensor padded
---@return torch.Tensor lengths int64 [batch]
function M.pad_packed_sequence(sequence, ...)
  local where = "pad_packed_sequence"
  local a = check.arguments(where, { "sequence", "batch_first", "padding_value", "total_length" },
    nil, sequence, ...)
  errors.check(PackedSequence:is(sequence), "TypeError", "%s: sequence: expected a PackedSequence, "
    .. "got %s", where, check.describe(sequence))
  local value = check.number(a[3] or 0.0, where .. ": padding_value")
  local counts = sequence.batch_sizes:tolist()
  local total = check.int(a[4], where .. ": total_length", { nullable = true }) or #counts
  errors.check(total >= #counts, "ValueError", "%s: total_length: expected at least the length of "
    .. "the longest sequence, %d, got %d", where, #counts, total)
  local batch, steps, lengths = counts[1], {}, {}
  local parts = sequence.data:split(counts, 0)
  for t = 1, total do
    local n = counts[t] or 0
    local shape = { table.unpack(sequence.data.shape) }
    shape[1] = batch - n
    local rest = torch().full(shape, value, { dtype = sequence.data.dtype })
    steps[t] = n == batch and parts[t] or n == 0 and rest or torch().cat({ parts[t], rest }, 0)
    for i = 1, n do
      lengths[i] = t
    end
  end
  local x, sizes = torch().stack(steps, 0), torch().tensor(lengths, { dtype = torch().int64 })
  if sequence.unsorted_indices then
    x = x:index_select(1, sequence.unsorted_indices)
    sizes = sizes:index_select(0, sequence.unsorted_indices)
  end
  return a[2] and x:transpose(0, 1) or x, sizes
end

--- Stacks sequences, padded to the longest.
---@param sequences torch.Tensor[] each [time, …]
---@param ... any batch_first = false, padding_value = 0.0, padding_side = "right"
---@return torch.Tensor [time, batch, …], with batch_first [batch, time, …]
function M.pad_sequence(sequences, ...)
  local where = "pad_sequence"
  local a = check.arguments(where, { "sequences", "batch_first", "padding_value", "padding_side" },
    { sequences = true }, sequences, ...)
  check.table(sequences, where .. ": sequences")
  errors.check(#sequences > 0, "RuntimeError", "%s: sequences: expected at least one", where)
  local side = a[4] or "right"
  errors.check(side == "right" or side == "left", "ValueError",
    "%s: padding_side: expected left or right, got %s", where, check.describe(side))
  local longest, rows = 0, {}
  for _, s in ipairs(sequences) do
    errors.check(core.is_tensor(s) and s:dim() > 0, "TypeError",
      "%s: sequences: expected Tensors with dimensions, got %s", where, check.describe(s))
    longest = math.max(longest, s:size(0))
  end
  for i, s in ipairs(sequences) do
    local shape = { table.unpack(s.shape) }
    shape[1] = longest - s:size(0)
    local rest = torch().full(shape, a[3] or 0.0, { dtype = s.dtype })
    rows[i] = torch().cat(side == "right" and { s, rest } or { rest, s }, 0)
  end
  return torch().stack(rows, a[2] and 0 or 1)
end

--- The sequences of a padded tensor, each of its length.
---@param padded torch.Tensor
---@param lengths torch.Tensor|integer[]
---@param ... any batch_first = false
---@return torch.Tensor[]
function M.unpad_sequence(padded, lengths, ...)
  local a = check.arguments("unpad_sequence", { "padded_sequences", "lengths", "batch_first" },
    nil, padded, lengths, ...)
  local x = a[3] and padded or padded:transpose(0, 1)
  local out = {}
  for i, n in ipairs(lengths_of(lengths, x:size(0), "unpad_sequence")) do
    out[i] = x[i - 1]:narrow(0, 0, n)
  end
  return out
end

--- Packs a list of sequences.
---@param sequences torch.Tensor[] each [time, …]
---@param enforce_sorted? boolean true unless given
---@return torch.nn.utils.rnn.PackedSequence
function M.pack_sequence(sequences, enforce_sorted)
  local lengths = {}
  for i, s in ipairs(check.table(sequences, "pack_sequence: sequences")) do
    lengths[i] = s:size(0)
  end
  if type(enforce_sorted) == "table" then
    enforce_sorted = enforce_sorted.enforce_sorted
  end
  return M.pack_padded_sequence(M.pad_sequence(sequences), lengths, false, enforce_sorted)
end

return require("lupine.base.namespace").close(M, "torch.nn.utils.rnn")

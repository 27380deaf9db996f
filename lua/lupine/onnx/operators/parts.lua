--- Operators of ONNX that put tensors together, take parts of them and add borders.
local core = require("lupine.core")
local operands = require("lupine.onnx.operands")
local windows = require("lupine.onnx.windows")
local torch = require("torch")
local F = require("torch.nn.functional")

local function concat(n, ...)
  return torch.cat({ ... }, n:axis(n.attr.axis, (...):dim()))
end

local function split(n, x, parts)
  local axis, count = n:axis(n.attr.axis, x:dim()), #n.outputs
  local size = x:size(axis)
  if not parts then
    n:check(size % count == 0, "axis %d of size %d has no %d equal parts", axis, size, count)
    parts = {}
    for i = 1, count do
      parts[i] = size // count
    end
  end
  n:check(#parts == count, "%d sizes of parts for %d outputs", #parts, count)
  return table.unpack(x:split(parts, axis))
end

-- Sizes of `count` parts that are equal but for the last, which may be smaller.
local function chunks(n, x, count)
  local size = x:size(n:axis(n.attr.axis, x:dim()))
  n:check(count == #n.outputs, "num_outputs is %d for %d outputs", count, #n.outputs)
  local each, parts = -(-size // count), {}
  for i = 1, count do
    parts[i] = math.max(0, math.min(each, size - (i - 1) * each))
  end
  return parts
end

-- ---- slices --------------------------------------------------------------------------

-- x along an axis from `first` up to, without, `last`: both count from behind if
-- negative and are cut to what is there. Unlike Python's slices, one that goes backwards
-- has the first element even if it begins in front of it.
local function slice_axis(n, x, axis, first, last, step)
  local size = x:size(axis)
  n:check(step ~= 0, "the step of axis %d is 0", axis)
  first, last = first < 0 and first + size or first, last < 0 and last + size or last
  local high = step < 0 and size - 1 or size
  first = math.max(0, math.min(first, high))
  last = math.max(step < 0 and -1 or 0, math.min(last, high))
  local count = 0
  if step > 0 and last > first then
    count = (last - first - 1) // step + 1
  elseif step < 0 and first > last and size > 0 then
    count = (first - last - 1) // -step + 1
  end
  if count <= 1 or step == 1 then
    return x:narrow(axis, count > 0 and first or 0, count)
  end
  local at = {}
  for d = 1, axis do
    at[d] = torch.slice()
  end
  local from = step > 0 and first or first + (count - 1) * step
  at[axis + 1] = torch.slice(from, from + (count - 1) * math.abs(step) + 1, math.abs(step))
  return step > 0 and x[at] or x[at]:flip({ axis })
end

local function slice(n, x, starts, ends, axes, steps)
  n:check(#starts == #ends, "%d starts and %d ends", #starts, #ends)
  n:check(not axes or #axes == #starts, "%d axes for %d starts", #(axes or {}), #starts)
  n:check(not steps or #steps == #starts, "%d steps for %d starts", #(steps or {}), #starts)
  for i, first in ipairs(starts) do
    local axis = n:axis(axes and axes[i] or i - 1, x:dim(), operands.giver(n))
    x = slice_axis(n, x, axis, first, ends[i], steps and steps[i] or 1)
  end
  return x
end

-- ---- borders --------------------------------------------------------------------------

-- Which elements of an axis of the size stand where it has so many more in front and
-- behind: the nearest ones, or what a mirror in the edges shows, as often as needed.
local function border(mode, size, before, behind)
  local at = torch.arange(-before, size + behind)
  if mode == "edge" then
    return at:clamp(0, size - 1)
  end
  local period = math.max(2 * (size - 1), 1)
  at = at:remainder(period)
  return torch.where(at:ge(size), period - at, at)
end

-- With zeros, also flags.
local function pad_zero(x, pads)
  return x.dtype == torch.bool and F.pad(x:to(torch.uint8), pads):to(torch.bool) or F.pad(x, pads)
end

-- With the value of a tensor: an integer, or what only a run of the program knows.
local function pad_with(x, pads, value)
  local inside = core.untraced(function()
    return F.pad(torch.ones(x.shape), pads):gt(0)
  end)
  return torch.where(inside, pad_zero(x, pads), value:reshape({}):to(x.dtype))
end

local function pad_constant(n, x, pads)
  local given = n.inputs[3]
  if given and not (x:is_floating_point() and n:knows(3)) then
    return pad_with(x, pads, given)
  end
  local value = n:number(3) or n.attr.value or 0
  return value == 0 and pad_zero(x, pads) or F.pad(x, pads, "constant", value)
end

local function pad_mirrored(n, x, mode, pads)
  local r = x:dim()
  for axis = 0, r - 1 do
    local before, behind = pads[axis + 1], pads[r + axis + 1]
    if before < 0 or behind < 0 then -- what goes is no source of a border
      local cut = math.max(-before, 0)
      x = x:narrow(axis, cut, x:size(axis) - cut - math.max(-behind, 0))
      before, behind = math.max(before, 0), math.max(behind, 0)
    end
    if before > 0 or behind > 0 then
      n:check(x:size(axis) > 0, "axis %d has no elements to make a border of", axis)
      x = x:index_select(axis, core.untraced(border, mode, x:size(axis), before, behind))
    end
  end
  return x
end

local function pad(n, x, pads)
  local mode, r = n.attr.mode, x:dim()
  n:check(#pads == 2 * r, "%d pads for %d dimensions, allowed are %d", #pads, r, 2 * r)
  n:check(mode == "constant" or mode == "reflect" or mode == "edge",
    "mode '%s'. Allowed: constant, reflect, edge", mode)
  for axis = 0, r - 1 do
    n:check(x:size(axis) + math.min(pads[axis + 1], 0) + math.min(pads[r + axis + 1], 0) >= 0,
      "the pads of axis %d take away more than the %d elements that it has", axis, x:size(axis))
  end
  if mode ~= "constant" then
    return pad_mirrored(n, x, mode, pads)
  end
  return pad_constant(n, x, windows.reversed(#pads // 2, pads))
end

-- ---- sequences ------------------------------------------------------------------------

-- The first sequence_lens[b] elements of sequence b the other way round.
local function reverse_sequence(n, x, lens)
  local time = n:axis(n.attr.time_axis, x:dim(), "attribute 'time_axis'")
  local batch = n:axis(n.attr.batch_axis, x:dim(), "attribute 'batch_axis'")
  n:check(time ~= batch, "time_axis and batch_axis are both %d", time)
  local shape, along = {}, {}
  for d = 1, x:dim() do
    shape[d], along[d] = 1, 1
  end
  along[time + 1], shape[batch + 1] = x:size(time), x:size(batch)
  local at = core.untraced(function()
    return torch.arange(x:size(time)):reshape(along)
  end)
  lens = lens:to(torch.int64):reshape(shape)
  local from = torch.where(at:lt(lens), lens - 1 - at, at)
  return x:gather(time, from:expand(x.shape))
end

return function(op)
  op("Concat(inputs...; axis: int!) -> (concat_result)", { 4, 11, 13 }, concat)
  op("Split(input; axis: int = 0, split: ints) -> (outputs...)", { 2, 11 }, function(n, x)
    return split(n, x, n.attr.split)
  end)
  op("Split(input, split?; axis: int = 0) -> (outputs...)", 13, function(n, x)
    return split(n, x, n:ints(2))
  end, { constants = { [2] = true } })
  op("Split(input, split?; axis: int = 0, num_outputs: int) -> (outputs...)", 18, function(n, x)
    local count, parts = n.attr.num_outputs, n:ints(2)
    n:check((count == nil) ~= (parts == nil), "one of split and num_outputs must be given")
    return split(n, x, parts or chunks(n, x, count))
  end, { constants = { [2] = true } })
  op("Slice(data; ends: ints!, starts: ints!, axes: ints) -> (output)", 1, function(n, x)
    return slice(n, x, n.attr.starts, n.attr.ends, n.attr.axes)
  end)
  op("Slice(data, starts, ends, axes?, steps?) -> (output)", { 10, 11, 13 }, function(n, x)
    return slice(n, x, n:ints(2), n:ints(3), n:ints(4), n:ints(5))
  end, { constants = { [2] = true, [3] = true, [4] = true, [5] = true } })
  op("Pad(data; pads: ints!, mode: string = 'constant', value: float = 0.0) -> (output)", 2,
    function(n, x)
      return pad(n, x, n.attr.pads)
    end)
  op("Pad(data, pads, constant_value?; mode: string = 'constant') -> (output)", { 11, 13 },
    function(n, x)
      return pad(n, x, n:ints(2))
    end, { constants = { [2] = true } })
  op("ReverseSequence(input, sequence_lens; batch_axis: int = 1, time_axis: int = 0) -> (Y)", 10,
    reverse_sequence)
end

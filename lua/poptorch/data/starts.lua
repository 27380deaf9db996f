--- What a loop of an AsynchronousDataAccessor's process began with, so that another
--- process can go on in its middle: the random numbers before, those after (what a
--- loader draws it draws when a loop starts), the state of the source, if it has one.
---
--- A loader goes on without reading what it has given before. Anything else is read
--- again from the beginning, as only that brings its random numbers to where they were.
local class = require("lupine.base.class")
local elements = require("poptorch.data.elements")
local random = require("torch.utils.data.random")
local tables = require("lupine.base.tables")
local TorchLoader = require("torch.utils.data.loader")

local M = {}

local function is_loader(source)
  return TorchLoader:is(source) and source.__iter__ == TorchLoader.__iter__
end

local function state_of(source)
  local has = class.of(source) and source.state_dict and source.load_state_dict
  return has and source:state_dict() or nil
end

--- Begins a loop over a source.
---@param source any
---@return table start plain data and tensors
---@return fun(): any step gives the next element
---@return table? guard is to be closed if the loop is left
function M.begin(source)
  local start = { before = random.state(), source = not is_loader(source) and state_of(source)
    or nil }
  local step, guard = elements.of(source)
  start.loader = is_loader(source) and TorchLoader.state_dict(source) or nil
  start.after = random.state()
  return start, step, guard
end

local function advance(step, n)
  while n > 0 and step() ~= nil do
    n = n - 1
  end
  return step
end

-- Batches of a loader that are to be left out unread for `n` elements that were
-- given, and rows of the next one: those of `size` rows were put together of batches
-- of batch_size, which a batch_sampler's are not.
local function batches_of(source, n, size)
  if not size then
    return n, 0
  elseif source._iterable or source._batches_given then
    return 0, n * size
  end
  return n * size // source.batch_size, n * size % source.batch_size
end

--- Begins such a loop again, after some of its elements.
---@param source any
---@param start table
---@param n integer elements that were given
---@param size? integer rows of each, if they were put together
---@param ended boolean whether they were all
---@return fun(): any step
---@return table? guard
---@return integer rows that are to be left out of what comes, if they are put together
function M.again(source, start, n, size, ended)
  if is_loader(source) then
    local position, rows = batches_of(source, n, size)
    local state = start.loader
    TorchLoader.load_state_dict(source, tables.with(state, { in_epoch = true,
      position = position }))
    local step, guard = elements.of(source)
    random.set_state(start.after)
    return step, guard, rows
  end
  random.set_state(start.before)
  if start.source then
    source:load_state_dict(start.source)
  end
  local step, guard = elements.of(source)
  if ended then
    return advance(step, math.huge), guard, 0
  end
  return advance(step, size and 0 or n), guard, n * (size or 0)
end

return M

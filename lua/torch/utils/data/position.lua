--- Where a DataLoader's latest loop stands, as a state that another process goes on
--- from: what the epoch began with (the random numbers, the states of sampler,
--- generator and dataset) and how many batches it has given. Going on begins the
--- epoch anew, which draws the same order, and leaves out the tasks that are done:
--- nothing of theirs is read, but of an iterable dataset.
---
--- A batch counts when the loop has it, whatever workers have read ahead. What is
--- read of a batch depends on the epoch's seed and the batch's number alone
--- (workers.lua), so that the rest of an epoch is the same for any number of workers.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local data = require("torch.utils.data.dataset")
local errors = require("lupine.base.errors")
local random = require("torch.utils.data.random")

local M = {}

-- ---- what an epoch is made of ------------------------------------------------

local PARTS = { "batch_sampler", "sampler", "dataset" }

-- A part that has a state. A batch_sampler has that of the sampler within it.
local function stateful(loader, name)
  local part = rawget(loader, name)
  if not class.of(part) or name == "sampler" and loader.batch_sampler then
    return nil
  end
  return part.state_dict and part.load_state_dict and part
end

local function parts_state(loader)
  local out = { generator = loader.generator and loader.generator:get_state() or nil }
  for _, name in ipairs(PARTS) do
    local part = stateful(loader, name)
    out[name] = part and part:state_dict() or nil
  end
  return out
end

local function load_parts(loader, parts)
  if parts.generator ~= nil then
    errors.check(loader.generator, "ValueError", "DataLoader: load_state_dict: the state is of a "
      .. "loader with a generator, this one has none")
    loader.generator:set_state(parts.generator)
  end
  for _, name in ipairs(PARTS) do
    local part = stateful(loader, name)
    if part and parts[name] ~= nil then
      part:load_state_dict(parts[name])
    end
  end
end

-- ---- loops ---------------------------------------------------------------------

---@class torch.utils.data.Epoch
---@field random table what the random numbers were at its beginning
---@field parts table and the parts' states
---@field position integer batches that were given
---@field ended boolean

-- Without a trace in the random numbers of now, which a checkpoint has apart.
local function begin_again(loader, state, begin)
  local _ <close> = random.keep()
  load_parts(loader, state.parts)
  random.set_state(state.random)
  return begin(state.position)
end

local function counted(epoch, step, ...)
  local function given(first, ...)
    if first == nil then
      epoch.ended = true
    else
      epoch.position = epoch.position + 1
    end
    return first, ...
  end
  return function()
    return given(step())
  end, ...
end

--- A loop over a loader, which is the rest of an epoch after load.
---@param loader torch.utils.data.DataLoader
---@param begin fun(position: integer): fun(): any, ... draws what the epoch needs and gives
---  an iterator, from batch `position` on
---@return fun(): any, ...
function M.loop(loader, begin)
  local state = loader._resume
  loader._resume = nil
  if state then
    loader._epoch = { random = state.random, parts = state.parts, position = state.position }
    return counted(loader._epoch, begin_again(loader, state, begin))
  end
  loader._epoch = { random = random.state(), parts = parts_state(loader), position = 0 }
  return counted(loader._epoch, begin(0))
end

-- ---- states --------------------------------------------------------------------

-- What the number of a batch means something in: nil where it is not known.
local function measures(loader)
  local order = loader.sampler or loader.batch_sampler
  local known, n = pcall(data.len, order)
  return { batch_size = loader.batch_size, length = order and known and n or nil }
end

local function check_measures(loader, of)
  local own = measures(loader)
  for name, text in pairs({ batch_size = "batches of %s samples", length = "%s in all" }) do
    errors.check(of[name] == own[name] or own[name] == nil, "ValueError", "DataLoader: "
      .. "load_state_dict: the state is in the middle of an epoch of " .. text .. ", this loader "
      .. "has " .. text, tostring(of[name]), tostring(own[name]))
  end
end

--- The state of a loader: in_epoch, position, random, parts, of.
---@param loader torch.utils.data.DataLoader
---@return table
function M.save(loader)
  local epoch = loader._resume or loader._epoch
  if not epoch or epoch.ended then
    return { in_epoch = false, position = 0, parts = parts_state(loader) }
  end
  return { in_epoch = true, position = epoch.position, random = epoch.random, parts = epoch.parts,
    of = measures(loader) }
end

--- The next loop goes on from a state.
--- errors: TypeError, ValueError for what M.save did not give, or a loader of other
--- batches
---@param loader torch.utils.data.DataLoader
---@param state table
function M.load(loader, state)
  local where = "DataLoader: load_state_dict: "
  check.table(state, where .. "state_dict")
  check.table(state.parts, where .. "parts")
  check.bool(state.in_epoch, where .. "in_epoch")
  check.int(state.position, where .. "position", { min = 0 })
  loader._epoch, loader._resume = nil, nil
  if state.in_epoch then
    check.table(state.random, where .. "random")
    check_measures(loader, check.table(state.of, where .. "of"))
    loader._resume = { random = state.random, parts = state.parts, position = state.position }
  else
    load_parts(loader, state.parts)
  end
end

--- The next loop begins a new epoch, though the last one was left in the middle.
---@param loader torch.utils.data.DataLoader
function M.leave(loader)
  if loader._resume then -- what the rest of that epoch would draw is drawn
    local _, _, _, guard = loader:iter()
    local _ <close> = guard
  end
  if loader._epoch then
    loader._epoch.ended = true
  end
end

return M

--- Where a run's inputs come from and its anchors go: the interface IStepIO, PyStepIO
--- over tables of tensors, PyStepIOCallback over functions; PyWeightsIO for weights. Of
--- shared libraries: step_library.lua.
---
--- An IStepIO gives and takes buffers, each the values of one tensor in one micro-batch
--- of one replica, in the order micro-batch by micro-batch and in it replica by replica.
--- One's own is a subclass:
---
---     local Mine = popart.IStepIO:extend("Mine")
---     function Mine:in_(id, n, prefetch, broadcast, dtype) return … end  -- n elements
---     function Mine:inComplete(id, n, broadcast) end      -- it has been read
---     function Mine:out(id, n, dtype) return … end        -- a tensor of n elements to fill
---     function Mine:outComplete(id) end                   -- it has been filled
---
--- (`in` is a word of Lua's.) What sessions do with them: lua/popart/transfers.lua.
---
--- Source: PopART user guide 4.1; its Python API.
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local closed = require("lupine.base.closed")
local core = require("lupine.core")
local errors = require("popart.errors")
local signatures = require("lupine.base.signatures")
local tables = require("lupine.base.tables")

local M = {}

-- ---- the interface -----------------------------------------------------------------------

--- What gives a run its inputs and takes its anchors.
--- source: 004 popart.IStepIO
---@class popart.IStepIO
---@field runtimeAsserts boolean whether a session's first run compares sizes
local IStepIO = class.new("IStepIO")
M.IStepIO = IStepIO

function IStepIO:setup()
  self.runtimeAsserts = true
end

for _, name in ipairs({ "in_", "inComplete", "out", "outComplete" }) do
  IStepIO[name] = function(self)
    errors.raise("NotImplementedError", "%s:%s: a class of IStepIO defines in_, inComplete, out "
      .. "and outComplete", class.of(self).__name, name)
  end
end

--- Whether a session's first run compares the sizes of tensors with what it needs.
--- error: TypeError
---@param ... any on (boolean)
function IStepIO:enableRuntimeAsserts(...)
  self.runtimeAsserts = check.bool(check.one("enableRuntimeAsserts", "on", ...),
    "enableRuntimeAsserts: on")
end

-- A table of tensors by name, each of which lies row by row.
local function tensors_of(given, where, refuse)
  local out = {}
  for id, tensor in pairs(check.plain_table(given, where)) do
    if type(id) ~= "string" then
      check.string(id, where .. ": a name")
    elseif not core.is_tensor(tensor) then
      errors.raise("TypeError", "%s['%s']: expected a tensor, got %s", where, id,
        check.describe(tensor))
    elseif not tensor:is_contiguous() then
      refuse(id)
    end
    out[id] = tensor
  end
  return out
end

local function not_contiguous(kind)
  return function(id)
    errors.raise("popart_exception", "PyStepIO is unable to use the numpy %s array for tensor "
      .. "'%s' as it is not c-contiguous (a data conversion here could have a significant impact "
      .. "on performance and hence is not allowed): give tensor:contiguous()", kind, id)
  end
end

-- ---- tables of tensors -----------------------------------------------------------------

--- Inputs and anchors in tensors: each run reads and writes them from the start, a
--- micro-batch after the other. Sizes count, not shapes.
--- error: popart_exception for a tensor that does not lie row by row
--- source: 004 popart.PyStepIO
---@class popart.PyStepIO: popart.IStepIO
---@overload fun(inputs: table<string, torch.Tensor>, outputs: table<string, torch.Tensor>):
---  popart.PyStepIO
local PyStepIO = closed.close(IStepIO:extend("PyStepIO"))
M.PyStepIO = PyStepIO
signatures.note(PyStepIO, "PyStepIO(inputs, outputs)", 1)

function PyStepIO:init(...)
  local v = { ... }
  if select("#", ...) ~= 2 then -- else both are tables: made for each run, it is to be quick
    v = check.arguments("PyStepIO", { "inputs", "outputs" }, { inputs = true, outputs = true }, ...)
  end
  self._inputs = { name = "inputs", at = {},
    tensors = tensors_of(v[1], "PyStepIO: inputs", not_contiguous("input")) }
  self._outputs = { name = "outputs", at = {},
    tensors = tensors_of(v[2], "PyStepIO: outputs", not_contiguous("output")) }
end

local function tensor_of(side, id)
  return errors.check(side.tensors[id], "popart_runtime_error",
    "No tensor %s provided in PyStepIO's %s", id, side.name)
end

-- The next n elements of a tensor; behind the last one comes the first.
local function advance(side, id, n)
  local tensor = tensor_of(side, id)
  local at, size = side.at[id] or 0, tensor:numel()
  errors.check(at + n <= size, "popart_runtime_error", "Tensor %s of PyStepIO's %s has %d "
    .. "elements, %d are needed after the first %d", id, side.name, size, n, at)
  side.at[id] = at + n < size and at + n or 0
  return tensor:detach():view(-1):narrow(0, at, n)
end

--- The next n elements of an input.
--- error: popart_runtime_error for one that was not given
---@param id string
---@param n integer
---@return torch.Tensor
function PyStepIO:in_(id, n)
  return advance(self._inputs, id, n)
end

--- Nothing: the tensor belongs to the caller.
function PyStepIO:inComplete() end

--- The tensor of an anchor.
--- error: popart_runtime_error for one that was not given
---@param id string
---@return torch.Tensor
function PyStepIO:_place(id)
  return tensor_of(self._outputs, id)
end

--- The next n elements of an anchor's tensor.
--- error: popart_runtime_error for one that was not given
---@param id string
---@param n integer
---@return torch.Tensor
function PyStepIO:out(id, n)
  return advance(self._outputs, id, n)
end

--- Nothing: the tensor belongs to the caller.
function PyStepIO:outComplete() end

-- ---- functions --------------------------------------------------------------------------

--- Inputs and anchors by functions of the caller.
---   input_callback(id, prefetch)  a tensor with a micro-batch's values, which may be nil
---                                 only where prefetch is true
---   input_complete_callback(id)   it has been read
---   output_callback(id)           a tensor to fill
---   output_complete_callback(id)  it has been filled
--- Prefetching never asks here: prefetch is false always. Sizes are not compared.
--- error: TypeError
--- source: 004 popart.PyStepIOCallback
---@class popart.PyStepIOCallback: popart.IStepIO
---@overload fun(input_callback: function, input_complete_callback: function,
---  output_callback: function, output_complete_callback: function): popart.PyStepIOCallback
local PyStepIOCallback = closed.close(IStepIO:extend("PyStepIOCallback"))
M.PyStepIOCallback = PyStepIOCallback

local CALLBACKS = { "input_callback", "input_complete_callback", "output_callback",
  "output_complete_callback" }
signatures.note(PyStepIOCallback, ("PyStepIOCallback(%s)"):format(table.concat(CALLBACKS, ", ")), 1)

function PyStepIOCallback:init(...)
  local v = check.arguments("PyStepIOCallback", CALLBACKS, nil, ...)
  for i, name in ipairs(CALLBACKS) do
    self["_" .. name] = check.callable(v[i], "PyStepIOCallback: " .. name)
  end
  self.runtimeAsserts = false
end

-- What a callback gave for a tensor of n elements.
local function given(tensor, id, n, kind)
  if not core.is_tensor(tensor) then
    errors.raise("popart_runtime_error", "the callback for the %s '%s' returned %s: expected a "
      .. "tensor of %d elements", kind, id, check.describe(tensor), n)
  elseif not tensor:is_contiguous() then
    not_contiguous(kind)(id)
  end
  return tensor
end

--- What the input callback gives.
--- error: popart_exception for what does not lie row by row; popart_runtime_error for no
--- tensor
---@param id string
---@param n integer
---@param prefetch boolean
---@return torch.Tensor?
function PyStepIOCallback:in_(id, n, prefetch)
  local tensor = self._input_callback(id, prefetch)
  return (tensor ~= nil or not prefetch) and given(tensor, id, n, "input") or nil
end

--- Tells the input's complete callback.
---@param id string
function PyStepIOCallback:inComplete(id)
  self._input_complete_callback(id)
end

--- What the output callback gives.
--- error: as `in_`
---@param id string
---@param n integer
---@return torch.Tensor
function PyStepIOCallback:out(id, n)
  return given(self._output_callback(id), id, n, "output")
end

--- Tells the output's complete callback.
---@param id string
function PyStepIOCallback:outComplete(id)
  self._output_complete_callback(id)
end

--- The name in C++; that of PyStepIO is in step_library.lua.
M.StepIOCallback = PyStepIOCallback

-- ---- weights ----------------------------------------------------------------------------

--- What weights are read into or written from: `contains` says whether it has a weight,
--- `weight` gives its tensor.
--- source: PopART Python API, IWeightsIO
---@class popart.IWeightsIO
local IWeightsIO = class.new("IWeightsIO")
M.IWeightsIO = IWeightsIO

for _, name in ipairs({ "contains", "weight" }) do
  IWeightsIO[name] = function(self)
    errors.raise("NotImplementedError", "%s:%s: a class of IWeightsIO defines contains and weight",
      class.of(self).__name, name)
  end
end

--- Tensors that weights are read into or written from. Of a weight that differs between
--- groups of replicas the first dimension counts these.
--- error: popart_exception for a tensor that does not lie row by row
--- source: PopART Python API, PyWeightsIO
---@class popart.PyWeightsIO: popart.IWeightsIO
---@overload fun(weights: table<string, torch.Tensor>): popart.PyWeightsIO
local PyWeightsIO = closed.close(IWeightsIO:extend("PyWeightsIO"))
M.PyWeightsIO = PyWeightsIO
signatures.note(PyWeightsIO, "PyWeightsIO(weights)", 1)

function PyWeightsIO:init(...)
  local v = check.arguments("PyWeightsIO", { "weights" }, { weights = true }, ...)
  self._weights = tensors_of(v[1], "PyWeightsIO: weights", function(id)
    errors.raise("popart_exception", "PyWeightsIO is unable to use the provided numpy output "
      .. "array for tensor '%s' as it is not c-contiguous: give tensor:contiguous()", id)
  end)
end

--- Whether a weight's tensor was given.
---@param id string
---@return boolean
function PyWeightsIO:contains(id)
  return self._weights[id] ~= nil
end

--- A weight's tensor.
--- error: popart_exception for one that was not given
---@param id string
---@return torch.Tensor
function PyWeightsIO:weight(id)
  return self._weights[id] or errors.raise("popart_exception",
    "No tensor %s provided in PyWeightsIO's weights%s", tostring(id),
    check.nearest(id, self:ids()))
end

--- The weights whose tensors were given, sorted.
---@return string[]
function PyWeightsIO:ids()
  return tables.keys(self._weights)
end

return M

--- popart.StepIO: inputs and anchors by a shared library written for lupine/step_io.h.
---
---     session:run(popart.StepIO("./libmine.so", "data.bin"))
---
--- Values are copied from and to the library's memory, micro-batch by micro-batch; it is
--- closed when the object is collected or closed.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("popart.errors")
local signatures = require("lupine.base.signatures")
local stepio = require("popart.stepio")
local torch = require("torch")

--- Inputs and anchors by a library of C, which gets the argument (a text); of tables of
--- tensors a PyStepIO, whose name in C++ this is. Sizes are not compared: the library is told
--- how many elements of which type are wanted.
--- error: FileNotFoundError, OSError for what is no library; popart_runtime_error for one that
--- is of another version, exports no lupine_open_step_io, or refuses the argument
--- source: 004 popart.StepIO
---@class popart.StepIO: popart.IStepIO
---@overload fun(path: string, argument: string?): popart.StepIO
---@overload fun(inputs: table<string, torch.Tensor>, outputs: table<string, torch.Tensor>):
---  popart.PyStepIO
local StepIO = stepio.IStepIO:extend("StepIO")
signatures.note(StepIO, "StepIO(path, argument)", 1)

local of_library = StepIO.new

function StepIO.new(cls, first, ...)
  if type(first) == "table" and type(first.path) ~= "string" then
    return stepio.PyStepIO(first, ...)
  end
  return of_library(cls, first, ...)
end

function StepIO:init(...)
  local v = check.arguments("StepIO", { "path", "argument" }, nil, ...)
  local path, argument = check.string(v[1], "StepIO: path"), v[2]
  check.string(argument == nil and "" or argument, "StepIO: argument")
  self._library = errors.guard("popart_runtime_error", core.step_io, path, argument or "")
  self._outputs, self.runtimeAsserts = {}, false
end

--- An input's values, a copy of the library's, which has them back.
--- error: popart_runtime_error for what the library refuses
---@param id string
---@param n integer
---@param prefetch boolean
---@param broadcast boolean
---@param dtype torch.dtype
---@return torch.Tensor?
function StepIO:in_(id, n, prefetch, broadcast, dtype)
  return errors.guard("popart_runtime_error", self._library.read, self._library, id, n, dtype,
    prefetch, broadcast)
end

--- Nothing: the library knew when its values had been copied.
function StepIO:inComplete() end

--- A tensor for an anchor's values.
---@param id string
---@param n integer
---@param dtype torch.dtype
---@return torch.Tensor
function StepIO:out(id, n, dtype)
  self._outputs[id] = torch.empty({ n }, { dtype = dtype })
  return self._outputs[id]
end

--- Its values go to the library.
--- error: popart_runtime_error for what the library refuses
---@param id string
function StepIO:outComplete(id)
  errors.guard("popart_runtime_error", self._library.write, self._library, id, self._outputs[id])
  self._outputs[id] = nil
end

--- Tells the library that nothing reads it any more.
function StepIO:close()
  self._library:close()
end

function StepIO:__close()
  self:close()
end

return { StepIO = StepIO }

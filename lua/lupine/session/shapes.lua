--- Programs of shapes: where parameters are on device meta there is a step, complete, and
--- what the simulated system says of it, but nothing to run.
local errors = require("lupine.base.errors")

local M = {}

-- In place of the program of a session: what it is asked without being run.
local methods = {}

function methods:step()
  return self._step
end

function methods.close() end

function methods.marked()
  return false
end

function methods.running()
  return false
end

local Shapes = {}

function Shapes.__index(_, name)
  return methods[name] or errors.raise("Error", "the program was compiled from shapes alone, as "
    .. "parameters are on device 'meta': it has a report and nothing to run (%s); "
    .. "model:to_empty({device = 'cpu'}) gives them memory", tostring(name))
end

--- The first tensor without elements of those that a program has; nil: it is one that can run.
---@param tensors? table<string, table<string, torch.Tensor>> by role and name
---@return string? name
function M.first(tensors)
  for _, list in pairs(tensors or {}) do
    for name, t in pairs(list) do
      if t.is_meta then
        return name
      end
    end
  end
  return nil
end

--- What stands where a program would.
---@param step lupine.Step complete
---@return table
function M.exec(step)
  return setmetatable({ _step = step }, Shapes)
end

return M

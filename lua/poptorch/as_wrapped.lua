--- A model as it was when it was wrapped. PopTorch calls a shallow copy of the
--- model: weights are one with the user's module, what is no tensor and no module
--- is not. Here forward runs on the user's module itself, which therefore gets,
--- while it is traced, the modes (`training`) of all its modules and the plain
--- values of its own fields back.
---
--- Source: PopTorch user guide 4.2; API reference, trainingModel.
local M = {}

local PLAIN = { number = true, string = true, boolean = true }

--- What of a model does not follow the user's module from now on.
---@param model torch.nn.Module whose forward is called
---@param user_model torch.nn.Module whose weights they are, mostly the same
---@return table<torch.nn.Module, table<string, any>>
function M.take(model, user_model)
  local taken = {}
  for _, root in ipairs({ model, user_model }) do
    for _, module in ipairs(root:modules()) do
      taken[module] = taken[module] or {}
      taken[module].training = module.training
    end
    for name, value in next, root._fields do
      if PLAIN[type(value)] and name:sub(1, 1) ~= "_" then
        taken[root][name] = value
      end
    end
  end
  return taken
end

--- Puts that back for as long as the result is not closed. What forward assigns
--- meanwhile stays.
---@param taken table from take
---@return table scope to be closed
function M.restore(taken)
  local now = {}
  for module, fields in next, taken do
    now[module] = {}
    for name, value in next, fields do
      now[module][name] = module._fields[name]
      module._fields[name] = value
    end
  end
  return setmetatable({}, { __close = function()
    for module, fields in next, taken do
      for name, value in next, fields do
        if module._fields[name] == value then
          module._fields[name] = now[module][name]
        end
      end
    end
  end })
end

--- A field that is set through the executor, or a mode: it is the wrapper's too.
---@param taken table from take
---@param model torch.nn.Module
---@param name string
---@param value any
function M.assign(taken, model, name, value)
  if name == "training" then
    for _, module in ipairs(model:modules()) do
      taken[module] = taken[module] or {}
      taken[module].training = module.training
    end
  elseif PLAIN[type(value)] or taken[model][name] ~= nil then
    taken[model][name] = PLAIN[type(value)] and value or nil
  end
end

return M

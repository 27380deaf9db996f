--- A model as it was when it was wrapped. PopTorch calls a shallow copy of the
--- model: weights are one with the user's module, what is no tensor and no module
--- is not. Here forward runs on the user's module itself, which therefore gets,
--- while it is traced, the modes (`training`) of all its modules and the plain
--- values of its own fields back.
---
--- Source: PopTorch user guide 4.2; API reference, trainingModel.
local M = {}

local PLAIN = { number = true, string = true, boolean = true }

-- The modes of now.
local function set_modes(taken, model)
  for _, module in ipairs(model:modules()) do
    taken[module] = taken[module] or {}
    taken[module].training = module.training
  end
end

local function set_field(fields, name, value)
  if PLAIN[type(value)] then
    fields[name] = value
  else
    fields[name] = nil
  end
end

--- What of a model does not follow the user's module from now on.
---@param model torch.nn.Module whose forward is called
---@param user_model torch.nn.Module whose weights they are, mostly the same
---@return table<torch.nn.Module, table<string, any>>
function M.take(model, user_model)
  local taken = {}
  for _, root in ipairs({ model, user_model }) do
    set_modes(taken, root)
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

--- The model as an inference executor shows it, PopTorch's copy: the same parameters,
--- buffers and sub-modules, and fields of its own once they are assigned.
---@param model torch.nn.Module
---@return torch.nn.Module
function M.view(model)
  local view = {}
  for key, value in next, model do
    view[key] = value
  end
  view._fields = setmetatable({}, { __index = model._fields })
  return setmetatable(view, getmetatable(model))
end

--- What was assigned to a view is the wrapper's: view:eval() is its mode.
---@param taken table from take
---@param model torch.nn.Module
---@param view torch.nn.Module?
function M.follow(taken, model, view)
  local own = view and view._fields or {}
  if rawget(own, "training") ~= nil then
    set_modes(taken, model)
  end
  for name, value in next, own do
    set_field(taken[model], name, value)
  end
end

--- A field that is set through the executor, or a mode: it is the wrapper's too.
---@param taken table from take
---@param model torch.nn.Module
---@param name string
---@param value any
function M.assign(taken, model, name, value)
  if name == "training" then
    set_modes(taken, model)
  else
    set_field(taken[model], name, value)
  end
end

return M

--- A torch.nn.Module of an ONNX model: the same in eager calls, under
--- lupine.compile and in poptorch's models.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local graph = require("lupine.onnx.graph")
local nn = require("torch.nn")
local proto = require("lupine.onnx.proto")

--- Its parameters are the initializers of floating point that results depend on as
--- such; those that decide shapes, and integers, are constants; running statistics of
--- normalisations, and what the graph itself updates, are buffers. Names with dots lie in
--- modules within, so that state_dict() has the names of the file.
---@class lupine.onnx.Module: torch.nn.Module
---@field input_names string[] arguments of forward, in order
---@field output_names string[] its results
local Module = nn.Module:extend("OnnxModule")

-- A name of this module for a tensor.
local function name_in(at, name)
  name = name:gsub("%.", "_")
  while name == "" or at[name] ~= nil do
    name = name .. "_"
  end
  return at, name
end

-- The module within that a name with dots lies in, and the rest of the name.
local function place(self, name)
  local at = self
  local path, last = name:match("^([^.].*)%.([^.]+)$")
  if not path or path:find("..", 1, true) then
    return name_in(self, name)
  end
  for part in path:gmatch("[^.]+") do
    if not at._modules.values[part] then
      if at[part] ~= nil then
        return name_in(self, name)
      end
      at:add_module(part, nn.Module())
    end
    at = at._modules.values[part]
  end
  return name_in(at, last)
end

---@param model table ModelProto
---@param folder? string where files of external data are
function Module:init(model, folder)
  nn.Module.init(self)
  local planned = graph.plan(model, folder)
  local roles = planned:roles()
  local state = { graph = planned, where = {}, constants = {} }
  rawset(self, "_onnx", state)
  self.input_names, self.output_names = planned.inputs, planned.outputs
  for _, name in ipairs(planned.order) do
    local t, role = planned.initializers[name], roles[name]
    if role == "constant" then
      state.constants[name] = t
    else
      local at, last = place(self, name)
      state.where[name] = { at = at, name = last }
      if role == "buffer" then
        at:register_buffer(last, t)
      else
        at:register_parameter(last, nn.Parameter(t))
      end
    end
  end
end

--- One argument for each input of the graph, in order; returns its outputs.
---@param ... torch.Tensor
---@return ... torch.Tensor
function Module:forward(...)
  local state = rawget(self, "_onnx")
  local names, n = state.graph.inputs, select("#", ...)
  errors.check(n == #names, "TypeError", "the model takes %d inputs (%s), %d were given", #names,
    table.concat(names, ", "), n)
  local scope = graph.Scope(nil, { training = self.training, tracks = self.training,
    observe = state.observe })
  for i, name in ipairs(names) do
    local x = select(i, ...)
    errors.check(core.is_tensor(x), "TypeError", "input '%s': expected a tensor", name)
    scope:set(name, x, false)
  end
  for name, t in pairs(state.constants) do
    scope:set(name, t, true)
  end
  for name, at in pairs(state.where) do
    scope:set(name, at.at[at.name], false)
  end
  return table.unpack((state.graph:run(scope)))
end

function Module:extra_repr()
  return ("inputs=(%s), outputs=(%s), nodes=%d"):format(table.concat(self.input_names, ", "),
    table.concat(self.output_names, ", "), #rawget(self, "_onnx").graph.nodes)
end

local M = { Module = Module }

--- The module of a model.
--- errors: OSError, ValueError, NotImplementedError that lists what is not supported
---@param model string|table a file's path, the bytes of a ModelProto, or its table
---@return lupine.onnx.Module
function M.load(model)
  local folder
  if type(model) == "string" then
    model, folder = proto.open(model)
  end
  errors.check(type(model) == "table" and model.graph, "TypeError",
    "onnx.load: expected a path, the bytes of a model or a ModelProto")
  return Module(model, folder)
end

return M

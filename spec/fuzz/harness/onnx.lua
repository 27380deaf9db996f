--- What outside data of the class ModelProto goes through: it is loaded, and if that
--- goes well it runs once, on inputs of ones, with few nodes. What is decoded is
--- encoded as something that is decoded as the same.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local onnx = require("lupine.onnx")
local proto = require("lupine.onnx.proto")
local torch = require("torch")

local NODES = 200 -- that run, those of loops counted
local ELEMENTS = 4096 -- of an input
local FOLDER = "spec/fuzz/dict" -- of external data: its onnx.dict can be read

-- Ones of what the graph says of its inputs; nil: too large.
local function inputs_of(model, names)
  local infos, list = {}, {}
  for _, info in ipairs(model.graph.input) do
    infos[info.name or ""] = info
  end
  for i, name in ipairs(names) do
    local dtype, shape = proto.type_of(infos[name])
    local sizes, n = {}, 1
    for k, d in ipairs(shape or {}) do
      sizes[k] = math.type(d) == "integer" and d or 2
      if sizes[k] < 0 or sizes[k] > ELEMENTS // math.max(n, 1) then
        return nil
      end
      n = n * sizes[k]
    end
    list[i] = torch.ones(sizes, { dtype = dtype or torch.float32 })
  end
  return list
end

-- The module with a limit of nodes.
local function limited(module)
  local left = NODES
  rawget(module, "_onnx").observe = {
    before = function()
      left = left - 1
      errors.check(left >= 0, "RuntimeError", "more nodes than may run here")
    end,
    after = function() end,
  }
  return module
end

local M = {}

--- Loads a model and runs it; raises what these raise.
---@param bytes string
---@return lupine.onnx.Module
function M.run(bytes)
  local model = proto.decode(bytes, nil, true)
  local module = limited(onnx.Module(model, FOLDER)):eval()
  local inputs = inputs_of(model, module.input_names)
  if inputs then
    module(table.unpack(inputs))
  end
  return module
end

--- Whether the bytes are decoded, encoded and decoded as the same.
---@param bytes string
---@return boolean
function M.is_kept(bytes)
  local once = core.onnx_encode(core.onnx_decode(bytes, "ModelProto"), "ModelProto")
  return once == core.onnx_encode(core.onnx_decode(once, "ModelProto"), "ModelProto")
end

return M

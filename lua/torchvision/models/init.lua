--- torchvision.models: networks that classify images, by torchvision's names, arguments and
--- state_dict keys, so that its checkpoints, as safetensors files, load by load_state_dict
--- or by `weights = FILE`. Nothing is downloaded.
---
--- source: torchvision documentation, Models and pre-trained weights.
local building = require("torchvision.models.building")
local check = require("lupine.base.check")
local errors = require("lupine.base.errors")
local namespace = require("lupine.base.namespace")

local M = {}

for _, name in ipairs({ "resnet", "vgg", "mobilenetv2", "mobilenetv3", "efficientnet", "convnext",
    "vision_transformer" }) do
  local family = require("torchvision.models." .. name)
  M[name] = family
  for key, value in next, family do
    if building.builders[key] or key:find("^%u%a+Ne") or key == "VGG" or key:find("^Vision") then
      M[key] = value
    end
  end
end

--- The names of all builders, sorted.
---@return string[]
function M.list_models()
  local out = { table.unpack(building.names) }
  table.sort(out)
  return out
end

--- The function that builds a model.
--- error: ValueError if there is none of that name
---@param name string
---@return function
function M.get_model_builder(name)
  check.string(name, "get_model_builder: name")
  return errors.check(building.builders[name:lower()], "ValueError", "Unknown model %s%s", name,
    check.nearest(name, building.names))
end

--- A model by its builder's name, with the builder's arguments.
---@param name string
---@param ... any
---@return torch.nn.Module
function M.get_model(name, ...)
  return M.get_model_builder(name)(...)
end

return namespace.close(M, "torchvision.models")

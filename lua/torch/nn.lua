--- torch.nn: modules, containers, layers, losses. (torch.nn.init is a module
--- of its own, so this file does not stand in torch/nn.)
local namespace = require("lupine.base.namespace")

local M = {
  Module = require("torch.nn.module"),
  parameter = require("torch.nn.parameter"),
  Parameter = require("torch.nn.parameter").Parameter,
  functional = require("torch.nn.functional"),
  init = require("torch.nn.init"),
}

for _, family in ipairs({ "containers", "linear", "activation", "shape", "conv", "pool", "norm",
  "dropout", "embedding", "padding", "loss", "adaptive", "recurrent", "lazy",
  "transformer" }) do
  for name, class in pairs(require("torch.nn.layers." .. family)) do
    M[name] = class
  end
end

return setmetatable(M, {
  __index = function(t, name)
    local module = type(name) == "string" and "torch.nn." .. name
    if name == "utils" then
      t[name] = require(module)
      return t[name]
    end
    namespace.unknown(t, name, "torch.nn")
  end,
})

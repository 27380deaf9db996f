--- torch.nn: modules, containers, layers, losses. (torch.nn.init is a module
--- of its own, so this file does not stand in torch/nn.)
local core = require("lupine.core")
local errors = require("torch.errors")

local M = {
  Module = require("torch.nn.module"),
  Parameter = require("torch.nn.parameter"),
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
    local names = {}
    for k in pairs(t) do
      names[#names + 1] = k
    end
    local near = type(name) == "string" and core.nearest(name, names)
    errors.raise("AttributeError", "module 'torch.nn' has no attribute '%s'%s", tostring(name),
      near and ("; did you mean '%s'?"):format(near) or "")
  end,
})

--- torchvision: the models and blocks of that package under its names; its transforms,
--- data sets and readers of images are those of lupine. Sub-modules load when first named.
local M = {}

local LAZY = { models = "torchvision.models", ops = "torchvision.ops",
  transforms = "lupine.transforms", datasets = "lupine.datasets", io = "lupine.images" }

return setmetatable(M, {
  __lazy = LAZY,
  __index = function(t, name)
    if type(name) ~= "string" then
      return nil
    elseif not LAZY[name] then
      require("lupine.base.namespace").unknown(LAZY, name, "torchvision")
    end
    local value = require(LAZY[name])
    rawset(t, name, value)
    return value
  end,
})

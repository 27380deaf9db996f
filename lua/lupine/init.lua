--- The module `lupine`: what belongs to lupine alone, beside the ported
--- interfaces. Sub-modules load when first named: lupine.repl is
--- require "lupine.repl".
local core = require("lupine.core")

local M = { version = core.version }

--- Seconds on a clock that never goes back, for the time between two calls.
--- Its zero is arbitrary. os.clock() counts the work of all threads instead.
---@return number
function M.clock()
  return core.host.clock()
end

-- What loads when it is first named, for completion and misspelt names.
local LAZY = {}
for name in ([[checkpoint
  compile
  control
  csv
  datasets
  devices
  faults
  images
  metrics
  models
  numpy
  onnx
  plan
  plot
  profile
  progress
  report
  safetensors
  show
  summary
  tokenizers
  transforms
]]):gmatch("%S+") do
  LAZY[name] = "lupine." .. name
end
LAZY.Trainer = "lupine.trainer"

local function unknown(name)
  local names = { clock = true, version = true }
  for key in pairs(LAZY) do
    names[key] = true
  end
  require("lupine.base.namespace").unknown(names, name, "lupine")
end

return setmetatable(M, {
  __lazy = LAZY,
  __index = function(t, name)
    if type(name) ~= "string" then
      return nil
    end
    local module = LAZY[name] or "lupine." .. name
    if not package.loaded[module] and not package.searchpath(module, package.path) then
      unknown(name)
    end
    local value = require(module)
    rawset(t, name, value)
    return value
  end,
})

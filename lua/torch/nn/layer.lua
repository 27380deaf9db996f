--- Layers from a line each: a Python signature, how the layer prints and what
--- it computes.
---
---     layer("Linear(in_features, out_features, bias=True)", {
---       repr = "in_features={in_features}, …",   -- text.fill, or a function
---       build = function(self, a) … end,         -- makes the parameters
---       forward = function(self, x) … end,
---     })
---
--- The arguments become fields of the same name, but for those that only say
--- how parameters are made (MAKE) and those in `drop`.
local check_types = require("torch.nn.typed")
local keywords = require("torch.nn.keywords")
local Module = require("torch.nn.module")
local signature = require("torch.nn.signature")
local signatures = require("lupine.base.signatures")
local text = require("torch.nn.text")

local MAKE = { device = true, dtype = true }

--- The class; torch.nn gets it under the signature's name.
---@param sig string
---@param body {base: table?, repr: any, build: function?, forward: function?, drop: string[]?}
---@return table class
return function(sig, body)
  local parsed = signature(sig)
  local cls = (body.base or Module):extend(parsed.name)
  local dropped = setmetatable({}, { __index = MAKE })
  for _, name in ipairs(body.drop or {}) do
    dropped[name] = true
  end

  function cls:init(...)
    local a = parsed(...)
    check_types(parsed, a)
    for _, name in ipairs(parsed.names) do
      if not dropped[name] then
        self[name] = a[name]
      end
    end
    if cls.build then
      cls.build(self, a)
    end
  end

  cls.build = body.build or cls.build
  cls.forward = body.forward or cls.forward
  if cls.forward then
    keywords.close(cls.forward)
  end
  if type(body.repr) == "string" then
    function cls:extra_repr()
      return text.fill(body.repr, self)
    end
  elseif body.repr then
    cls.extra_repr = body.repr
  end
  signatures.note(cls, sig)
  return cls
end

--- Results of programs that have done the backward pass already: who asks for another
--- one has left it in a loop.
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

-- Result -> {class, message}.
local of = setmetatable({}, { __mode = "k" })

local backward = core.methods.backward
function core.methods.backward(self, ...)
  local refused = of[self]
  if refused then
    errors.raise(refused.class, "%s", refused.message)
  end
  return backward(self, ...)
end

--- backward() of a result is refused from now on.
---@param t torch.Tensor
---@param refused {class: string, message: string} the error
function M.mark(t, refused)
  of[t] = refused
end

return M

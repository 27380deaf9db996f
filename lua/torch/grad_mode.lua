--- torch.no_grad, enable_grad, set_grad_enabled, inference_mode.
---
---   local _ <close> = torch.no_grad()        until the end of the block
---   local y = torch.no_grad(function() … end) inside the function
local core = require("lupine.core")
local errors = require("torch.errors")

local M = {}

local Scope = { __name = "torch.grad_mode" }
Scope.__index = Scope

function Scope:__close()
  core.set_grad_enabled(self.previous)
end

local function enter(name, on, fn)
  errors.check(fn == nil or type(fn) == "function", "TypeError",
    "%s(): takes nothing or a function, not a %s", name, type(fn))
  local scope = setmetatable({ previous = core.is_grad_enabled() }, Scope)
  core.set_grad_enabled(on)
  if fn == nil then
    return scope
  end
  local _ <close> = scope
  return fn()
end

--- Nothing is recorded for backward inside.
function M.no_grad(fn)
  return enter("no_grad", false, fn)
end

--- Records again inside no_grad.
function M.enable_grad(fn)
  return enter("enable_grad", true, fn)
end

--- As no_grad: tensors made inside are ordinary ones.
function M.inference_mode(fn)
  return enter("inference_mode", false, fn)
end

--- At once, until set again or until the scope it returns is closed.
function M.set_grad_enabled(mode, fn)
  errors.check(type(mode) == "boolean", "TypeError",
    "set_grad_enabled(): mode must be a bool, not a %s", type(mode))
  return enter("set_grad_enabled", mode, fn)
end

return M

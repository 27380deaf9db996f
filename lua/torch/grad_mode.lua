--- torch.no_grad, enable_grad, set_grad_enabled, inference_mode.
---
---   local _ <close> = torch.no_grad()        until the end of the block
---   local y = torch.no_grad(function() … end) inside the function
---   local f = torch.no_grad()(function(x) … end) a decorator
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local signatures = require("lupine.base.signatures")

local M = {}

-- The scope that was entered last and is not closed.
local innermost

local Scope = { __name = "torch.grad_mode" }
Scope.__index = Scope

function Scope:__close()
  innermost = self.outer
  core.set_grad_enabled(self.previous)
end

local function enter(name, on, fn, ...)
  errors.check(fn == nil or type(fn) == "function", "TypeError",
    "%s(): takes nothing or a function, not a %s", name, type(fn))
  local scope = setmetatable({ name = name, on = on, previous = core.is_grad_enabled(),
    outer = innermost, where = fn == nil and errors.caller() or nil }, Scope)
  innermost = scope
  core.set_grad_enabled(on)
  if fn == nil then
    return scope
  end
  local _ <close> = scope
  return fn(...)
end

--- A decorator: no_grad()(fn) is a function that runs fn inside.
function Scope:__call(fn)
  self:__close()
  errors.check(type(fn) == "function", "TypeError", "%s(): expected a function to decorate, got %s",
    self.name, check.describe(fn))
  return function(...)
    local _ <close> = enter(self.name, self.on)
    return fn(...)
  end
end

-- Where gradients were switched off, for a message.
local function since()
  if not innermost or not innermost.where then
    return "; gradients are off"
  end
  local name = innermost.name
  return name == "set_grad_enabled"
    and ("; gradients are off since torch.set_grad_enabled at %s"):format(innermost.where)
    or ("; gradients are off since torch.%s() at %s: write `local _ <close> = torch.%s()`, or give "
      .. "it the code as a function"):format(name, innermost.where, name)
end

-- fn, whose errors say so if gradients are off.
local function explaining(fn)
  local function pass(ok, ...)
    if not ok then
      local e = ...
      if type(e) == "table" and type(e.message) == "string" and not core.is_grad_enabled() then
        e.message = e.message .. since()
      end
      error(e, 0)
    end
    return ...
  end
  local function explained(...)
    if core.is_grad_enabled() then
      return fn(...)
    end
    return pass(pcall(fn, ...))
  end
  signatures.same(explained, fn)
  return explained
end

core.methods.backward = explaining(core.methods.backward)
core.backward, core.grad = explaining(core.backward), explaining(core.grad)

--- Nothing is recorded for backward inside.
--- Source: PyTorch documentation, torch.no_grad
---@param fn? function runs inside; without one a scope is returned
---@param ... any what fn is given
---@return any ... the scope, or what fn returns
function M.no_grad(fn, ...)
  return enter("no_grad", false, fn, ...)
end

--- Records again inside no_grad.
--- Source: PyTorch documentation, torch.enable_grad
---@param fn? function runs inside; without one a scope is returned
---@param ... any what fn is given
---@return any ... the scope, or what fn returns
function M.enable_grad(fn, ...)
  return enter("enable_grad", true, fn, ...)
end

--- As no_grad: tensors made inside are ordinary ones.
--- Source: PyTorch documentation, torch.inference_mode
---@param fn? function runs inside; without one a scope is returned
---@param ... any what fn is given
---@return any ... the scope, or what fn returns
function M.inference_mode(fn, ...)
  return enter("inference_mode", false, fn, ...)
end

--- Whether a scope of inference_mode is open.
---@return boolean
function M.is_inference_mode_enabled()
  local scope = innermost
  while scope and scope.name ~= "inference_mode" do
    scope = scope.outer
  end
  return scope ~= nil
end

--- At once, until set again or until the scope it returns is closed.
--- Source: PyTorch documentation, torch.set_grad_enabled
---@param mode boolean
---@param fn? function runs inside; without one a scope is returned
---@param ... any what fn is given
---@return any ... the scope, or what fn returns
function M.set_grad_enabled(mode, fn, ...)
  errors.check(type(mode) == "boolean", "TypeError",
    "set_grad_enabled(): mode must be a bool, not a %s", type(mode))
  return enter("set_grad_enabled", mode, fn, ...)
end

return M

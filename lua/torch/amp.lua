--- torch.amp: automatic casting on the host (autocast) and the scaling of losses
--- for float16 (GradScaler). Inside autocast products and convolutions run in
--- bfloat16 or float16, losses and solvers in float32, everything else in the
--- types of its operands. (The device's own is poptorch.autocasting.)
--- Source: PyTorch documentation, torch.amp and "Automatic Mixed Precision".
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local warn = require("lupine.base.warn")

local M = {}

-- ---- autocast ------------------------------------------------------------------

-- Of the host; set_autocast_dtype changes it.
local default = core.dtypes.bfloat16

local SHORT = { [core.dtypes.bfloat16] = true, [core.dtypes.float16] = true }

---@class torch.amp.autocast
local Autocast = class.new("autocast")

-- The type and the rules in force, nil ones without a scope.
local function state()
  return table.pack(core.autocast())
end

-- That of the scopes here, not of a front end's.
local function target()
  local dtype, rules = core.autocast()
  return not rules and dtype or nil
end

function Autocast:__close()
  core.set_autocast(table.unpack(self.previous))
end

--- A decorator: autocast(…)(f) is a function that runs f inside.
function Autocast:__call(f)
  errors.check(type(f) == "function", "TypeError",
    "autocast: expected a function to decorate, got %s", check.describe(f))
  self:__close()
  local to = self.target
  return function(...)
    local _ <close> = setmetatable({ previous = state() }, Autocast)
    core.set_autocast(to)
    return f(...)
  end
end

local function enabled_for(device, dtype, enabled)
  if enabled and device == "cuda" then
    warn("autocast: device_type of 'cuda', but CUDA is not available: it is switched off")
    return false
  elseif enabled and not SHORT[dtype] then
    warn("autocast: on the CPU only torch.bfloat16 and torch.float16 are supported, not %s: it is "
      .. "switched off", tostring(dtype))
    return false
  end
  return enabled
end

--- Inside, operators run in the types that suit them.
---   local _ <close> = torch.autocast("cpu")         until the end of the block
---   torch.autocast("cpu", {dtype = torch.float16}, function() … end)
---   local f = torch.autocast("cpu")(function(x) … end)   a decorator
--- errors: TypeError, RuntimeError (a device that has no automatic casting)
--- Source: PyTorch documentation, torch.autocast
---@param device_type string "cpu"
---@param ... any dtype (bfloat16 or float16; get_autocast_dtype), enabled (true),
---        cache_enabled (true; weights are cast anew each time, which gives the same),
---        and a last function, which runs inside
---@return any ... the scope, or what the function returns
function M.autocast(device_type, ...)
  local args, f = table.pack(...), nil
  if type(args[args.n]) == "function" then
    f, args.n = args[args.n], args.n - 1
  end
  local a = check.arguments("autocast", { "device_type", "dtype", "enabled", "cache_enabled" }, nil,
    device_type, table.unpack(args, 1, args.n))
  check.string(a[1], "autocast: device_type")
  errors.check(a[1] == "cpu" or a[1] == "cuda", "RuntimeError", "autocast: device_type: expected "
    .. "\"cpu\", got %s; for the device there is poptorch.autocasting", check.describe(a[1]))
  local dtype = check.is_none(a[2]) and default or a[2]
  errors.check(core.dtypes[tostring(dtype):match("^torch%.(.+)")] == dtype, "TypeError",
    "autocast: dtype: expected a dtype such as torch.bfloat16, got %s", check.describe(dtype))
  check.bool(a[4] == nil and true or a[4], "autocast: cache_enabled")
  local on = enabled_for(a[1], dtype, check.bool(a[3] == nil and true or a[3], "autocast: enabled"))
  local scope = setmetatable({ previous = state(), target = on and dtype or nil }, Autocast)
  core.set_autocast(scope.target)
  if not f then
    return scope
  end
  local _ <close> = scope
  return f()
end

local function host(device_type, where)
  errors.check(device_type == nil or device_type == "cpu" or device_type == "cuda", "RuntimeError",
    "%s: device_type: expected \"cpu\", got %s", where, check.describe(device_type))
  return device_type ~= "cuda"
end

--- Whether casting is on for the device.
--- Source: PyTorch documentation, torch.amp
---@param device_type? string "cpu" unless given
---@return boolean
function M.is_autocast_enabled(device_type)
  return host(device_type, "is_autocast_enabled") and target() ~= nil
end

--- The type that products run in: of the scope that is open, or the default.
---@param device_type? string "cpu" unless given
---@return torch.dtype
function M.get_autocast_dtype(device_type)
  return host(device_type, "get_autocast_dtype") and (target() or default)
    or core.dtypes.float16
end

--- Sets the type of the scopes that name none.
---@param device_type string "cpu"
---@param dtype torch.dtype bfloat16 or float16
function M.set_autocast_dtype(device_type, dtype)
  errors.check(host(device_type, "set_autocast_dtype") and SHORT[dtype], "RuntimeError",
    "set_autocast_dtype: expected \"cpu\" and torch.bfloat16 or torch.float16, got %s and %s",
    check.describe(device_type), tostring(dtype))
  default = dtype
end

--- Whether a device has automatic casting.
---@param device_type string
---@return boolean
function M.is_autocast_available(device_type)
  return check.string(device_type, "is_autocast_available: device_type") == "cpu"
end

-- ---- scaling -------------------------------------------------------------------

---@class torch.amp.GradScaler
local Scaler = class.new("GradScaler")
M.GradScaler = Scaler

local NAMES = { "device", "init_scale", "growth_factor", "backoff_factor", "growth_interval",
  "enabled" }

--- GradScaler(device = "cuda", init_scale = 2^16, growth_factor = 2.0,
--- backoff_factor = 0.5, growth_interval = 2000, enabled = true): losses are
--- multiplied by a scale, gradients divided by it before a step; a step whose
--- gradients are not finite is left out and the scale falls. On a device that
--- is not there it does nothing.
--- error: AssertionError for factors on the wrong side of 1
function Scaler:init(...)
  local a = check.arguments("GradScaler", NAMES, nil, ...)
  local device = a[1] == nil and "cuda" or tostring(a[1])
  self._enabled = check.bool(a[6] == nil and true or a[6], "GradScaler: enabled")
  if self._enabled and device ~= "cpu" then
    warn("GradScaler: is enabled for '%s', but there is the host alone (\"cpu\"): it is switched "
      .. "off", device)
    self._enabled = false
  end
  self._growth = check.number(a[3] or 2.0, "GradScaler: growth_factor")
  self._backoff = check.number(a[4] or 0.5, "GradScaler: backoff_factor")
  errors.check(self._growth > 1, "AssertionError", "The growth factor must be > 1.0.")
  errors.check(self._backoff < 1, "AssertionError", "The backoff factor must be < 1.0.")
  self._interval = check.int(a[5] or 2000, "GradScaler: growth_interval", { min = 1 })
  self._init = check.number(a[2] or 2.0 ^ 16, "GradScaler: init_scale")
  self._tracker = 0
  self._found = {} -- optimizer -> {stage, not_finite}
end

local function scale_of(self, where)
  errors.check(self._scale, "AssertionError", "Attempted %s but _scale is None.  This may indicate "
    .. "your script did not use scaler.scale(loss or outputs) earlier in the iteration.", where)
  return self._scale
end

-- Numbers of float32, as a scale is kept.
local function short(x)
  return string.unpack("<f", string.pack("<f", x))
end

--- A loss, or a list of them, times the scale.
---@param outputs torch.Tensor|table
---@return torch.Tensor|table
function Scaler:scale(outputs)
  if not self._enabled then
    return outputs
  end
  self._scale = self._scale or short(self._init)
  if core.is_tensor(outputs) then
    return outputs * core.tensor(self._scale, { dtype = core.dtypes.float32 })
  end
  errors.check(type(outputs) == "table", "ValueError",
    "GradScaler: outputs must be a Tensor or a list of Tensors, got %s", check.describe(outputs))
  local out = {}
  for i, x in ipairs(outputs) do
    out[i] = self:scale(x)
  end
  return out
end

local function record_of(self, optimizer)
  local r = self._found[optimizer] or { stage = "ready" }
  self._found[optimizer] = r
  return r
end

--- Divides the gradients of an optimizer's parameters by the scale.
--- errors: RuntimeError (twice, or after the step), ValueError (float16 ones)
---@param optimizer torch.optim.Optimizer
function Scaler:unscale_(optimizer)
  if not self._enabled then
    return
  end
  local inverse, r = short(1 / scale_of(self, "unscale_")), record_of(self, optimizer)
  errors.check(r.stage ~= "unscaled", "RuntimeError",
    "unscale_() has already been called on this optimizer since the last update().")
  errors.check(r.stage == "ready", "RuntimeError", "unscale_() is being called after step().")
  local finite, any = true, false
  require("torch").no_grad(function()
    for _, group in ipairs(optimizer.param_groups) do
      for _, p in ipairs(group.params) do
        local g = p.grad
        if g then
          errors.check(g.dtype ~= core.dtypes.float16, "ValueError",
            "Attempting to unscale FP16 gradients.")
          finite = finite and g:isfinite():all():item()
          any = true
          g:mul_(inverse)
        end
      end
    end
  end)
  r.stage, r.any, r.not_finite = "unscaled", any, not finite
end

--- The optimizer's step, unless a gradient is not finite; unscales first if that
--- was not done.
--- errors: RuntimeError (a second one before update), AssertionError
---@param optimizer torch.optim.Optimizer
---@param ... any for optimizer:step
---@return any what step returns; nil if it is left out
function Scaler:step(optimizer, ...)
  if not self._enabled then
    return optimizer:step(...)
  end
  errors.check(select("#", ...) == 0 or (...) == nil, "RuntimeError",
    "Closure use is not currently supported if GradScaler is enabled.")
  scale_of(self, "step")
  local r = record_of(self, optimizer)
  errors.check(r.stage ~= "stepped", "RuntimeError",
    "step() has already been called since the last update().")
  if r.stage == "ready" then
    self:unscale_(optimizer)
  end
  errors.check(r.any, "AssertionError", "No inf checks were recorded for this optimizer.")
  r.stage = "stepped"
  if r.not_finite then
    return nil
  end
  return optimizer:step()
end

--- Adjusts the scale: it falls after a step that was left out and grows after
--- growth_interval others in a row; or it is set.
---@param new_scale? number|torch.Tensor
function Scaler:update(new_scale)
  if not self._enabled then
    return
  end
  local scale = scale_of(self, "update")
  if not check.is_none(new_scale) then
    new_scale = core.is_tensor(new_scale) and new_scale:item() or new_scale
    self._scale = short(check.number(new_scale, "GradScaler: update: new_scale"))
    self._found = {}
    return
  end
  local found, any = false, false
  for _, r in pairs(self._found) do
    found, any = found or r.not_finite, any or r.any
  end
  errors.check(any, "AssertionError", "No inf checks were recorded prior to update.")
  if found then
    self._scale, self._tracker = short(scale * self._backoff), 0
  elseif self._tracker + 1 == self._interval then
    local grown = short(scale * self._growth)
    self._scale, self._tracker = grown < math.huge and grown or scale, 0
  else
    self._tracker = self._tracker + 1
  end
  self._found = {}
end

--- The scale; 1 if the scaler is switched off.
---@return number
function Scaler:get_scale()
  return not self._enabled and 1.0 or self._scale or self._init
end

---@return boolean
function Scaler:is_enabled()
  return self._enabled
end

-- get_X and set_X of a setting.
for name, field in pairs({ growth_factor = "_growth", backoff_factor = "_backoff",
  growth_interval = "_interval" }) do
  Scaler["get_" .. name] = function(self)
    return self[field]
  end
  local kind = name == "growth_interval" and check.int or check.number
  Scaler["set_" .. name] = function(self, value)
    self[field] = kind(value, "GradScaler: set_" .. name, { min = kind == check.int and 1 or nil })
  end
end

--- Empty if the scaler is switched off.
---@return table<string, number>
function Scaler:state_dict()
  if not self._enabled then
    return {}
  end
  return { scale = self:get_scale(), growth_factor = self._growth, backoff_factor = self._backoff,
    growth_interval = self._interval, _growth_tracker = self._tracker }
end

local STATE = { "scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker" }

--- Takes over what state_dict gave.
--- errors: RuntimeError (that of one that was switched off), KeyError
---@param state_dict table<string, number>
function Scaler:load_state_dict(state_dict)
  if not self._enabled then
    return
  end
  check.table(state_dict, "GradScaler: load_state_dict: state_dict")
  errors.check(next(state_dict), "RuntimeError", "The source state dict is empty, possibly because "
    .. "it was saved from a disabled instance of GradScaler.")
  for _, key in ipairs(STATE) do
    errors.check(state_dict[key] ~= nil, "KeyError",
      "GradScaler: load_state_dict: state_dict has no '%s'", key)
    check.number(state_dict[key], "GradScaler: load_state_dict: " .. key)
  end
  self._init = state_dict.scale
  self._scale = self._scale and state_dict.scale
  self._growth, self._backoff = state_dict.growth_factor, state_dict.backoff_factor
  self._interval, self._tracker = state_dict.growth_interval, state_dict._growth_tracker
end

return require("lupine.base.namespace").close(M, "torch.amp")

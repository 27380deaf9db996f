--- Automatic casting of PopTorch 2.6 at work: what a policy makes of a marked
--- module's parameters, and in which types the operators of a trace run.
---
---   model:autocast(), model.layer:autocast(false)    marks of modules
---   poptorch.autocast(enabled)                        scopes (poptorch.scopes)
---
--- A mark holds for the module and all in it that have none of their own; it and
--- a scope hold until the inner one ends. Where casting is on, an operator of the
--- policy's
---   promote  runs in float32, of demote in float16, if its operands have both,
---   fp16     runs in float16, of fp32 in float32;
--- another one in float16 if it is a product or a convolution, else in the types
--- of its operands. The casts are the core's (src/autodiff/autocast.h) with the
--- policy's rules in place of torch.autocast's: what works in place is not cast.
--- Functions that are made of operators are cast as a whole (torch.casts).
---
--- Source: PopTorch user guide 2.6, "Automatic mixed-precision casting".
local autocasting = require("poptorch.autocasting")
local casts = require("torch.casts")
local check = require("lupine.base.check")
local class = require("lupine.base.class")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local nn = require("torch.nn")
local tables = require("lupine.base.tables")

local M = {}

local MARK = "_poptorch_autocast"

--- Switches automatic casting on or off for the module and all modules in it
--- that have no mark of their own. It acts in models that poptorch wraps.
--- source: PopTorch user guide 2.6, "Automatic mixed-precision casting"
---@param ... any enabled (boolean, true)
---@return torch.nn.Module self
function nn.Module:autocast(...)
  check.method(self, nn.Module, "autocast")
  local enabled = check.one("autocast", "enabled", ...)
  if enabled == nil then
    enabled = true
  end
  self[MARK] = check.bool(enabled, "autocast(enabled)")
  return self
end

local function mark_of(module)
  return rawget(module, "_fields")[MARK]
end

-- ---- the policy's operators ---------------------------------------------------------------

-- A policy's sets, those that win last, and what they ask of an operator and of a
-- function.
local SETS = { { "fp32", "wide", "float32" }, { "fp16", "narrow", "float16" },
  { "demote", "narrow", "float16", mixed = true }, { "promote", "wide", "float32", mixed = true } }

-- Names of the functions of torch, and the operators behind a name: those of its
-- forms, or of the ones that it is made of (batch_norm: _batch_norm_train and
-- _batch_norm_eval). Names of torch.special and torch.linalg are told apart.
local names_of, ops_of

local function add_names(space, prefix)
  for name, f in pairs(space) do
    if type(f) == "function" then
      names_of[f] = prefix .. name
    end
  end
end

local function add_form(list, name, op)
  list[name] = list[name] or {}
  table.insert(list[name], op)
end

local function make_ops()
  local public, parts = {}, {}
  for _, form in ipairs(core.form_list()) do
    for _, space in ipairs({ "special", "linalg" }) do
      if form[space] then
        add_form(public, space .. "." .. form.name, form.op)
      end
    end
    if form["function"] or form.method or not (form.special or form.linalg) then
      add_form(public, form.name, form.op)
    end
    local name = form.name:match("^_(.+)_[^_]+$")
    while name do
      add_form(parts, name, form.op)
      name = name:match("^(.+)_[^_]+$")
    end
  end
  return setmetatable(public, { __index = parts })
end

local function make_index()
  local torch = require("torch")
  names_of, ops_of = {}, make_ops()
  add_names(torch.special, "special.")
  add_names(torch.linalg, "linalg.")
  for _, space in ipairs({ core.methods, nn.functional, torch }) do
    add_names(space, "")
  end
end

-- The operators behind a function, or behind its name.
local function operators_of(entry)
  if not names_of then
    make_index()
  end
  local name = type(entry) == "string" and entry:gsub("^nn%.functional%.", "") or names_of[entry]
  return ops_of[name] or {}
end

-- An entry that is a module class, or the name of one.
local function class_of(entry)
  if type(entry) == "string" and entry:find("^nn%.") then
    entry = rawget(nn, entry:sub(4))
  end
  return class.is_class(entry) and nn.Module:is_base_of(entry) and entry or nil
end

-- Names that an entry may be.
local function entry_names()
  local names = tables.keys(ops_of)
  for name, cls in next, nn do
    names[#names + 1] = class.is_class(cls) and nn.Module:is_base_of(cls) and "nn." .. name or nil
  end
  return names
end

--- Whether an entry of a policy can be meant; what it stands for is looked up when
--- a model is wrapped.
--- error: TypeError for anything but a function, a class or the name of an operator
--- or of a class of modules
---@param entry any
---@param where string for messages
function M.check_entry(entry, where)
  local known = type(entry) == "function" or class.is_class(entry) or type(entry) == "string"
    and (class_of(entry) or #operators_of(entry) > 0 or autocasting._names(entry))
  if not known then
    errors.raise("TypeError", "%s: expected a function of torch, a class of modules, or the name "
      .. "of one, got %s%s", where, check.describe(entry),
      type(entry) == "string" and check.nearest(entry, entry_names()) or "")
  end
end

-- Of a function that is made of operators: it is cast as a whole.
local function add_composed(composed, entry, set)
  if not casts.hooked[entry] then
    return false
  end
  composed[entry] = composed[entry] or {}
  composed[entry][set.mixed and "mixed" or "of"] = core.dtypes[set[3]]
  return true
end

local rules_of = setmetatable({}, { __mode = "k" })

--- The core's rules of a policy, and those of functions that are made of operators
--- (torch.casts).
--- error: ValueError for an entry that is neither a function of tensors nor a class
--- of modules
---@param policy poptorch.autocasting.Policy
---@return {operators: string, composed: table}
function M.rules(policy)
  if policy:same(autocasting.default) then
    policy = autocasting.default -- one of the copies of it
  end
  if rules_of[policy] then
    return rules_of[policy]
  end
  local of, mixed, composed = {}, {}, {}
  for _, set in ipairs(SETS) do
    for i, entry in ipairs(policy[set[1]]) do
      local ops = class_of(entry) and {} or operators_of(entry)
      for _, op in ipairs(ops) do
        (set.mixed and mixed or of)[op] = set[2]
      end
      errors.check(#ops > 0 or class_of(entry) or add_composed(composed, entry, set)
        or autocasting._names(entry), "ValueError", "Policy: %s[%d]: expected a function of torch "
        .. "that takes tensors and is not in place, or a class of modules, got %s", set[1], i,
        check.describe(entry))
    end
  end
  rules_of[policy] = { operators = core.cast_rules(of, mixed), composed = composed }
  return rules_of[policy]
end

-- ---- the modules' parameters ----------------------------------------------------------------

local function is_in(module, entries)
  for _, entry in ipairs(entries) do
    local cls = class_of(entry)
    if cls and cls:is(module) then
      return true
    end
  end
  return false
end

local function is_mixed(module)
  local has = {}
  for _, p in ipairs(module:parameters()) do
    has[p.dtype] = true
  end
  return has[core.dtypes.float16] and has[core.dtypes.float32]
end

-- The type that a policy's classes give a module's parameters; nil: their own.
local function dtype_of(module, policy)
  local half, float = core.dtypes.float16, core.dtypes.float32
  if is_mixed(module) then
    if is_in(module, policy.promote) then
      return float
    elseif is_in(module, policy.demote) then
      return half
    end
  end
  return is_in(module, policy.fp16) and half or is_in(module, policy.fp32) and float or nil
end

local function convert(module, on, dtype, policy)
  if mark_of(module) ~= nil then
    on = mark_of(module)
  end
  dtype = on and (dtype_of(module, policy) or dtype) or nil
  if dtype then
    module:_apply_own(function(t)
      return t:is_floating_point() and t:to(dtype) or t
    end)
  end
  for _, child in ipairs(module:children()) do
    convert(child, on, dtype, policy)
  end
end

--- Converts the parameters of marked modules that are of the policy's classes,
--- the user's own, when a model is wrapped.
--- error: ValueError for a policy with an entry that is no operator
---@param model torch.nn.Module
---@param options poptorch.Options
function M.apply(model, options)
  local policy = options.Precision.autocast_policy
  if options.Precision.autocast_enabled then
    if not policy:same(autocasting.default) then
      M.rules(policy) -- which checks it
    end
    convert(model, false, nil, policy)
  end
end

-- ---- scopes of a trace -------------------------------------------------------------------------

--- The casting of one trace: what scopes and marks of modules do to the types of
--- its operators. `asked` says whether any wanted casting.
---@class poptorch.casting.Scopes
local Scopes = class.new("Scopes")
M.Scopes = Scopes

---@param options poptorch.Options
function Scopes:init(options)
  self.options, self.asked = options.Precision, false
  self._before, self._entered = {}, {}
end

--- From here on.
---@param enabled boolean
function Scopes:open(enabled)
  local before, o = self._before, self.options
  before[#before + 1] = { composed = casts.composed, core.autocast() }
  self.asked = self.asked or enabled
  if enabled and o.autocast_enabled then
    local rules = M.rules(o.autocast_policy)
    core.set_autocast(core.dtypes.float16, rules.operators)
    casts.composed = rules.composed
  elseif o.autocast_enabled then
    core.set_autocast(nil)
    casts.composed = nil
  end
end

--- As before the last open.
function Scopes:close()
  local before = table.remove(self._before)
  core.set_autocast(table.unpack(before))
  casts.composed = before.composed
end

--- A module's forward starts.
---@param module torch.nn.Module
function Scopes:enter(module)
  local mark, entered = mark_of(module), self._entered
  entered[#entered + 1] = mark ~= nil
  if mark ~= nil then
    self:open(mark)
  end
end

--- A module's forward ends.
function Scopes:leave()
  if table.remove(self._entered) then
    self:close()
  end
end

--- The trace ends, in the middle of scopes too.
function Scopes:finish()
  while #self._before > 0 do
    self:close()
  end
end

return M

--- Wrong arguments, made from a sample: each mistake in turn is refused with
--- an error that names the argument.
local core = require("lupine.core")
local errors = require("torch.errors")
local make = require("spec.ops.samples.make")
local samples = require("spec.ops.samples")
local torch = require("torch")
local walk = require("spec.ops.samples.walk")

local M = {}

local SURFACES = { "function", "nn", "special", "linalg", "internal", "method", "inplace" }

-- Forms under one name of one surface.
local shared = {}
for _, form in ipairs(core.form_list()) do
  for _, s in ipairs(SURFACES) do
    if form[s] then
      local key = s .. " " .. form.name
      shared[key] = (shared[key] or 0) + 1
    end
  end
end

local function alone(form)
  for _, s in ipairs(SURFACES) do
    if form[s] then
      return shared[s .. " " .. form.name] == 1
    end
  end
end

local ALLOWED = { "TypeError", "RuntimeError", "IndexError", "ValueError", "AssertionError",
  "OverflowError" }

local function is_known(e)
  for _, class in ipairs(ALLOWED) do
    if errors[class]:is(e) then
      return not e.message:lower():find("internal", 1, true)
    end
  end
  return false
end

-- The call must fail with the class and name `word`, unless another form of
-- the name may take the arguments.
local function refused(call, class, word, what, sure)
  local ok, e = pcall(table.unpack(call))
  if not sure then
    assert(ok or is_known(e), ("%s raised %s"):format(what, tostring(e)))
    return
  end
  assert(not ok, what .. " was accepted")
  assert(errors[class]:is(e), ("%s raised %s"):format(what, tostring(e)))
  assert(e.message:find(word, 1, true), ("%s: '%s' is not named in: %s"):format(what, word,
    e.message))
end

local function with(args, at, value)
  local out = table.move(args, 1, #args, 1, {})
  out[at] = value
  return out
end

local function is_keywords(v)
  return type(v) == "table" and not torch.is_tensor(v) and next(v) ~= nil and #v == 0
end

-- Wrong values by kind of argument.
local WRONG = {
  Tensor = { "x", "a string for a tensor" },
  Value = { "x", "a string for a tensor or number" },
  ["Tensor[]"] = { { "x" }, "a list of strings for tensors" },
  int = { 1.5, "a float for an int" },
  ["int[]"] = { { 1.5 }, "a list of floats for ints" },
  float = { "x", "a string for a float" },
  bool = { 3.5, "a float for a bool" },
  str = { 5, "a number for a string" },
  Scalar = { "x", "a string for a number" },
  ScalarType = { 5, "a number for a dtype" },
}

local function positional(args)
  return is_keywords(args[#args]) and #args - 1 or #args
end

local function last_required(form)
  local last
  for i, a in ipairs(form.arguments) do
    if not a.kw_only and a.default == nil and not a.optional and a.kind ~= "Tensor[]" then
      last = i
    end
  end
  return last
end

--- All mistakes of one sample.
function M.check(op, sample)
  local form = samples.forms[op.name][1]
  local fn, in_place = samples.function_of(op.name)
  local sure = alone(form)
  local args = make.arguments(sample, walk.tensors(sample, {}))
  if in_place then
    args[1] = args[1]:clone()
  end
  local n = positional(args)
  local function call(list)
    return { fn, table.unpack(list, 1, #list) }
  end
  for i = 1, math.min(n, #form.arguments) do
    local a = form.arguments[i]
    local wrong = WRONG[a.kind]
    refused(call(with(args, i, wrong[1])), "TypeError", a.name,
      ("%s (%s)"):format(wrong[2], a.name), sure)
    if a.name:find("^dim") and math.type(args[i]) == "integer" then
      refused(call(with(args, i, 99)), "IndexError", "99", "dimension 99", sure)
    end
  end
  local last = last_required(form)
  if last then
    refused(call(table.move(args, 1, last - 1, 1, {})), "TypeError", form.arguments[last].name,
      "a missing argument", sure)
  end
  local keywords = { no_such_argument = 1 }
  for key, value in pairs(n < #args and args[#args] or {}) do
    keywords[key] = value
  end
  refused(call(with(table.move(args, 1, n, 1, {}), n + 1, keywords)), "TypeError",
    "no_such_argument", "an unknown keyword", true)
end

local EXTREMES = { math.maxinteger, math.mininteger, 1 << 62, -1 }

--- Integers at the ends of their range give a result or an error of the
--- arguments.
function M.extremes(op, sample)
  local form = samples.forms[op.name][1]
  local fn, in_place = samples.function_of(op.name)
  local args = make.arguments(sample, walk.tensors(sample, {}))
  if in_place then
    args[1] = args[1]:clone()
  end
  for i = 1, math.min(positional(args), #form.arguments) do
    local kind = form.arguments[i].kind
    for _, v in ipairs(kind:find("^int") and EXTREMES or {}) do
      local value = kind == "int" and v or { v }
      local ok, e = pcall(fn, table.unpack(with(args, i, value), 1, #args))
      assert(ok or is_known(e),
        ("%s = %d: %s"):format(form.arguments[i].name, v, tostring(e)))
      if type(args[i]) == "table" and #args[i] > 1 then -- one among others
        value = with(args[i], 1, v)
        ok, e = pcall(fn, table.unpack(with(args, i, value), 1, #args))
        assert(ok or is_known(e),
          ("%s[0] = %d: %s"):format(form.arguments[i].name, v, tostring(e)))
      end
    end
  end
end

--- Operands of other types give a result or an error of the arguments.
function M.other_types(op, sample)
  local fn, in_place = samples.function_of(op.name)
  for _, name in ipairs({ "bool", "uint8", "int64", "float16", "bfloat16" }) do
    local tensors = walk.tensors(sample, {})
    for i, t in ipairs(tensors) do
      tensors[i] = t.dtype.is_floating_point and t:to(torch[name]) or t
    end
    local args = make.arguments(sample, tensors)
    if in_place then
      args[1] = args[1]:clone()
    end
    local ok, e = pcall(fn, table.unpack(args))
    assert(ok or is_known(e), ("%s: %s"):format(name, tostring(e)))
  end
end

return M

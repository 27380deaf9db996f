--- Wrong arguments, made from a sample: each mistake in turn is refused with
--- an error that names the argument.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
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

local ALLOWED = { "TypeError", "RuntimeError", "IndexError", "ValueError", "AssertionError",
  "OverflowError", "NotImplementedError", "LinAlgError", "Error" }

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
  -- functions written in Lua say `input`, as PyTorch's do
  local named = e.message:find(word, 1, true) or word == "self" and e.message:find("'input'")
  assert(named, ("%s: '%s' is not named in: %s"):format(what, word, e.message))
end

local function with(args, at, value)
  local out = table.move(args, 1, #args, 1, {})
  out[at] = value
  return out
end

local function is_keywords(v)
  return type(v) == "table" and not torch.is_tensor(v) and next(v) ~= nil and #v == 0
end

local function positional(args)
  return is_keywords(args[#args]) and #args - 1 or #args
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

-- ---- the calls of all forms -------------------------------------------------
-- Arguments of the sample, {name = value}, by the first form.
local function by_name(op, sample)
  local args = make.arguments(sample, walk.tensors(sample, {}))
  local n, out = positional(args), {}
  for i = 1, n do
    out[samples.forms[op.name][1].arguments[i].name] = args[i]
  end
  for key, value in pairs(n < #args and args[#args] or {}) do
    out[key] = value
  end
  return out
end

-- A list of one where the first form has a list and this one a number.
local function fitted(a, value)
  local one = a.kind == "int" and type(value) == "table" and #value == 1
  return one and value[1] or value
end

-- The values as the form takes them, and how many are positional; nil where a
-- required one is missing.
local function arguments(form, values)
  local out, keywords, last = {}, {}, 0
  for i, a in ipairs(form.arguments) do
    local value = fitted(a, values[a.name])
    if a.kw_only then
      keywords[a.name] = value
    elseif value ~= nil then
      out[i], last = value, i
    elseif a.default == nil and not a.optional then
      return nil
    end
  end
  for i = 1, last do
    if out[i] == nil then
      out[i] = form.arguments[i].default
      out[i] = out[i] == nil and torch.none or out[i]
    end
  end
  if next(keywords) then
    out[last + 1] = keywords
  end
  return out, last
end

local function in_place(call, args)
  if call.surface == "inplace" and torch.is_tensor(args[1]) then
    args[1] = args[1]:clone()
  end
  return args
end

-- calls of a sample: {form, surface, fn, values, args, n = positional ones,
-- sure = no other form of the name}, those of its surfaces where it is no
-- mistake itself.
local function calls(op, sample)
  local out, values = {}, by_name(op, sample)
  for _, form in ipairs(samples.forms[op.name]) do
    for _, surface in ipairs(SURFACES) do
      local args, n = arguments(form, values)
      local call = { form = form, surface = surface, values = values, args = args, n = n,
        fn = form[surface] and samples.callable(form, surface) }
      local own = args and in_place(call, { table.unpack(args) })
      if call.fn and args and pcall(call.fn, table.unpack(own)) then
        call.sure = shared[surface .. " " .. form.name] == 1
          and form.name ~= "repeat_interleave" -- has another form in Lua
        out[#out + 1] = call
      end
    end
  end
  return out
end

local function name_of(call)
  return ("%s %s"):format(call.surface, call.form.name)
end

--- Notes in `seen` what calls of forms there are.
function M.forms(seen, op, sample)
  for _, call in ipairs(calls(op, sample)) do
    seen[call.form.text .. " as " .. call.surface] = true
  end
end

-- A float to be written has a derivative, and theirs by self is not known.
local NO_SAMPLE = { igamma = "inplace", igammac = "inplace" }

--- All calls of forms that M.forms can note.
function M.all_forms()
  local out = {}
  for _, form in ipairs(core.form_list()) do
    for _, surface in ipairs(SURFACES) do
      if form[surface] and NO_SAMPLE[form.name] ~= surface then
        out[#out + 1] = { op = form.op, text = form.text .. " as " .. surface }
      end
    end
  end
  return out
end

-- ---- types, names, numbers of arguments -------------------------------------
local function last_required(form)
  local last
  for i, a in ipairs(form.arguments) do
    if not a.kw_only and a.default == nil and not a.optional and a.kind ~= "Tensor[]" then
      last = i
    end
  end
  return last
end

local function with_keyword(call, name, value)
  local keywords = { [name] = value }
  for key, given in pairs(call.args[call.n + 1] or {}) do
    if key ~= name then
      keywords[key] = given
    end
  end
  return with(table.move(call.args, 1, call.n, 1, {}), call.n + 1, keywords)
end

local function check_types(call)
  local function refuse(args, word, what)
    refused({ call.fn, table.unpack(args, 1, #args) }, "TypeError", word,
      name_of(call) .. ": " .. what, call.sure)
  end
  for i, a in ipairs(call.form.arguments) do
    local wrong = WRONG[a.kind]
    if i <= call.n and not a.kw_only then
      refuse(with(call.args, i, wrong[1]), a.name, ("%s (%s)"):format(wrong[2], a.name))
    elseif a.kw_only then
      refuse(with_keyword(call, a.name, wrong[1]), a.name, ("%s (%s=)"):format(wrong[2], a.name))
    end
  end
  local last = last_required(call.form)
  if last then
    refuse(table.move(call.args, 1, last - 1, 1, {}), call.form.arguments[last].name,
      "a missing argument")
  end
  refused({ call.fn, table.unpack(with_keyword(call, "no_such_argument", 1)) }, "TypeError",
    "no_such_argument", name_of(call) .. ": an unknown keyword", true)
end

--- Arguments of wrong types, missing ones, unknown keywords, in every form.
function M.check(op, sample)
  for _, call in ipairs(calls(op, sample)) do
    check_types(call)
  end
end

-- ---- dimensions that are not there ------------------------------------------
-- Their dims are numbers of copies, of dimensions, lists that have to fit.
local COUNTS = { tile = true, tensordot = true, tensordot_lists = true }

--- Dimensions beyond both ends, where the form takes some by number.
function M.ranges(op, sample)
  for _, call in ipairs(calls(op, sample)) do
    for i, a in ipairs(call.form.arguments) do
      local names_one = a.name:find("^dim") and not COUNTS[call.form.name]
      for _, d in ipairs(names_one and i <= call.n and { 99, -99 } or {}) do
        local value = a.kind == "int" and math.type(call.args[i]) == "integer" and d
          or a.kind == "int[]" and { d }
        if value then
          local args = in_place(call, with(call.args, i, value))
          local class = a.kind == "int" and "IndexError" or nil
          local ok, e = pcall(call.fn, table.unpack(args))
          local what = ("%s: %s = %d"):format(name_of(call), a.name, d)
          assert(not ok, what .. " was accepted")
          assert(is_known(e) and (not class or errors[class]:is(e)), what .. ": " .. tostring(e))
          assert(e.message:find(tostring(d), 1, true) or e.message:find("dims", 1, true),
            ("%s is not in: %s"):format(what, e.message))
        end
      end
    end
  end
end

-- ---- tensors of other types and numbers of dimensions -----------------------
local DTYPES = { "bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64" }

-- Is the word, perhaps with an `_` after it, in the text?
local function has_word(text, word)
  return (" " .. text):find("[^%w_]" .. word .. "_?%f[^%w_]") ~= nil
end

-- Does the text say what was given: a size, a shape or a type?
local function tells(text)
  for _, t in ipairs(DTYPES) do
    if text:find(t, 1, true) then
      return true
    end
  end
  return text:find("%d") ~= nil or text:find("[]", 1, true) ~= nil
    or text:find("Half", 1, true) ~= nil or text:find("Bool", 1, true) ~= nil
end

-- The call with `value` in the place of one tensor works, or its error names
-- the function and what was given.
local function explained(call, name, value, what)
  local values = setmetatable({ [name] = value }, { __index = call.values })
  local ok, e = pcall(call.fn, table.unpack(in_place(call, (arguments(call.form, values)))))
  if ok then
    return
  end
  what = ("%s: %s %s"):format(name_of(call), name, what)
  assert(is_known(e), what .. ": " .. tostring(e))
  local text = e.message
  local named = call.surface == "internal" or call.form.name:find("^_")
    or has_word(text, call.form.name)
  assert(named, ("%s: %s is not named in: %s"):format(what, call.form.name, text))
  assert(tells(text), ("%s: nothing tells what was given in: %s"):format(what, text))
end

--- Tensors of every other type, with more and with fewer dimensions.
function M.tensors(op, sample)
  for _, call in ipairs(calls(op, sample)) do
    for _, a in ipairs(call.form.arguments) do
      local x = call.values[a.name]
      if torch.is_tensor(x) then
        for _, t in ipairs(DTYPES) do
          explained(call, a.name, x:to(torch[t]), "as " .. t)
        end
        explained(call, a.name, x:unsqueeze(0):unsqueeze(0):unsqueeze(0), "with more dimensions")
        if x:dim() > 0 then
          explained(call, a.name, x:reshape(-1), "flat")
          explained(call, a.name, x:reshape(-1):select(0, 0), "without dimensions")
        end
      end
    end
  end
end

-- ---- numbers at the ends ----------------------------------------------------
local EXTREMES = { math.maxinteger, math.mininteger, 1 << 62, -1 }

--- Integers at the ends of their range give a result or an error of the
--- arguments.
function M.extremes(op, sample)
  local form = samples.forms[op.name][1]
  local fn, writes = samples.function_of(op.name)
  local args = make.arguments(sample, walk.tensors(sample, {}))
  if writes then
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
  local fn, writes = samples.function_of(op.name)
  for _, name in ipairs({ "bool", "uint8", "int64", "float16", "bfloat16" }) do
    local tensors = walk.tensors(sample, {})
    for i, t in ipairs(tensors) do
      tensors[i] = t.dtype.is_floating_point and t:to(torch[name]) or t
    end
    local args = make.arguments(sample, tensors)
    if writes then
      args[1] = args[1]:clone()
    end
    local ok, e = pcall(fn, table.unpack(args))
    assert(ok or is_known(e), ("%s: %s"):format(name, tostring(e)))
  end
end

return M

--- The kinds of calls. Each takes Values and gives the words of a call and a
--- function that does it.
local arguments = require("lupine.base.arguments")
local core = require("lupine.core")
local lupine = require("lupine")
local torch = require("torch")
local Values = require("spec.fuzz.api.values")

local F = torch.nn.functional

local M = {}

-- Not called: they write files, start processes, block, or change what later
-- calls mean; a call must depend on its seed alone.
local SKIPPED = {}
for name in ([[save load set_num_threads set_default_dtype set_default_device set_grad_enabled
  use_deterministic_algorithms set_float32_matmul_precision set_printoptions set_rng_state
  manual_seed seed print_tensor random custom_function data_ptr const_data_ptr recurrence
  function_record set_anomaly_enabled free]]):gmatch("%S+") do
  SKIPPED[name] = true
end

local function words_of(name, args)
  local list = {}
  for i = 1, args.n do
    list[i] = Values.words(args[i])
  end
  return ("%s(%s)"):format(name, table.concat(list, ", "))
end

-- The lists that are drawn from must have one order.
local function sorted_keys(t, wanted)
  local list = {}
  for k, v in pairs(t) do
    if type(k) == "string" and not SKIPPED[k] and wanted(v, k) then
      list[#list + 1] = k
    end
  end
  table.sort(list)
  return list
end

local function is_function(f)
  return type(f) == "function"
end

-- ---- results -------------------------------------------------------------------

-- Reads every tensor of a result, and asks for gradients now and then.
local function use(v, results)
  for i = 1, results.n do
    local t = results[i]
    if core.is_tensor(t) and not core.is_closed(t) and t:numel() <= 100000 then
      tostring(t)
      t:clone()
      if t.requires_grad and v:chance(0.7) then
        t:sum():backward()
      end
    elseif type(t) == "table" and not getmetatable(t) then
      use(v, table.pack(table.unpack(t, 1, math.min(#t, 8))))
    end
  end
end

local function call(v, f, args)
  local results = table.pack(f(table.unpack(args, 1, args.n)))
  use(v, results)
  return results
end

-- ---- operators by their forms ----------------------------------------------------

local forms = {}
for _, f in ipairs(core.form_list()) do
  if not SKIPPED[f.name] then
    forms[#forms + 1] = f
  end
end
table.sort(forms, function(a, b)
  return a.text .. a.op < b.text .. b.op
end)

local function method(name)
  return function(self, ...)
    return self[name](self, ...)
  end
end

-- The ways to call a form: {name, function}.
local function surfaces_of(form)
  local list = {}
  local tables = { { "function", "torch", torch }, { "nn", "F", F }, { "special", "special",
    torch.special }, { "linalg", "linalg", torch.linalg }, { "internal", "core.forms.internal",
    core.forms.internal } }
  for _, s in ipairs(tables) do
    if form[s[1]] and is_function(rawget(s[3], form.name)) then
      list[#list + 1] = { s[2] .. "." .. form.name, s[3][form.name] }
    end
  end
  if form.method then
    list[#list + 1] = { "Tensor." .. form.name, method(form.name) }
  end
  if form.inplace then
    list[#list + 1] = { "Tensor." .. form.name .. "_", method(form.name .. "_") }
  end
  return list
end

local function form_arguments(v, form)
  local args, keywords = { n = 0 }, {}
  for i, a in ipairs(form.arguments) do
    local left_out = (a.default ~= nil or a.optional) and v:chance(0.5)
    if a.kw_only or left_out or keywords[1] then
      if not left_out then
        keywords[a.name] = v:of_kind(a.kind)
      end
      keywords[1] = true -- what follows goes by name
    else
      args.n = i
      args[i] = v:of_kind(a.kind)
    end
  end
  keywords[1] = nil
  if form.out and v:chance(0.1) then
    keywords.out = v:chance(0.9) and v:tensor() or v:wrong()
  end
  if next(keywords) then
    args.n = args.n + 1
    args[args.n] = keywords
  end
  if v:chance(0.02) then
    args.n = args.n + 1
    args[args.n] = v:wrong()
  end
  return args
end

function M.form(v)
  local form = v:pick(forms)
  local surfaces = surfaces_of(form)
  if #surfaces == 0 then
    return nil
  end
  local surface = v:pick(surfaces)
  local args = form_arguments(v, form)
  return words_of(surface[1], args), function()
    call(v, surface[2], args)
  end
end

-- ---- functions and methods written in Lua, or by hand ------------------------------

local plain = {}
for _, space in ipairs({ { "torch", torch, core.forms.functions }, { "F", F, core.forms.nn },
  { "special", torch.special, core.forms.special },
  { "linalg", torch.linalg, core.forms.linalg } }) do
  for _, name in ipairs(sorted_keys(space[2], function(f, k)
    return is_function(f) and not space[3][k]
  end)) do
    plain[#plain + 1] = { space[1] .. "." .. name, space[2][name] }
  end
end
for _, name in ipairs(sorted_keys(core.methods, is_function)) do
  plain[#plain + 1] = { "Tensor." .. name, method(name) }
end

function M.plain(v)
  local f = v:pick(plain)
  local args = { n = v:pick({ 0, 1, 1, 2, 2, 3, 4, 5 }) }
  for i = 1, args.n do
    args[i] = i == 1 and v:chance(0.8) and v:tensor() or v:any()
  end
  return words_of(f[1], args), function()
    call(v, f[2], args)
  end
end

-- ---- layers ----------------------------------------------------------------------

local layers = sorted_keys(torch.nn, function(c)
  return type(c) == "table" and rawget(c, "__members") ~= nil and torch.nn.Module ~= c
    and is_function(c.forward)
end)

-- Sizes that layers of this name take: batch, channels, space.
local function layer_shape(v, name, channels)
  local space = tonumber(name:match("(%d)d$")) or tonumber(name:match("(%d)dWith"))
  if not space then
    return { v:pick({ 1, 2, 3 }), v:pick({ channels, 4 }), channels }
  end
  local shape = { v:pick({ 1, 2 }), channels }
  for i = 1, space do
    shape[2 + i] = v:pick({ 1, 4, 5, 6, 8 })
  end
  if v:chance(0.2) then
    table.remove(shape, 1)
  end
  return shape
end

function M.layer(v)
  local name = v:pick(layers)
  local class = torch.nn[name]
  local names, varied = arguments.parameters(class.init, 1)
  local args = { n = math.random(0, varied and 3 or v:pick({ 3, #names })) }
  args.n = varied and args.n or math.min(args.n, #names)
  for i = 1, args.n do
    args[i] = v:chance(0.85) and math.random(1, 4)
      or v:chance(0.7) and v:of_kind("int[]") or v:any()
  end
  if v:chance(0.2) and args.n < #names then
    args.n = args.n + 1
    args[args.n] = { [names[math.random(args.n, #names)]] = v:any() }
  end
  if v:chance(0.9) then
    v.shape = layer_shape(v, name, math.type(args[1]) == "integer" and args[1] % 17 or 4)
  end
  local inputs = { n = math.max(1, #(arguments.parameters(class.forward, 1))) }
  inputs.n = inputs.n > 1 and v:chance(0.7) and math.random(1, math.min(inputs.n, 3)) or inputs.n
  for i = 1, inputs.n do
    local second = i > 1 and v:chance(0.4) and torch.int64 or torch.float32
    local dtype = v:chance(0.9) and second or nil
    inputs[i] = v:chance(0.97) and v:tensor(dtype, v:chance(0.8) and v.shape or nil) or v:any()
  end
  return words_of("nn." .. name, args) .. words_of("", inputs), function()
    local layer = class(table.unpack(args, 1, args.n))
    tostring(layer)
    call(v, layer, inputs)
    layer:state_dict()
  end
end

-- ---- metamethods -------------------------------------------------------------------

-- One of each class that a script gets hold of.
local function samples()
  local tensor = torch.ones(2, { requires_grad = true })
  local trace = core.trace()
  local input = trace:declare("input", "input_1", nil, { 1 }, torch.float32)
  local step, taken, twice = core.trace():step({}), core.trace():step({}), tensor * 2
  taken:complete({})
  local compiled = lupine.compile(function(x) return x * 2 end, { torch.ones(2) })
  return { input, compiled, taken:compile({}), tensor, torch.float32, torch.device("cpu"),
    torch.Size({ 1, 2 }), torch.slice(1, 2),
    torch.none, torch.ellipsis, torch.Generator(), trace, twice.grad_fn,
    tensor:register_hook(print), step, core.graph_parse(step:text("micro")),
    torch.nn.Linear(1, 1),
    torch.optim and torch.nn.Parameter(torch.ones(1)) or tensor }
end

local function events_of(object)
  local meta = getmetatable(object)
  local list = {}
  if type(meta) ~= "table" then
    return list
  end
  for _, t in ipairs({ meta, type(meta.__index) == "table" and meta.__index or nil }) do
    for _, name in ipairs(sorted_keys(t, is_function)) do
      list[#list + 1] = { name, t[name] }
    end
  end
  return list
end

function M.meta(v)
  local objects = samples()
  local object = v:pick(objects)
  local events = events_of(object)
  if #events == 0 then
    return nil
  end
  local event = v:pick(events)
  local args = { n = math.random(0, 4) }
  for i = 1, args.n do
    args[i] = v:chance(0.4) and v:pick(objects) or v:any()
  end
  local kind = type(object) == "table" and "table" or tostring(object):sub(1, 20):gsub("%s+", " ")
  return words_of(("metamethod %s of %s"):format(event[1], kind), args), function()
    call(v, event[2], args)
  end
end

local BINARY = {
  function(a, b) return a + b end, function(a, b) return a - b end,
  function(a, b) return a * b end, function(a, b) return a / b end,
  function(a, b) return a // b end, function(a, b) return a % b end,
  function(a, b) return a ^ b end, function(a, b) return a & b end,
  function(a, b) return a | b end, function(a, b) return a ~ b end,
  function(a, b) return a << b end, function(a, b) return a >> b end,
  function(a, b) return a .. b end, function(a, b) return a == b end,
  function(a, b) return a < b end,
  function(a) return -a end, function(a) return ~a end, function(a) return #a end,
}

function M.operator(v)
  local i = math.random(#BINARY)
  local args = { v:tensor(), v:any(), n = 2 }
  if v:chance(0.5) then
    args[1], args[2] = args[2], args[1]
  end
  return words_of("operator " .. i, args), function()
    call(v, BINARY[i], args)
  end
end

function M.index(v)
  local args = { v:tensor(), v:key(), v:chance(0.5) and v:any() or nil, n = 3 }
  return words_of("index", args), function()
    if args[3] ~= nil then
      args[1][args[2]] = args[3]
    end
    call(v, function(x, key) return x[key] end, args)
  end
end

-- ---- compiled functions --------------------------------------------------------------

-- Operators whose results are the same each time; of those that cut (floor,
-- comparisons, orders) a last bit in their operand would show.
local CUTS = {}
for name in ([[ceil floor round trunc frac sign sgn heaviside eq ne lt le gt ge equal argmax argmin
  sort argsort topk kthvalue median nanmedian mode unique searchsorted bucketize isclose fmod
  remainder floor_divide logical_not logical_and logical_or logical_xor nonzero histc bincount
  isin msort cummax cummin floor_ greater less greater_equal less_equal not_equal hardshrink
  threshold nextafter empty empty_like new_empty empty_permuted signbit matrix_rank fix
  renorm logical_or_ geqrf svd eigh qr lu lu_factor pinverse pinv lstsq ormqr frexp
  empty_strided new_empty_strided]]):gmatch("%S+") do
  CUTS[name] = true
end

local pure = {}
for _, f in ipairs(forms) do
  local first = f.arguments[1]
  if (f.method or f["function"] or f.nn) and not f.draws and not f.internal and not f.makes
    and first and first.name == "self" and first.kind == "Tensor" and f.results ~= "None" then
    pure[#pure + 1] = f
  end
end

-- One operator of a random function: what it is called with besides the values
-- at hand, which are given by number.
local function draw_step(v, i)
  local form = v:pick(pure)
  if CUTS[form.name] and i > 1 then
    return nil
  end
  local surfaces = surfaces_of(form)
  if #surfaces == 0 then
    return nil
  end
  local step = { form = form, args = {}, n = 0, surface = v:pick(surfaces) }
  for k, a in ipairs(form.arguments) do
    if a.kw_only or (a.default ~= nil or a.optional) and v:chance(0.6) then
      break
    end
    step.n = k
    if a.kind == "Tensor" or a.kind == "Value" and v:chance(0.7) then
      step.args[k] = { value = math.random(1 << 20) }
    else
      step.args[k] = v:of_kind(a.kind)
    end
  end
  return step
end

local function run_steps(steps, inputs)
  local values = table.move(inputs, 1, #inputs, 1, {})
  for _, step in ipairs(steps) do
    local args = {}
    for k = 1, step.n do
      local a = step.args[k]
      if type(a) == "table" and a.value then
        a = values[#values - a.value % math.min(#values, 3)]
      end
      args[k] = a
    end
    local y = step.surface[2](table.unpack(args, 1, step.n))
    if type(y) == "table" and not getmetatable(y) then
      y = y[1]
    end
    if core.is_tensor(y) then
      values[#values + 1] = y
    end
  end
  return values[#values]
end

local function words_of_steps(steps, inputs)
  local list = {}
  for i, s in ipairs(steps) do
    list[i] = words_of(s.surface[1], { n = s.n, table.unpack(s.args, 1, s.n) })
  end
  return "compile " .. table.concat(list, "; ") .. words_of(" of", inputs)
end

-- Of the same type and shape, and near: both went through the same kernels,
-- but sums may be taken in another order.
local function check_same(got, want)
  if got.dtype ~= want.dtype or tostring(got.shape) ~= tostring(want.shape) then
    error(("FINDING compiled: %s of %s, eagerly %s of %s"):format(tostring(got.dtype),
      tostring(got.shape), tostring(want.dtype), tostring(want.shape)), 0)
  end
  local half = want.dtype == torch.float16 or want.dtype == torch.bfloat16
  local a, b = got:to(torch.float64), want:detach():to(torch.float64)
  local tol = want.dtype.is_floating_point and (half and 3e-2 or 1e-3) or 0
  if not torch.allclose(a, b, { rtol = tol, atol = tol, equal_nan = true }) then
    error(("FINDING compiled: %s, eagerly %s"):format(tostring(a), tostring(b)), 0)
  end
end

function M.compiled(v)
  local inputs = { n = math.random(1, 3) }
  local dtype = v:chance(0.8) and torch.float32 or nil
  for i = 1, inputs.n do
    inputs[i] = v:tensor(dtype):detach()
  end
  local steps = {}
  for i = 1, math.random(1, 4) do
    steps[#steps + 1] = draw_step(v, i)
  end
  if #steps == 0 then
    return nil
  end
  return words_of_steps(steps, inputs), function()
    local plain_inputs = {}
    for i = 1, inputs.n do
      plain_inputs[i] = inputs[i]:clone()
    end
    local function f(...)
      return run_steps(steps, { ... })
    end
    local want
    do
      local _ <close> = torch.no_grad()
      local copies = {}
      for i = 1, inputs.n do
        copies[i] = plain_inputs[i]:clone()
      end
      want = f(table.unpack(copies))
    end
    local compiled = lupine.compile(f, plain_inputs)
    check_same(compiled(table.unpack(plain_inputs)), want)
  end
end

return M

--- lupine.compile: a function of tensors, or a module, as a compiled program.
---
---     local f = lupine.compile(function(x, w) return (x * w):sum() end, {x, w})
---     local y = f(x, w)
---
--- The function is traced once, for the shapes and types of the inputs given,
--- which as_strided, view and contiguous see as if in order, whatever their
--- strides are.
--- Tensors it captures are constants with the values they have now, and it may
--- not write them. Parameters and buffers of a module are those of the module
--- at every call; buffers that forward writes come back to it. There is no
--- device and no options object: any dtype works.
---
--- A training step is compiled too (lua/lupine/training_step.lua):
---
---     local step = lupine.compile(model, { optimizer = optimizer, loss = nn.MSELoss() })
---     local out, loss = step(x, target)
local advice = require("lupine.base.advice")
local arguments = require("lupine.base.arguments")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local memory = require("lupine.session.memory")
local spans = require("lupine.base.spans")
local tables = require("lupine.base.tables")
local TrainingStep = require("lupine.training_step")

local function sizes(shape)
  local out = {}
  for i = 1, #shape do
    out[i] = shape[i]
  end
  return out
end

-- ---- arguments -------------------------------------------------------------------

-- What is traced: names of its parameters, its module if it is one.
local function target_of(fn)
  local Module = package.loaded["torch.nn"] and require("torch.nn").Module
  if Module and Module:is(fn) then
    return { names = (arguments.parameters(fn.forward, 1)), module = fn }
  end
  errors.check(type(fn) == "function", "TypeError",
    "compile(fn): expected a function or a torch.nn.Module, got %s", check.describe(fn))
  return { names = (arguments.parameters(fn, 0)) }
end

local function argument(target, i)
  return target.names[i] or ("argument %d"):format(i)
end

local function check_tensor(value, where)
  errors.check(arguments.is_tensor(value), "TypeError", "%s: expected a tensor, got %s", where,
    check.describe(value))
end

local function check_tensors(list, where, name_of)
  errors.check(type(list) == "table" and not getmetatable(list), "TypeError",
    "%s: expected a list of tensors, got %s", where, check.describe(list))
  for i = 1, #list do
    check_tensor(list[i], ("%s: %s"):format(where, name_of(i)))
  end
end

-- A later value like the one compiled for, {shape, dtype}.
local function check_like(value, like, where)
  check_tensor(value, where)
  errors.check(value.dtype == like.dtype and tostring(value.shape) == tostring(like.shape),
    "RuntimeError", "%s: expected a %s tensor of shape %s as when it was compiled, got %s of %s",
    where, tostring(like.dtype), tostring(like.shape), tostring(value.dtype),
    tostring(value.shape))
end

local function types_of(list)
  local out = {}
  for i, t in ipairs(list) do
    out[i] = { shape = t.shape, dtype = t.dtype }
  end
  return out
end

-- ---- the step ----------------------------------------------------------------------

-- The module's tensors as variables of the program.
local function declare_state(tr, target)
  target.state = { parameter = {}, buffer = {} }
  if target.module then
    for name, p in target.module:named_parameters() do
      tr:declare("parameter", name, p)
      target.state.parameter[name] = p
    end
    for name, b in target.module:named_buffers() do
      tr:declare("buffer", name, b)
      target.state.buffer[name] = b
    end
  end
end

local say = advice({ gradients = "lupine.compile with cotangents = {...}" })

-- Gradients are on if they are asked for; `wrt` require one.
local function trace(fn, target, inputs, cotangents, wrt)
  local tr = core.trace()
  local stand_ins = {}
  for i, x in ipairs(inputs) do
    stand_ins[i] = tr:declare("input", "input_" .. i, nil, sizes(x.shape), x.dtype)
  end
  for i, c in ipairs(cotangents or {}) do
    tr:declare("input", "cotangent_" .. i, nil, sizes(c.shape), c.dtype)
  end
  for _, i in ipairs(cotangents and wrt or {}) do
    local x = stand_ins[i]
    if x and x:is_floating_point() then
      x:requires_grad_()
    end
  end
  declare_state(tr, target)
  local results
  do
    local _ <close> = require("torch").set_grad_enabled(cotangents ~= nil or core.is_grad_enabled())
    results = table.pack(tr:run(true, fn, table.unpack(stand_ins, 1, #inputs)))
  end
  local tensors, spec = {}, { n = results.n }
  for i = 1, spec.n do
    spec[i] = arguments.flatten(results[i], "result", tensors)
  end
  for i, t in ipairs(tensors) do
    tensors[i] = t.tensor
  end
  return (tr:step(tensors)), spec, types_of(tensors)
end

local function index(step)
  local at = {}
  for i, v in ipairs(step:vars()) do
    at[v.role .. " " .. v.name] = at[v.role .. " " .. v.name] or i
  end
  return at
end

-- What core.compile needs for gradients of all outputs.
local function gradients(step, results, cotangents, target, wrt)
  errors.check(#cotangents == #results, "ValueError",
    "cotangents: %d given, the function returns %d tensors", #cotangents, #results)
  for i, c in ipairs(cotangents) do
    check_like(c, results[i], ("cotangents[%d]"):format(i))
  end
  local at = index(step)
  local outs, cots, ins = {}, {}, {}
  for i = 1, #cotangents do
    outs[i], cots[i] = at["output output_" .. i], at["input cotangent_" .. i]
  end
  for i, k in ipairs(wrt) do
    ins[i] = at["input input_" .. tostring(k)]
    errors.check(ins[i], "ValueError", "wrt[%d]: expected the number of an input, 1..%d (%s), "
      .. "got %s", i, target.n, table.concat(target.names, ", "), check.describe(k))
  end
  return { outs, cots, ins }
end

-- ---- calls -------------------------------------------------------------------------

-- The program's variables that are tensors of the module.
local function state_of(step, target)
  local state = {}
  for i, v in ipairs(step:vars()) do
    local t = target.state[v.role] and target.state[v.role][v.name]
    if t then
      state[#state + 1] = { index = i, tensor = t, written = v.written }
    end
  end
  return state
end

-- Where a tensor lies and how often it was written: data_ptr brings it up to
-- date first.
local function note(m)
  m.place, m.version = m.tensor:data_ptr(), m.tensor._version
end

-- Module -> program: what was written or replaced since the last call.
local function upload(exec, state)
  for _, m in ipairs(state) do
    local place, version = m.place, m.version
    note(m)
    if place ~= m.place or version ~= m.version then
      exec:write(m.index, m.tensor)
    end
  end
end

-- Program -> module: the buffers that forward writes.
local function download(exec, state)
  for _, m in ipairs(state) do
    if m.written then
      exec:read_into(m.index, m.tensor)
      note(m)
    end
  end
end

local function check_call(target, like, cotangents, args)
  local n, most = #like, #like + (cotangents and 1 or 0)
  errors.check(args.n <= most, "TypeError", "the compiled function takes %s%s, %d were given",
    check.count(n, "argument"), cotangents and " and a list of cotangents" or "", args.n)
  for i = 1, n do
    check_like(args[i], like[i], argument(target, i))
  end
  if cotangents then
    local given = args[n + 1]
    check_tensors(given, "cotangents", function(i)
      return ("[%d]"):format(i)
    end)
    errors.check(#given == #cotangents, "ValueError", "cotangents: expected %d tensors, got %d",
      #cotangents, #given)
    for i, c in ipairs(cotangents) do
      check_like(given[i], c, ("cotangents[%d]"):format(i))
    end
  end
end

local OPTIONS = { "cotangents", "wrt", "fuse", "blocked", "threads" }

local function check_options(opts, target)
  errors.check(type(opts) == "table", "TypeError", "compile(opts): expected a table, got %s",
    check.describe(opts))
  local known = tables.set(OPTIONS)
  for key in pairs(opts) do
    errors.check(known[key], "TypeError", "compile: unknown option '%s'%s; known are %s",
      tostring(key), check.nearest(key, OPTIONS), table.concat(OPTIONS, ", "))
  end
  errors.check(opts.wrt == nil or opts.cotangents ~= nil, "ValueError",
    "compile(opts): wrt: gradients need cotangents, a tensor for each result")
  if opts.cotangents ~= nil then
    check_tensors(opts.cotangents, "compile(opts): cotangents", function(i)
      return ("[%d]"):format(i)
    end)
  end
  for _, name in ipairs({ "fuse", "blocked" }) do
    errors.check(opts[name] == nil or type(opts[name]) == "boolean", "TypeError",
      "compile(opts): %s: expected a bool, got %s", name, check.describe(opts[name]))
  end
  local threads = opts.threads
  errors.check(threads == nil or math.type(threads) == "integer" and threads >= 1
    and threads <= 4096, "ValueError", "compile(opts): threads: expected an int from 1 to 4096, "
    .. "got %s", check.describe(threads))
  local wrt = opts.wrt
  if wrt == nil then
    wrt = {}
    for i = 1, target.n do
      wrt[i] = i
    end
  end
  errors.check(type(wrt) == "table", "TypeError",
    "compile(opts): wrt: expected a list of numbers of inputs, got %s", check.describe(wrt))
  return wrt
end

-- Sets where the program's random numbers begin before each run, if it draws
-- any: a number from torch's generator, so that torch.manual_seed and
-- torch.set_rng_state govern them as those of eager calls.
local function seeder(exec)
  if not exec:stats().draws then
    return function() end
  end
  local torch = require("torch")
  return function()
    exec:rng(torch.randint(math.maxinteger, {}):item(), 0)
  end
end

-- One run: inputs and cotangents in, results and gradients out.
local function caller(exec, step_at, target, like, spec, wrt)
  local written = {} -- number of an input that the function writes -> of an output
  local gradient = {}
  for i, k in ipairs(wrt or {}) do
    gradient[i] = step_at["output Gradient___input_" .. k]
  end
  for i = 1, #like do
    written[i] = step_at["output input_" .. i]
  end
  return function(args)
    memory.check_apart(args, #like, written, function(i)
      return argument(target, i)
    end)
    local feed = {}
    for i = 1, #like do
      feed[step_at["input input_" .. i]] = args[i]
    end
    for i, c in ipairs(wrt and args[#like + 1] or {}) do
      feed[step_at["input cotangent_" .. i]] = c
    end
    local got, n = exec:run(feed, {}), 0
    for i, output in pairs(written) do
      require("torch").no_grad(function()
        args[i]:copy_(got[output])
      end)
    end
    local out = {}
    for i = 1, spec.n do
      out[i] = arguments.rebuild(spec[i], function()
        n = n + 1
        return got[step_at["output output_" .. n]]
      end)
    end
    if wrt then
      out[spec.n + 1] = {}
      for i, g in ipairs(gradient) do
        out[spec.n + 1][i] = got[g]
      end
    end
    return table.unpack(out, 1, spec.n + (wrt and 1 or 0))
  end
end

--- Compiles `fn` for inputs like these. With `cotangents` (a tensor for each
--- result) the program also computes gradients; the compiled function then
--- takes the cotangents as a last list and returns the list of gradients
--- after fn's results. What fn decides while it is traced stays so: a
--- module's training mode (dropout, batch normalisation), a branch of Lua.
--- Random numbers come from torch's generator (torch.manual_seed), a sequence
--- other than that of eager calls.
--- error: RuntimeError for what cannot be traced, an in-place write to a
--- captured tensor, or inputs of other shapes; TypeError for what is no tensor
---@param fn (fun(...: torch.Tensor): ...)|torch.nn.Module
---@param inputs torch.Tensor[]
---@param opts? {cotangents: torch.Tensor[], wrt: integer[], fuse: boolean, blocked: boolean,
---  threads: integer} wrt: numbers of inputs, from 1 (default: all); fuse, blocked: chains of
---  pointwise operators as one pass, blocked layouts of images (default true)
---@return fun(...: torch.Tensor): ...
---@overload fun(model: torch.nn.Module, opts: lupine.TrainingStepOptions): lupine.TrainingStep
local function compile(fn, inputs, opts)
  if opts == nil and check.is_keywords(inputs) then
    return TrainingStep(fn, inputs)
  end
  local _ <close> = spans.active and spans.open("compiling")
  opts = opts == nil and {} or opts
  local target = target_of(fn)
  check_tensors(inputs, "compile(inputs)", function(i)
    return argument(target, i)
  end)
  target.n = #inputs
  local wrt = check_options(opts, target)
  local step, spec, results = say(trace, fn, target, inputs, opts.cotangents, wrt)
  local _, program = core.compile(step, {
    gradients = opts.cotangents and gradients(step, results, opts.cotangents, target, wrt),
    host = { fuse = opts.fuse, blocked = opts.blocked, threads = opts.threads },
  })
  local at, state = index(step), state_of(step, target)
  local like, cotangents = types_of(inputs), opts.cotangents and types_of(opts.cotangents)
  local exec = program:executor()
  local call = caller(exec, at, target, like, spec, opts.cotangents and wrt)
  local seed = seeder(exec)
  return function(...)
    local _ <close> = spans.active and spans.open("inputs and results")
    local args = table.pack(...)
    check_call(target, like, cotangents, args)
    if core.is_tracing() then -- a part of the program around
      errors.check(not cotangents, "RuntimeError", "a function compiled with cotangents cannot be "
        .. "called in a traced function: differentiate the program around it")
      return fn(...)
    end
    upload(exec, state)
    seed()
    local out = table.pack(call(args))
    download(exec, state)
    return table.unpack(out, 1, out.n)
  end
end

return compile

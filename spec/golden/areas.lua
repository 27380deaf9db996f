--- What a golden case of each area does; each function raises when the case
--- fails, or a table {skipped = name} when something it calls is not there.
local classes = require("spec.golden.classes")
local errors = require("lupine.base.errors")
local lupine = require("lupine")
local read = require("spec.golden.read")
local torch = require("torch")
local values = require("spec.golden.values")

local null = read.null
local M = {}

-- ---- functions ------------------------------------------------------------
local function call_function(c, load, leaves)
  local fn, args = values.call(c, load, leaves)
  return fn(args), args
end

function M.functions(c, load)
  local leaves = {}
  local packed, args = call_function(c, load, leaves)
  local got = type(c.out) == "table" and values.results(packed, c.out) or packed[1]
  values.check(got, c.out, c, load, "result")
  for path, key in pairs(c.args_after or {}) do
    values.near(values.at(args, path), load(key), c.after_rtol, c.after_atol, "argument " .. path)
  end
  if c.cotangent then
    values.check_gradients(got, leaves, c, load)
  end
end

-- ---- modules --------------------------------------------------------------
local function construct(name, args, kwargs, load)
  local cls = values.find(name) or values.skip(name)
  return cls(values.arguments(args or {}, kwargs or {}, load, {}))
end

local function load_state(m, state, load)
  local t = {}
  for name, key in pairs(state) do
    t[name] = load(key)
  end
  m:load_state_dict(t)
end

-- The module of a case, with its state.
local function module_of(c, load)
  local m = construct(c.module, c.init_args, c.init_kwargs, load)
  m:to(torch[c.dtype])
  m:train(c.training)
  load_state(m, c.state or {}, load)
  return m
end

--- A module case as values.call gives a function's: its parameters and buffers
--- are arguments, too, in args.state.
function M.module_call(c, load, leaves)
  local m, own = module_of(c, load), {}
  local args = table.pack(values.arguments(c.forward_args or {}, c.forward_kwargs or {}, load,
    own))
  for path, t in pairs(own) do
    leaves[(path:find("^%d") and "arg." or "kwarg.") .. path] = t
  end
  args.state = {}
  local slots = {}
  for prefix, sub in m:named_modules() do
    for _, kind in ipairs({ "_parameters", "_buffers" }) do
      local held = sub[kind].values
      for key, t in pairs(held) do
        local name = prefix == "" and key or prefix .. "." .. key
        if torch.is_tensor(t) then
          args.state[name], slots[name] = t, { held, key, t }
        end
        if kind == "_parameters" then
          leaves["param." .. name] = t
        end
      end
    end
  end
  return function(a)
    for name, slot in pairs(slots) do
      slot[1][slot[2]] = a.state[name]
    end
    local packed = table.pack(pcall(m, table.unpack(a, 1, a.n)))
    for _, slot in pairs(slots) do
      slot[1][slot[2]] = slot[3]
    end
    return packed[1] and table.pack(table.unpack(packed, 2, packed.n)) or error(packed[2], 0)
  end, args
end

function M.modules(c, load)
  local m = module_of(c, load)
  local leaves, own = {}, {}
  local packed = table.pack(m(values.arguments(c.forward_args or {}, c.forward_kwargs or {}, load,
    own)))
  local got = type(c.out) == "table" and values.results(packed, c.out) or packed[1]
  values.check(got, c.out, c, load, "result")
  for name, p in m:named_parameters() do
    leaves["param." .. name] = p
  end
  for path, t in pairs(own) do
    leaves[(path:find("^%d") and "arg." or "kwarg.") .. path] = t
  end
  if c.cotangent then
    values.check_gradients(got, leaves, c, load)
  end
  local state = c.state_after and m:state_dict() or {}
  for name, key in pairs(c.state_after or {}) do
    values.near(state[name], load(key), c.rtol, c.atol, "state " .. name)
  end
end

-- ---- optimizers -----------------------------------------------------------
local function plain(a)
  if a == null then
    return torch.none
  elseif type(a) ~= "table" then
    return a
  end
  local out = {}
  for k, v in pairs(a.list or a) do
    out[k] = plain(v)
  end
  return out
end

-- {} would be a positional argument.
local function keywords(kwargs)
  return kwargs and next(kwargs) ~= nil and plain(kwargs) or nil
end

local function groups_of(c, params)
  if not c.groups or #c.groups == 0 then
    return params
  end
  local groups = {}
  for i, g in ipairs(c.groups) do
    groups[i] = {}
    for key, v in pairs(g) do
      groups[i][key] = plain(v)
    end
    groups[i].params = {}
    for k, at in ipairs(g.params) do
      groups[i].params[k] = params[at + 1]
    end
  end
  return groups
end

local PROBLEMS = {
  quadratic = function(x, p, load)
    local a, b = load(p.A), load(p.b)
    return torch.dot(x, a:mv(x)) * 0.5 - torch.dot(b, x)
  end,
  rosenbrock = function(x)
    local n = x:numel()
    local head, tail = x:narrow(0, 0, n - 1), x:narrow(0, 1, n - 1)
    return ((tail - head * head):pow(2) * 100 + (head * -1 + 1):pow(2)):sum()
  end,
}

local function minimise(c, load)
  local x = load(c.start):requires_grad_(true)
  local opt = (values.find(c.optimizer) or values.skip(c.optimizer))({ x }, keywords(c.kwargs))
  for t, want in ipairs(c.losses) do
    local loss = opt:step(function()
      opt:zero_grad()
      local f = PROBLEMS[c.problem.kind](x, c.problem, load)
      f:backward()
      return f
    end)
    loss = torch.is_tensor(loss) and loss:item() or loss
    if math.abs(loss - want) > c.atol + c.rtol * math.abs(want) then
      error(("loss of step %d: %.9g, expected %.9g"):format(t, loss, want), 0)
    end
    local key = c.expect[tostring(t)]
    if key then
      values.near(x, load(key), c.rtol, c.atol, "x after step " .. t)
    end
  end
end

function M.optim(c, load)
  local cls = values.find(c.optimizer) or values.skip(c.optimizer)
  if c.problem then
    return minimise(c, load)
  end
  local params = {}
  for i, key in ipairs(c.params) do
    params[i] = load(key):requires_grad_(true)
  end
  local opt = cls(groups_of(c, params), keywords(c.kwargs))
  for t, grads in ipairs(c.step_grads) do
    for i, key in ipairs(grads) do
      params[i].grad = key ~= null and load(key) or nil
    end
    opt:step()
    for i, key in ipairs(c.expect[tostring(t)] or {}) do
      values.near(params[i], load(key), c.rtol, c.atol,
        ("parameter %d after step %d"):format(i - 1, t))
    end
  end
end

function M.clip(c, load)
  local fn = values.find(c.op) or values.skip(c.op)
  local params = {}
  for i, key in ipairs(c.grads_in) do
    local shape = key ~= null and load(key).shape or { 1 }
    local dtype = key ~= null and load(key).dtype or torch.float32
    params[i] = torch.zeros(shape, { dtype = dtype }):requires_grad_(true)
    params[i].grad = key ~= null and load(key) or nil
  end
  local got = table.pack(fn(params, values.arguments(c.args, c.kwargs or {}, load, {})))
  if c.out and c.out ~= null then
    values.check(values.results(got, c.out), c.out, c, load, "result")
  end
  for i, key in ipairs(c.grads_out) do
    if key ~= null then
      values.near(params[i].grad, load(key), c.rtol or 0, c.atol or 0, "gradient " .. i - 1)
    end
  end
end

-- ---- schedules ------------------------------------------------------------
local function table_function(v)
  local entries = v.table
  return function(epoch) return entries[epoch + 1] end
end

local function schedule(s, opt)
  local name = "optim.lr_scheduler." .. s.scheduler
  local cls = values.find(name) or values.skip(name)
  local kw = {}
  for key, v in pairs(s.kwargs or {}) do
    if type(v) == "table" and v.table then
      kw[key] = table_function(v)
    elseif type(v) == "table" and v.list and type(v.list[1]) == "table" and v.list[1].table then
      kw[key] = {}
      for i, e in ipairs(v.list) do
        kw[key][i] = table_function(e)
      end
    else
      kw[key] = plain(v)
    end
  end
  if next(kw) == nil then
    kw = nil
  end
  if not s.schedulers then
    return cls(opt, kw)
  end
  local inner = {}
  for i, e in ipairs(s.schedulers) do
    inner[i] = schedule(e, opt)
  end
  if s.scheduler == "ChainedScheduler" then
    return cls(inner)
  end
  return cls(opt, inner, kw)
end

function M.sched(c)
  local groups = {}
  for i, g in ipairs(c.groups) do
    groups[i] = plain(g)
    groups[i].params = { torch.zeros({ 2 }):requires_grad_(true) }
  end
  local opt = (values.find(c.optimizer) or values.skip(c.optimizer))(groups,
    { lr = groups[1].lr, momentum = groups[1].momentum })
  local sched = schedule(c.scheduler, opt)
  for t, row in ipairs(c.lr) do
    if t > 1 then
      opt:step()
      sched:step(c.scheduler.metrics and c.scheduler.metrics[t - 1] or nil)
    end
    for i, want in ipairs(row) do
      for key, w in pairs({ lr = want, momentum = c.momentum and c.momentum[t][i] }) do
        local got = opt.param_groups[i][key]
        if math.abs(got - w) > (c.atol or 0) + (c.rtol or 1e-9) * math.abs(w) then
          error(("%s of group %d after step %d: %.12g, expected %.12g"):format(key, i - 1, t - 1,
            got, w), 0)
        end
      end
    end
  end
end

-- ---- trainings ------------------------------------------------------------
local function network(node, load)
  local nn = torch.nn
  if node.module then
    return construct(node.module, node.init_args, node.init_kwargs, load)
  elseif node.residual then
    local Residual = nn.Module:extend("Residual")
    function Residual:init(body, shortcut)
      self.body = body
      self.shortcut = shortcut
    end
    function Residual:forward(x)
      return self.body(x) + (self.has_shortcut and self.shortcut(x) or x)
    end
    local m = Residual(network(node.residual, load),
      node.shortcut and network(node.shortcut, load) or nil)
    rawset(m, "has_shortcut", node.shortcut ~= nil)
    return m
  elseif node.pick then
    local Pick = nn.Module:extend("Pick")
    function Pick.forward(_, x)
      if node.pick == "last" then
        return x:select(1, -1)
      elseif node.pick == "mean" then
        return x:mean(1)
      end
      return type(x) == "table" and x[1] or x
    end
    return Pick()
  end
  local list = {}
  for i, n in ipairs(node) do
    list[i] = network(n, load)
  end
  return nn.Sequential(table.unpack(list))
end

local function set(value)
  return value ~= null and value or nil
end

-- A step of a plain script: step(x, target) -> the loss.
local function eager_step(c, m, opt, loss_of)
  return function(x, target)
    local loss = loss_of(m(x), target)
    opt:zero_grad()
    loss:backward()
    if set(c.clip_grad_norm) then
      torch.nn.utils.clip_grad_norm_(m:parameters(), c.clip_grad_norm)
    end
    opt:step()
    return loss
  end
end

-- The same, compiled.
local function compiled_step(c, m, opt, loss_of)
  local step = lupine.compile(m, { optimizer = opt, loss = loss_of,
    clip_grad_norm = set(c.clip_grad_norm) })
  return function(x, target)
    return (select(2, step(x, target)))
  end
end

local function train(c, load, step_of)
  local m = network(c.model, load)
  load_state(m, c.state, load)
  m:train()
  local opt = (values.find(c.optimizer) or values.skip(c.optimizer))(m:parameters(),
    keywords(c.optimizer_kwargs))
  local sched = set(c.scheduler) and schedule(c.scheduler, opt)
  local loss_of = values.find(c.loss) or values.skip(c.loss)
  local step = step_of(c, m, opt, function(out, target)
    return loss_of(out, target, keywords(c.loss_kwargs))
  end)
  for t = 1, c.steps do
    local batch = c.batches[(t - 1) % #c.batches + 1]
    local loss = step(load(batch.input), load(batch.target)):item()
    if math.abs(loss - c.losses[t]) > c.atol + c.rtol * math.abs(c.losses[t]) then
      error(("loss of step %d: %.9g, expected %.9g"):format(t - 1, loss, c.losses[t]), 0)
    end
    if sched then
      sched:step()
    end
  end
  local state = m:state_dict()
  for name, key in pairs(c.final) do
    values.near(state[name], load(key), c.rtol, c.atol, "final " .. name)
  end
end

function M.trajectory(c, load)
  train(c, load, eager_step)
  train(c, load, compiled_step)
end

-- ---- errors, promotion ----------------------------------------------------
-- The class must be PyTorch's, or the one that spec/golden/classes.lua names.
function M.errors(c, load)
  if c.op and c.op:find("^Tensor%.__r") and type(c.args[1]) ~= "table" then
    error({ beside = "a reflected operator of what is no tensor" }, 0)
  end
  local ok, e = pcall(function()
    if c.op then
      return call_function(c, load, {})
    elseif c.module then
      local m = construct(c.module, c.init_args, c.init_kwargs, load)
      return m(values.arguments(c.forward_args or {}, c.forward_kwargs or {}, load, {}))
    end
    local cls = values.find(c.optimizer) or values.skip(c.optimizer)
    return cls({ torch.zeros({ 2, 3 }):requires_grad_(true) }, keywords(c.kwargs))
  end)
  if ok then
    error("no error was raised; PyTorch: " .. tostring(c.message), 0)
  elseif type(e) == "table" and rawget(e, "skipped") then
    error(e, 0)
  elseif not errors.Exception:is(e) or e.message:lower():find("internal", 1, true) then
    error("no error of the arguments: " .. tostring(e), 0)
  end
  local class, own = getmetatable(e).__name, classes[c.id]
  if own == c.error or class ~= (own or c.error) then
    error(("a %s, expected %s, PyTorch's is %s: %s"):format(class, own or "the same", c.error,
      e.message), 0)
  end
end

local SCALARS = { ["py:bool"] = true, ["py:int"] = 2, ["py:float"] = 1.5 }
local WITH_DIM = { cumsum = true, cumprod = true, softmax = true, logsumexp = true }
local OPERATORS = {
  add = function(a, b) return a + b end, sub = function(a, b) return a - b end,
  mul = function(a, b) return a * b end, div = function(a, b) return a / b end,
  pow = function(a, b) return a ^ b end, remainder = function(a, b) return a % b end,
  floor_divide = function(a, b) return a // b end,
}

local function operand(kind, unary)
  if SCALARS[kind] ~= nil then
    return SCALARS[kind], true
  end
  local name, zero = kind:match("^(%w+)(%[?)")
  return torch.ones(zero ~= "" and {} or unary and { 2, 2 } or { 2 }, { dtype = torch[name] })
end

local function promoted(c, row)
  local fn = values.find(c.op) or values.skip(c.op)
  if #row == 2 then
    local x = operand(row[1], true)
    if WITH_DIM[c.op] then
      return fn(x, 0)
    end
    return fn(x)
  end
  local a, plain_number = operand(row[1])
  local b = operand(row[2])
  if c.op == "where" then
    return fn(torch.tensor({ true, false }), a, b)
  elseif c.op == "cat" then
    return fn({ a, b })
  elseif plain_number and OPERATORS[c.op] and type(a) ~= "boolean" then
    return OPERATORS[c.op](a, b)
  end
  return fn(a, b)
end

function M.promotion(c)
  local wrong = {}
  for _, row in ipairs(c.rows) do
    local ok, got = pcall(promoted, c, row)
    if not ok and type(got) == "table" and got.skipped then
      error(got, 0)
    end
    local name = ok and tostring(torch.is_tensor(got) and got.dtype or got):gsub("torch%.", "")
      or "error"
    if name ~= row[#row] then
      wrong[#wrong + 1] = ("%s: %s"):format(table.concat(row, " "),
        ok and name or tostring(got))
    end
  end
  if wrong[1] then
    error(("%d of %d rows; %s"):format(#wrong, #c.rows, wrong[1]), 0)
  end
end

M.random = require("spec.golden.random")

return M

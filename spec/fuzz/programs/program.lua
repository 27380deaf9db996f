--- A random program: a module of random steps, in blocks of a random strategy,
--- with random options and an optimizer; and the data of its calls. The same seed
--- gives the same one, whenever it is made.
local further = require("spec.fuzz.programs.further")
local catalogue = require("spec.fuzz.programs.steps")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local F = require("torch.nn.functional")

local M = {}

for _, field in ipairs({ "steps", "alone", "loose", "inference" }) do
  for name, value in pairs(further[field]) do
    catalogue[field][name] = value
  end
end

-- ---- numbers of a seed ------------------------------------------------------------

local Random = {}
Random.__index = Random

local function random(seed)
  return setmetatable({ state = (seed * 2654435761 + 12345) & 0x7fffffff }, Random)
end

function Random:next()
  self.state = (self.state * 1103515245 + 12345) & 0x7fffffff
  return self.state >> 8
end

function Random:int(low, high)
  return low + self:next() % (high - low + 1)
end

function Random:chance(p)
  return self:next() % 1000 < p * 1000
end

function Random:pick(list)
  return list[self:int(1, #list)]
end

-- ---- modules ----------------------------------------------------------------------

local function names_of(plan)
  local list = {}
  for name in pairs(catalogue.steps) do
    if not (plan.replicas > 1 and catalogue.alone[name])
      and not (plan.training and catalogue.inference[name]) then
      list[#list + 1] = name
    end
  end
  table.sort(list)
  return list
end

local Row = nn.Module:extend("Row")

function Row:init(modules)
  self.steps = nn.ModuleList(modules)
end

function Row:forward(x, pass)
  for i = 1, #self.steps do
    if pass.enter then
      local _ <close> = pass.enter(self, i)
      x = self.steps[i](x, pass)
    else
      x = self.steps[i](x, pass)
    end
  end
  return x
end

-- A row of n steps; what it is made of goes into plan.names.
local function row(r, width, n, plan, depth)
  local modules = {}
  for i = 1, n do
    local name = r:pick(plan.choice)
    if (name == "residual" or name == "reused") and depth > 1 then
      name = "linear"
    end
    plan.names[#plan.names + 1] = name
    plan.loose = plan.loose or catalogue.loose[name]
    modules[i], width = catalogue.steps[name](r, width, function(inner, w)
      return row(inner, w, inner:int(1, 2), plan, depth + 1)
    end)
  end
  return Row(modules), width
end

local Net = nn.Module:extend("Net")

function Net:init(plan)
  local r = random(plan.seed)
  plan.names, plan.loose = {}, false
  self.plan = plan
  self.body, self.width = row(r, plan.width, plan.n, plan, 0)
  self.head = nn.Linear(self.width, 3)
end

local function loss_of(kind, y, target)
  if kind == "cross_entropy" then
    return F.cross_entropy(y, target)
  elseif kind == "mse" then
    return F.mse_loss(y, F.one_hot(target, 3):to(y.dtype))
  elseif kind == "nll" then
    return F.nll_loss(F.log_softmax(y, 1), target, { reduction = "sum" })
  end
  return poptorch.identity_loss((y * y):mean() + y[":, 0"]:mean(), kind)
end

-- Enters the block of step i of the outermost row.
local function block(plan, body)
  return plan.blocks and function(of, i)
    if of ~= body then
      return setmetatable({}, { __close = function() end })
    end
    return poptorch.Block("B" .. plan.blocks[i], { ipu_id = plan.ipus and plan.blocks[i] })
  end
end

function Net:forward(...)
  local plan = self.plan
  local x, ids, target = ...
  if plan.arguments == "list" then
    x, ids, target = table.unpack((...))
  elseif plan.arguments == "dictionary" then
    local t = ...
    x, ids, target = t.x, t.ids, t.target
  end
  local pass = { x = x, ids = ids, extra = {}, enter = block(plan, self.body) }
  local h = self.body(x, pass)
  local y, loss
  local function rest()
    y = self.head(h)
    loss = loss_of(plan.loss, y, target)
  end
  if plan.blocks then
    local last = plan.blocks[#plan.blocks]
    poptorch.Block("B" .. last, last, rest)
  else
    rest()
  end
  if plan.results == "list" then
    return { y, { loss, table.unpack(pass.extra) } }
  elseif plan.results == "dictionary" then
    return { y = y, loss = loss, rest = pass.extra }
  end
  return y, loss, table.unpack(pass.extra)
end

--- The module of a plan, always with the same weights.
function M.net(plan)
  torch.manual_seed(plan.seed)
  return Net(plan)
end

-- ---- plans ------------------------------------------------------------------------

-- Blocks of each step, ascending; the strategy that runs them.
local function place(r, plan)
  plan.strategy = r:pick({ "none", "none", "pipelined", "sharded", "serial", "parallel" })
  if plan.strategy == "none" then
    return
  end
  plan.ipus = true
  plan.blocks = {}
  local at, parts = 0, r:int(1, 3)
  for i = 1, plan.n do
    plan.blocks[i] = at
    if at < parts - 1 and r:chance(0.6) then
      at = at + 1
    end
  end
  plan.stages = at + 1
end

--- What the program of a seed is.
---@param seed integer
---@return table
function M.plan(seed)
  local r = random(seed + 7919)
  local plan = { seed = seed, width = r:int(2, 9), n = r:int(1, 7), calls = r:int(1, 3),
    rows = r:int(1, 4), iterations = r:int(1, 3), accumulation = r:pick({ 1, 1, 2, 4 }),
    replicas = r:pick({ 1, 1, 1, 2 }), mode = r:pick({ "All", "Final", "Sum", "EveryN" }),
    arguments = r:pick({ "plain", "plain", "list", "dictionary" }),
    results = r:pick({ "plain", "list", "dictionary" }),
    loss = r:pick({ "cross_entropy", "mse", "nll", "mean", "sum", "none" }),
    optimizer = r:pick({ "SGD", "momentum", "Adam", "AdamW", "RMSprop" }),
    reduction = r:pick({ "Mean", "Mean", "Sum" }), stored = r:pick({ "no", "no", "file", "cache" }),
    checkpoints = r:chance(0.3), groups = r:chance(0.2),
    between = r:pick({ "nothing", "nothing", "device", "state", "optimizer", "weights" }),
    locations = r:pick({ "chip", "chip", "dram", "sharded" }), scaling = r:pick({ 1.0, 1.0, 64.0 }),
    inference = r:chance(0.3), rate = r:chance(0.3) }
  plan.training = r:chance(0.7)
  plan.form = r:pick({ "plain", "plain", "transposed", "parts", "expanded", "narrow", "aliases" })
  place(r, plan)
  if not plan.training then
    plan.accumulation, plan.stored = 1, "no"
    plan.iterations = math.max(plan.iterations, plan.stages or 1)
  elseif plan.strategy == "pipelined" then
    plan.accumulation = math.max(plan.accumulation, 2 * plan.stages - 1)
  end
  plan.choice = names_of(plan)
  if plan.rows == 1 then -- no variance in batch normalisation
    plan.rows = 2
  end
  return plan
end

local function strategy(plan)
  local ids = {}
  for _, at in ipairs(plan.blocks or {}) do
    if ids[#ids] ~= "B" .. at then
      ids[#ids + 1] = "B" .. at
    end
  end
  if plan.strategy == "pipelined" then
    return poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu)
  elseif plan.strategy == "sharded" then
    return poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu)
  elseif plan.strategy == "serial" then
    return poptorch.SerialPhasedExecution(table.unpack(ids))
  elseif plan.strategy == "parallel" then
    return poptorch.ParallelPhasedExecution(table.unpack(ids))
  end
end

--- The options of a plan.
function M.options(plan, training)
  local o = poptorch.Options():deviceIterations(plan.iterations)
    :replicationFactor(plan.replicas):autoRoundNumIPUs(true)
  if plan.mode == "EveryN" then
    o:outputMode(poptorch.OutputMode.EveryN, plan.iterations)
  else
    o:outputMode(poptorch.OutputMode[plan.mode])
  end
  local s = (training or plan.strategy == "pipelined" or plan.strategy == "sharded")
    and strategy(plan)
  if s then
    o:setExecutionStrategy(s)
  end
  if training then
    o.Training:gradientAccumulation(plan.accumulation)
    o.Training:accumulationAndReplicationReductionType(
      poptorch.ReductionType[plan.reduction])
    if plan.checkpoints then
      o._Popart:set("autoRecomputation", 1)
    end
    if plan.locations ~= "chip" then
      o.TensorLocations:setOptimizerLocation(poptorch.TensorLocationSettings()
        :useOnChipStorage(plan.locations ~= "dram")
        :useReplicatedTensorSharding(plan.locations == "sharded" and plan.replicas > 1))
    end
  end
  return o
end

--- The optimizer of a plan: poptorch's or torch's. eps is large, so that a gradient
--- near 0 does not decide by its rounding.
function M.optimizer(plan, of, parameters, lr)
  local optim, kind = of.optim, plan.optimizer
  local keywords = { lr = (lr or 0.05) / (plan.loss == "nll" and plan.rows or 1)
    / (plan.reduction == "Sum" and plan.accumulation * plan.replicas or 1) }
  if kind == "momentum" then
    keywords.momentum = 0.9
  elseif kind == "SGD" then
    keywords.weight_decay = 0.01
  else
    keywords.lr, keywords.eps, keywords.weight_decay = keywords.lr * 0.2, 1e-2, 0.01
  end
  if of == poptorch and not plan.loose then -- scaled gradients may leave float16
    keywords.loss_scaling = plan.scaling
  end
  local class = optim[kind == "momentum" and "SGD" or kind]
  if plan.groups then
    local n = #parameters // 2 + 1
    parameters = { { params = { table.unpack(parameters, 1, n) } },
      { params = { table.unpack(parameters, n + 1) }, lr = keywords.lr * 0.5 } }
    if #parameters[2].params == 0 then
      parameters[2] = nil
    end
  end
  return class(parameters, keywords)
end

--- The data of call i, n rows: x, ids, target; in memory of its own and in order, or
--- in forms that a script gives as well.
function M.data(plan, i, n)
  torch.manual_seed(plan.seed * 31 + i)
  local x, ids = torch.randn(n, plan.width), torch.randint(0, 7, { n, 3 })
  local target = torch.randint(0, 3, { n })
  if plan.form == "transposed" then
    return x:t():contiguous():t(), ids:flip(1), target
  elseif plan.form == "parts" then -- of larger tensors
    return torch.cat({ x, x }, 1)[{ torch.slice(), torch.slice(1, plan.width + 1) }], ids, target
  elseif plan.form == "expanded" then
    return x, ids[":, :1"]:expand(-1, 3), target[":1"]:expand(n)
  elseif plan.form == "narrow" then
    return x:double(), ids:to(torch.int32), target
  elseif plan.form == "aliases" then -- two inputs in one memory
    return x, ids % 3, (ids % 3)[":, 1"]
  end
  return x, ids, target
end

--- The arguments of forward for these.
function M.arguments(plan, x, ids, target)
  if plan.arguments == "list" then
    return { x, ids, target }
  elseif plan.arguments == "dictionary" then
    return { x = x, ids = ids, target = target }
  end
  return x, ids, target
end

--- The plan as a line.
function M.describe(plan)
  return ("seed %d%s: %s | rows %d x %d accumulated x %d iterations x %d replicas, %s, %s, %s, "
    .. "%s, %s, stored %s%s%s, %s, %s, %s, results %s, between %s, scaling %g%s")
    :format(plan.seed, plan.training and "" or " (inference)",
    table.concat(plan.names or {}, " "), plan.rows, plan.accumulation, plan.iterations,
    plan.replicas, plan.mode, plan.strategy, plan.optimizer, plan.loss, plan.reduction,
    plan.stored, plan.checkpoints and ", recomputation" or "",
    plan.rate and ", new rate" or "", plan.locations, plan.arguments, plan.form, plan.results,
    plan.between, plan.scaling, plan.groups and ", groups" or "")
end

return M

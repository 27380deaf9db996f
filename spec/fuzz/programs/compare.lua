--- What a random program computes on the host and on the device, or as a compiled step
--- (lupine.compile), compared.
local compile = require("lupine.compile")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local program = require("spec.fuzz.programs.program")
local torch = require("torch")

local M = {}

local function flat(x, into)
  if torch.is_tensor(x) then
    into[#into + 1] = x:detach():clone()
  elseif type(x) == "table" and x.y then
    flat({ x.y, x.loss, x.rest }, into)
  elseif type(x) == "table" then
    for i = 1, #x do
      flat(x[i], into)
    end
  end
  return into
end

-- ---- on the host ------------------------------------------------------------------

-- The arguments of one micro-batch.
local function arguments_at(plan, data, at)
  local part = {}
  for i = 1, 3 do
    part[i] = data[i]:narrow(0, at, plan.rows):clone()
    if part[i].dtype == torch.float64 then -- which the device has as float32
      part[i] = part[i]:float()
    end
  end
  return program.arguments(plan, table.unpack(part))
end

-- Forward of one micro-batch: its results, and the loss with its history.
local function run_forward(plan, net, ...)
  local out = { net(...) }
  local loss = plan.results == "list" and out[1][2][1]
    or plan.results == "dictionary" and out[1].loss or out[2]
  return flat(out, {}), loss
end

local function forward(plan, net, data, at)
  return run_forward(plan, net, arguments_at(plan, data, at))
end

-- What a call returns of result i, of results[iteration][micro-batch][replica].
local function gathered(plan, results, i)
  local rows = {}
  for d, parts in ipairs(results) do
    for _, replicas in ipairs(parts) do
      for r, outs in ipairs(replicas) do
        local row = outs[i]:dim() == 0 and outs[i]:reshape(1) or outs[i]
        local last = d == plan.iterations
        if plan.mode == "Sum" then
          rows[r] = rows[r] and rows[r] + row or row
        elseif plan.mode == "Final" then
          rows[r] = row
        elseif plan.mode == "All" or last then
          rows[#rows + 1] = row
        end
      end
    end
  end
  return torch.cat(rows, 0)
end

-- The device's gradient of a weight that no branch reads is 0, not none.
local function fill(net)
  for _, p in ipairs(net:parameters()) do
    if p.requires_grad and not p.grad then
      p.grad = torch.zeros_like(p)
    end
  end
end

-- One call of the training model, by hand.
local function call(plan, net, optimizer, data)
  local results, at = {}, 0
  local divisor = plan.reduction == "Mean" and plan.accumulation * plan.replicas or 1
  for d = 1, plan.iterations do
    optimizer:zero_grad()
    results[d] = {}
    for g = 1, plan.accumulation do
      results[d][g] = {}
      for replica = 1, plan.replicas do
        local outs, loss = forward(plan, net, data, at)
        at = at + plan.rows
        ;(loss:sum() / divisor):backward()
        results[d][g][replica] = outs
      end
    end
    fill(net)
    optimizer:step()
  end
  local lists = {}
  for i = 1, #results[1][1][1] do
    lists[i] = gathered(plan, results, i)
  end
  return lists
end

-- ---- compared ---------------------------------------------------------------------

local function apart(plan, got, want, what)
  if got:numel() ~= want:numel() then
    return ("%s: %s, want %s"):format(what, tostring(got.shape), tostring(want.shape))
  end
  local a, b = got:detach():double():reshape(-1), want:detach():double():reshape(-1)
  local rtol = plan.loose and 3e-2 or 2e-3
  local near = torch.isclose(a, b, { rtol = rtol, atol = rtol * 0.1, equal_nan = true })
  if near:all():item() then
    return nil
  end
  return ("%s: %d of %d differ, at most by %g"):format(what, (~near):sum():item(), a:numel(),
    (a - b):abs():max():item())
end

local function compare_lists(plan, got, want, what, report)
  if #got ~= #want then
    report(("%s: %d results, want %d"):format(what, #got, #want))
    return
  end
  for i = 1, #got do
    report(apart(plan, got[i], want[i], ("%s, result %d"):format(what, i)))
  end
end

local function compare_nets(plan, ours, theirs, what, report)
  local state = theirs:state_dict()
  for name, value in pairs(ours:state_dict()) do
    report(apart(plan, value, state[name], ("%s, %s"):format(what, name)))
  end
end

local function rows_of(plan)
  return plan.rows * plan.accumulation * plan.replicas * plan.iterations
end

-- The training model of a plan, by the way that it asks for.
local function trainer_of(plan, net, folder, state, rate)
  local options = program.options(plan, true)
  if plan.stored == "cache" then
    options:enableExecutableCaching(folder)
  end
  local optimizer = program.optimizer(plan, poptorch, net:parameters(), rate)
  if state then
    optimizer:load_state_dict(state)
  end
  local trainer = poptorch.trainingModel(net, { options = options, optimizer = optimizer })
  if plan.stored == "file" then
    local file = folder .. "/program"
    local arguments = { program.arguments(plan, program.data(plan, 1, rows_of(plan))) }
    arguments[#arguments + 1] = { export_model = false }
    trainer:compileAndExport(file, table.unpack(arguments))
    trainer:destroy()
    trainer = poptorch.trainingModel(net, { options = options, optimizer = optimizer })
    trainer:loadExecutable(file)
  end
  return trainer, optimizer
end

-- What a script does between two calls; the training model afterwards.
local function between(plan, ours, theirs, trainer, optimizer, folder)
  if plan.between == "device" then
    trainer:detachFromDevice()
    trainer:attachToDevice()
  elseif plan.between == "weights" then
    trainer:copyWeightsToHost()
    for _, net in ipairs({ ours, theirs }) do
      local _ <close> = torch.no_grad()
      net.head.weight:mul_(0.5)
    end
    trainer:copyWeightsToDevice()
  elseif plan.between == "state" then
    trainer:copyWeightsToHost()
    ours:load_state_dict(theirs:state_dict())
    trainer:copyWeightsToDevice()
  elseif plan.between == "optimizer" then
    trainer:copyWeightsToHost()
    local state = optimizer:state_dict()
    trainer:destroy()
    return trainer_of(plan, ours, folder, state, plan.rate and 0.02 or nil)
  end
  return trainer, optimizer
end

-- Inference between two calls sees the weights as they are.
local function infers(plan, ours, theirs, i, report)
  local options = poptorch.Options():deviceIterations(1)
  local function arguments()
    return program.arguments(plan, program.data(plan, 1000 + i, plan.rows))
  end
  local blocks = plan.blocks
  ours:eval()
  theirs:eval()
  plan.blocks = nil
  local model = poptorch.inferenceModel(ours, options)
  local got = flat({ model(arguments()) }, {})
  model:destroy()
  local data = { program.data(plan, 1000 + i, plan.rows) }
  local want = (forward(plan, theirs:deepcopy(), data, 0))
  plan.blocks = blocks
  ours:train()
  theirs:train()
  compare_lists(plan, got, want, ("inference %d"):format(i), report)
end

-- Calls of an inference model, the model in evaluation or training mode.
local function only_infers(plan, report)
  local ours, theirs = program.net(plan):train(plan.rate), program.net(plan):train(plan.rate)
  local model = poptorch.inferenceModel(ours, program.options(plan, false))
  local _ <close> = torch.no_grad()
  for i = 1, plan.calls do
    local data, results, at = { program.data(plan, i, rows_of(plan)) }, {}, 0
    for d = 1, plan.iterations do
      results[d] = { {} }
      for replica = 1, plan.replicas do
        results[d][1][replica] = (forward(plan, theirs, data, at))
        at = at + plan.rows
      end
    end
    local want = {}
    for k = 1, #results[1][1][1] do
      want[k] = gathered(plan, results, k)
    end
    local got = flat({ model(program.arguments(plan, table.unpack(data))) }, {})
    compare_lists(plan, got, want, ("call %d"):format(i), report)
  end
  model:destroy()
end

--- Runs the program of a seed on the host and on the device.
---@param seed integer
---@param folder string for files
---@return string[] differences
---@return table plan
function M.run(seed, folder)
  local plan, found = program.plan(seed), {}
  local function report(text)
    if text then
      found[#found + 1] = text
    end
  end
  if not plan.training then
    only_infers(plan, report)
    return found, plan
  end
  local ours, theirs = program.net(plan), program.net(plan)
  local optimizer = program.optimizer(plan, torch, theirs:parameters())
  local trainer, held = trainer_of(plan, ours, folder)
  for i = 1, plan.calls do
    local data = { program.data(plan, i, rows_of(plan)) }
    local want = call(plan, theirs, optimizer, data)
    local got = flat({ trainer(program.arguments(plan, table.unpack(data))) }, {})
    compare_lists(plan, got, want, ("call %d"):format(i), report)
    if plan.inference and i == 1 and #found == 0 then
      trainer:copyWeightsToHost()
      infers(plan, ours, theirs, i, report)
    end
    if plan.rate and i == 1 then
      held = program.optimizer(plan, poptorch, ours:parameters(), 0.02)
      trainer:setOptimizer(held)
      for _, group in ipairs(optimizer.param_groups) do
        group.lr = group.lr * 0.4
      end
    end
    if i < plan.calls then
      trainer, held = between(plan, ours, theirs, trainer, held, folder)
    end
  end
  trainer:copyWeightsToHost()
  compare_nets(plan, ours, theirs, "at the end", report)
  trainer:destroy()
  return found, plan
end

-- ---- compiled steps -----------------------------------------------------------------

local WithLoss = nn.Module:extend("WithLoss")

function WithLoss:init(plan, net)
  self.plan, self.net = plan, net
end

function WithLoss:forward(...)
  local outs, loss = run_forward(self.plan, self.net, ...)
  return { outs = outs, loss = loss:sum() }
end

-- One call of the training model, a step a micro-batch.
local function call_steps(plan, step, data)
  local results, at = {}, 0
  for d = 1, plan.iterations do
    results[d] = {}
    for g = 1, plan.accumulation do
      results[d][g] = {}
      for replica = 1, plan.replicas do
        results[d][g][replica] = step(arguments_at(plan, data, at)).outs
        at = at + plan.rows
      end
    end
  end
  local lists = {}
  for i = 1, #results[1][1][1] do
    lists[i] = gathered(plan, results, i)
  end
  return lists
end

--- The same of a compiled step, which takes means of losses.
---@param seed integer
---@return string[] differences
---@return table plan
function M.run_step(seed)
  local plan, found = program.plan(seed), {}
  if not plan.training then
    return found, plan
  end
  plan.reduction, plan.mode = "Mean", "All"
  local ours, theirs = program.net(plan), program.net(plan)
  local wrapped = WithLoss(plan, ours)
  local optimizer = program.optimizer(plan, torch, theirs:parameters())
  local held = program.optimizer(plan, torch, ours:parameters())
  local step = compile(wrapped, { optimizer = held,
    accumulation = plan.accumulation * plan.replicas })
  local function report(text)
    found[#found + 1] = text
  end
  for i = 1, plan.calls do
    plan.rows = plan.rows + i - 1 -- another size each time
    local data = { program.data(plan, i, rows_of(plan)) }
    local want = call(plan, theirs, optimizer, data)
    compare_lists(plan, call_steps(plan, step, data), want, ("call %d"):format(i), report)
    if plan.rate then
      for _, of in ipairs({ optimizer, held }) do
        of.param_groups[1].lr = of.param_groups[1].lr * 0.4
      end
    end
  end
  compare_nets(plan, ours, theirs, "at the end", report)
  return found, plan
end

return M

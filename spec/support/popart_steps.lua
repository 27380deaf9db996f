--- Training steps whose gradients a spec chooses: popart's optimizers over a session,
--- without a model file.
local compiled = require("spec.support.compiled")
local optimizers = require("popart.optimizers")
local session = require("lupine.session")
local torch = require("torch")

local M = {}

local Steps = {}
Steps.__index = Steps

-- A loss whose gradient with respect to each weight is the input of its number.
local function chosen(weights, ...)
  local sum
  for i, w in ipairs(weights) do
    local part = (w * select(i, ...)):float():sum()
    sum = sum and sum + part or part
  end
  return torch.nn.functional.l1_loss(sum + 1e9, torch.tensor(0.0))
end

local function trace(list, how)
  local declared, inputs, weights = {}, how.inputs or {}, {}
  for i, w in ipairs(list) do
    declared[i] = { "parameter", w.name, w.tensor }
    weights[i] = w.tensor
    if not how.forward then
      inputs[i] = torch.empty(w.tensor.shape, { dtype = w.tensor.dtype })
    end
  end
  return compiled.step(function(...)
    return (how.forward or chosen)(weights, ...)
  end, inputs, declared)
end

--- A session over `weights`, a list of {name, tensor}. how: accumulation, replicas, mean
--- (false unless given), running, iterations, given (initialisers by name), forward (of
--- the weights and inputs, to a loss) and inputs (of a micro-batch) of another model.
---@param weights table[]
---@param optimizer popart.Optimizer
---@param how? table
function M.open(weights, optimizer, how)
  how = how or {}
  local list, tensors = {}, {}
  for i, w in ipairs(weights) do
    list[i] = { name = w[1], tensor = w[2]:clone():requires_grad_(true) }
    tensors[w[1]] = list[i].tensor
  end
  local step, losses = trace(list, how)
  local view = optimizers.view(optimizer, list, how.given)
  local s = session.open(step, { tensors = { parameter = tensors }, optimizer = view,
    compile = { loss = losses[1], gradient_accumulation = how.accumulation, names = true,
      replicas = how.replicas, mean = how.mean or false, running = how.running,
      device_iterations = how.iterations } })
  return setmetatable({ weights = list, view = view, session = s }, Steps)
end

--- Runs on inputs of all micro-batches.
function Steps:run(...)
  self.session:run({ ... })
  return self
end

--- One update: for each weight the gradients of all its micro-batches, a tensor or a
--- list of numbers, one micro-batch behind the other.
function Steps:update(...)
  local feed = {}
  for i, w in ipairs(self.weights) do
    local grad = select(i, ...)
    feed[i] = (torch.is_tensor(grad) and grad or torch.tensor(grad)):to(w.tensor.dtype)
  end
  self.session:run(feed)
  return self
end

--- A weight's present values.
function Steps:weight(i)
  return self.weights[i or 1].tensor:detach():clone()
end

--- A state's present values, by name.
function Steps:state(name)
  self.session:states_to_host()
  return self.view.states[name]:clone()
end

--- All states, by name.
function Steps:saved()
  return self.view:saved(self.session)
end

function Steps:replace(optimizer)
  self.view:replace(optimizer, self.session)
  return self
end

return M

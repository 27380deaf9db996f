-- Every optimizer and every schedule goes on from a checkpoint with the same bits. Values:
-- the run that was not interrupted.
local checkpoint = require("lupine.checkpoint")
local program = require("spec.support.program")
local torch = require("torch")
local nn, optim = torch.nn, torch.optim
local schedules = optim.lr_scheduler

local folder

setup(function()
  folder = program.shell("mktemp -d"):gsub("\n", "")
end)
teardown(function()
  program.shell("rm -rf " .. folder)
end)

-- What n steps leave, of new objects or going on after `stop` of them in others.
local function run(make, step, n, stop)
  torch.manual_seed(1)
  local objects, out = make(), {}
  for i = 1, n do
    if i - 1 == stop then
      checkpoint.save(folder .. "/c", objects)
      torch.manual_seed(2)
      objects = make()
      checkpoint.restore(folder .. "/c", objects)
    end
    out[i] = step(objects, i)
  end
  return out
end

local function goes_on(make, step)
  local want = run(make, step, 12)
  for _, stop in ipairs({ 1, 2, 5, 8 }) do
    assert.same(want, run(make, step, 12, stop))
  end
end

local OPTIMIZERS = { Adadelta = {}, Adagrad = { lr_decay = 0.1 }, Adam = { weight_decay = 0.1 },
  AdamW = { amsgrad = true }, Adamax = {}, ASGD = { t0 = 3 }, LBFGS = { max_iter = 3 }, NAdam = {},
  RAdam = {}, RMSprop = { centered = true, momentum = 0.5 }, Rprop = {},
  SGD = { momentum = 0.9, nesterov = true }, Adafactor = {} }

describe("going on with the optimizer", function()
  for name, options in pairs(OPTIMIZERS) do
    it(name, function()
      options.lr = 0.1
      local x = torch.tensor({ { 1.0, 2 }, { 3, -1 }, { 0.5, 0.1 } })
      goes_on(function()
        local model = nn.Linear(2, 3)
        return { model = model, optimizer = optim[name](model:parameters(), options) }
      end, function(o, i)
        local function loss()
          o.optimizer:zero_grad()
          local value = (o.model(x * i) - 1):pow(2):mean()
          value:backward()
          return value
        end
        loss()
        o.optimizer:step(name == "LBFGS" and loss or nil)
        return o.model.weight:tolist()
      end)
    end)
  end
end)

local function factor(epoch)
  return 0.9 ^ epoch
end

local SCHEDULES = {
  StepLR = { 3, 0.5 }, MultiStepLR = { { 2, 4, 9 }, 0.5 }, ConstantLR = { 0.5, 4 },
  LinearLR = { 0.5, 1, 6 }, ExponentialLR = { 0.9 }, PolynomialLR = { 8, 2 },
  CosineAnnealingLR = { 5 }, CosineAnnealingWarmRestarts = { 3, 2 },
  CyclicLR = { 0.01, 0.1, { step_size_up = 3 } },
  OneCycleLR = { 0.2, { total_steps = 13 } }, LambdaLR = { factor }, MultiplicativeLR = { factor },
  ReduceLROnPlateau = { { patience = 1, cooldown = 1 } },
  SequentialLR = function(o)
    return schedules.SequentialLR(o, { schedules.ConstantLR(o, 0.1, 2),
      schedules.ExponentialLR(o, 0.9) }, { 4 })
  end,
  ChainedScheduler = function(o)
    return schedules.ChainedScheduler({ schedules.ConstantLR(o, 0.1, 2),
      schedules.ExponentialLR(o, 0.9) })
  end,
}

describe("going on with the schedule", function()
  for name, given in pairs(SCHEDULES) do
    it(name, function()
      goes_on(function()
        local model = nn.Linear(1, 1)
        local optimizer = optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
        local schedule = type(given) == "function" and given(optimizer)
          or schedules[name](optimizer, table.unpack(given))
        return { model = model, optimizer = optimizer, schedule = schedule }
      end, function(o, i)
        o.optimizer:step()
        if name == "ReduceLROnPlateau" then
          o.schedule:step(math.abs(i - 4))
        else
          o.schedule:step()
        end
        local group = o.optimizer.param_groups[1]
        return { group.lr, group.momentum }
      end)
    end)
  end
end)

--- SGD, Adam, AdamW, RMSprop, Adagrad, NAdam: the optimizers whose update is an operator.
local Optimizer = require("torch.optim.optimizer")
local define = require("torch.optim.define")
local differentiable = require("torch.optim.differentiable")
local errors = require("lupine.base.errors")
local one_by_one = require("torch.optim.one_by_one")

local M = {}

-- foreach, fused and capturable choose between implementations of the same
-- update; there is one here, but for half parameters (`halves`), where fused tells
-- whether each operation rounds.

local function flags(group, names)
  local attrs = {}
  for _, name in ipairs(names) do
    attrs[name] = group[name] and true or nil
  end
  return attrs
end

M.SGD = define("SGD(params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, "
  .. "maximize=False, foreach=None, differentiable=False, fused=None)", {
    check = function(group)
      errors.check(not group.nesterov or group.momentum > 0 and group.dampening == 0, "ValueError",
        "SGD: Nesterov momentum requires a momentum and zero dampening")
    end,
    differentiable = differentiable.SGD,
    halves = one_by_one.SGD,
    rule = function(group)
      local buffer = Optimizer.number(group.momentum) ~= 0 and "state:momentum_buffer"
      return {
        op = "sgd_step",
        inputs = { "param", "grad", buffer, "hyper:lr", "hyper:momentum", "hyper:dampening",
          "hyper:weight_decay", buffer and "state:step" },
        outputs = { "param", buffer },
        counts = buffer and "step" or nil,
        attrs = flags(group, { "nesterov", "maximize" }),
      }
    end,
  })

-- On the device the velocity starts at 0, so that dampening acts on the first
-- step too, and without momentum, as PopTorch's does. The count stays for steps
-- on the host that follow.
function M.SGD:device_rule(group, param)
  local rule = self:update_rule(group, param)
  rule.op, rule.inputs[8] = "popart_sgd_step", nil
  return rule
end

-- The count only tells the first step, whose buffer is the bare gradient; it
-- is no part of state_dict.
M.SGD.private_state = { step = true }
function M.SGD:loaded(param, state)
  if state.momentum_buffer then
    self:state_tensor(param, "step"):fill_(1)
  end
end

local function adam(group)
  local highest = group.amsgrad and "state:max_exp_avg_sq"
  local attrs = flags(group, { "maximize" })
  attrs.decoupled = group.decoupled_weight_decay and true or nil
  return {
    op = "adam_step",
    inputs = { "param", "grad", "state:exp_avg", "state:exp_avg_sq", highest, "hyper:lr",
      "hyper:beta1", "hyper:beta2", "hyper:eps", "hyper:weight_decay", "state:step" },
    outputs = { "param", "state:exp_avg", "state:exp_avg_sq", highest },
    counts = "step",
    attrs = attrs,
  }
end

local ADAM = "(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=%s, amsgrad=False, %s)"

M.Adam = define("Adam" .. ADAM:format("0", "foreach=None, maximize=False, capturable=False, "
  .. "differentiable=False, fused=None, decoupled_weight_decay=False"), {
    rule = adam,
    differentiable = differentiable.Adam,
    halves = one_by_one.Adam,
    strict = true,
  })

M.AdamW = define("AdamW" .. ADAM:format("1e-2", "maximize=False, foreach=None, "
  .. "capturable=False, differentiable=False, fused=None"), {
    rule = adam,
    differentiable = differentiable.Adam,
    halves = one_by_one.Adam,
    strict = true,
    complete = function(a)
      a.decoupled_weight_decay = true -- a group may say otherwise
    end,
  })

M.RMSprop = define("RMSprop(params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, "
  .. "centered=False, capturable=False, foreach=None, maximize=False, differentiable=False)", {
    differentiable = differentiable.RMSprop,
    halves = one_by_one.RMSprop,
    rule = function(group)
      local mean = group.centered and "state:grad_avg"
      local buffer = Optimizer.number(group.momentum) > 0 and "state:momentum_buffer"
      return {
        op = "rmsprop_step",
        inputs = { "param", "grad", "state:square_avg", mean, buffer, "hyper:lr", "hyper:alpha",
          "hyper:eps", "hyper:weight_decay", "hyper:momentum" },
        outputs = { "param", "state:square_avg", mean, buffer },
        counts = "step", -- PyTorch counts here too; no formula reads it
        attrs = flags(group, { "maximize" }),
      }
    end,
  })

-- ---- Adagrad ------------------------------------------------------------------------

M.Adagrad = define("Adagrad(params, lr=1e-2, lr_decay=0, weight_decay=0, "
  .. "initial_accumulator_value=0, eps=1e-10, foreach=None, maximize=False, "
  .. "differentiable=False, fused=None)", {
    differentiable = differentiable.of(one_by_one.Adagrad, "Adagrad"),
    halves = one_by_one.Adagrad,
    rule = function(group)
      return {
        op = "adagrad_step",
        inputs = { "param", "grad", "state:sum", false, "hyper:lr", "hyper:eps",
          "hyper:weight_decay", false, false, "hyper:lr_decay", "state:step" },
        outputs = { "param", "state:sum", false },
        counts = "step",
        attrs = flags(group, { "maximize" }),
      }
    end,
  })

function M.Adagrad:start_state(_, name, room)
  -- a group's own value is not asked, as in PyTorch
  room:fill_(name == "sum" and self.defaults.initial_accumulator_value or 0)
end

-- ---- NAdam --------------------------------------------------------------------------

M.NAdam = define("NAdam(params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, "
  .. "momentum_decay=4e-3, decoupled_weight_decay=False, foreach=None, maximize=False, "
  .. "differentiable=False, capturable=False)", {
    differentiable = differentiable.of(one_by_one.NAdam, "NAdam"),
    halves = one_by_one.NAdam,
    rule = function(group)
      local attrs = flags(group, { "maximize" })
      attrs.decoupled = group.decoupled_weight_decay and true or nil
      return {
        op = "nadam_step",
        inputs = { "param", "grad", "state:exp_avg", "state:exp_avg_sq", "hyper:lr",
          "hyper:beta1", "hyper:beta2", "hyper:eps", "hyper:weight_decay",
          "hyper:momentum_decay", "state:step", "state:mu_product" },
        outputs = { "param", "state:exp_avg", "state:exp_avg_sq" },
        counts = "step",
        first = { op = "nadam_product", inputs = { "state:mu_product", "state:step",
          "hyper:beta1", "hyper:momentum_decay" }, output = "state:mu_product" },
        attrs = attrs,
      }
    end,
  })

function M.NAdam.empty_state(self, param, name)
  return Optimizer.empty_state(self, param, name == "mu_product" and "step" or name)
end

function M.NAdam:start_state(_, name, room)
  room:fill_(name == "mu_product" and 1 or 0)
end

return M

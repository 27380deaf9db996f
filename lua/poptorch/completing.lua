--- From a traced step to a complete one: the optimizer's update rules, the
--- loss, the loops.
local enums = require("poptorch.enums")
local errors = require("torch.errors")

local M = {}

--- Variables with their number as `index`, and by "role name".
---@param step lupine.Step
function M.index(step)
  local vars, by_name = step:vars(), {}
  for i, v in ipairs(vars) do
    v.index = i
    by_name[v.role .. " " .. v.name] = v
  end
  return vars, by_name
end

-- Variables and update rules of the optimizer's parameters.
local function optimizer_rules(s, step, by_name)
  local name_of = {}
  for name, p in s.model:named_parameters({ remove_duplicate = false }) do
    name_of[p] = name_of[p] or name
  end
  local updates, hypers, states = {}, {}, {}
  for g, group in ipairs(s.optimizer.param_groups) do
    local hyper_of = {}
    for _, p in ipairs(group.params) do
      local var = name_of[p] and by_name["parameter " .. name_of[p]]
      if var and p.requires_grad then
        local rule = s.optimizer:update_rule(group, p)
        local function ref(what)
          if not what then
            return false
          end
          local kind, name = what:match("^(%a+):(.+)$")
          if what == "param" then
            return var.index
          elseif what == "grad" then
            return "grad"
          elseif kind == "state" then
            local key = name .. "___" .. var.name
            if not states[key] then
              local t = s.optimizer:state_tensor(p, name)
              states[key] = { index = step:add_var("state", key, t, var.index), param = p,
                name = name, tensor = t }
            end
            return states[key].index
          elseif kind == "hyper" then
            if not hyper_of[name] then
              local t = s.optimizer:hyper_tensor(group, name)
              hyper_of[name] = { index = step:add_var("hyper", ("%s___group%d"):format(name, g),
                t), group = g, name = name }
              hypers[#hypers + 1] = hyper_of[name]
            end
            return hyper_of[name].index
          end
          return false
        end
        local inputs, outputs = {}, {}
        for i, what in ipairs(rule.inputs) do
          inputs[i] = ref(what)
        end
        for i, what in ipairs(rule.outputs) do
          outputs[i] = ref(what)
        end
        updates[#updates + 1] = { op = rule.op, param = var.index, inputs = inputs,
          outputs = outputs, attrs = rule.attrs,
          count = rule.counts and ref("state:" .. rule.counts) or nil }
      end
    end
  end
  return updates, hypers, states
end

local function final_loss(losses)
  errors.check(#losses > 0, "Error",
    "a training model must compute a loss: use a loss function of torch.nn, or wrap what is to "
    .. "be minimised in poptorch.identity_loss")
  errors.check(#losses == 1, "Error",
    "the model has %d multiple independent losses: combine them into one and wrap it in "
    .. "poptorch.identity_loss", #losses)
  return losses[1]
end

--- Completes the step: s.hypers and s.states describe the optimizer's
--- variables.
---@param s table the executor's state
---@param step lupine.Step
---@param losses integer[]
---@param by_name table from index
function M.complete(s, step, losses, by_name)
  local o = s.options
  local spec = {
    device_iterations = o.device_iterations,
    gradient_accumulation = o.Training.gradient_accumulation,
    replicas = o.replication_factor,
    mean = o.Training.accumulation_and_replication_reduction_type == enums.ReductionType.Mean,
  }
  if s.training then
    spec.loss = final_loss(losses)
    spec.rules, s.hypers, s.states = optimizer_rules(s, step, by_name)
  end
  step:complete(spec)
end

return M

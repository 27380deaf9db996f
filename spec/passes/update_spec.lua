--- The update graph: what gradients are clipped by, and rules that cannot be.
local compiled = require("spec.support.compiled")
local helper = require("spec.helper")
local torch = require("torch")

-- The step of a loss whose gradients with respect to a and b are its inputs, and a rule
-- that subtracts each; `change` of the rules and the variables that norms are clipped to.
local function complete(change, op, group)
  local declared = { { "parameter", "a", torch.zeros(group and { 2, 2 } or 2), group },
    { "parameter", "b", torch.zeros(2) } }
  local step, losses = compiled.step(function(x, y)
    return torch.nn.functional.l1_loss((declared[1][3] * x + declared[2][3] * y):sum() + 1e9,
      torch.tensor(0.0))
  end, { torch.empty(2), torch.empty(2) }, declared)
  local at, rules = compiled.vars(step), {}
  local one = step:add_var("hyper", "one", torch.tensor(1.0))
  local two = step:add_var("hyper", "two", torch.tensor(2.0))
  for i, name in ipairs({ "a", "b" }) do
    local var = at["parameter " .. name]
    rules[i] = { op = op or "popart_sgd_step", param = var, inputs = { var, "grad", false, one },
      outputs = { var } }
  end
  change(rules, one, two)
  step:complete({ loss = losses[1], rules = rules, replicas = group and 2 or 1 })
  at = compiled.vars(step)
  local exec = step:compile({})
  exec:run(compiled.feed(at, { torch.tensor({ 3.0, 0.0 }), torch.tensor({ 0.0, 4.0 }) }), {})
  return exec:read(at["parameter a"]), exec:read(at["parameter b"])
end

local function check(a, b, change)
  local got = { complete(change) }
  helper.near(got[1], { -a, 0 }, { 1e-5, 1e-5 })
  helper.near(got[2], { 0, -b }, { 1e-5, 1e-5 })
end

-- What a rule that clips `of` to 4 subtracts from a weight whose gradients these are, the
-- mean of two micro-batches of each of two replicas.
local function mean_step(of, running, gradients)
  local declared = { { "parameter", "a", torch.zeros(2) } }
  local step, losses = compiled.step(function(x)
    return torch.nn.functional.l1_loss((declared[1][3] * x):sum() + 1e9, torch.tensor(0.0))
  end, { torch.empty(2) }, declared)
  local var = compiled.vars(step)["parameter a"]
  local function hyper(name, value) return step:add_var("hyper", name, torch.tensor(value)) end
  step:complete({ loss = losses[1], gradient_accumulation = 2, replicas = 2, mean = true,
    running = running, rules = { { op = "popart_sgd_step", param = var,
      inputs = { var, "grad", false, hyper("one", 1.0) }, outputs = { var },
      max_norm = hyper("most", 4.0), clips = of } } })
  local at = compiled.vars(step)
  local exec = step:compile({})
  exec:run(compiled.feed(at, { torch.tensor(gradients):flatten() }), {})
  return -exec:read(at["parameter a"])
end

describe("rules with a largest norm", function()
  it("take the mean over replicas of running means, and sums as they are", function()
    local gradients = { { 3.0, 8.0 }, { 5.0, 2.0 }, { 4.0, 9.0 }, { 0.0, 13.0 } }
    local mean = torch.tensor(gradients):mean(0)
    local function clipped(t) -- torch.nn.utils.clip_grad_norm_ with 4
      return t * (4 / (t:norm():item() + 1e-6))
    end
    assert(mean:norm():item() > 4)
    helper.near(mean_step("gradient", true, gradients), clipped(mean))
    helper.near(mean_step("gradient", false, gradients), clipped(mean))
    helper.near(mean_step("sum", true, gradients), clipped(mean))
    -- the sum's norm is measured, then its mean is taken
    helper.near(mean_step("sum", false, gradients), clipped(mean * 4) / 4)
  end)

  it("cannot be where a weight is one of a group of replicas", function()
    for _, clips in ipairs({ "gradient", "sum" }) do
      helper.raises("NotImplementedError", "norm of gradients %(max_grad_norm, ClipNormSettings%) "
        .. "is not there for weights in replica groups", function()
          complete(function(rules, one) -- also where it is another weight's
            rules[2].max_norm, rules[2].clips = one, clips
          end, nil, { "consecutive", 1 })
        end)
    end
  end)

  it("are clipped together where it is the same variable", function()
    check(0.6, 0.8, function(rules, one)
      rules[1].max_norm, rules[2].max_norm = one, one
    end)
  end)

  it("are clipped apart where it is another one, or none", function()
    check(1, 2, function(rules, one, two)
      rules[1].max_norm, rules[2].max_norm = one, two
    end)
    check(1, 4, function(rules, one)
      rules[1].max_norm = one
    end)
  end)

  it("say of what the norm is", function()
    helper.raises("ValueError", "clips: got 'all'. Allowed: gradient, sum, decayed", function()
      complete(function(rules) rules[1].clips = "all" end)
    end)
  end)

  it("need the operands that it is of", function()
    for op, of in pairs({ popart_sgd_step = { "velocity", "velocity" }, sgd_step = { "gathered",
      "velocity" }, sub = { "sum", "grad_scale" }, square = { "decayed", "weight_decay" } }) do
      helper.raises("ValueError", ("rule of 'a' clips takes an operand '%s', which %s has not")
        :format(of[2], op), function()
          complete(function(rules, one)
            rules[1].max_norm, rules[1].clips = one, of[1]
          end, op)
        end)
    end
  end)
end)

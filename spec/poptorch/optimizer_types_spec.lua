--- Types of the optimizers' arguments: refused when an optimizer is made, when a
--- group is added and when a model takes the optimizer.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local raises = helper.raises
local optim = poptorch.optim

local NUMBERS = {
  SGD = { "lr", "momentum", "dampening", "weight_decay", "velocity_scaling", "loss_scaling",
    "max_grad_norm" },
  Adam = { "lr", "eps", "weight_decay", "loss_scaling", "max_grad_norm" },
  AdamW = { "lr", "eps", "weight_decay", "loss_scaling", "max_grad_norm" },
  RMSprop = { "lr", "alpha", "eps", "weight_decay", "momentum", "loss_scaling" },
  LAMB = { "lr", "eps", "weight_decay", "max_weight_norm", "loss_scaling" },
}
local FLAGS = {
  SGD = { "nesterov", "maximize", "use_combined_accum", "foreach" },
  Adam = { "amsgrad", "maximize" }, AdamW = { "amsgrad", "maximize", "bias_correction" },
  RMSprop = { "centered", "maximize", "use_tf_variant" }, LAMB = { "bias_correction" },
}

local function params()
  return nn.Linear(2, 2):parameters()
end

local function refused(class, name, attr, value)
  raises(class, ("^%s: .*%s"):format(name, attr), function()
    optim[name](params(), { lr = 0.1, [attr] = value })
  end)
end

-- A model whose loss is the mean of w * x, and its optimizer.
local function trainer(name, options)
  local Model = nn.Module:extend("Typed")
  function Model:init()
    self.w = nn.Parameter(torch.ones(2))
  end
  function Model:forward(x)
    return poptorch.identity_loss(self.w * x, "mean")
  end
  local model = Model()
  local optimizer = optim[name](model:parameters(), options)
  return poptorch.trainingModel(model, nil, optimizer), optimizer, model
end

describe("an argument of another type is a TypeError:", function()
  it("numbers", function()
    for name, attrs in pairs(NUMBERS) do
      for _, attr in ipairs(attrs) do
        for _, value in ipairs({ "x", {}, { 0.5 }, true, print }) do
          refused("TypeError", name, attr, value)
        end
      end
    end
  end)

  it("flags", function()
    for name, attrs in pairs(FLAGS) do
      for _, attr in ipairs(attrs) do
        for _, value in ipairs({ "x", {}, 0.5 }) do
          refused("TypeError", name, attr, value)
        end
      end
    end
  end)

  it("betas", function()
    for _, name in ipairs({ "Adam", "AdamW", "LAMB" }) do
      for _, value in ipairs({ "x", 0.9, true, { "x", 0.9 }, { 0.9, {} } }) do
        refused("TypeError", name, "betas", value)
      end
      refused("IndexError", name, "betas", { 0.9 }) -- as torch.optim's
      refused("ValueError", name, "betas", { 0.9, 0.9, 0.9 })
    end
  end)

  it("types of accumulators", function()
    refused("AssertionError", "SGD", "velocity_accum_type", "float16")
    refused("AssertionError", "Adam", "accum_type", {})
  end)

  it("in a group, too", function()
    raises("TypeError", "^Adam: eps must be a number, got string \"x\"", function()
      optim.Adam({ { params = params(), eps = "x" } })
    end)
    raises("TypeError", "^SGD: momentum must be a number", function()
      optim.SGD(params(), { lr = 1 }):add_param_group({ params = params(), momentum = {} })
    end)
  end)
end)

describe("the right types", function()
  it("are integers, floats and tensors of one element", function()
    for _, lr in ipairs({ 1, 1.0, torch.tensor(1.0) }) do
      local model, _, host = trainer("SGD", { lr = lr })
      model(torch.tensor({ 2.0, 4.0 }))
      helper.near(host.w:detach(), { 0, -1 }) -- w - lr x / 2
    end
    assert.truthy(optim.LAMB(params(), { max_weight_norm = torch.none }))
    raises("ValueError", "lr must be 1%-element", function()
      optim.SGD(params(), { lr = torch.ones(2) })
    end)
  end)
end)

describe("a value that is taken away or spoilt later", function()
  it("is an error of setOptimizer, which changes nothing", function()
    for name, attr in pairs({ SGD = "lr", Adam = "eps", LAMB = "betas", RMSprop = "alpha" }) do
      for _, value in ipairs({ torch.none, "x" }) do
        local model, optimizer = trainer(name, { lr = 0.5 })
        local x = torch.ones(2)
        model(x)
        local group = optimizer.param_groups[1]
        group[attr] = value ~= torch.none and value or nil
        raises("TypeError", ("^%s: .*%s"):format(name, attr), function()
          model:setOptimizer(optimizer)
        end)
        model(x) -- with what it had
      end
    end
  end)

  it("is an error when the model is compiled", function()
    local model, optimizer = trainer("SGD", { lr = 0.5 })
    optimizer.param_groups[1].lr = nil
    raises("TypeError", "^SGD: lr must be a number, got None", function()
      model(torch.ones(2))
    end)
  end)

  it("is one of torch.optim's, too", function()
    local model, _, host = trainer("SGD", { lr = 0.5 })
    local optimizer = torch.optim.SGD(host:parameters(), { lr = 0.5 })
    optimizer.param_groups[1].lr = nil
    raises("TypeError", "^SGD: lr must be a number, got None", function()
      model:setOptimizer(optimizer)
    end)
  end)
end)

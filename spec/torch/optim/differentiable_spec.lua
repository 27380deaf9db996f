-- differentiable = true: a gradient goes through the steps of an optimizer.
-- Values of PyTorch 2.15, as many steps as it can unroll.
local helper = require("spec.helper")
local torch = require("torch")
local optim = torch.optim

-- class, options, steps, the parameter after them, gradients of the sum of its
-- squares to the parameter before and to w
local STEPS = {
  { "SGD", { momentum = 0.9, nesterov = true, weight_decay = 0.1, lr = 0.1 }, 3,
    { -0.597046732, -0.784500855, -0.280609986 },
    { 0.0923471517, -0.392097965, -1.12131824 },
    { -0.167142454, -1.36181578, 0.128488321 } },
  { "SGD", { momentum = 0.8, dampening = 0.3, lr = 0.1, maximize = true }, 3,
    { 1.72009425, -1.49535035, 0.508286265 },
    { 5.03532069, -4.06858782, 0.679566582 },
    { 1.23815412, 1.58309419, 0.145001723 } },
  { "Adam", { lr = 0.1, weight_decay = 0.1 }, 3,
    { 0.201855937, -0.907411419, 8.87520537e-05 },
    { 0.402114337, -1.75448806, 0.000178615511 },
    { 0.000370683926, -0.0583220646, -7.63524823e-07 } },
  { "Adam", { lr = 0.1, amsgrad = true }, 1,
    { 0.4, -1.1, 0.200000002 },
    { 0.8, -2.19999999, 0.400000006 },
    { -1.41520302e-10, -1.47826174e-08, -8.37447411e-10 } },
  { "AdamW", { lr = 0.1, weight_decay = 0.2, maximize = true }, 3,
    { 0.765113697, -1.42366198, 0.565171827 },
    { 1.4399088, -2.68964458, 0.972481042 },
    { 8.06606855e-05, 0.00938508249, 0.0593178835 } },
  { "RMSprop", { lr = 0.1, centered = true, momentum = 0.5, weight_decay = 0.1 }, 1,
    { -0.505037774, -0.194962325, -0.705037637 },
    { -1.0100755, -0.389924511, -1.41007598 },
    { 1.73129315e-08, -1.83544183e-07, 2.67389386e-07 } },
  { "RMSprop", { lr = 0.1 }, 3,
    { -0.340986773, -0.745964666, -2.43245692 },
    { -0.165475946, -0.176567821, -2.99087662 },
    { -0.1073099, -1.41904474, -2.07412506 } },
  { "Adagrad", { lr = 0.1, lr_decay = 0.1, weight_decay = 0.1 }, 3,
    { 0.295950677, -1.00886559, 0.0727195539 },
    { 0.584258672, -1.89842536, 0.139513125 },
    { 0.00179303297, -0.11512722, 0.00406878548 } },
  { "Adadelta", { lr = 0.5, weight_decay = 0.1 }, 3,
    { 0.49515071, -1.19515686, 0.295134735 },
    { 0.990295152, -2.39025347, 0.590246418 },
    { 1.54923477e-06, -5.78419185e-05, 1.5680156e-05 } },
  { "Adamax", { lr = 0.1, weight_decay = 0.1 }, 1,
    { 0.4, -1.1, 0.200000002 },
    { 0.8, -2.19999999, 0.400000006 },
    { -1.35750668e-10, -1.02522201e-08, -7.50926096e-10 } },
  { "RAdam", { lr = 0.1, weight_decay = 0.1 }, 7,
    { -0.378215898, -0.901837114, -0.0382304972 },
    { 0.0125110371, -0.474760952, -0.145082346 },
    { 0.104495735, -1.65067574, 0.021526112 } },
  { "NAdam", { lr = 0.1, weight_decay = 0.1, decoupled_weight_decay = true }, 3,
    { 0.242348625, -0.949220309, 0.0159637097 },
    { 0.46216921, -1.59686648, 0.0291090797 },
    { 0.00217237365, -0.273793238, 0.00114422877 } },
  { "ASGD", { lr = 0.1, t0 = 1.0, lambd = 0.1 }, 3,
    { -0.0411702714, -1.02238847, 0.104462629 },
    { -0.0306359762, -1.13107652, 0.319979439 },
    { 0.00843812024, -1.14123756, -0.0354755366 } },
  { "Rprop", { lr = 0.1 }, 1,
    { 0.4, -1.1, 0.2 },
    { 0.8, -2.2, 0.4 },
    { 0, -0, 0 } },
}

-- class, option that is a tensor, steps, its gradient (betas: both)
local OPTIONS = {
  { "SGD", "lr", 1, -2.87379379 },
  { "SGD", "weight_decay", 3, -0.42745393 },
  { "SGD", "momentum", 3, 0.467505958 },
  { "Adam", "lr", 3, -6.13582065 },
  { "Adam", "weight_decay", 3, -0.0186699805 },
  { "Adam", "betas", 3, -0.0780496425, 0.0607142597 },
  { "Adam", "eps", 3, 0.986659234 },
  { "AdamW", "lr", 3, -6.15329912 },
  { "AdamW", "weight_decay", 3, -0.528190964 },
  { "AdamW", "betas", 3, -0.0788093725, 0.0611466377 },
}
local GIVEN = { lr = 0.1, weight_decay = 0.2, momentum = 0.9, eps = 0.01 }

local function double(values, wants)
  return torch.tensor(values, { dtype = torch.float64, requires_grad = wants })
end

-- Steps down w p^2 + sin(p), whose gradient is made of p.
local function unroll(class, p0, w, options, steps)
  local p = p0:clone()
  options.differentiable = true
  local o = optim[class]({ p }, options)
  for _ = 1, steps do
    local q = p:clone()
    p.grad = 2 * w * q + q:cos()
    o:step()
  end
  return p, o
end

describe("differentiable = true", function()
  for i, case in ipairs(STEPS) do
    it(("case %d: %s, %d steps"):format(i, case[1], case[3]), function()
      local p0, w = double({ 0.5, -1.2, 0.3 }, true), double({ 1.5, 0.4, -0.7 }, true)
      local p = unroll(case[1], p0, w, case[2], case[3])
      p:pow(2):sum():backward()
      helper.near(p, case[4])
      helper.near(p0.grad, case[5])
      helper.near(w.grad, case[6])
    end)
  end

  for _, case in ipairs(OPTIONS) do
    it(("%s: a gradient to %s"):format(case[1], case[2]), function()
      local t, second = double(GIVEN[case[2]] or 0.8, true), double(0.95, true)
      local options = { lr = 0.1, momentum = case[1] == "SGD" and 0.9 or nil }
      options[case[2]] = case[5] and { t, second } or t
      local p = unroll(case[1], double({ 0.5, -1.2, 0.3 }), double({ 1.5, 0.4, -0.7 }), options,
        case[3])
      p:pow(2):sum():backward()
      helper.near(t.grad, case[4])
      if case[5] then
        helper.near(second.grad, case[5])
      end
    end)
  end

  it("gives the steps that a plain optimizer takes", function()
    for _, case in ipairs(STEPS) do
      local options = { differentiable = false }
      for name, value in pairs(case[2]) do
        options[name] = name ~= "differentiable" and value or nil
      end
      local p, w = torch.nn.Parameter(double({ 0.5, -1.2, 0.3 })), double({ 1.5, 0.4, -0.7 })
      local o = optim[case[1]]({ p }, options)
      for _ = 1, case[3] do
        p.grad = (2 * w * p + p:cos()):detach()
        o:step()
      end
      helper.near(p, case[4])
    end
  end)

  it("is no way to write a leaf, and the only way to optimize what is none", function()
    local p = torch.nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    helper.raises("RuntimeError", "leaf", function()
      optim.Adam({ p }, { differentiable = true }):step()
    end)
    helper.raises("ValueError", "can't optimize a non%-leaf Tensor", function()
      optim.Adam({ p:clone() })
    end)
    local kept = p:clone()
    kept:retain_grad()
    optim.Adam({ kept })
  end)

  it("refuses a gradient to an option that is read as a number", function()
    local p = torch.ones(2)
    p.grad = torch.ones(2)
    helper.raises("TypeError", "Adadelta: rho must be a number", function()
      optim.Adadelta({ p }, { rho = torch.tensor(0.9, { requires_grad = true }),
        differentiable = true }):step()
    end)
  end)

  it("is refused on the device", function()
    local poptorch = require("poptorch")
    local net = torch.nn.Linear(2, 2)
    helper.raises("NotImplementedError", "differentiable", function()
      poptorch.trainingModel(net, poptorch.Options(),
        optim.SGD(net:parameters(), { lr = 0.1, differentiable = true }))
    end)
  end)
end)

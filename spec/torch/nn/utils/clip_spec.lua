-- Norms and gradients are PyTorch's.
local helper = require("spec.helper")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

local utils = torch.nn.utils

local function parameters()
  local out = {}
  for i, g in ipairs({ torch.tensor({ 3.0, 4 }), torch.tensor({ { 1, -2 }, { 0.5, 0 } }),
    torch.tensor(2.5) }) do
    out[i] = torch.zeros_like(g):requires_grad_(true)
    out[i].grad = g
  end
  out[4] = torch.zeros({ 2 }):requires_grad_(true) -- has no gradient
  return out
end

describe("clip_grad_norm_", function()
  it("takes the order as a number or as text", function()
    for _, row in ipairs({ { "inf", 4, { 0.75, 1 } }, { math.huge, 4, { 0.75, 1 } },
      { "1", 13, { 3 / 13, 4 / 13 } }, { 2, 6.041523, { 0.4965635, 0.6620847 } } }) do
      local list = parameters()
      helper.near(utils.clip_grad_norm_(list, 1.0, row[1]), row[2])
      helper.near(list[1].grad, row[3], { 1e-5, 0 })
      assert.is_nil(list[4].grad)
    end
    helper.raises("ValueError", "norm_type: a number or 'inf'", function()
      utils.clip_grad_norm_(parameters(), 1.0, "most")
    end)
  end)

  it("and get_total_norm refuse what is not finite on demand", function()
    local list = parameters()
    list[1].grad[0] = 0 / 0
    local strict = { error_if_nonfinite = true }
    for _, call in ipairs({ function() utils.clip_grad_norm_(list, 1.0, strict) end,
      function() utils.get_total_norm({ list[1].grad, list[3].grad }, strict) end }) do
      helper.raises("RuntimeError", "is non%-finite", call)
    end
    local norm = utils.get_total_norm({ list[1].grad }):item()
    assert.is_true(norm ~= norm)
    helper.near(utils.get_total_norm({}), 0)
  end)
end)

describe("clipping", function()
  local net = nn.Linear(2, 2)

  it("refuses a nil among the parameters", function()
    raises("TypeError", "element 2 of 3", function()
      nn.utils.clip_grad_norm_({ net.weight, nil, net.bias }, 1)
    end)
  end)

  it("refuses a module where its parameters belong", function()
    for _, name in ipairs({ "clip_grad_norm_", "clip_grad_value_" }) do
      raises("TypeError", "did you mean its parameters%(%)", function()
        nn.utils[name](net, 0.1)
      end)
    end
  end)

  it("takes a list of parameters", function()
    local list = nn.ParameterList({ torch.ones(2), torch.ones(3) })
    list[1].grad = torch.ones(2)
    helper.near(nn.utils.clip_grad_norm_(list, 10), 2 ^ 0.5)
  end)
end)

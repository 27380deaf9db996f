-- weight_norm and spectral_norm: values by PyTorch 2.15, or by definition.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn
local near = helper.near

local function line()
  local l = nn.Linear(2, 3)
  torch.no_grad(function()
    l.weight:copy_(torch.arange(6):float():reshape({ 3, 2 }) - 2)
    l.bias:zero_()
  end)
  return l
end

local x = torch.tensor({ { 1.0, 2.0 } })

describe("weight_norm", function()
  it("gives the same values and PyTorch's gradients", function()
    local l = nn.utils.weight_norm(line())
    local y = l(x)
    near(y, { { -4.0, 2.0, 8.0 } })
    y:pow(2):sum():backward()
    near(l.weight_g, { { 2.236068 }, { 1.0 }, { 3.6055512 } })
    near(l.weight_g.grad, { { 14.310835 }, { 8.0 }, { 35.500813 } })
    near(l.weight_v.grad, { { 4.8, -9.6 }, { 4.0, 0.0 }, { -3.6923084, 2.4615374 } })
    local names = {}
    for name in l:named_parameters() do
      names[#names + 1] = name
    end
    assert.same({ "bias", "weight_g", "weight_v" }, names)
    nn.utils.remove_weight_norm(l)
    near(l(x), { { -4.0, 2.0, 8.0 } })
    assert.is_true(nn.Parameter:is(l.weight))
  end)

  it("takes one norm of all, or along another dimension", function()
    assert.same({}, { table.unpack(nn.utils.weight_norm(line(), "weight", -1).weight_g.shape) })
    assert.same({ 1, 2 },
      { table.unpack(nn.utils.weight_norm(line(), { dim = 1 }).weight_g.shape) })
  end)
end)

describe("spectral_norm", function()
  it("gives PyTorch's values and gradients, and divides by the largest singular value", function()
    local l = nn.utils.spectral_norm(line())
    l.weight_u:copy_(torch.tensor({ 1.0, 0, 0 }))
    l.weight_v:copy_(torch.tensor({ 1.0, 0 }))
    local y = l(x)
    near(y, { { -1.0327955, 0.5163978, 2.0655911 } })
    y:pow(2):sum():backward()
    near(l.weight_u, { 0.5773503, -0.1154701, -0.8082904 })
    near(l.weight_orig.grad, { { 0.96, -0.32 }, { -0.032, 0.384 }, { -1.024, 1.088 } })
    for _ = 1, 50 do
      l(x)
    end
    near((l.weight_orig / l.weight)[0][0], 4.1999292)
    l:eval()
    local u = l.weight_u:clone()
    near(l(x), { { -0.9523968, 0.4761984, 1.9047936 } })
    assert.is_true(torch.equal(u, l.weight_u)) -- nothing moves in evaluation
    nn.utils.remove_spectral_norm(l)
    near(l(x), { { -0.9523968, 0.4761984, 1.9047936 } })
    assert.same({ "weight", "bias" }, (function()
      local names = {}
      for name in l:named_parameters() do
        table.insert(names, 1, name)
      end
      return names
    end)())
  end)
end)

it("computed weights train compiled as on the host", function()
  for _, f in ipairs({ "weight_norm", "spectral_norm" }) do
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.l = nn.utils[f](nn.Linear(3, 2))
    end
    function Net:forward(input)
      return poptorch.identity_loss(self.l(input):pow(2), "mean")
    end
    local device, host = Net(), Net()
    host:load_state_dict(device:state_dict())
    local data = torch.randn({ 4, 3 })
    local trainer = poptorch.trainingModel(device, poptorch.Options(),
      torch.optim.SGD(device:parameters(), 0.1))
    local optimizer = torch.optim.SGD(host:parameters(), 0.1)
    for _ = 1, 3 do
      optimizer:zero_grad()
      local loss = host(data)
      loss:backward()
      optimizer:step()
      near(trainer(data), loss:item())
    end
    trainer:copyWeightsToHost()
    for name, p in device:named_parameters() do
      near(p, host:get_parameter(name))
    end
  end
end)

it("what is not there is refused", function()
  helper.raises("AttributeError", "no parameter 'wieght'", function()
    nn.utils.weight_norm(line(), "wieght")
  end)
  helper.raises("RuntimeError", "computed already", function()
    local l = nn.utils.weight_norm(line())
    l.weight = nn.Parameter(torch.ones({ 3, 2 }))
    nn.utils.weight_norm(l)
  end)
  helper.raises("ValueError", "weight_norm of 'weight' not found", function()
    nn.utils.remove_weight_norm(line())
  end)
end)

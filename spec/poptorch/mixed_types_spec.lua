-- Half and float32 in one operator on the device: weights follow their input,
-- what works on elements is float32 (seeds, 3.x). On the host such operators
-- refuse, as PyTorch's do.
local device = require("spec.support.on_device")
local helper = require("spec.helper")
local raises = require("spec.poptorch.helper").raises
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local F = nn.functional

local r = torch.randn

-- {operator, its two operands}: the second takes the first's type
local FOLLOW = {
  { torch.mm, r(3, 4), r(4, 5) }, { torch.bmm, r(2, 3, 4), r(2, 4, 5) },
  { torch.mv, r(3, 4), r(4) }, { torch.dot, r(4), r(4) },
  { torch.matmul, r(2, 3, 4), r(4, 5) }, { torch.inner, r(3, 4), r(5, 4) },
  { function(a, b) return torch.einsum("ij,jk->ik", a, b) end, r(3, 4), r(4, 5) },
  { function(a, b) return torch.einsum("bij,bjk,bk->b", a, b, b[{ torch.slice(), 0 }]) end,
    r(2, 3, 4), r(2, 4, 4) },
  { function(a, b) return torch.tensordot(a, b, 1) end, r(3, 4), r(4, 5) },
  { function(a, b) return torch.chain_matmul({ a, b }) end, r(3, 4), r(4, 5) },
  { function(a, b) return torch.linalg.multi_dot({ a, b, b }) end, r(3, 4), r(4, 4) },
  { F.linear, r(3, 4), r(5, 4) }, { F.conv1d, r(1, 4, 8), r(5, 4, 3) },
  { function(a, b) return F.bilinear(a, a, b) end, r(3, 4), r(5, 4, 4) },
  { function(a, b) return F.scaled_dot_product_attention(a, b, b) end, r(2, 3, 4), r(2, 3, 4) },
  { F.prelu, r(3, 4), r(1) },
}

-- … both become float32
local WIDEN = {
  { torch.cdist, r(3, 4), r(5, 4) }, { torch.cross, r(2, 3), r(2, 3) },
  { torch.linalg.vecdot, r(3, 4), r(3, 4) }, { torch.outer, r(3), r(4) }, { torch.add, r(3), r(3) },
  { function(a, b) return torch.einsum("ij,ij->ij", a, b) end, r(3, 4), r(3, 4) },
}

local function runs(f, a, b, as)
  local got = device.infer(f)(a, b)
  assert.equal(as, got.dtype)
  device.close(got, f(a:to(as), b:to(as)), { rtol = 2e-3, atol = 2e-3 })
end

describe("half and float32 in one operator", function()
  it("take the first's type in products", function()
    for _, case in ipairs(FOLLOW) do
      local f, a, b = table.unpack(case)
      runs(f, a:half(), b, torch.half)
      runs(f, a, b:half(), torch.float32)
    end
  end)

  it("are float32 elsewhere", function()
    for _, case in ipairs(WIDEN) do
      local f, a, b = table.unpack(case)
      runs(f, a:half(), b, torch.float32)
      runs(f, a, b:half(), torch.float32)
    end
  end)

  it("add what is added to a product as elements", function()
    for _, case in ipairs({ { torch.addmm, r(3, 4), r(4, 5), r(3, 5) },
      { torch.baddbmm, r(2, 3, 4), r(2, 4, 5), r(2, 3, 5) },
      { torch.addbmm, r(2, 3, 4), r(2, 4, 5), r(3, 5) }, { torch.addmv, r(3, 4), r(4), r(3) } }) do
      local op, x, y, self = table.unpack(case)
      local model = device.infer(op)
      local got = model(self, x:half(), y)
      assert.equal(torch.float32, got.dtype)
      device.close(got, op(self, x, y), { rtol = 0.01, atol = 0.01 })
      assert.equal(torch.half, device.infer(op)(self:half(), x:half(), y).dtype)
      assert.equal(torch.float32, device.infer(op)(self:half(), x, y:half()).dtype)
    end
  end)

  it("have gradients of their own types", function()
    local net = device.module(function(self, x)
      return poptorch.identity_loss(torch.mm(x, self.w):float() ^ 2, "sum")
    end, function(self)
      self.w = nn.Parameter(torch.ones(4, 2))
    end)
    local x = torch.tensor({ { 1.0, 2, 3, 4 } }):half()
    local model = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), 0.01))
    assert.equal(200, model(x):item())
    model:copyWeightsToHost()
    assert.equal(torch.float32, net.w.dtype)
    device.close(net.w:detach(), 1 - 0.01 * 2 * 10 * x[0]:float():unsqueeze(1):expand(4, 2),
      { rtol = 1e-3, atol = 1e-3 })
  end)

  it("are refused on the host", function()
    raises("RuntimeError", torch.mm, r(3, 4):half(), r(4, 5))
    raises("RuntimeError", torch.cross, r(2, 3), r(2, 3):half())
    raises("RuntimeError", torch.chain_matmul, { r(3, 4), r(4, 5):half() })
  end)
end)

-- Convolutions whose channels fill blocks hand their results on in blocks.
describe("half weights beside float images in blocks", function()
  local Net = nn.Module:extend("Net")
  function Net:init()
    self.layers = nn.Sequential(nn.Conv2d(16, 16, 3, { padding = 1 }), nn.BatchNorm2d(16),
      nn.ReLU(),
      nn.Conv2d(16, 16, 3, { padding = 1, bias = false }), nn.BatchNorm2d(16), nn.MaxPool2d(2))
  end
  function Net:forward(x)
    local y = self.layers(x)
    return y, poptorch.identity_loss((y - 1):square(), { reduction = "mean" })
  end

  it("are trained as their own numbers in float32", function()
    torch.manual_seed(2)
    local half, x = Net():half(), torch.randn(4, 16, 8, 8)
    local whole = half:deepcopy():float()
    local function train(model)
      local trainer = poptorch.trainingModel(model, poptorch.Options(),
        torch.optim.SGD(model:parameters(), 0.5))
      local y, loss = trainer(x)
      trainer:destroy()
      return y, loss
    end
    local y, loss = train(half)
    local want, want_loss = train(whole)
    helper.near(y, want, { 1e-4, 1e-4 })
    helper.near(loss, want_loss, { 1e-5, 1e-5 })
    local of = {}
    for name, t in whole:named_parameters() do
      of[name] = t
    end
    for name, t in half:named_parameters() do
      assert.equal(torch.float16, t.dtype)
      helper.near(t:float(), of[name]:detach(), { 1e-3, 1e-3 })
    end
    helper.near(half.layers[2].running_var:float(), whole.layers[2].running_var, { 1e-3, 1e-3 })
  end)
end)

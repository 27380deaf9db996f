-- PopTorch's tests of matrix products (tests/blas_test.py).
local device = require("spec.support.on_device")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local LOOSE = { rtol = 1e-4, atol = 1e-4 }

-- With an out, too, which then holds the result on both sides.
local function both(op, a, b, out_shape)
  device.same(op, { a, b }, LOOSE)
  if not out_shape then
    return
  end
  local function into(x, y, out)
    return op(x, y, { out = out })
  end
  local on_host, on_device = torch.randn(out_shape), torch.randn(out_shape)
  local want = into(a, b, on_host)
  local got = device.infer(into)(a, b, on_device)
  device.close(got, want, LOOSE)
  device.close(on_device, on_host, LOOSE)
end

local SHAPES = { { 3, 7 }, { 3, 1 }, { 1, 7 }, { 1 } }
local SCALES = { { 1.0, 1.0 }, { 1.0, 0.75 }, { 0.75, 1.0 }, { 0.75, 0.75 } }

describe("blas", function()
  before_each(function()
    torch.manual_seed(42)
  end)

  it("test_matmul", function()
    for _, s in ipairs({ { { 10, 200 }, { 200, 45 }, { 10, 45 } },
      { { 10, 200 }, { 200 }, { 10 } }, { { 200 }, { 200, 45 }, { 45 } },
      { { 200 }, { 200 }, {} } }) do
      both(torch.matmul, torch.randn(s[1]), torch.randn(s[2]), s[3])
    end
  end)

  it("test_serializedMatMul", function()
    local Mode = poptorch.MatMulSerializationMode
    for _, mode in ipairs(Mode:members()) do
      for _, factor in ipairs({ 2, 5, 10 }) do
        local columns = mode == Mode.OutputChannels and 45 // factor * factor or 45
        local x, y = torch.rand(1, 10, 200), torch.rand(200, columns)
        for _, keep in ipairs({ true, false }) do
          local op = function(a, b)
            return poptorch.serializedMatMul(a, b, mode, factor, keep)
          end
          both(op, x, y)
          local got = device.infer(op)(x:half(), y:half())
          device.close(got:float(), torch.matmul(x, y), { rtol = 0.01, atol = 0.05 })
        end
      end
    end
  end)

  it("test_bmm", function()
    both(torch.bmm, torch.randn(12, 10, 200), torch.randn(12, 200, 33), { 12, 10, 33 })
  end)

  it("test_matmul_training", function()
    for _, bias in ipairs({ true, false }) do
      local net = device.module(function(self, x, y, target)
        local out = torch.matmul(self.linear(x), y)
        return out, self.loss(out, target)
      end, function(self)
        self.linear, self.loss = nn.Linear(7, 7, { bias = bias }), nn.L1Loss({ reduction = "mean" })
      end)
      local native = net:deepcopy()
      local optimizer = torch.optim.SGD(native:parameters(), 0.01)
      local model = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), 0.01))
      local x, y = torch.randn(100, 9, 7), torch.randn(7, 7)
      local target = torch.randint(0, 5, { 100, 9, 7 })
      local out, loss, want, want_loss
      for _ = 1, 40 do
        out, loss = model(x, y, target)
        optimizer:zero_grad()
        want, want_loss = native(x, y, target)
        want_loss:backward()
        optimizer:step()
      end
      device.close(out, want:detach(), { rtol = 0.01, atol = 0.01 })
      device.close(loss, want_loss:detach(), { rtol = 1e-3, atol = 1e-3 })
    end
  end)

  it("test_addmm", function()
    for i, shape in ipairs(SHAPES) do
      local beta, alpha = table.unpack(SCALES[i])
      device.same(function(a, b, c)
        return torch.addmm(a, b, c, { beta = beta, alpha = alpha })
      end, { torch.randn(shape), torch.randn(3, 5), torch.randn(5, 7) })
    end
  end)

  it("test_baddbmm", function()
    for i, shape in ipairs(SHAPES) do
      local beta, alpha = table.unpack(SCALES[i])
      device.same(function(a, b, c)
        return torch.baddbmm(a, b, c, { beta = beta, alpha = alpha })
      end, { torch.randn(shape), torch.randn(2, 3, 5), torch.randn(2, 5, 7) })
    end
  end)

  it("test_addmv", function()
    for _, beta in ipairs({ 0, 0.5 }) do
      for _, alpha in ipairs({ 0, 1.5 }) do
        local matrix, vec, inp = torch.randn(20, 10), torch.randn(10), torch.randn(20)
        if beta == 0 then
          inp[0] = 0 / 0
        end
        if alpha == 0 then
          matrix["0, 0"], vec[0] = 0 / 0, 0 / 0
        end
        local function op(a, b, c, out)
          return torch.addmv(a, b, c, { beta = beta, alpha = alpha, out = out })
        end
        device.same(op, { inp, matrix, vec })
        local on_host, on_device = torch.empty(20), torch.empty(20)
        op(inp, matrix, vec, on_host)
        device.infer(op)(inp, matrix, vec, on_device)
        device.close(on_device, on_host)
      end
    end
  end)
end)

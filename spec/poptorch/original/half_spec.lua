--- PopTorch's half_test.py, by the names of its functions. test_resnet runs on a
--- residual block in place of torchvision's network.
local core = require("lupine.core")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near = helper.near
local f16, f32 = torch.float16, torch.float32

local Residual = nn.Module:extend("Residual")

function Residual:init()
  self.stem = nn.Conv2d(3, 8, 7, { stride = 2, padding = 3, bias = false })
  self.bn1, self.bn2 = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
  self.pool = nn.MaxPool2d(3, { stride = 2, padding = 1 })
  self.conv = nn.Conv2d(8, 8, 3, { padding = 1, bias = false })
  self.average, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 10)
end

function Residual:forward(x)
  x = self.pool(self.bn1(self.stem(x)):relu())
  x = (self.bn2(self.conv(x)) + x):relu()
  return self.fc(self.average(x):flatten(1))
end

describe("half_test.py", function()
  local level
  setup(function()
    level = core.host.log_level()
    poptorch.setLogLevel("WARN")
  end)
  teardown(function()
    core.host.log_level(level)
  end)

  it("test_half_float_default_option", function()
    local t1, t2 = torch.tensor({ 1.0 }):half(), torch.tensor({ 2.0 })
    for _, args in ipairs({ { t1, t2 }, { t2, t1 } }) do
      local model = models.infer(function(_, x, y)
        return x + y
      end)
      assert.equal(f32, model(table.unpack(args)).dtype)
    end
  end)

  it("test_resnet", function()
    torch.manual_seed(42)
    local model = models.of(function(self, data, target)
      local out = self.base_model(data)
      return out, nn.NLLLoss()(out, target)
    end)
    model.base_model = Residual()
    model:train()
    model:half()
    local out, loss = poptorch.trainingModel(model)(torch.randn(1, 3, 64, 64):half(),
      torch.tensor({ 1 }))
    assert.same({ f16, f16 }, { out.dtype, loss.dtype })
  end)

  it("test_model_with_weights", function()
    local model, t1 = nn.Linear(1, 10):half(), torch.tensor({ 1.0 }):half()
    local out = poptorch.inferenceModel(model)(t1)
    assert.equal(f16, out.dtype)
    near(out:float(), model:float()(t1:float()):detach(), { 1e-4, 1e-3 })
  end)

  it("test_simple_model", function()
    local model = models.infer(function(_, x, y, z, w)
      return x + y + 5, z + w + 5
    end)
    local half, float = model(torch.tensor({ 1.0 }):half(), torch.tensor({ 2.0 }):half(),
      torch.tensor({ 3.0 }), torch.tensor({ 4.0 }))
    assert.same({ f16, f32, 8.0, 12.0 }, { half.dtype, float.dtype, half:item(), float:item() })
  end)

  it("test_lstm", function()
    local lstm = nn.LSTM(3, 5)
    lstm:half()
    local hidden = { torch.randn(1, 1, 5):half(), torch.randn(1, 1, 5):half() }
    local out, state = poptorch.inferenceModel(lstm)(torch.randn(5, 1, 3):half(), hidden)
    assert.same({ f16, f16, f16 }, { out.dtype, state[1].dtype, state[2].dtype })
  end)

  it("test_ipu_print_tensor", function()
    local model = models.infer(function(_, x)
      return poptorch.ipu_print_tensor(x)
    end)
    local out = model(torch.tensor({ 1.0 }, { dtype = f16 }))
    assert.same({ 1.0, f16 }, { out:item(), out.dtype })
  end)

  it("test_buffers", function()
    local model = models.of(function(self, x)
      return self.bn(x), self.bn.running_var, self.bn.running_mean
    end)
    model.bn = nn.BatchNorm2d(64)
    model.bn.running_mean:add_(torch.randn(64))
    model.bn.running_var:add_(torch.randn(64))
    local mean, var = model.bn.running_mean:clone(), model.bn.running_var:clone()
    model.bn:half()
    model.bn.running_mean = model.bn.running_mean:float()
    model.bn.running_var = model.bn.running_var:float()
    model:eval() -- the statistics stay as they are
    local _, ipu_var, ipu_mean = poptorch.inferenceModel(model)(torch.ones(1, 64, 10, 10):half())
    near(ipu_mean:float(), mean, { 1e-2, 1e-2 })
    near(ipu_var:float(), var, { 1e-2, 1e-2 })
  end)

  it("test_half_casts_outplace", function()
    local model = models.infer(function(_, x1, x2)
      return x1, x2, x1:to(torch.float16), x2:half()
    end)
    local got = { model(torch.zeros(1), torch.zeros(1)) }
    for i, dtype in ipairs({ f32, f32, f16, f16 }) do
      assert.equal(dtype, got[i].dtype)
    end
  end)

  it("test_8bit_io_casting", function()
    local model = models.of(function(self, x)
      local fc = self.linear
      return fc(x:half()), fc(x:to(torch.half)), fc(x:float()), fc(x:to(torch.float))
    end)
    model.linear = nn.Linear(1, 1)
    local got = { poptorch.inferenceModel(model)(torch.tensor({ 0 }, { dtype = torch.uint8 })) }
    for i, dtype in ipairs({ f16, f16, f32, f32 }) do
      assert.equal(dtype, got[i].dtype)
    end
  end)

  it("test_buffers_without_parameters_can_be_traced", function()
    local model = models.of(function(self, x)
      return torch.matmul(self.b, x)
    end)
    model:register_buffer("b", torch.randn(3, 3))
    model:half()
    local x = torch.randn(3, 3):half()
    near(poptorch.inferenceModel(model)(x), model.b:matmul(x), { 1e-2, 1e-2 })
  end)
end)

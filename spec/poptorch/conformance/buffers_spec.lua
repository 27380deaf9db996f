--- PopTorch's rules of writes in place and of buffers, a numbered case each.
local device = require("spec.support.on_device")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local function vec(...)
  return torch.tensor({ ... }, { dtype = torch.float32 })
end

-- The inference model of forward(self, …) with these buffers, and its module.
local function infer(forward, buffers, options)
  local module = models.of(forward)
  for name, value in pairs(buffers or {}) do
    module:register_buffer(name, value)
  end
  return poptorch.inferenceModel(module, options), module
end

-- What x holds after each of two runs of f.
local function runs(f, x)
  local model = infer(function(_, v) f(v) end)
  local seen = {}
  for i = 1, 2 do
    model(x)
    seen[i] = x:item()
  end
  return seen, model
end

describe("conformance, buffers:", function()
  it("BUF01 an input changed in place is the caller's", function()
    local x, other = vec(1), vec(7)
    local seen, model = runs(function(v) v:add_(1) end, x)
    assert.same({ 2, 3 }, seen)
    model(other)
    near(x, { 3 })
    near(other, { 8 })
  end)

  it("BUF03 by subtraction, division, multiplication", function()
    assert.same({ 0, -1 }, (runs(function(v) v:sub_(1) end, vec(1))))
    assert.same({ 0.5, 0.25 }, (runs(function(v) v:div_(2) end, vec(1))))
    assert.same({ 2, 4 }, (runs(function(v) v:mul_(2) end, vec(1))))
  end)

  it("BUF05 what is made of an input is not the input", function()
    local x = vec(1)
    near(device.infer(function(v)
      local a = v + 1
      a:add_(1)
      return a
    end)(x), { 3 })
    near(x, { 1 })
  end)

  it("BUF06 a mask is filled", function()
    local x = vec(0, 0.7, 0.2, 3.5)
    near(device.infer(function(v)
      v:masked_fill_(v:gt(0.5), 1)
      return v
    end)(x), { 0, 1, 0.2, 1 })
    near(x, { 0, 1, 0.2, 1 })
  end)

  it("BUF08 input and buffer in one run, a buffer copied to twice", function()
    for copies, want in ipairs({ 4, 9 }) do
      local buffer, x = infer(function(self, v)
        v:fill_(3)
        local sum = self.buffer + v
        self.buffer:copy_(sum)
        if copies == 2 then
          sum:add_(5)
          self.buffer:copy_(sum)
        end
        return self.buffer, v
      end, { buffer = torch.ones(1, 2) })(torch.ones(1, 2))
      near(buffer, { { want, want } })
      near(x, { { 3, 3 } })
    end
  end)

  it("BUF09 a buffer that is only read", function()
    local model = infer(function(self, x)
      return (self.stuff + 1 + x):sum()
    end, { stuff = vec(1, 2, 3) })
    for _ = 1, 2 do
      near(model(vec(2)), 15)
    end
  end)

  it("BUF11 buffers that are named are copied to the device", function()
    for names, want in pairs({ b1 = 12, ["b1 b2"] = 15 }) do
      local list = {}
      for name in names:gmatch("%S+") do
        list[#list + 1] = name
      end
      local model, module = infer(function(self, x)
        return (x + self.b1 + self.b2):sum()
      end, { b1 = torch.ones(1), b2 = torch.ones(1) },
        poptorch.Options():updatableNamedBuffers(list))
      local x = torch.ones(3)
      near(model(x), 9)
      module.b1:add_(1)
      model:copyNamedBuffersToDevice()
      near(model(x), 12)
      module.b2:add_(1)
      model:copyNamedBuffersToDevice()
      near(model(x), want)
    end
  end)

  it("BUF13 a buffer that forward assigns or deletes", function()
    for _, change in ipairs({ function(self) self.b = self.b + 1 end,
      function(self) self.b = nil end, function(self) self._buffers.b = nil end }) do
      local model = infer(function(self, x)
        change(self)
        return x + 1
      end, { b = vec(1) })
      raises("Error", "buffer", function() model(vec(1)) end)
    end
  end)

  it("BUF14 statistics of a batch norm after one run", function()
    local net = nn.BatchNorm1d(10, { momentum = 0.1 })
    local module = models.of(function(self, x)
      local y = self.bn(x)
      return y, poptorch.identity_loss(y, "mean")
    end)
    module.bn = net
    local trainer = poptorch.trainingModel(module)
    trainer(torch.ones(4, 10))
    near(net.running_mean, torch.full({ 10 }, 0.1))
    near(net.running_var, torch.full({ 10 }, 0.9))
    local x = torch.randn(4, 10)
    trainer(x)
    near(net.running_var, torch.full({ 10 }, 0.81) + x:var(0, { unbiased = true }) * 0.1)
  end)

  it("BUF16 a buffer of float16 is read, then changed", function()
    local model, module = infer(function(self, x)
      local out = x + self.b
      self.b:add_(1)
      return out
    end, { b = torch.ones(5, { dtype = torch.half }) })
    local x = torch.tensor({ 0.1, 0.2, 0.3, 0.4, 0.5 }):half()
    near(model(x), (x + 1):float())
    model:copyWeightsToHost()
    near(module.b, torch.full({ 5 }, 2))
  end)

  it("BUF17 statistics of ten batches are the host's", function()
    local function normed()
      local module = models.of(function(self, x)
        local y = self.bn(x)
        return y, poptorch.identity_loss(y ^ 2, "mean")
      end)
      module.bn = nn.BatchNorm2d(3)
      return module
    end
    local host, on_device = normed(), normed()
    local trainer = poptorch.trainingModel(on_device, nil,
      torch.optim.SGD(on_device:parameters(), { lr = 0 }))
    for _ = 1, 10 do
      local x = torch.randn(2, 3, 4, 4)
      host(x)
      trainer(x)
    end
    near(on_device.bn.running_mean, host.bn.running_mean, { 1e-5, 1e-5 })
    near(on_device.bn.running_var, host.bn.running_var, { 1e-5, 1e-5 })
  end)
end)

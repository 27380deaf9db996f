-- PopTorch's tests of writes in place (tests/inplace_test.py): to inputs, which
-- the caller's tensors then show, to buffers and to parts of tensors.
local device = require("spec.support.on_device")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

-- x changed by `f`, alone or in a list.
local function changed(f)
  return device.module(function(x)
    f(torch.is_tensor(x) and x or x[1])
  end)
end

-- What one tensor holds after each of two runs; another tensor's run leaves it;
-- then the same in a list, against the host.
local function writes(f, one, two)
  local module = changed(f)
  local model = poptorch.inferenceModel(module)
  local x = torch.tensor({ 1.0 })
  for _, want in ipairs({ one, two }) do
    assert.is_nil(model(x))
    assert.equal(want, x:item())
  end
  assert.is_nil(model(torch.tensor({ 1.0 })))
  assert.equal(two, x:item())
  model:destroy()
  local list, on_host = { torch.tensor({ 1.0 }) }, { torch.tensor({ 1.0 }) }
  for _ = 1, 2 do
    assert.is_nil(model(list))
    module(on_host)
    assert.equal(on_host[1]:item(), list[1]:item())
  end
end

local function buffered(f)
  return device.module(f, function(self)
    self:register_buffer("buffer", torch.ones(1, 2))
  end)
end

describe("inplace", function()
  it("test_inplace_add", function()
    writes(function(x) x:add_(1) end, 2, 3)
  end)

  it("test_inplace_add_multi_elements", function()
    local model = device.infer(function(_, y)
      y:add_(1)
    end)
    local nested = { { torch.ones(1), torch.ones(1) }, { torch.ones(1) } }
    local y = torch.ones(1)
    assert.is_nil(model(nested, y))
    assert.equal(2, y:item())
  end)

  it("test_inplace_sub", function()
    writes(function(x) x:sub_(1) end, 0, -1)
  end)

  it("test_inplace_div", function()
    writes(function(x) x:div_(2) end, 0.5, 0.25)
  end)

  it("test_inplace_mul", function()
    writes(function(x) x:mul_(2) end, 2, 4)
  end)

  it("test_inplace_masked_fill", function()
    local x = torch.tensor({ { 0, 0.7 }, { 0.2, 3.5 } })
    device.infer(function(v)
      v:masked_fill_(v:gt(0.5), 1.0)
    end)(x)
    assert(torch.equal(x, torch.tensor({ { 0, 1.0 }, { 0.2, 1.0 } })))
  end)

  it("test_chained_inplace", function()
    local module = device.module(function(x, y)
      x:add_(y)
      x:add_(2.0)
      x:add_(y)
    end)
    local x, on_host, y = torch.tensor({ 1.0 }), torch.tensor({ 1.0 }), torch.tensor({ 2.0 })
    assert.is_nil(module(on_host, y))
    assert.is_nil(poptorch.inferenceModel(module)(x, y))
    assert.same({ 7, 7 }, { on_host:item(), x:item() })
  end)

  local function sums(write, want)
    local x = torch.tensor({ { 0, 0.5 }, { 0.25, 2.0 } })
    device.infer(function(v)
      local a = torch.sum(v)
      write(v)
      v:add_(a)
    end)(x)
    assert(torch.equal(x, torch.full({ 2, 2 }, want)))
  end

  it("test_inplace_zero", function()
    sums(function(v) v:zero_() end, 2.75)
  end)

  it("test_inplace_fill", function()
    sums(function(v) v:fill_(1.0) end, 3.75)
  end)

  it("test_inplace_non_input", function()
    local x = torch.tensor({ { 0, 0.5 }, { 0.25, 2.0 } })
    local y = device.infer(function(v)
      local a = v + 1
      a:add_(1)
      return a
    end)(x)
    assert(torch.equal(x, torch.tensor({ { 0, 0.5 }, { 0.25, 2.0 } })))
    assert(torch.equal(y, x + 2))
  end)

  it("test_double_underscore", function()
    device.same(function(x, l)
      return x[0]:int() & l:int()
    end, { torch.rand(10, 10), torch.tensor({ 10 }) })
  end)

  it("test_half_buffer_inplace", function()
    local model = poptorch.inferenceModel(device.module(function(self, x)
      local out = x + self.buff
      self.buff:add_(1)
      return out
    end, function(self)
      self:register_buffer("buff", torch.ones(5, { dtype = torch.half }))
    end))
    local x = torch.tensor({ 0.1, 0.2, 0.3, 0.4, 0.5 }):half()
    device.close(model(x), x + 1)
    model:copyWeightsToHost()
    device.close(model.buff, torch.full({ 5 }, 2.0):half())
  end)

  it("test_float_to_half_buffer_inplace_with_training", function()
    local module = device.module(function(self, x)
      local out = self.buff + self.param
      self.buff:add_(1)
      return out, self.loss(out, x)
    end, function(self)
      self.param, self.loss = nn.Parameter(torch.ones(5, 5)), nn.MSELoss()
      self:register_buffer("buff", torch.ones(5))
    end)
    module:train():half()
    local x = torch.rand(5, 5):half()
    local out, loss = module(x)
    module.buff = torch.ones(5, 5):half()
    local got, got_loss = poptorch.trainingModel(module)(x)
    device.close({ got, got_loss }, { out:detach(), loss:detach() })
  end)

  it("test_inplace_on_buffer_and_input", function()
    local buf, out = poptorch.inferenceModel(buffered(function(self, x)
      x:fill_(3)
      self.buffer:copy_(self.buffer + x)
      return self.buffer, x
    end))(torch.ones(1, 2))
    assert.same({ { { 4, 4 } }, { { 3, 3 } } }, { buf:tolist(), out:tolist() })
  end)

  it("test_two_inplace_copies", function()
    local out = device.infer(function(x)
      local res = torch.full({ 1, 2 }, 3.0)
      x:copy_(res)
      res:add_(3)
      x:copy_(res)
      return x
    end)(torch.ones(1, 2))
    assert.same({ { 6, 6 } }, out:tolist())
  end)

  it("test_two_inplace_copies_buffer", function()
    local buf, out = poptorch.inferenceModel(buffered(function(self, x)
      x:fill_(3)
      local update = self.buffer + x
      self.buffer:copy_(update)
      update:add_(5)
      self.buffer:copy_(update)
      return self.buffer, x
    end))(torch.ones(1, 2))
    assert.same({ { { 9, 9 } }, { { 3, 3 } } }, { buf:tolist(), out:tolist() })
  end)

  it("test_inplace_modify_slice", function()
    -- the original refuses steps other than 1
    for step = 1, 2 do
      local rows = "0:2:" .. step
      for _, op in ipairs({
        function(x) x[rows] = x[rows] * 0 end,
        function(x) x[rows]:mul_(0) end,
        function(x) x[rows] = 0 end,
        function(x) x[":, :2:" .. step]:mul_(0) end,
        function(x)
          x:mul_(2)
          x[rows] = x[rows] * 0
        end,
        function(x) x[("1:%d:%d, :"):format(x:size(0), step)]:add_(1) end,
      }) do
        local function f(x)
          op(x)
          return x
        end
        local t = torch.rand(4, 4)
        local on_device, on_host = t:clone(), t:clone()
        device.close(device.infer(f)(on_device), f(on_host))
        device.close(on_device, on_host)
      end
    end
  end)

  it("test_inplace_modify_select", function()
    local function f(a, b, c)
      a = a - b
      a["0:1"] = a["0:1"] + c[1]
      a[0] = a[0] + c[0]
      a[1][2]:add_(c[2][1])
      a[1][3][1] = a[1][3][1] + c[2][3][0]
      return a
    end
    device.same(f, { torch.randint(0, 55, { 3, 4, 2 }), torch.randint(0, 66, { 3, 4, 2 }),
      torch.randint(0, 77, { 3, 4, 2 }) })
  end)

  it("test_index_put_on_buffer", function()
    local module = device.module(function(self, x, idx)
      self.p[idx] = x
      return self.p
    end, function(self)
      self:register_buffer("p", torch.arange(6.0):reshape(2, 3))
    end)
    local out = poptorch.inferenceModel(module)(torch.full({ 3 }, -1.0), torch.tensor({ 0 }))
    assert.same({ { -1, -1, -1 }, { 3, 4, 5 } }, out:tolist())
  end)
end)

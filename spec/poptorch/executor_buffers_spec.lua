--- What forward writes: inputs, buffers, plain fields.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local function vec(...)
  return torch.tensor({ ... }, { dtype = torch.float32 })
end

local function infer(f, buffers, options)
  local cls = nn.Module:extend("Function")
  cls.forward = f
  local model = cls()
  for name, b in pairs(buffers or {}) do
    model:register_buffer(name, b)
  end
  return poptorch.inferenceModel(model, options), model
end

-- A model returns a view of a buffer from a block, and writes the buffer behind it.
describe("a view of a buffer that is written afterwards", function()
  it("is read in the block that wrote it, in any strategy", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.fc = nn.Linear(2, 2)
      self:register_buffer("seen", torch.zeros(3))
    end
    function Net:forward(x)
      local view
      do
        local _ <close> = poptorch.Block("a", { ipu_id = 0 })
        view = self.seen["1:"]
        self.seen:add_(1)
        x = self.fc(x)
      end
      local _ <close> = poptorch.Block("b", { ipu_id = 1 })
      return view, poptorch.identity_loss(x, "mean")
    end
    for _, strategy in ipairs({ poptorch.ParallelPhasedExecution("a", "b"),
      poptorch.PipelinedExecution(), poptorch.ShardedExecution() }) do
      local options = poptorch.Options():outputMode(poptorch.OutputMode.All)
      options.Training:gradientAccumulation(3)
      options:setExecutionStrategy(strategy)
      local net = Net()
      local trainer = poptorch.trainingModel(net, options)
      near((trainer(torch.ones(6, 2))), { 1, 1, 2, 2, 3, 3 })
      trainer:destroy()
    end
  end)
end)

describe("an input changed in place", function()
  it("is changed for the caller after every call", function()
    local f = infer(function(_, x)
      x:add_(1)
      return x
    end)
    local x, other = vec(1), vec(10)
    f(x)
    near(x, { 2 })
    f(x)
    near(x, { 3 })
    f(other)
    near(x, { 3 })
    near(other, { 11 })
  end)

  it("stays what it is with made-up data in its place", function()
    local f = infer(function(_, x)
      x:add_(1)
      return x * 2
    end, nil, poptorch.Options():enableSyntheticData(true))
    local x = vec(5, 6)
    f(x)
    near(x, { 5, 6 })
  end)

  it("may be changed by any operator", function()
    for _, case in ipairs({ { "sub_", 1, { 0, -1 } }, { "div_", 2, { 0.5, 0.25 } },
      { "mul_", 2, { 2, 4 } } }) do
      local x = vec(1)
      local f = infer(function(_, v)
        v[case[1]](v, case[2])
      end)
      for call = 1, 2 do
        f(x)
        near(x, { case[3][call] })
      end
    end
  end)

  it("may be changed by assigning through a mask, or to an element", function()
    local x = vec(0, 0.7, 0.2, 3.5)
    infer(function(_, v)
      v[v:gt(0.5)] = 1
      return v
    end)(x)
    near(x, { 0, 1, 0.2, 1 })
    infer(function(_, v)
      v[0] = 9
    end)(x)
    near(x, { 9, 1, 0.2, 1 })
  end)

  it("keeps its own type when the device has a narrower one", function()
    local x = torch.tensor({ 1, 2 })
    infer(function(_, v)
      v:mul_(3)
    end)(x)
    assert.equal(torch.int64, x.dtype)
    near(x, { 3, 6 })
  end)

  it("is left alone when only a value made of it changes", function()
    local x = vec(1)
    local y = infer(function(_, v)
      local a = v + 1
      a:add_(1)
      return a
    end)(x)
    near(x, { 1 })
    near(y, { 3 })
  end)
end)

describe("a buffer", function()
  it("may be read together with an input that is written", function()
    local first, model = infer(function(self, x)
      x:fill_(3)
      self.state:add_(x)
      return self.state
    end, { state = vec(1, 1) })
    local x = vec(0, 0)
    near(first(x), { 4, 4 })
    near(x, { 3, 3 })
    near(model.state, { 1, 1 })
    first:copyWeightsToHost()
    near(model.state, { 4, 4 })
  end)

  it("that is only read is a constant", function()
    local f = infer(function(self, x)
      return (self.state + 1 + x):sum()
    end, { state = vec(1, 2, 3) })
    for _ = 1, 3 do
      near(f(vec(2, 2, 2)), 15)
    end
  end)

  it("that forward writes lasts from call to call, micro-batch by micro-batch", function()
    local f, model = infer(function(self, x)
      self.count:add_(1)
      return x * 0 + self.count
    end, { count = vec(0) }, poptorch.Options():deviceIterations(3))
    near(f(vec(0, 0, 0)), { 1, 2, 3 })
    near(f(vec(0, 0, 0)), { 4, 5, 6 })
    near(model.count, { 0 })
    f:copyWeightsToHost()
    near(model.count, { 6 })
  end)

  it("of float16 is read before it is written", function()
    local half = torch.float16
    local f, model = infer(function(self, x)
      local y = x + self.state
      self.state:add_(1)
      return y
    end, { state = torch.ones(2, { dtype = half }) })
    local y = f(torch.ones(2, { dtype = half }))
    assert.equal(half, y.dtype)
    near(y, { 2, 2 })
    f:copyWeightsToHost()
    near(model.state, { 2, 2 })
  end)

  it("named as updatable goes to the device on request, another one does not", function()
    local function setup(names)
      local o = poptorch.Options()
      if names then
        o:updatableNamedBuffers(names)
      end
      return infer(function(self, x)
        return (x + self.b1 + self.b2):sum()
      end, { b1 = vec(1, 1, 1), b2 = vec(1, 1, 1) }, o)
    end
    local x = vec(1, 1, 1)
    local f, model = setup({ "b1" })
    near(f(x), 9)
    model.b1:add_(1)
    near(f(x), 9)
    f:copyNamedBuffersToDevice()
    near(f(x), 12)
    model.b2:add_(1)
    f:copyNamedBuffersToDevice()
    near(f(x), 12)
    f, model = setup({ "b1", "b2" })
    near(f(x), 9)
    model.b2:add_(1)
    f:copyNamedBuffersToDevice()
    near(f(x), 12)
    f = setup(nil)
    f(x)
    raises("Error", "updatableNamedBuffers", function()
      f:copyNamedBuffersToDevice()
    end)
    raises("Error", "no buffer 'b3'", function()
      setup({ "b3" })(x)
    end)
  end)

  it("must not be given another tensor or be deleted", function()
    raises("Error", "registered buffer", function()
      infer(function(self, x)
        self.state = self.state + x
        return x
      end, { state = vec(1) })(vec(1))
    end)
    local f, model = infer(function(self, x)
      self.state = nil
      return x
    end, { state = vec(1) })
    raises("Error", "deleted the buffer 'state'", function()
      f(vec(1))
    end)
    near(model.state, { 1 })
  end)

  it("must not be removed, and is there again in its place", function()
    local f, model = infer(function(self, x)
      self._buffers["b"] = nil
      return x
    end)
    for _, name in ipairs({ "a", "b", "c" }) do
      model:register_buffer(name, vec(1))
    end
    raises("Error", "deleted the buffer 'b'", function()
      f(vec(1))
    end)
    local names = {}
    for name in model:named_buffers() do
      names[#names + 1] = name
    end
    assert.same({ "a", "b", "c" }, names)
  end)

  it("is a plain tensor in training", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.w = nn.Parameter(torch.ones(1))
      self:register_buffer("b", nn.Parameter(torch.ones(1)))
    end
    raises("Error", "buffer 'b' is a torch.nn.Parameter", function()
      poptorch.trainingModel(Net())
    end)
  end)

  it("modified with replicas needs broadcastBuffers(false)", function()
    local function run(write, broadcast)
      local o = poptorch.Options():replicationFactor(2):broadcastBuffers(broadcast)
      return infer(function(self, x)
        if write then
          self.state:add_(x)
        end
        return x + self.state
      end, { state = vec(1) }, o)(vec(1, 2))
    end
    raises("Error", "broadcastBuffers%(false%)", function()
      run(true, true)
    end)
    near(run(false, true), { 2, 3 })
    near(run(true, false), { 3, 5 })
  end)
end)

describe("statistics of a normalising layer", function()
  it("stay as they are where it is in eval mode, in a training model too", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.still, self.moves = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    end
    function Net:forward(x)
      return poptorch.identity_loss(self.moves(self.still(x)), "sum")
    end
    local net = Net()
    net.still:eval()
    poptorch.trainingModel(net)(torch.randn(4, 3) + 1)
    near(net.still.running_mean, { 0, 0, 0 }, helper.exact)
    near(net.still.running_var, { 1, 1, 1 }, helper.exact)
    assert.equal(0, net.still.num_batches_tracked:item())
    assert.is_false(torch.equal(net.moves.running_mean, torch.zeros(3)))
  end)
end)

describe("a parameter", function()
  it("must not be assigned or deleted in forward", function()
    local Net = nn.Module:extend("Net")
    function Net:init(f)
      self.weight = nn.Parameter(vec(1))
      self.change = f
    end
    function Net:forward(x)
      self.change(self)
      return x
    end
    for _, f in ipairs({ function(self)
      self.weight = nn.Parameter(vec(2))
    end, function(self)
      self.weight = nil
    end, function(self)
      self._parameters.weight = nil
    end }) do
      local net = Net(f)
      raises("Error", "parameter 'weight'", function()
        poptorch.inferenceModel(net)(vec(1))
      end)
      near(net.weight, { 1 })
    end
  end)
end)

describe("a plain field", function()
  it("that holds a tensor is frozen: it gets its value back", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.i = vec(0)
    end
    function Net:forward(x)
      self.i = self.i + 1
      return x * 0 + self.i
    end
    local net = Net()
    local f = poptorch.inferenceModel(net)
    for _ = 1, 2 do
      near(f(vec(0)), { 1 })
      near(net.i, { 0 })
    end
  end)

  it("changed in place is frozen too", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.i = vec(0)
    end
    function Net:forward(x)
      self.i:add_(1)
      return x + self.i
    end
    local net = Net()
    local f = poptorch.inferenceModel(net)
    near(f(vec(0)), { 1 })
    near(f(vec(0)), { 1 })
    near(net.i, { 0 })
  end)

  it("that forward made does not keep a traced tensor", function()
    local Net = nn.Module:extend("Net")
    function Net:forward(x)
      self.kept = x + 1
      return self.kept
    end
    local net = Net()
    near(poptorch.inferenceModel(net)(vec(1)), { 2 })
    assert.is_nil(net.kept)
  end)
end)

describe("a buffer of the host", function()
  it("that is a part of a larger tensor is read and written there", function()
    local large = torch.arange(6.0):reshape(2, 3)
    local f, model = infer(function(self, x)
      self.row:add_(1)
      return x + self.row
    end, { row = large[1] })
    near(f(vec(0, 0, 0)), { 4, 5, 6 })
    f:copyWeightsToHost()
    near(large, { { 0, 1, 2 }, { 4, 5, 6 } })
    large:fill_(7)
    f:copyWeightsToDevice()
    near(f(vec(0, 0, 0)), { 8, 8, 8 })
    model.row = large[1]
    f:copyWeightsToDevice()
    near(f(vec(0, 0, 0)), { 8, 8, 8 })
    for _, other in ipairs({ large[0], torch.zeros(2, 3)[1], torch.zeros(3) }) do
      model.row = other
      raises("Error", "buffer 'row' was a part of a larger tensor", function()
        f:copyWeightsToDevice()
      end)
    end
    f:destroy()
    near(f(vec(0, 0, 0)), { 1, 1, 1 })
    model.row = large[1] -- in place of a whole tensor
    f:copyWeightsToDevice()
    near(f(vec(0, 0, 0)), { 8, 8, 8 })
  end)

  it("has a new value when it is fetched, of which no gradient is taken any more", function()
    local f, model = infer(function(self, x)
      self.count:add_(1)
      return x * self.count
    end, { count = vec(1) })
    local w = vec(3):requires_grad_(true)
    f(vec(1))
    local y = w * model.count
    f:copyWeightsToHost()
    near(model.count, { 2 })
    raises("RuntimeError", "has been modified by an in%-place", function()
      y:sum():backward()
    end)
  end)
end)

--- Options.Precision.enableStochasticRounding: float16 rounds so that the
--- expected value is exact.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local F = nn.functional
local N = 4096

-- sum(w * x), with N weights of 1.
local Net = nn.Module:extend("Net")

function Net:init()
  self.w = nn.Parameter(torch.ones(N))
end

function Net:forward(x)
  return poptorch.identity_loss((self.w * x):sum(), "none")
end

local function options(on, seed)
  local o = poptorch.Options():randomSeed(seed or 3)
  o.Precision:enableStochasticRounding(on)
  return o
end

-- The weights after `steps` of w - 2^-14, which is an eighth of the distance
-- to the number below 1.
local function trained(on, steps, o)
  local net = Net()
  net:half()
  o = o or options(on)
  local model = poptorch.trainingModel(net, o, poptorch.optim.SGD(net:parameters(),
    { lr = 2 ^ -14 }))
  local rows = o.replication_factor * o.device_iterations
  for _ = 1, steps do
    model(torch.ones(rows, N):half())
  end
  return net.w:detach():clone()
end

describe("stochastic rounding", function()
  it("lets steps count that are lost to nearest", function()
    assert.same({ 1, 1 }, { trained(false, 64):double():min():item(),
      trained(false, 64):double():max():item() })
    local w = trained(true, 64):double()
    -- 64 steps; each is 2^-11 with probability 1/8
    local deviation = 2 ^ -11 * math.sqrt(64 * 1 / 8 * 7 / 8)
    local mean = w:mean():item()
    assert.is_true(math.abs(mean - (1 - 64 * 2 ^ -14)) < 4 * deviation / math.sqrt(N), mean)
    assert.near(deviation, w:std():item(), 0.1 * deviation)
  end)

  it("is made again by the seed, and only by it", function()
    local w = trained(true, 8)
    assert.is_true(torch.equal(w, trained(true, 8)))
    assert.is_false(torch.equal(w, trained(true, 8, options(true, 4))))
    assert.is_true(torch.equal(w, trained(true, 4, options(true):deviceIterations(2))))
  end)

  it("goes on from rng_state", function()
    local net = Net():half()
    local model = poptorch.trainingModel(net, options(true), poptorch.optim.SGD(net:parameters(),
      { lr = 2 ^ -14 }))
    local x = torch.ones(1, N):half()
    local function run(n)
      for _ = 1, n do
        model(x)
      end
      return net.w:detach():clone()
    end
    local first, state = run(3), model.rng_state
    local straight = run(3)
    local function again(random)
      torch.no_grad(function()
        net.w:copy_(first)
      end)
      model:copyWeightsToDevice()
      model.rng_state = random
      return run(3)
    end
    assert.is_true(torch.equal(straight, again(state)))
    assert.is_false(torch.equal(straight, again({ state[1], state[2] + 1 })))
    assert.is_false(torch.equal(straight, again({ state[1] + 1, state[2] })))
  end)

  it("is the same in training on every system", function()
    local Two = nn.Module:extend("Two")
    function Two:init()
      torch.manual_seed(5)
      self.first, self.norm, self.second = nn.Linear(24, 40), nn.LayerNorm(40), nn.Linear(40, 10)
      self.loss = nn.CrossEntropyLoss()
    end
    function Two:forward(x, y)
      local h
      do
        local _ <close> = poptorch.Block("first", { ipu_id = 0 })
        h = F.gelu(self.first(x))
        h = self.checkpoint and poptorch.recomputationCheckpoint(h) or h
        h = F.dropout(self.norm(h), 0.25, true) * 0.9
      end
      local _ <close> = poptorch.Block("second", { ipu_id = self.ipu })
      return self.loss(self.second(h), y)
    end
    local function weights(ipu, set, checkpoint)
      local net = Two():half()
      net.ipu, net.checkpoint = ipu, checkpoint
      local o = options(true)
      o.Training:gradientAccumulation(4)
      set(o)
      local model = poptorch.trainingModel(net, o, poptorch.optim.AdamW(net:parameters(),
        { lr = 2 ^ -7, loss_scaling = 64, first_order_momentum_accum_type = torch.float16 }))
      torch.manual_seed(6)
      local x, y = torch.randn(16, 24):half(), torch.arange(16) % 10
      for _ = 1, 3 do
        model(x, y)
      end
      return net:state_dict()
    end
    local function nothing() end
    local want, threads = weights(0, nothing), torch.get_num_threads()
    local ways = { pipelined = { 1, nothing },
      ["pipelined, with a checkpoint"] = { 1, nothing, true },
      sharded = { 1, function(o)
        o:setExecutionStrategy(poptorch.ShardedExecution())
      end },
      recomputed = { 0, function(o)
        o._Popart:set("autoRecomputation", 1)
      end }, ["recomputed, to a checkpoint"] = { 1, function(o)
        o._Popart:set("autoRecomputation", 3)
      end, true },
      threads = { 0, function()
        torch.set_num_threads(1)
      end } }
    for name, way in pairs(ways) do
      local got = weights(way[1], way[2], way[3])
      torch.set_num_threads(threads)
      for key, t in pairs(want) do
        assert.is_true(torch.equal(t, got[key]), name .. " " .. key)
      end
    end
  end)

  it("does not depend on the IPUs that a model runs on", function()
    local function results(second)
      local Two = nn.Module:extend("Two")
      function Two:forward(x) -- luacheck: ignore self
        local y
        do
          local _ <close> = poptorch.Block("first", { ipu_id = 0 })
          y = x / 3
        end
        local _ <close> = poptorch.Block("second", { ipu_id = second })
        return y * 0.7
      end
      return poptorch.inferenceModel(Two(), options(true):deviceIterations(4))(
        torch.ones(4, 100):half())
    end
    assert.is_true(torch.equal(results(0), results(1)))
  end)

  it("rounds an inference model's results, of float16 only", function()
    local Third = nn.Module:extend("Third")
    function Third:forward(x) -- luacheck: ignore self
      return x / 3, x:float() / 3
    end
    local model = poptorch.inferenceModel(Third(), options(true))
    local y, z = model(torch.ones(1, 100000):half())
    assert.equal(torch.float16, y.dtype)
    local low, high = 0x1.554p-2, 0x1.558p-2 -- 1/3 is a third of the way
    local p = y:double():eq(high):double():mean():item()
    assert.is_true(y:eq(low):logical_or(y:eq(high)):all():item())
    assert.is_true(math.abs(p - 1 / 3) < 4 * math.sqrt(2 / 9 / 100000), p)
    assert.equal(1, #z:unique():tolist())
  end)

  it("is known by its PopART name", function()
    local o = poptorch.Options()
    o._Popart:set("enableStochasticRounding", true)
    assert.is_true(o.Precision.stochastic_rounding)
  end)

  it("rescues half weights from a rate that is too small for nearest", function()
    -- A student learns what a teacher of float32 says. Near 1 half the distance of two halves
    -- is 2^-11 to 2^-12; most updates are less, and all of them once the gradients are small.
    local Student = nn.Module:extend("Student")
    function Student:init()
      self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)
      self.loss = nn.MSELoss()
    end
    function Student:forward(x, y)
      return self.loss(self.second(torch.tanh(self.first(x))), y)
    end
    torch.manual_seed(11)
    local teacher = Student()
    local function answer(net, x)
      return torch.no_grad(function()
        return net.second:float()(torch.tanh(net.first:float()(x)))
      end)
    end
    local x = torch.randn(256, 16)
    local y, seen = answer(teacher, x), torch.randn(1024, 16)
    local truth = answer(teacher, seen)
    local function loss(how)
      torch.manual_seed(12)
      local net = Student()
      local float = how == "float"
      if not float then
        net:half()
      end
      local o = options(how == "random"):deviceIterations(16)
      local model = poptorch.trainingModel(net, o, poptorch.optim.SGD(net:parameters(),
        { lr = 2 ^ -9, loss_scaling = float and 1 or 16 }))
      local xs, ys = torch.cat({ x, x, x, x }), torch.cat({ y, y, y, y })
      for _ = 1, 480 do
        model(float and xs or xs:half(), float and ys or ys:half())
      end
      model:copyWeightsToHost()
      return F.mse_loss(answer(net, seen), truth):item()
    end
    local exact, nearest, random = loss("float"), loss("nearest"), loss("random")
    assert.is_true(random < 1.02 * exact, random / exact)
    assert.is_true(nearest > 3 * exact, nearest / exact)
  end)
end)

--- Half partials by PopTorch's options and PopART's: which products and sums
--- round on their way, and what does not matter.
local half_sums = require("spec.support.half_sums")
local helper = require("spec.popart.helper")
local nn = require("torch.nn")
local popart = require("popart")
local poptorch = require("poptorch")
local torch = require("torch")

local F = nn.functional

local function pattern(shape, scale)
  local t = torch.arange(torch.zeros(shape):numel()):float()
  return ((torch.sin(t * 1.91 + 0.37) + 0.21) * (scale or 1)):half():reshape(shape)
end

local X, W, K = pattern({ 4, 200 }, 3), pattern({ 200, 8 }, 2), pattern({ 200, 200, 1, 1 }, 2)

-- A product, the same as a convolution of one position, and a sum.
local All = nn.Module:extend("All")

function All:init()
  self.w, self.k = nn.Parameter(W), nn.Parameter(K)
end

function All:forward(x) -- luacheck: ignore self
  return x:matmul(self.w), F.conv2d(x:reshape(-1, 200, 1, 1), self.k), x:sum(1)
end

local function options(set)
  local o = poptorch.Options()
  set(o)
  return o
end

local function half(o)
  o.Precision:setPartialsType(torch.half)
end

-- Which results of All are not what they are with float partials, as "matmul conv sum", and
-- the model.
local function changed(set)
  local function results(o)
    local model = poptorch.inferenceModel(All(), o)
    return { model(X) }, model
  end
  local got, model = results(options(set))
  local want, names = results(poptorch.Options()), {}
  for i, name in ipairs({ "matmul", "conv", "sum" }) do
    names[#names + 1] = not torch.equal(got[i], want[i]) and name or nil
  end
  return table.concat(names, " "), got, model
end

describe("half partials", function()
  it("are of products, convolutions and sums", function()
    assert.equal("", (changed(function() end)))
    assert.equal("", (changed(function(o) o.Precision:setPartialsType(torch.float) end)))
    local names, got, model = changed(half)
    assert.equal("matmul conv sum", names)
    assert.is_nil(table.concat(model:report().no_effect, "\n"):find("artials"))
    local x, w = X:double():tolist(), W:double():tolist()
    for i = 1, 4 do
      assert.equal(half_sums.f16(half_sums.sum(200, function(q) return x[i][q] end)),
        got[3][i - 1]:item())
      for j = 1, 8 do
        assert.equal(half_sums.f16(half_sums.sum(200, function(q) return x[i][q] * w[q][j] end)),
          got[1][i - 1][j - 1]:item())
      end
    end
  end)

  it("are those of convolutions alone by their library's option", function()
    assert.equal("conv", (changed(function(o)
      o._Popart:set("convolutionOptions", { partialsType = "half" })
    end)))
    assert.equal("matmul sum", (changed(function(o)
      half(o)
      o._Popart:set("convolutionOptions", { partialsType = "float" })
    end)))
  end)

  it("are each convolution's own in a multi-convolution, and its gradients'", function()
    local Two = nn.Module:extend("Two")
    function Two:init()
      self.a, self.b = nn.Parameter(K:clone()), nn.Parameter(K:clone())
    end
    function Two:forward(x, types)
      x = x:reshape(-1, 200, 1, 1)
      local scope = poptorch.MultiConv():partialsTypes(types)
      local y, z = F.conv2d(x, self.a), F.conv2d(x * 1, self.b)
      scope:__close()
      return y, z, poptorch.identity_loss(y:sum() * 2 ^ -10 + z:sum() * 2 ^ -10, "none")
    end
    local function trained(types)
      local net = Two()
      local model = poptorch.trainingModel(net, poptorch.Options(),
        poptorch.optim.SGD(net:parameters(), { lr = 1 }))
      local y, z = model(pattern({ 64, 200 }, 3), types)
      return { y, z, net.a:detach():clone(), net.b:detach():clone() }
    end
    local float, both = trained({ torch.float, torch.float }), trained({ torch.half, torch.half })
    for i = 1, 4 do
      assert.is_false(torch.equal(float[i], both[i]))
    end
    local one = trained({ torch.half, torch.float })
    for i, want in ipairs({ both[1], float[2], both[3], float[4] }) do
      assert.is_true(torch.equal(want, one[i]), i)
    end
  end)

  local Net = nn.Module:extend("Net")
  function Net:init()
    torch.manual_seed(5)
    self.conv, self.fc = nn.Conv2d(3, 20, 3), nn.Linear(720, 10)
    self.loss = nn.CrossEntropyLoss()
  end
  function Net:forward(x, y)
    local h
    do
      local _ <close> = poptorch.Block("first", { ipu_id = 0 })
      h = F.gelu(self.conv(x)):flatten(1)
    end
    local _ <close> = poptorch.Block("second", { ipu_id = self.ipu or 0 })
    return self.loss(self.fc(h), y)
  end

  -- Weights after two steps of 16 rows.
  local function trained(ipu, set)
    local net = Net():half()
    net.ipu = ipu
    local o = options(half)
    o.Training:gradientAccumulation(4)
    set(o)
    local model = poptorch.trainingModel(net, o, poptorch.optim.SGD(net:parameters(),
      { lr = 0.125 }))
    local y = torch.arange(16) % 10
    for _ = 1, 2 do
      model(pattern({ 16, 3, 8, 8 }), y)
    end
    return net:state_dict()
  end

  it("are the same on every system", function()
    local want = trained(0, function() end)
    local ways = {
      ["available memory"] = { 0, function(o) o:setAvailableMemoryProportion({ IPU0 = 0.01 }) end },
      ["two IPUs in a pipeline"] = { 1, function() end },
      ["sharded"] = { 1, function(o)
        o:setExecutionStrategy(poptorch.ShardedExecution())
      end },
      recomputed = { 1, function(o) o._Popart:set("autoRecomputation", 1) end },
      replicas = { 0, function(o)
        o:replicationFactor(2)
        o.Training:gradientAccumulation(2)
      end, true },
      threads = { 0, function() torch.set_num_threads(1) end },
    }
    local threads = torch.get_num_threads()
    for name, way in pairs(ways) do
      local got = trained(way[1], way[2])
      torch.set_num_threads(threads)
      for key, t in pairs(want) do
        -- sums over replicas are another sum of the same products
        local same = way[3] and torch.allclose(t:float(), got[key]:float(), { atol = 2e-3 })
          or torch.equal(t, got[key])
        assert.is_true(same, name .. " " .. key)
      end
    end
    local float = trained(0, function(o) o.Precision:setPartialsType(torch.float) end)
    assert.is_false(torch.equal(want["fc.weight"], float["fc.weight"]))
  end)
end)

describe("half partials of popart", function()
  -- Which results differ from those of float: "matmul conv".
  local function results(fields, types)
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT16", { 4, 200 })
    local p = b.aiOnnx:matmul({ x, b:addInitializedInputTensor(W) })
    local shape = b.aiOnnx:constant(torch.tensor({ 4, 200, 1, 1 }))
    local c = b.aiOnnx:conv({ b.aiOnnx:reshape({ x, shape }), b:addInitializedInputTensor(K) })
    for i, id in ipairs({ p, c }) do
      if types and types[i] then
        b:setPartialsType(id, types[i])
      end
    end
    local s = helper.inference(b, popart.DataFlow(1, { p, c }), { options = fields })
    local got = helper.run(s, { [x] = X })
    return { got[p], got[c] }
  end

  it("are of matrix products or of convolutions, or of a node", function()
    local float = results({})
    for want, given in pairs({ [""] = { {} }, matmul = { { partialsTypeMatMuls = "HALF" } },
      conv = { { convolutionOptions = { partialsType = "half" } } },
      ["matmul conv"] = { {}, { "HALF", "HALF" } }, ["conv "] = { {}, { false, "half" } },
      ["matmul "] = { {}, { "HALF" } },
      [" "] = { { partialsTypeMatMuls = "half" }, { "FLOAT" } } }) do
      local got, names = results(given[1], given[2]), {}
      for i, name in ipairs({ "matmul", "conv" }) do
        names[#names + 1] = not torch.equal(float[i], got[i]) and name or nil
      end
      assert.equal((want:gsub(" $", "")), table.concat(names, " "))
    end
  end)
end)

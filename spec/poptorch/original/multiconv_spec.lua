-- PopTorch's tests of MultiConv (tests/multiconv_test.py), and what its
-- settings do on the simulated device.
local core = require("lupine.core")
local device = require("spec.support.on_device")
local raises = require("spec.poptorch.helper").raises
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local PARALLEL, SERIAL = poptorch.MultiConvPlanType.Parallel, poptorch.MultiConvPlanType.Serial

-- Convolutions of the report by their multi-convolution: {[number] = {node, …}}.
local function groups(model)
  local out = {}
  for _, node in ipairs(model:report():nodes()) do
    if node.multi_conv >= 0 then
      local list = out[node.multi_conv] or {}
      out[node.multi_conv] = list
      list[#list + 1] = node
    end
  end
  return out
end

local function counts(model, n)
  local found = groups(model)
  for i = 0, n - 1 do
    assert.equal(2, #found[i])
  end
  assert.is_nil(found[n])
end

-- c1(x) - c2(x^2) inside what `scope` makes of a function.
local function two_convs(scope)
  return device.module(function(self, x)
    local y = x ^ 2
    local u, v = scope(function()
      return self.conv1(x), self.conv2(y)
    end)
    return u - v
  end, function(self)
    self.conv1 = nn.Conv2d(1, 10, 5)
    self.conv2 = nn.Conv2d(1, 10, 5)
  end)
end

local function harness(scope)
  local model, x = two_convs(scope), torch.randn(2, 1, 28, 28)
  local native = model(x):detach()
  local on_device = poptorch.inferenceModel(model)
  torch.testing.assert_close(on_device(x), native)
  counts(on_device, 1)
  return on_device
end

describe("multiconv", function()
  it("test_multiconv_basic", function()
    local Model = nn.Module:extend("Model")
    function Model:init()
      self.convA = nn.Conv2d(1, 1, 5)
      self.convB = nn.Conv2d(1, 1, 5, { bias = false })
    end
    function Model:forward(x)
      local _ <close> = poptorch.MultiConv()
      local a = self.convA(x)
      return a + self.convB(torch.abs(x))
    end
    for layers = 1, 3 do
      local list = {}
      for i = 1, layers do
        list[i] = Model()
      end
      local net, x = nn.Sequential(table.unpack(list)), torch.randn(2, 1, 28, 28)
      local model = poptorch.inferenceModel(net)
      torch.testing.assert_close(model(x), net(x):detach())
      counts(model, layers)
    end
  end)

  it("test_multiconv_options_broadcast", function()
    harness(poptorch.MultiConv():availableMemoryProportions(0.8):partialsTypes(torch.float)
      :planType(PARALLEL):perConvReservedTiles(100):cycleBackOff(0.3):enableConvDithering(true))
  end)

  it("test_multiconv_options_per_conv", function()
    harness(poptorch.MultiConv():availableMemoryProportions({ 0.8, 0.7 })
      :partialsTypes({ torch.float, torch.float }):planType(PARALLEL):perConvReservedTiles(120)
      :cycleBackOff(0.4):enableConvDithering(true))
  end)

  it("test_multiconv_layers", function()
    local function layer()
      return nn.Sequential(nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU())
    end
    local net = device.module(function(self, x)
      local both = poptorch.MultiConv(function()
        return self.layer1A(torch.abs(x)) + self.layer1B(x)
      end)
      x = self.layer2(both):view(-1, 320)
      return self.softmax(self.layer4(self.layer3(x):relu()))
    end, function(self)
      self.layer1A, self.layer1B = layer(), layer()
      self.layer2 = nn.Sequential(nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU())
      self.layer3, self.layer4 = nn.Linear(320, 256), nn.Linear(256, 10)
      self.softmax = nn.LogSoftmax(1)
    end)
    local x = torch.randn(2, 1, 28, 28)
    local model = poptorch.inferenceModel(net)
    torch.testing.assert_close(model(x), net(x):detach())
    counts(model, 1)
  end)

  it("test_invalid_multiconv_nested", function()
    local e = raises("Error", harness, function(f)
      return poptorch.MultiConv(function()
        return poptorch.MultiConv(f)
      end)
    end)
    assert.matches("Nested poptorch.MultiConv is not supported", e.message)
  end)

  it("test_invalid_multiconv_empty", function()
    local model = device.infer(function(x)
      local _ <close> = poptorch.MultiConv()
      return x ^ 2
    end)
    assert.matches("no convolution inside", raises("Error", model, torch.ones(2, 2)).message)
  end)

  it("test_invalid_multiconv_options", function()
    local mc = poptorch.MultiConv()
    assert.matches("invalid partials types",
      raises("ValueError", mc.partialsTypes, mc, "half").message)
    assert.matches("invalid plan type",
      raises("AssertionError", mc.planType, mc, "parallel").message)
  end)
end)

describe("a multi-convolution", function()
  -- the layers' sizes, then the scope around both
  local function trained(wide, scope)
    torch.manual_seed(3)
    local net = device.module(function(self, x)
      local y = x * x
      local u, v = scope(function()
        return self.a(x), self.b(y)
      end)
      return poptorch.identity_loss(u ^ 2, "sum") + poptorch.identity_loss(v ^ 2, "sum")
    end, function(self)
      self.first = nn.Parameter(torch.ones(1))
      self.a, self.b = nn.Conv2d(16, wide, 5), nn.Conv2d(16, 64, 5)
    end)
    local whole = device.module(function(x)
      return poptorch.identity_loss(net(x * net.first), "none")
    end)
    whole.net = net
    local model = poptorch.trainingModel(whole, nil, torch.optim.SGD(whole:parameters(), 1e-4))
    local loss = model(torch.ones(2, 16, 28, 28))
    model:copyWeightsToHost()
    return model, loss:item(), net.a.weight:detach():clone()
  end

  local function plain(f) return f() end
  local function serial(f) return poptorch.MultiConv():planType(SERIAL)(f) end

  -- {forward, to the inputs, to the weights} -> cycles of each convolution
  local function cycles(model)
    local out = {}
    for _, node in ipairs(model:report():nodes()) do
      if node.operator:find("^convolution") then
        out[node.operator] = out[node.operator] or {}
        table.insert(out[node.operator], node.cycles)
      end
    end
    return out
  end

  it("takes as long as its longest member, forward and backward", function()
    local apart = cycles((trained(64, plain)))
    local model, loss, weight = trained(64, poptorch.MultiConv)
    local _, same_loss, same_weight = trained(64, plain)
    assert.equal(same_loss, loss)
    assert(torch.equal(same_weight, weight))
    local kinds = 0
    for kind, alone in pairs(apart) do
      local got = cycles(model)[kind]
      table.sort(got)
      kinds = kinds + 1
      assert.equal(2, #got)
      assert.equal(0, got[1])
      assert(got[2] > math.max(table.unpack(alone)), "on fewer tiles it is slower")
      assert(got[2] < alone[1] + alone[2], "but both together are quicker")
    end
    assert.equal(3, kinds)
  end)

  it("takes as long as its members one after another in a serial plan", function()
    assert.same(cycles((trained(64, plain))), cycles((trained(64, serial))))
  end)

  it("keeps to the members' own proportions and partials", function()
    local function made(set)
      return cycles((trained(64, function(f)
        return set(poptorch.MultiConv():planType(SERIAL))(f)
      end)))
    end
    local both = made(function(mc) return mc:availableMemoryProportions(0.01) end)
    local first = made(function(mc) return mc:availableMemoryProportions({ 0.01, 0.6 }) end)
    local all = made(function(mc) return mc end)
    for kind, c in pairs(all) do
      -- backward nodes stand in the opposite order
      local a, b = 1, 2
      if kind ~= "convolution" then
        a, b = 2, 1
      end
      assert.equal(both[kind][a], first[kind][a], kind)
      assert.equal(c[b], first[kind][b], kind)
    end
    assert.not_equal(both.convolution[1], all.convolution[1])
  end)

  it("reserves tiles, and backs off", function()
    local function longest(set)
      local model = trained(8, function(f)
        return set(poptorch.MultiConv())(f)
      end)
      return math.max(table.unpack(cycles(model).convolution))
    end
    local free = longest(function(mc) return mc:perConvReservedTiles(1):cycleBackOff(0) end)
    assert(longest(function(mc) return mc:perConvReservedTiles(700):cycleBackOff(0) end) > free)
    assert.not_equal(free,
      longest(function(mc) return mc:perConvReservedTiles(1):cycleBackOff(0.5) end))
  end)

  it("backs off by the share for each of the others", function()
    -- tiles that those beside the longest of n equal convolutions use
    local function beside(n, share)
      local net = device.module(function(self, x)
        return poptorch.MultiConv():perConvReservedTiles(1):cycleBackOff(share)(function()
          local y = self.c1(x)
          for i = 2, n do
            y = y + self["c" .. i](x * i)
          end
          return y
        end)
      end, function(self)
        for i = 1, n do
          self["c" .. i] = nn.Conv2d(4, 8, 3)
        end
      end)
      local model, tiles = poptorch.inferenceModel(net), nil
      model:compile(torch.ones(1, 4, 10, 10))
      for _, node in ipairs(model:report():nodes()) do
        if node.operator == "convolution" and node.cycles == 0 then
          assert(not tiles or tiles == node.tiles)
          tiles = node.tiles
        end
      end
      return tiles
    end
    assert.truthy(beside(2, 0.9) < beside(2, 0.6))
    assert.equal(beside(2, 0.6), beside(3, 0.3))
    assert.equal(beside(2, 0.6), beside(4, 0.2))
    assert.equal(beside(2, 0.9), beside(4, 0.3))
  end)

  it("shares all tiles out where it shall reserve more than there are", function()
    local function made(tiles)
      return cycles((trained(8, function(f)
        return poptorch.MultiConv():perConvReservedTiles(tiles)(f)
      end)))
    end
    assert.same(made(1472 // 2), made(5000))
    assert.not_same(made(1472 // 2), made(1))
  end)

  it("has the settings that it was given last", function()
    local model = trained(64, function(f)
      local scope <close> = poptorch.MultiConv()
      local u, v = f()
      scope:planType(SERIAL)
      local more, other = f()
      return u + more * 2, v + other * 2
    end)
    for kind, list in pairs(cycles(model)) do
      for _, c in ipairs(list) do
        assert(c > 0, kind .. ": one after another")
      end
    end
  end)

  it("shares tiles among the members on one stage alone", function()
    local function made(scope)
      local model = device.module(function(self, x)
        return scope(function()
          local y
          do
            local _ <close> = poptorch.Block("one", { ipu_id = 0 })
            y = self.a(x)
          end
          local _ <close> = poptorch.Block("two", { ipu_id = 1 })
          return self.b(x) + y
        end)
      end, function(self)
        self.a, self.b = nn.Conv2d(16, 64, 5), nn.Conv2d(16, 64, 5)
      end)
      local on_device = poptorch.inferenceModel(model, poptorch.Options():deviceIterations(2))
      on_device:compile(torch.ones(4, 16, 28, 28))
      return cycles(on_device).convolution
    end
    assert.same(made(plain), made(poptorch.MultiConv))
  end)

  it("has as many settings as members", function()
    for _, set in ipairs({
      function(mc) return mc:availableMemoryProportions({ 0.1, 0.2, 0.3 }) end,
      function(mc) return mc:partialsTypes({ torch.half, torch.half, torch.half }) end,
      function(mc) return mc:enableConvDithering({ true, true, true }) end }) do
      assert.matches("expected one value or 2, one for each convolution inside, got 3",
        raises("Error", harness, set(poptorch.MultiConv())).message)
    end
  end)

  it("has no members that depend on each other", function()
    local net = device.module(function(self, x)
      local _ <close> = poptorch.MultiConv()
      return self.b(self.a(x):relu())
    end, function(self)
      self.a, self.b = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)
    end)
    local e = raises("Error", poptorch.inferenceModel(net), torch.ones(1, 1, 8, 8))
    assert.matches("must not depend on each other", e.message)
  end)

  it("may stand in the body of a loop", function()
    local net = device.module(function(self, x)
      return poptorch.for_loop(2, function(v)
        return poptorch.MultiConv(function()
          return self.a(v) + self.b(v:abs())
        end)
      end, { x })[1]
    end, function(self)
      self.a, self.b = nn.Conv2d(1, 1, 3, { padding = 1 }), nn.Conv2d(1, 1, 3, { padding = 1 })
    end)
    local x = torch.randn(1, 1, 8, 8)
    device.close(poptorch.inferenceModel(net)(x), net(x):detach())
  end)

  it("refuses other settings", function()
    local mc = poptorch.MultiConv()
    for _, case in ipairs({ { "AssertionError", "availableMemoryProportions", 1.0 },
      { "AssertionError", "availableMemoryProportions", -0.1 },
      { "AssertionError", "availableMemoryProportions", { 0.1, "0.2" } },
      { "AssertionError", "availableMemoryProportions", {} },
      { "ValueError", "partialsTypes", { torch.half, torch.int32 } },
      { "ValueError", "enableConvDithering", 1 },
      { "ValueError", "enableConvDithering", { true, 1 } },
      { "AssertionError", "planType", 0 }, { "AssertionError", "perConvReservedTiles", 1.5 },
      { "AssertionError", "perConvReservedTiles", -1 }, { "AssertionError", "cycleBackOff", "0.1" },
      { "AssertionError", "cycleBackOff", 1.5 }, { "AssertionError", "cycleBackOff", 0 / 0 } }) do
      raises(case[1], mc[case[2]], mc, case[3])
    end
    raises("TypeError", poptorch.MultiConv, 3)
    assert.equal(mc, mc:planType(nil):availableMemoryProportions(nil):enableConvDithering(nil))
  end)

  it("is one in the step's text", function()
    local model = harness(poptorch.MultiConv():cycleBackOff(0.25))
    local text = model:report().plan:step():text("step")
    assert.matches('multi_conv "0 parallel 50 0.25 %- %- %-"', text)
    local again = core.step_parse(text)
    assert.equal(text, again:text("step"))
    assert.equal(model:report().cycles, core.plan(again, {}):report().cycles)
    for _, wrong in ipairs({ "0", "0 both 50 0.25 - -", "0 serial -1 0.25 - -",
      "0 serial 1 nan - -", "0 serial 1 2 - -", "0 serial 1 0.25 -", "0 serial 1 0.1 nan -",
      "0 serial 1 0.1 -1,0.5 -", ("9"):rep(30) .. " serial" }) do
      local step = core.step_parse((text:gsub('(multi_conv )"0[^"]*"', '%1"' .. wrong .. '"')))
      assert.matches("multi_conv: expected", raises("ValueError", core.plan, step, {}).message)
    end
  end)
end)

-- What changes how a model is computed and not what: products in parts, shares of memory,
-- types of partial results, batches in parts, outlining, patterns, host copies.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local ALL = popart.AnchorReturnType("ALL")

-- Output, gradients of both operands, and the session, of a product of 4x6 and 6x8.
local function product(prepare, options)
  local b = popart.Builder()
  torch.manual_seed(4)
  local x, w = b:addInputTensor("FLOAT", { 4, 6 }), b:addInitializedInputTensor(torch.randn(6, 8))
  local v = b:addInitializedInputTensor(torch.randn(4, 6))
  local y = b.aiOnnx:matmul({ b.aiOnnx:mul({ x, v }), w })
  if prepare then
    prepare(b, y)
  end
  local loss = helper.l1(b, b.aiOnnx:relu({ y }), 1)
  local names = { y, "Gradient___" .. w, "Gradient___" .. v }
  local s = helper.training(b, popart.DataFlow(1, names), loss, popart.ConstSGD(0.1),
    { options = options })
  local got = helper.run(s, { [x] = torch.randn(4, 6) })
  return { got[names[1]], got[names[2]], got[names[3]] }, s
end

local function equal(want, got)
  for i, t in ipairs(want) do
    assert.is_true(torch.allclose(t, got[i], { rtol = 1e-5, atol = 1e-6 }))
  end
end

describe("a product in parts", function()
  it("M11: has the same output and gradients", function()
    local want = product()
    for mode, factors in pairs({ input_channels = { 1, 2, 4 }, reducing_dim = { 2, 3 },
      output_channels = { 2, 8 }, none = { 1 } }) do
      for _, factor in ipairs(factors) do
        equal(want, (product(function(b, y)
          b:setSerializeMatMul({ y }, mode, factor, true)
        end)))
      end
    end
  end)

  it("M11: is of a known mode, and a factor of the dimension", function()
    helper.refuses("popart_exception", "^Unsupported mat mul serialization mode 'rows'", product,
      function(b, y)
        b:setSerializeMatMul({ y }, "rows", 2)
      end)
    helper.refuses("popart_exception", "Invalid serialisation factor 3 for output channels dim 8",
      product, function(b, y)
        b:setSerializeMatMul({ y }, "output_channels", 3)
      end)
    helper.refuses("popart_exception", "Invalid serialisation factor 4 for reducing dim dim 6",
      product, function(b, y)
        b:setSerializeMatMul({ y }, "reducing_dim", 4)
      end)
  end)

  it("has fewer temporaries, as many smaller products", function()
    local function products(prepare)
      local _, s = product(prepare)
      local n = 0
      for _, node in ipairs(s:getReport():nodes()) do
        n = n + (node.operator == "mm" and 1 or 0)
      end
      return n
    end
    assert.equal(3, products()) -- the product and its two gradients
    assert.equal(12, products(function(b, y)
      b:setSerializeMatMul({ y }, "output_channels", 4)
    end))
  end)
end)

describe("a node", function()
  it("has a share of memory of its own, which changes cycles alone", function()
    local function big(share)
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT", { 512, 512 })
      local w = b:addInitializedInputTensor(torch.ones(512, 512))
      local y = b.aiOnnx:matmul({ x, w })
      if share then
        b:setAvailableMemoryProportion({ y }, share)
        assert.near(share, b:getFloatNodeAttribute("__available_memory", { y }), 1e-6)
      end
      local s = helper.inference(b, popart.DataFlow(1, { y }))
      return s:getReport().cycles
    end
    assert.is_true(big(0.01) > big())
    helper.refuses("popart_exception", "availableMemoryProportion must be in %(0,1%]", big, 1.5)
    helper.refuses("popart_exception", "availableMemoryProportion must be in %(0,1%]", big, 0)
  end)

  it("has partial results of its own type", function()
    local function conv(type, given)
      local b = popart.Builder()
      local x = b:addInputTensor(given or "FLOAT16", { 1, 16, 32, 32 })
      local w = b:addInitializedInputTensor(torch.ones(16, 16, 3, 3):half())
      local y = b.aiOnnx:conv({ x, w })
      if type then
        b:setPartialsType(y, type)
        assert.equal(type, b:getPartialsType(y))
      end
      local s = helper.inference(b, popart.DataFlow(1, { y }))
      return helper.run(s, { [x] = torch.ones(1, 16, 32, 32):half() })[y], s:getReport().cycles
    end
    local want, float = conv()
    local got, half = conv("HALF")
    assert.is_true(torch.equal(want, got))
    assert.is_true(half < float)
    helper.refuses("popart_exception", "expected 'HALF' or 'FLOAT', got 'INT8'", conv, "INT8")
  end)

  it("of matrices have partial results of their own types, in training too", function()
    -- two layers of unlike sizes: cycles of each with float and half partials
    local function train(types, all)
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT16", { 64, 512 })
      local h, ws = x, {}
      for i, n in ipairs({ 512, 1024 }) do
        ws[i] = b:addInitializedInputTensor(torch.full({ 512, n }, 1 / 512):half())
        h = b.aiOnnx:matmul({ h, ws[i] })
        if types[i] then
          b:setPartialsType(h, types[i])
        end
      end
      local loss = helper.l1(b, h, 0.5)
      local s = helper.training(b, popart.DataFlow(1, { loss }), loss, popart.ConstSGD(0.5),
        { options = { partialsTypeMatMuls = all } })
      local got = helper.run(s, { [x] = torch.ones(64, 512):half() })[loss]
      local forward, backward = {}, 0
      for _, node in ipairs(s:getReport():nodes()) do
        if node.operator == "mm" or node.operator == "matmul" then
          forward[#forward + 1] = not node.backward and node.cycles or nil
          backward = backward + (node.backward and node.cycles or 0)
        end
      end
      return got, forward, backward, s:getReport().no_effect
    end
    local want, float, float_back, idle = train({})
    local _, half, half_back = train({}, "half")
    assert.is_true(half[1] < float[1] and half[2] < float[2] and half_back < float_back)
    local got, mixed, mixed_back, mixed_idle = train({ "HALF" })
    assert.is_true(torch.equal(want, got))
    assert.same({ half[1], float[2] }, mixed)
    assert.is_true(half_back < mixed_back and mixed_back < float_back)
    assert.same(idle, mixed_idle)
    assert.same({ half[1], float[2] }, (select(2, train({ "HALF", "FLOAT" }, "half"))))
    assert.same(half, (select(2, train({ "HALF", "half" }))))
  end)

  it("of a multiconv are planned as its settings say, its values are the same", function()
    local function convs(settings)
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT16", { 1, 16, 32, 32 })
      local v = b:addInitializedInputTensor(torch.zeros(16, 16, 3, 3):half())
      local w = b:addInitializedInputTensor(torch.ones(16, 16, 3, 3):half())
      local ys = b.aiGraphcore:multiconv({ { x, v }, { x, w } }, settings)
      local y = b.aiOnnx:add(ys)
      local s = helper.inference(b, popart.DataFlow(1, { y }))
      return helper.run(s, { [x] = torch.ones(1, 16, 32, 32):half() })[y], s:getReport().cycles
    end
    local want, parallel = convs({})
    for _, case in ipairs({ { true, { planType = "serial" } },
      { false, { perConvReservedTiles = 1 } }, { false, { partialsTypes = { "half", "HALF" } } },
      { true, { planType = "serial", availableMemoryProportions = { 0.01, 0.01 } } } }) do
      local got, cycles = convs(case[2])
      assert.is_true(torch.equal(want, got))
      assert.equal(case[1], cycles > parallel)
      assert.are_not.equal(cycles, parallel)
    end
    helper.refuses("popart_exception", "'planType' is 'both'", convs, { planType = "both" })
    helper.refuses("popart_exception", "'cycleBackOff' is 2", convs, { cycleBackOff = 2 })
    helper.refuses("popart_exception", "'perConvReservedTiles' is %-1", convs,
      { perConvReservedTiles = -1 })
    helper.refuses("popart_exception", "expected 'HALF' or 'FLOAT', got 'x y'", convs,
      { partialsTypes = { "half", "x y" } })
  end)
end)

describe("setEnableConvDithering", function()
  it("notes a truth value", function()
    for _, case in ipairs({ { true, 1 }, { false, 0 }, { 1, 1 }, { 0, 0 }, { nil, 1 } }) do
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT", { 1, 1, 4, 4 })
      local y = b.aiOnnx:conv({ x, b:addInitializedInputTensor(torch.ones(1, 1, 2, 2)) })
      b:setEnableConvDithering(y, case[1])
      assert.equal(case[2], b:getInt64NodeAttribute("__enable_conv_dithering", y))
      for _, wrong in ipairs({ 2, "true" }) do
        helper.refuses("TypeError", "enableConvDithering: expected bool",
          b.setEnableConvDithering, b, y, wrong)
      end
    end
  end)
end)

describe("annotations that change nothing", function()
  it("are named by the report, once each", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 2, 2 })
    local y = x
    for _ = 1, 2 do
      y = b.aiOnnx:gemm({ y, x, x })
      b:setPartialsType(y, "HALF")
      b:setEnableConvDithering(y, true)
    end
    b:setInplacePreferences(y, { Other = 1.0 })
    b:excludePatterns(y, { "PreUniRepl" })
    local _ <close> = b:schedulePriority(2.0)
    b:outlineAttributes({ part = "last" }, function()
      y = b.aiOnnx:relu({ y })
    end)
    local names = {}
    for i, line in ipairs(helper.inference(b, popart.DataFlow(1, { y })):getReport().no_effect) do
      names[i] = line:match("^(.-): ")
    end
    assert.same({ "Builder:excludePatterns", "Builder:outlineAttributes",
      "Builder:schedulePriority", "Builder:setEnableConvDithering of Gemm",
      "Builder:setInplacePreferences", "Builder:setPartialsType of Gemm" }, names)
  end)

  it("are those of streams, too, which overlap only where loops are explicit", function()
    local Exchange, IO = popart.ExchangeStrategy, popart.TileSet.IO
    local function run(of_input, of_anchor, options)
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT", { 2 }, popart.InputSettings(IO, of_input), "x")
      local y = b.aiOnnx:relu({ x }, "y")
      local art = popart.AnchorReturnType("All", popart.TileSet.Compute, of_anchor)
      local s = helper.inference(b, popart.DataFlow(1, { [y] = art }), { options = options })
      return table.concat(s:getReport().no_effect, "\n"), y
    end
    local noted, y = run(Exchange.JustInTime, Exchange.JustInTime)
    assert.matches("exchange strategy of 'x': ", noted)
    assert.is_nil(noted:find(y, 1, true))
    for _, pair in ipairs({ { Exchange.OverlapLoops, Exchange.JustInTime },
      { Exchange.JustInTime, Exchange.OverlapInnerLoop } }) do
      helper.refuses("popart_exception", "require SessionOptions::useHostCopyOps", run, pair[1],
        pair[2])
    end
    noted = run(Exchange.OverlapLoops, Exchange.OverlapLoops, { useHostCopyOps = true,
      enableExplicitMainLoops = true, virtualGraphMode = popart.VirtualGraphMode.Auto })
    assert.matches(y, noted, 1, true)
  end)
end)

describe("values", function()
  local function settings(name, fields)
    local group = popart.SessionOptions()[name]
    for k, v in pairs(fields) do
      group[k] = v
    end
    return { [name] = group }
  end

  it("M12: are the same for batches in parts", function()
    local want = product()
    for _, method in ipairs({ "UnrollDynamic", "UnrollStatic", "Loop" }) do
      local fields = { factor = 4, method = popart.BatchSerializationMethod[method],
        transformContext = popart.BatchSerializationTransformContext[
          method == "Loop" and "Bwd" or "Fwd"] }
      local got, s = product(nil, settings("batchSerializationSettings", fields))
      equal(want, got)
      assert.matches("batchSerializationSettings.factor: ", s:getSummaryReport())
    end
    helper.refuses("popart_exception", "^Loop batch serialization is only supported in", product,
      nil, settings("batchSerializationSettings", { factor = 2,
        method = popart.BatchSerializationMethod.Loop }))
    helper.refuses("popart_exception", "^Batch axis: 4 is smaller than the batch serialization "
      .. "factor: 8", product, nil, settings("batchSerializationSettings", { factor = 8 }))
    local b = popart.Builder() -- a scalar has no batch
    local y = b.aiOnnx:abs({ b:addInputTensor("FLOAT", {}, "x") })
    assert.equal(3, helper.run(helper.inference(b, popart.DataFlow(1, { y }), { options =
      settings("batchSerializationSettings", { factor = 8 }) }), { x = torch.tensor({ -3.0 }) })[y]
      :item())
  end)

  it("M13: are the same with and without outlining and patterns", function()
    local want = product()
    equal(want, (product(nil, { enableOutlining = false })))
    equal(want, (product(nil, { outlineThreshold = -1.0 })))
    local b, ids = helper.layers(3, 3)
    local got = {}
    for i, level in ipairs({ "NoPatterns", "Default", "All" }) do
      local s = popart.InferenceSession({ fnModel = b:getModelProto(),
        dataFlow = popart.DataFlow(1, { ids.loss }), deviceInfo = helper.device(),
        patterns = popart.Patterns(popart.PatternsLevel[level]):enableRuntimeAsserts(false) })
      s:prepareDevice()
      assert.same(level ~= "Default" and { "Patterns: the passes over the graph are fixed" } or {},
        s:getReport().no_effect)
      got[i] = helper.run(s, { [ids.x] = torch.ones(3, 4) })[ids.loss]:item()
    end
    assert.equal(got[1], got[2])
    assert.equal(got[1], got[3])
    helper.refuses("popart_exception", "^Pattern 'AbsGradOp' must be enabled", function()
      popart.InferenceSession({ fnModel = b:getModelProto(), deviceInfo = helper.device(),
        dataFlow = popart.DataFlow(1, { ids.loss }),
        patterns = popart.Patterns(popart.PatternsLevel.NoPatterns) })
    end)
  end)

  it("M14: are the same with explicit loops, which need copies by operators", function()
    equal((product()), (product(nil, { enableExplicitMainLoops = true, useHostCopyOps = true })))
    helper.refuses("popart_exception", "^enableExplicitMainLoops requires useHostCopyOps%.",
      product, nil, { enableExplicitMainLoops = true })
    helper.refuses("popart_exception", "^Alias zero copy is currently not supported with implicit "
      .. "recomputation", product, nil, { aliasZeroCopy = true })
  end)

  it("are the same for options of scheduling, streams and I/O tiles", function()
    local want = product()
    for _, options in ipairs({ { kahnTieBreaker = "fifo" }, { enablePrefetchDatastreams = false },
      { defaultBufferingDepth = 3 }, { mergeVarUpdate = popart.MergeVarUpdateType.All },
      { decomposeGradSum = true }, { partialsTypeMatMuls = "half" },
      { numIOTiles = 32, virtualGraphMode = popart.VirtualGraphMode.Auto },
      { enableStableNorm = true }, { rearrangeStreamsOnHost = true },
      { delayVarUpdates = false }, { timeLimitScheduler = 0.1 } }) do
      equal(want, (product(nil, options)))
    end
  end)

  it("without gradients lose nothing of the input's order", function()
    local b, x, y = helper.identity({ 3 })
    local s = helper.inference(b, popart.DataFlow(2, { [y] = ALL }), { options = {
      numIOTiles = 32, virtualGraphMode = popart.VirtualGraphMode.Auto } })
    assert.same({ { 1.0, 2, 3 }, { 4, 5, 6 } }, helper.run(s, { [x] = torch.tensor({
      1.0, 2, 3, 4, 5, 6 }) })[y]:tolist())
  end)
end)

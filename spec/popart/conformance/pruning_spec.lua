-- Graphs of which nothing is left, and options of libraries and of tiles that a program is
-- checked for.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local Mode = popart.VirtualGraphMode

local function infers(b, anchors, given)
  return helper.inference(b, popart.DataFlow(1, anchors), given)
end

describe("prune_all_error_test", function()
  local PRUNED = "^All operations in the main graph were pruned, nothing to compute$"

  it("test_prune_all_error", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 2 })
    local y = b.aiOnnx:sqrt({ x })
    helper.refuses("popart_exception", PRUNED, infers, b, { x }, { prepare = false })
    assert.same({ 2.0, 3 }, helper.run(infers(b, { x, y }), { [x] = torch.tensor({
      4.0, 9 }) })[y]:tolist())
  end)

  it("A18: constants are folded, and leave nothing either", function()
    local b = popart.Builder()
    local y = b.aiOnnx:abs({ b.aiOnnx:constant(torch.tensor({ -1.0, 2 })) })
    helper.refuses("popart_exception", PRUNED, infers, b, { y }, { prepare = false })
    local z = b.aiOnnx:randomnormal({ 2 }) -- follows from no constant
    infers(b, { y, z })
  end)

  it("what does more than compute stays", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 2 })
    local first = b:addInputTensor("BOOL", {})
    b.aiGraphcore:abort({ first })
    local s = infers(b, { x })
    local anchors = helper.run(s, { [x] = torch.ones(2), [first] = torch.tensor(false) })
    assert.same({ 1.0, 1 }, anchors[x]:tolist())
  end)

  it("training prunes what no weight needs, and all where there is no weight", function()
    local function trains(weight, anchors)
      local b = popart.Builder()
      local x = b:addInputTensor("FLOAT", { 2 })
      local w = weight and b:addInitializedInputTensor(torch.ones(2))
      local loss = helper.l1(b, w and b.aiOnnx:mul({ x, w }) or x, 1.0)
      return helper.training(b, popart.DataFlow(1, anchors and { loss } or {}), loss,
        popart.ConstSGD(0.5))
    end
    trains(true, false)
    trains(false, true)
    helper.refuses("popart_exception", PRUNED, trains, false, false)
  end)

  it("test_loss_grad_scaling_with_replication: an input's gradient is enough", function()
    local Mean, x = popart.ReductionType.Mean, torch.rand(2, 4, 4) + 1
    for _, identity in ipairs({ false, true }) do
      local b = popart.Builder()
      local input = b:addInputTensor("FLOAT", { 4, 4 })
      local loss = b.aiGraphcore:l1loss({ input }, 0.1, Mean)
      loss = identity and b.aiGraphcore:identityloss({ loss }, Mean) or loss
      local id = popart.reservedGradientPrefix() .. input
      local s = helper.training(b, popart.DataFlow(1, { id }), loss, popart.ConstSGD(0.1), {
        device = helper.device(2), options = helper.loops(1, 2, {
          accumulationAndReplicationReductionType = Mean }) })
      torch.testing.assert_close(helper.run(s, { [input] = x })[id], torch.full({ 2, 4, 4 },
        0.1 / 16))
    end
  end)
end)

describe("options of libraries", function()
  -- Cycles of a convolution, of a product, and notes of the report.
  local function cycles(options, own)
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT16", { 1, 64, 16, 16 })
    local w = b:addInitializedInputTensor(torch.ones(64, 64, 3, 3):half())
    local y = b.aiOnnx:conv({ x, w })
    local p = b:addInputTensor("FLOAT16", { 256, 512 })
    local z = b.aiOnnx:matmul({ p, b:addInitializedInputTensor(torch.ones(512, 512):half()) })
    if own then
      b:setAvailableMemoryProportion({ y }, own)
      b:setAvailableMemoryProportion({ z }, own)
    end
    local r = infers(b, { y, z }, { options = options }):getReport()
    local found = {}
    for _, node in ipairs(r:nodes()) do
      found[node.operator] = node.cycles
    end
    return found.convolution, found.mm or found.matmul, r.no_effect
  end

  it("act on the cost of what they are for", function()
    local conv, product, idle = cycles({})
    local half, same = cycles({ convolutionOptions = { partialsType = "half" } })
    assert.is_true(half < conv and same == product)
    local still, faster = cycles({ partialsTypeMatMuls = "half" })
    assert.is_true(still == conv and faster < product)
    local LITTLE = { availableMemoryProportion = "0.01" }
    local slow, quick, notes = cycles({ convolutionOptions = LITTLE })
    assert.is_true(slow > conv and quick == product)
    assert.same(idle, notes)
    quick, slow = cycles({ matmulOptions = LITTLE })
    assert.is_true(slow > product and quick == conv)
    assert.same({ cycles({}, 0.01) },
      { cycles({ matmulOptions = LITTLE, convolutionOptions = LITTLE }) })
    assert.same({ cycles({}, 0.9) },
      { cycles({ matmulOptions = LITTLE, convolutionOptions = LITTLE }, 0.9) })
  end)

  it("are named by the report where nothing follows from them", function()
    local _, _, notes = cycles({ convolutionOptions = { remapOutputTensor = true },
      matmulOptions = { partialsType = "half" }, lstmOptions = { numShards = 2 },
      gclOptions = { maxBytesPerTile = 1000 } })
    local names = {}
    for i, line in ipairs(notes) do
      names[i] = line:match("^(.-): ")
    end
    assert.same({ "SessionOptions.lstmOptions", "SessionOptions.gclOptions",
      "SessionOptions.convolutionOptions remapOutputTensor",
      "SessionOptions.matmulOptions partialsType" }, names)
  end)

  it("have names and values that the libraries know", function()
    for _, case in ipairs({
      { "convolutionOptions", { option = "value" }, "there is no option 'option'" },
      { "convolutionOptions", { partialsTyp = "half" }, "nearest: 'partialsType'" },
      { "convolutionOptions", { partialsType = "quarter" }, "expected half, float, got 'quarter'" },
      { "matmulOptions", { availableMemoryProportion = 2 }, "from 0 to 1, got '2'" },
      { "matmulOptions", { fullyConnectedPass = "FC_INFERENCE_FWD" }, "expected NONE, INFERENCE" },
      { "lstmOptions", { inferenceOnly = "maybe" }, "expected true, false, got 'maybe'" },
      { "lstmOptions", { numShards = 1.5 }, "an integer >= 0" },
      { "gclOptions", { maxBytes = 1 }, "Allowed: maxBytesPerTile, useSynclessCollectives" } }) do
      helper.refuses("popart_exception", "^SessionOptions%." .. case[1] .. ":.*" .. case[3], cycles,
        { [case[1]] = case[2] })
    end
    cycles({ gclOptions = { useSynclessCollectives = "true" }, lstmOptions = {
      availableMemoryProportion = 0.5 }, matmulOptions = { planConstraints = "{}" } })
  end)
end)

describe("numIOTiles", function()
  local function tiles(n, mode)
    local b, x, y = helper.identity({ 2 })
    if mode == Mode.Manual then
      b:virtualGraph(y, 0)
    end
    local s = infers(b, { y }, { options = { numIOTiles = n, virtualGraphMode = mode } })
    assert.same({ 1.0, 2 }, helper.run(s, { [x] = torch.tensor({ 1.0, 2 }) })[y]:tolist())
    return s:getSummaryReport(), s:getReport().no_effect
  end

  it("is even, 32 at least, and leaves tiles to compute", function()
    for _, mode in ipairs({ Mode.Manual, Mode.Auto }) do
      for _, n in ipairs({ 3, 16, 33 }) do
        helper.refuses("popart_exception", ("^SessionOptions.numIOTiles: %d is an invalid number "
          .. "of IO tiles%%. Number of IO tiles must be an even number and >= 32%%.$"):format(n),
          tiles, n, mode)
      end
      helper.refuses("popart_exception", "Tiles per IPU 64 should exceed number of IO tiles 64%.$",
        tiles, 64, mode)
      local text, notes = tiles(32, mode)
      assert.matches("Tiles per IPU set aside for I/O: *32", text)
      assert.same({}, notes)
    end
  end)

  it("counts with virtual graphs alone, and is named by the report without them", function()
    local text, notes = tiles(3, Mode.Off)
    assert.is_nil(text:find("set aside"))
    assert.same({ "SessionOptions.numIOTiles: virtualGraphMode is Off" }, notes)
  end)
end)

-- What a run returns, and how much of it.
local dataflow = require("popart.dataflow")
local enums = require("popart.enums")
local helper = require("spec.helper")

local DataFlow, Art, InputSettings = dataflow.DataFlow, dataflow.AnchorReturnType,
  dataflow.InputSettings
local Id, TileSet, Exchange = enums.AnchorReturnTypeId, enums.TileSet, enums.ExchangeStrategy
local refuses = helper.refuses

describe("popart.AnchorReturnType", function()
  it("A10 refuses another name", function()
    refuses("popart_exception", "Invalid anchor return type ID supplied: INVALID", Art, "INVALID")
    refuses("TypeError", "expected string", Art, 3)
  end)

  it("A11 has a period if and only if it is EveryN", function()
    for _, name in ipairs({ "ALL", "FINAL", "SUM" }) do
      refuses("popart_exception", "A return period should not be supplied", Art, name, 2)
      refuses("popart_exception", "A return period should not be supplied", Art(name).rp, Art(name))
    end
    refuses("popart_exception", "Must specify return period with option 'EVERYN'", Art, "EVERYN")
    refuses("popart_exception", "must be greater than zero", Art, "EVERYN", 0)
    refuses("TypeError", "returnPeriod: expected int", Art, "EVERYN", 1.5)
    assert.equal(4, Art("EVERYN", 4):rp())
    assert.equal(4, Art("EveryN", { returnPeriod = 4 }):rp())
  end)

  it("A15 takes letters of either case", function()
    for text, id in pairs({ fInAl = "Final", SUM = "Sum", all = "All" }) do
      assert.equal(Id[id], Art(text):id())
    end
    assert.equal(Id.EveryN, Art("everyN", 2):id())
  end)

  it("takes a tile set and an exchange strategy, with a period or without", function()
    local art = Art("ALL", TileSet.IO, Exchange.OverlapLoops)
    assert.equal(TileSet.IO, art:tileSet())
    assert.equal(Exchange.OverlapLoops, art:exchangeStrategy())
    art = Art("EVERYN", 2, TileSet.IO)
    assert.same({ 2, TileSet.IO, Exchange.JustInTime },
      { art:rp(), art:tileSet(), art:exchangeStrategy() })
    refuses("popart_exception", "OverlapStep is not supported", Art, "ALL", TileSet.IO,
      Exchange.OverlapStep)
    refuses("TypeError", "tileSet: expected TileSet.Compute or TileSet.IO", Art, "EVERYN", 2, "IO")
  end)

  it("is what lupine's sessions call it", function()
    assert.same({ mode = "all", period = 1 }, dataflow.mode(Art("All")))
    assert.same({ mode = "final", period = 1 }, dataflow.mode(Art("Final")))
    assert.same({ mode = "sum", period = 1 }, dataflow.mode(Art("Sum")))
    assert.same({ mode = "everyn", period = 3 }, dataflow.mode(Art("EveryN", 3)))
  end)

  it("A16 A22 counts its values, in dimensions that are not 1", function()
    local function shown(art, batches, accumulation, replicas, shape)
      return dataflow.shape(art, { batches = batches, accumulation = accumulation,
        replicas = replicas }, shape)
    end
    assert.same({ 5, 4, 12, 3 }, shown(Art("All"), 5, 4, 1, { 12, 3 }))
    assert.same({ 5, 12 }, shown(Art("All"), 5, 1, 1, { 12 }))
    assert.same({ 5, 4, 2, 1 }, shown(Art("All"), 5, 4, 2, { 1 }))
    assert.same({ 3, 4, 2 }, shown(Art("EveryN", 2), 6, 4, 1, { 2 }))
    assert.same({ 12, 3 }, shown(Art("Final"), 5, 4, 1, { 12, 3 }))
    assert.same({ 2, 12 }, shown(Art("Sum"), 5, 4, 2, { 12 }))
    assert.same({}, shown(Art("All"), 1, 1, 1, {}))
    assert.equal(20, dataflow.fetches(Art("All"), 5, 4))
    assert.equal(12, dataflow.fetches(Art("EveryN", 2), 6, 4))
    assert.equal(1, dataflow.fetches(Art("Sum"), 6, 4))
    refuses("RuntimeError", "not divisble by batchesPerStep", shown, Art("EveryN", 2), 5, 1, 1, {})
  end)
end)

describe("popart.DataFlow", function()
  it("A13 has periods that divide the batches", function()
    refuses("popart_exception", "must be <= to the number of batches per step", DataFlow, 5,
      { a = Art("EveryN", 6) })
    refuses("popart_exception", "must be a factor of the number of batches per step", DataFlow, 5,
      { a = Art("EveryN", 3) })
    local flow = DataFlow(6, { a = Art("EveryN", 3) })
    refuses("popart_exception", "must be a factor", flow.setBatchesPerStep, flow, 4)
    flow:setBatchesPerStep(9)
    assert.equal(9, flow:batchesPerStep())
  end)

  it("A14 takes anchors by name, or a list of names", function()
    local none = DataFlow()
    assert.equal(0, none:nAnchors())
    assert.equal(0, none:batchesPerStep())
    local flow = DataFlow(3, { "b", "a" })
    assert.same({ "a", "b" }, flow:anchors())
    assert.equal(Id.All, flow:art("a"):id())
    assert.is_false(flow:isAnchored("c"))
    assert.equal(Id.Final, DataFlow(3, { "a", "b" }, Art("Final")):art("b"):id())
    assert.equal(Id.Sum, DataFlow(3, { "a" }, { anchorReturnType = Art("Sum") }):art("a"):id())
    assert.equal(1, DataFlow({ batchesPerStep = 2, anchorIds = { "x" } }):nAnchors())
    refuses("popart_exception", "Tensor alpha is not an anchor %(nearest: 'alpah'%)",
      flow.art, DataFlow(1, { "alpah" }), "alpha")
  end)

  it("refuses what it cannot take", function()
    refuses("popart_exception", "'Batches per step' must be greater than zero", DataFlow, 0,
      { "a" })
    refuses("popart_exception", "greater than zero, got %-1", DataFlow, -1, { "a" })
    refuses("TypeError", "anchors%['a'%]: expected AnchorReturnType, got string", DataFlow, 1,
      { a = "ALL" })
    refuses("TypeError", "batchesPerStep: expected int", DataFlow, "1")
    refuses("TypeError", "anchors: expected table", DataFlow, 1, Art("All"))
  end)
end)

describe("popart.InputSettings", function()
  it("takes a tile set and strategy, or a mode of replicas", function()
    local plain, io = InputSettings(), InputSettings(TileSet.IO, Exchange.OverlapInnerLoop)
    assert.same({ TileSet.Compute, Exchange.JustInTime, enums.ReplicatedStreamMode.Replicate },
      { plain:tileSet(), plain:exchangeStrategy(), plain:replicatedStreamMode() })
    assert.same({ TileSet.IO, Exchange.OverlapInnerLoop },
      { io:tileSet(), io:exchangeStrategy() })
    local Broadcast = enums.ReplicatedStreamMode.Broadcast
    assert.equal(Broadcast, InputSettings(Broadcast):replicatedStreamMode())
    assert.equal(Broadcast,
      InputSettings({ replicatedStreamMode = Broadcast }):replicatedStreamMode())
    refuses("popart_exception", "OverlapStep", InputSettings, TileSet.IO, Exchange.OverlapStep)
    refuses("TypeError", "tileSet: expected TileSet.Compute", InputSettings, 1)
  end)
end)

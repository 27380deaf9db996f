-- Forms of operators that later versions than ONNX 1.12's have, which newer exporters
-- write. RECORDED: ONNX Runtime 1.32.
local helper = require("spec.helper")
local node = require("spec.lupine.onnx.node")
local torch = require("torch")

local x = torch.arange(0, 8):float():reshape({ 1, 1, 2, 4 })
local last = { version = 18, constants = { [3] = true, [4] = true } }

local function by_sizes(sizes, attributes)
  return node("Resize", { x, false, false, torch.tensor(sizes) }, attributes, last)
end

describe("Resize of version 18", function()
  it("is of some axes", function()
    local y = by_sizes({ 3, 4 }, { mode = "linear", axes = { 3, 2 } })
    helper.near(y, { { { { 0.1666667, 1.5, 2.8333333 }, { 1.1666667, 2.5, 3.8333333 },
      { 3.1666667, 4.5, 5.8333333 }, { 4.1666667, 5.5, 6.8333333 } } } }, { 1e-5, 1e-5 })
    y = node("Resize", { x, false, torch.tensor({ 0.5 }) }, { axes = { -1 } }, last)
    assert.same({ { { { 0, 2 }, { 4, 6 } } } }, y:tolist())
  end)

  it("keeps the ratio of sizes", function()
    local function shape(policy)
      return { table.unpack(by_sizes({ 7, 8 }, { axes = { 2, 3 },
        keep_aspect_ratio_policy = policy }).shape) }
    end
    assert.same({ 1, 1, 7, 8 }, shape("stretch"))
    assert.same({ 1, 1, 4, 8 }, shape("not_larger"))
    assert.same({ 1, 1, 7, 14 }, shape("not_smaller"))
    helper.refuses("ValueError", "keep_aspect_ratio_policy 'larger'. Allowed: not_larger", shape,
      "larger")
    helper.refuses("ValueError", "antialias is not supported", by_sizes, { 1, 1, 2, 2 },
      { antialias = 1 })
    helper.refuses("ValueError", "axes has 1 elements", by_sizes, { 2, 2 }, { axes = { 1 } })
  end)
end)

describe("Split of version 18", function()
  it("has a last part that is smaller", function()
    local a, b, c = node("Split", { torch.arange(0, 7) }, { num_outputs = 3 },
      { version = 18, outputs = 3 })
    assert.same({ { 0, 1, 2 }, { 3, 4, 5 }, { 6 } }, { a:tolist(), b:tolist(), c:tolist() })
    helper.refuses("ValueError", "one of split and num_outputs", node,
      "Split", { torch.arange(0, 7) }, {}, { version = 18 })
    helper.refuses("ValueError", "num_outputs is 2 for 1 outputs", node,
      "Split", { torch.arange(0, 7) }, { num_outputs = 2 }, { version = 18 })
  end)
end)

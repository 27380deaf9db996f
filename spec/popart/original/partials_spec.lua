-- PopART's matmul_partials_tests: in which type products keep their partial sums, as the
-- summary's vertices say.
local helper = require("spec.popart.helper")
local popart = require("popart")
local torch = require("torch")

local SIZE = 32

-- Partial sums of the products of halves: {half =, float =}.
local function partials(session)
  local vertices = session:getSummaryReport():match("Vertex Data %(.-By Type:\n(.-)\n%s*By Tile")
  local out = { half = false, float = false }
  for sums in vertices:gmatch("poplin::ConvPartial1x1Out<half,(%a+)>") do
    out[sums] = true
  end
  return out
end

-- A session of two products, one behind the other, whose types of sums are these.
local function session(types, options, train)
  local b, ids = popart.Builder(), {}
  for i = 1, 3 do
    ids[i] = b:addInputTensor("FLOAT16", { SIZE, SIZE })
  end
  local first = b.aiOnnx:matmul({ ids[1], ids[2] })
  local second = b.aiOnnx:matmul({ first, ids[3] })
  for i, id in ipairs(types and { first, second } or {}) do
    b:setPartialsType(id, types[i])
  end
  local o = b.aiOnnx:add({ first, second })
  b:addOutputTensor(o)
  if not train then
    return helper.inference(b, popart.DataFlow(1, { o }), { options = options })
  end
  local loss, anchors = b.aiGraphcore:identityloss({ o }), {}
  for i, id in ipairs(ids) do
    anchors[i] = popart.reservedGradientPrefix() .. id
  end
  local s = helper.training(b, popart.DataFlow(1, anchors), loss, popart.ConstSGD(0.1))
  local data = {}
  for _, id in ipairs(ids) do
    data[id] = torch.rand(SIZE, SIZE):half()
  end
  helper.run(s, data)
  return s
end

describe("matmul_partials_tests", function()
  local HALF, FLOAT = { half = true, float = false }, { half = false, float = true }

  it("test_per_op_partials, test_per_op_partials_train", function()
    for _, train in ipairs({ false, true }) do
      assert.same(HALF, partials(session({ "HALF", "HALF" }, nil, train)))
      assert.same(FLOAT, partials(session({ "FLOAT", "FLOAT" }, nil, train)))
      assert.same({ half = true, float = true }, partials(session({ "HALF", "FLOAT" }, nil, train)))
      assert.same(FLOAT, partials(session(nil, nil, train)))
    end
  end)

  it("test_global_partials", function()
    assert.same(HALF, partials(session(nil, { partialsTypeMatMuls = "half" })))
    assert.same(FLOAT, partials(session(nil, { partialsTypeMatMuls = "float" })))
    local mixed = session({ "FLOAT", "FLOAT" }, { partialsTypeMatMuls = "half" })
    assert.same(FLOAT, partials(mixed))
  end)
end)

--- examples/systems: what its command prints is what docs/simulation.md has, and near what was
--- published.
local files = require("spec.support.files")
local program = require("spec.support.program")

-- The rows of a table: model, system, published by -> published, simulated, ratio, fullest.
local function rows_of(text)
  local rows, n = {}, 0
  for key, rate, simulated, ratio, fullest in text:gmatch(
    "\n| ([^|\n]+ | [^|\n]+ | [^|\n]+) | (%d+) | (%d+) | ([%d.]+) | (%d+) |") do
    rows[key] = { tonumber(rate), tonumber(simulated), tonumber(ratio), tonumber(fullest) }
    n = n + 1
  end
  return rows, n
end

describe("the published systems", function()
  it("come out as docs/simulation.md says, which explains what is far off", function()
    local out, err, code = program.run({ "examples/systems/table.lua" })
    assert.equal(0, code, err)
    local rows, n = rows_of("\n" .. out)
    local page = files.read("docs/simulation.md")
    local told, m = rows_of(page)
    assert.equal(12, n)
    assert.equal(n, m)
    local near, far = 0, {}
    for key, row in pairs(rows) do
      assert.truthy(told[key], key)
      assert.equal(told[key][1], row[1], key)
      assert.near(told[key][2], row[2], 0.005 * row[2], key)
      assert.near(told[key][3], row[3], 0.011, key)
      assert.near(told[key][4], row[4], 1, key)
      assert.near(row[2] / row[1], row[3], 0.006, key)
      assert.is_true(row[4] <= 100, key .. " fits, as it did")
      if math.abs(row[3] - 1) <= 0.15 then
        near = near + 1
      else
        far[#far + 1] = key
      end
    end
    table.sort(far)
    assert.same({ "BERT-Large, packs of 512 | POD16 (Mk2) | MLPerf v1.1, PopART",
      "ResNet-50 | Bow Pod256 | SDK 3.0, TensorFlow" }, far)
    assert.equal(10, near)
    assert.matches("BERT%-Large of MLPerf v1%.1", page)
    assert.matches("ResNet%-50 on 256 IPUs", page)
  end)

  it("may be asked for one by one", function()
    local out, err, code = program.run({ "examples/systems/table.lua", "7" })
    assert.equal(0, code, err)
    local rows, n = rows_of("\n" .. out)
    assert.equal(1, n)
    assert.truthy(rows["ResNet-50 | Bow Pod16 | SDK 3.0, PyTorch"])
  end)
end)

local program = require("spec.support.program")

-- spec/tools/check_arena.c holds the comparisons; each name is one of them.
describe("the arena plan", function()
  local function check(name)
    local out, err, code = program.shell(program.build .. "/tools/check_arena " .. name)
    assert.equal("", out .. err)
    assert.equal(0, code)
  end

  it("gives each buffer the smallest free gap, or the end", function()
    check("random")
  end)

  it("needs two places for a chain", function()
    check("chain")
  end)

  it("fills the holes that 100,000 buffers leave", function()
    check("wide")
  end)
end)

describe("the arena plan of the largest first", function()
  local function check(name)
    local out, err, code = program.shell(program.build .. "/tools/check_arena " .. name)
    assert.equal("", out .. err)
    assert.equal(0, code)
  end

  it("lays nothing over what lives with it", function()
    check("packed")
  end)

  it("leaves no hole for a small buffer between large ones", function()
    check("largest")
  end)
end)

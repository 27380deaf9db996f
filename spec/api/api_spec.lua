--- Every documented name is there and has a spec that shows how it behaves, but
--- for PopART's.
local api = dofile("spec/api/api.lua")

-- What PopART's module brings.
local POPART = { "^popart", "^POPART_", "^poplar_", "^poplibs_", "^unknown_runtime_error",
  "^np%.random", "^libpva", "^target%.", "^showExecutionSteps" }

local function is_popart(name)
  for _, start in ipairs(POPART) do
    if name:find(start) then
      return true
    end
  end
  return false
end

describe("the documented names", function()
  it("are there and shown, all but PopART's", function()
    local open, rows = {}, api.rows()
    for _, row in ipairs(rows) do
      if row.open and not is_popart(row.name) then
        open[#open + 1] = row.name
      end
    end
    assert.equal(785, #rows)
    assert.same({}, open)
  end)

  it("are not found where there is none", function()
    assert.is_false(api.present("poptorch.Options.noSuchOption"))
    assert.is_false(api.present("poptorch.DataLoader.__init__(no_such_parameter)"))
    assert.is_false(api.present("poptorch.PoplarExecutor.noSuchMethod"))
    assert.is_false(api.present("poptorch.OutputMode.Never"))
  end)
end)

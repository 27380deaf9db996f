--- Every documented name is there and has a spec that shows how it behaves.
local api = dofile("spec/api/api.lua")

describe("the documented names", function()
  it("are there and shown, all of them", function()
    local open, rows = {}, api.rows()
    for _, row in ipairs(rows) do
      if row.open then
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

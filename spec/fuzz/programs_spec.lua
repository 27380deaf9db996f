--- A few random programs (spec/fuzz/programs), trained on the host and on the device.
local program = require("spec.support.program")

it("random programs compute on the device what they compute on the host", function()
  local out, err, code = program.shell(("%s/lupine spec/fuzz/programs/run.lua 1 60")
    :format(program.build))
  assert.equal(0, code, out .. err)
  assert.matches("60 programs, 0 findings\n$", out)
end)

it("random programs compute as compiled steps what they compute eagerly", function()
  local out, err, code = program.shell(("%s/lupine spec/fuzz/programs/run.lua 1 100 60 step")
    :format(program.build))
  assert.equal(0, code, out .. err)
  assert.matches("100 programs, 0 findings\n$", out)
end)

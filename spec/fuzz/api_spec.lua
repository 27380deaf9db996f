--- A few random calls of the public interface (spec/fuzz/api).
local program = require("spec.support.program")

it("random calls end in results or in errors", function()
  local out, err, code = program.shell(("sh spec/fuzz/api/fuzz.sh %s 1 300"):format(program.build))
  assert.equal(0, code, out .. err)
  assert.matches("300 calls, 0 findings\n$", out)
end)

it("a call follows from its number", function()
  local command = ("sh spec/fuzz/api/fuzz.sh %s 17 1"):format(program.build)
  local once = program.shell(command)
  assert.matches("call 17: ", once)
  assert.equal((once:gsub("0x%x+", "")), (program.shell(command):gsub("0x%x+", "")))
end)

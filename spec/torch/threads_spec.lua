--- More threads than the process may start.
local program = require("spec.support.program")

it("set_num_threads of more threads than memory allows is an error", function()
  if program.build:find("asan") then
    return -- the sanitizer needs more address space than any limit leaves
  end
  local out, err = program.shell(("ulimit -v 2500000; exec %s -e %s"):format(program.host,
    program.quote([[
      local torch = require("torch")
      local before = torch.get_num_threads()
      local ok, e = pcall(torch.set_num_threads, 3000)
      print(ok, torch.errors.OutOfMemoryError:is(e), tostring(e.message):match("cannot start 3000"))
      print(torch.get_num_threads() == before, torch.ones(1000, 1000):sum():item())
    ]])))
  assert.equal("false\ttrue\tcannot start 3000\ntrue\t1000000.0\n", out, err)
end)

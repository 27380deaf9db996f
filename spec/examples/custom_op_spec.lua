-- The examples of custom operators: each library is compiled for its script, as
-- C99 and as C++.
local custom_ops = require("spec.support.custom_ops")
local program = require("spec.support.program")

local function output(name)
  local library, folder = custom_ops.compile(("examples/custom_op/%s.c"):format(name))
  local out, err, code = program.run({ ("examples/custom_op/%s.lua"):format(name), library })
  custom_ops.remove(folder)
  assert.equal(0, code, err)
  return out
end

describe("the example", function()
  it("cube gives x^3 + bias and x^3, and their gradients", function()
    local out = output("cube")
    assert(out:find("%[%[12%., 12%.") and out:find("%[%[8%., 8%."), out)
    -- 0.1 * 3 x^2
    assert(out:find("gradient\ttensor([0.0270, 2.1870, 0.4320, 7.5000])", 1, true), out)
  end)

  it("leaky_relu learns", function()
    local out = output("leaky_relu")
    assert(tonumber(out:match("Epoch 5 | Loss: %S+ | Accuracy: (%S+)\n$")) > 80, out)
  end)

  it("many_attributes tells right attributes from wrong ones", function()
    assert.equal("as expected\t1.0\notherwise\t0.0\n", output("many_attributes"))
  end)

  it("cube compiles as C++, too, with nothing else of lupine's", function()
    local file = program.temporary("")
    local _, err, code = program.shell(("c++ -x c++ -std=c++11 -pedantic -Wall -Wextra -Werror "
      .. "-shared -fPIC -I include -o %s examples/custom_op/cube.c"):format(file))
    os.remove(file)
    if err:find("not found", 1, true) then
      return pending("there is no C++ compiler")
    end
    assert.equal(0, code, err)
  end)
end)

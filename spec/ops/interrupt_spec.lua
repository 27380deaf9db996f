--- Ctrl-C while one operator runs that would not end for hours.
local program = require("spec.support.program")

-- Lua code of a call without an end, by what it is.
local ENDLESS = {
  { "a polynomial of a huge degree",
    "torch.special.legendre_polynomial_p(torch.rand(1), 1 << 40)" },
  { "another polynomial", "torch.special.laguerre_polynomial_l(torch.rand(4), 1 << 40)" },
  { "a pointwise operator", "torch.add(torch.ones(1 << 12), "
    .. "torch.special.legendre_polynomial_p(torch.rand(1 << 12), 1 << 30))" },
  { "a sum", "torch.ones(1):expand(1 << 20, 1 << 20):sum()" },
  { "the position of a maximum", "torch.ones(1):expand(1 << 50):argmax()" },
  { "truths of many rows", "torch.ones(1):expand(1 << 22, 1 << 16):any(1)" },
  { "a sort", "torch.ones(1):expand(1 << 25):clone():sort()" },
  { "the largest few", "torch.rand(1 << 24):topk(1 << 22)" },
  { "distinct values", "torch.rand(1 << 24):unique()" },
  { "a permutation", "torch.randperm(1 << 27)" },
  { "convolutions", "torch.nn.functional.conv2d(torch.ones(64, 64, 128, 128), "
    .. "torch.ones(256, 64, 7, 7))" },
  { "a large product", "torch.ones(12000, 12000):matmul(torch.ones(12000, 12000))" },
  { "a product of integers", "torch.ones(6000, 6000, { dtype = torch.int64 })"
    .. ":matmul(torch.ones(6000, 6000, { dtype = torch.int64 }))" },
}

describe("one Ctrl-C", function()
  for _, case in ipairs(ENDLESS) do
    it("ends " .. case[1], function()
      local out, err = program.interrupted(([[
        local torch = require("torch")
        io.stdout:setvbuf("line")
        print("running")
        local ok, e = pcall(function() return %s end)
        print(ok, torch.errors.KeyboardInterrupt:is(e))
        print((torch.ones(2) + 1):sum():item())
      ]]):format(case[2]))
      assert.equal("running\nfalse\ttrue\n4.0\n", out, err)
    end)
  end

  it("ends a compiled program within an operator", function()
    local out, err = program.interrupted([[
      local torch, lupine = require("torch"), require("lupine")
      io.stdout:setvbuf("line")
      local f = lupine.compile(function(x)
        return torch.special.legendre_polynomial_p(x, 1 << 40)
      end, { torch.rand(1) })
      print("running")
      local ok, e = pcall(f, torch.rand(1))
      print(ok, torch.errors.KeyboardInterrupt:is(e))
    ]])
    assert.equal("running\nfalse\ttrue\n", out, err)
  end)
end)

local graphs = require("spec.support.graphs")

local function becomes(before, after)
  graphs.becomes("cse", before, after)
end

local function stays(before)
  graphs.stays("cse", before)
end

describe("cse", function()
  it("makes one of equal nodes, along whole chains", function()
    becomes([[
      input %x: float32[2]
      %a = exp(%x)
      %b = exp(%x)
      %c = mul(%a, 2.0)
      %d = mul(%b, 2.0)
      %e = add(%c, %d)
      output %e]], [[
      input %x: float32[2]
      %a = exp(%x)
      %c = mul(%a, 2.0)
      %e = add(%c, %c)
      output %e]])
  end)

  it("tells numbers apart by kind and by bits", function()
    stays([[
      input %x: float32[2]
      %a = mul(%x, 2)
      %b = mul(%x, 2.0)
      %c = mul(%x, 0.0)
      %d = mul(%x, -0.0)
      output %a, %b, %c, %d]])
    becomes([[
      input %x: float32[2]
      %a = mul(%x, nan)
      %b = mul(%x, nan)
      output %a, %b]], [[
      input %x: float32[2]
      %a = mul(%x, nan)
      output %a, %a]])
  end)

  it("tells attributes and the order of operands apart", function()
    stays([[
      input %x: float32[4, 4]
      %a = permute(%x, dims=[1, 0])
      %b = reshape(%x, shape=[16])
      %c = reshape(%x, shape=[2, 8])
      %d = sub(%x, %a)
      %e = sub(%a, %x)
      output %a, %b, %c, %d, %e]])
  end)

  it("stays within one placement", function()
    for _, part in ipairs({ 'block "b"', "stage 1", "ipu 1", "phase 0", "backward",
      "update" }) do
      stays(([[
        input %%x: float32[2]
        origin
        %%a = exp(%%x)
        origin %s
        %%b = exp(%%x)
        output %%a, %%b]]):format(part))
    end
  end)

  it("merges over scopes and lines, and keeps the names", function()
    becomes([[
      input %x: float32[2]
      origin scope "one" file "a.lua" line 1
      %a "first" = exp(%x)
      origin scope "two" file "b.lua" line 2
      %b "second" = exp(%x)
      output %b]], [[
      input %x: float32[2]
      origin scope "one" file "a.lua" line 1
      %a "first" "second" = exp(%x)
      output %a]])
  end)
end)

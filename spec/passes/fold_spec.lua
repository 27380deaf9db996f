local graphs = require("spec.support.graphs")

local function becomes(before, after)
  graphs.becomes("fold", before, after)
end

local function stays(before)
  graphs.stays("fold", before)
end

describe("fold", function()
  it("computes pointwise operators of constants", function()
    becomes([[
      %a = full(size=[2, 3], fill_value=2.5, dtype=float32)
      %b = full(size=[3], fill_value=4.0, dtype=float32)
      %c = mul(%a, %b)
      %d = sub(%c, 0.5, alpha=3)
      %e = gt(%d, 8)
      output %c, %d, %e]], [[
      %a = full(size=[2, 3], fill_value=2.5, dtype=float32)
      %b = full(size=[3], fill_value=4.0, dtype=float32)
      %c = full(size=[2, 3], fill_value=10.0, dtype=float32)
      %d = full(size=[2, 3], fill_value=8.5, dtype=float32)
      %e = full(size=[2, 3], fill_value=true, dtype=bool)
      output %c, %d, %e]])
  end)

  it("rounds to the type of every value on the way", function()
    -- 2049 is halfway between two float16 values and goes to the even one
    becomes([[
      %a = full(size=[], fill_value=2048.0, dtype=float16)
      %b = add(%a, 1)
      %c = full(size=[], fill_value=0.1, dtype=float16)
      %d = cast(%c, dtype=float64)
      output %b, %d]], [[
      %a = full(size=[], fill_value=2048.0, dtype=float16)
      %b = full(size=[], fill_value=2048.0, dtype=float16)
      %c = full(size=[], fill_value=0.1, dtype=float16)
      %d = full(size=[], fill_value=0.0999755859375, dtype=float64)
      output %b, %d]])
  end)

  it("wraps integers as their type does", function()
    becomes([[
      %a = full(size=[2], fill_value=127, dtype=int8)
      %b = add(%a, 1)
      output %b]], [[
      %a = full(size=[2], fill_value=127, dtype=int8)
      %b = full(size=[2], fill_value=-128, dtype=int8)
      output %b]])
  end)

  it("promotes as for the whole tensors", function()
    -- a float64 without dimensions does not widen a float16 with some
    becomes([[
      %a = full(size=[2], fill_value=1.0, dtype=float16)
      %b = full(size=[], fill_value=0.0001, dtype=float64)
      %c = add(%a, %b)
      output %c]], [[
      %a = full(size=[2], fill_value=1.0, dtype=float16)
      %b = full(size=[], fill_value=0.0001, dtype=float64)
      %c = full(size=[2], fill_value=1.0, dtype=float16)
      output %c]])
  end)

  it("sees through views of constants", function()
    becomes([[
      %a = full(size=[2, 3], fill_value=2, dtype=int64)
      %b = permute(%a, dims=[1, 0])
      %c = select(%b, dim=0, index=1)
      output %b, %c]], [[
      %a = full(size=[2, 3], fill_value=2, dtype=int64)
      %b = full(size=[3, 2], fill_value=2, dtype=int64)
      %c = full(size=[2], fill_value=2, dtype=int64)
      output %b, %c]])
  end)

  it("leaves a view that would become a large array", function()
    stays([[
      %a = full(size=[1], fill_value=2.0, dtype=float32)
      %b = expand(%a, size=[1000, 1000])
      output %b]])
  end)

  it("leaves what is not known", function()
    stays([[
      input %x: float32[2]
      %a = full(size=[2], fill_value=2.0, dtype=float32)
      %b = add(%x, %a)
      output %b]])
  end)

  it("leaves an operator that fails, to fail when it runs", function()
    stays([[
      %a = full(size=[2], fill_value=2, dtype=int64)
      %b = div(%a, 0, rounding_mode="floor")
      output %b]])
  end)
end)

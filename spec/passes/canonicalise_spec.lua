local graphs = require("spec.support.graphs")

local function becomes(before, after, head)
  graphs.becomes("canonicalise", before, after, head)
end

local function stays(before, head)
  graphs.stays("canonicalise", before, head)
end

-- One operator on %x, a float32[2, 3]; what `want` names becomes the output.
local function unary(call, want, extra)
  local input = "input %x: float32[2, 3]\n"
  becomes(input .. (extra or "") .. "%y = " .. call .. "\noutput %y",
    input .. (want:find("=") and want or "output " .. want))
end

describe("canonicalise", function()
  it("drops views that change nothing", function()
    unary("reshape(%x, shape=[2, 3])", "%x")
    unary("view(%x, size=[-1, 3])", "%x")
    unary("expand(%x, size=[2, -1])", "%x")
    unary("permute(%x, dims=[0, 1])", "%x")
    unary("slice(%x, dim=1, start=0, end=3)", "%x")
    unary("alias(%x)", "%x")
    unary("clone(%x)", "%x")
  end)

  it("leaves every stage a node", function()
    stays([[
      input %x: float32[2, 3]
      origin stage 0 ipu 0
      %a = relu(%x)
      origin stage 1 ipu 1
      %b = relu(%a)
      origin stage 2 ipu 2
      %c = clone(%b)
      origin stage 3 ipu 3
      %d = reshape(%c, shape=[6])
      origin stage 4 ipu 4
      %e = reshape(%d, shape=[2, 3])
      output %e]])
    becomes([[
      input %x: float32[2, 3]
      origin stage 0 ipu 0
      %a = relu(%x)
      origin stage 1 ipu 1
      %b = relu(%a)
      %c = relu(%b)
      %d = clone(%c)
      output %d]], [[
      input %x: float32[2, 3]
      origin stage 0 ipu 0
      %a = relu(%x)
      origin stage 1 ipu 1
      %b = relu(%a)
      output %b]])
  end)

  it("keeps a view that does something", function()
    stays("input %x: float32[2, 3]\n%y = reshape(%x, shape=[3, 2])\noutput %y")
    stays("input %x: float32[2, 3]\n%y = permute(%x, dims=[1, 0])\noutput %y")
    stays("input %x: float32[2, 3]\n%y = slice(%x, dim=1, start=0, end=2)\noutput %y")
    stays("input %x: float32[1, 3]\n%y = expand(%x, size=[2, 3])\noutput %y")
  end)

  it("writes every movement of sizes of 1 as a reshape", function()
    unary("unsqueeze(%x, dim=0)", "%y = reshape(%x, shape=[1, 2, 3])\noutput %y")
    unary("expand(%x, size=[1, 2, 3])", "%y = reshape(%x, shape=[1, 2, 3])\noutput %y")
    becomes([[
      input %x: float32[2, 1, 3]
      %y = permute(%x, dims=[1, 0, 2])
      %z = squeeze(%x)
      %w = select(%x, dim=1, index=0)
      output %y, %z, %w]], [[
      input %x: float32[2, 1, 3]
      %y = reshape(%x, shape=[1, 2, 3])
      %z = reshape(%x, shape=[2, 3])
      %w = reshape(%x, shape=[2, 3])
      output %y, %z, %w]])
  end)

  it("makes one reshape of a chain", function()
    becomes([[
      input %x: float32[4, 6]
      %a = reshape(%x, shape=[24])
      %b = reshape(%a, shape=[2, 12])
      %c = unsqueeze(%b, dim=0)
      %d = reshape(%c, shape=[4, 6])
      output %c, %d]], [[
      input %x: float32[4, 6]
      %a = reshape(%x, shape=[24])
      %b = reshape(%x, shape=[2, 12])
      %c = reshape(%x, shape=[1, 2, 12])
      output %c, %x]])
  end)

  it("composes permutations, and drops a double transpose", function()
    becomes([[
      input %x: float32[2, 3, 4]
      %a = permute(%x, dims=[1, 2, 0])
      %b = permute(%a, dims=[1, 2, 0])
      %c = permute(%b, dims=[1, 2, 0])
      output %b, %c]], [[
      input %x: float32[2, 3, 4]
      %a = permute(%x, dims=[1, 2, 0])
      %b = permute(%x, dims=[2, 0, 1])
      output %b, %x]])
  end)

  it("makes one expand of two", function()
    becomes([[
      input %x: float32[1, 1]
      %a = expand(%x, size=[1, 3])
      %b = expand(%a, size=[5, 2, 3])
      output %b]], [[
      input %x: float32[1, 1]
      %a = expand(%x, size=[1, 3])
      %b = expand(%x, size=[5, 2, 3])
      output %b]])
  end)

  it("makes one slice of two along one dimension", function()
    -- elements 3, 5, 7, 9 of 0..10, of these 5 and 9
    becomes([[
      input %x: float32[11]
      %a = slice(%x, dim=0, start=3, end=11, step=2)
      %b = slice(%a, dim=0, start=1, end=5, step=2)
      output %b]], [[
      input %x: float32[11]
      %a = slice(%x, dim=0, start=3, end=10, step=2)
      %b = slice(%x, dim=0, start=5, end=10, step=4)
      output %b]])
  end)

  it("does not drag the whole into the place of a slice of a slice", function()
    stays([[
      input %x: float32[11]
      origin stage 0
      %a = slice(%x, dim=0, start=3, end=10)
      origin stage 1
      %b = slice(%a, dim=0, start=1, end=5)
      output %b]])
  end)

  it("keeps detach until nothing will be differentiated", function()
    local lines = "input %x: float32[2]\n%y = detach(%x)\n%z = neg(%y)\noutput %z"
    stays(lines)
    becomes(lines, "input %x: float32[2]\n%z = neg(%x)\noutput %z",
      "graph differentiated\n")
  end)

  it("drops casts to the same type and widening ones before another", function()
    unary("cast(%x, dtype=float32)", "%x")
    becomes([[
      input %x: float16[2]
      %a = cast(%x, dtype=float32)
      %b = cast(%a, dtype=float16)
      %c = cast(%a, dtype=bfloat16)
      output %b, %c]], [[
      input %x: float16[2]
      %a = cast(%x, dtype=float32)
      %c = cast(%x, dtype=bfloat16)
      output %x, %c]])
  end)

  it("keeps casts that lose something on the way", function()
    for _, types in ipairs({ { "float32", "float16", "float32" },
      { "float16", "bfloat16", "float16" }, { "int32", "float32", "int32" },
      { "int64", "int32", "int64" }, { "int16", "float64", "uint8" },
      { "float32", "bool", "float32" } }) do
      stays(([[
        input %%x: %s[2]
        %%a = cast(%%x, dtype=%s)
        %%b = cast(%%a, dtype=%s)
        output %%b]]):format(table.unpack(types)))
    end
  end)

  it("drops multiplication and division by 1 of the same type", function()
    unary("mul(%x, 1)", "%x")
    unary("mul(1.0, %x)", "%x")
    unary("div(%x, 1)", "%x")
    becomes([[
      input %x: float32[2, 3]
      %one = full(size=[3], fill_value=1.0, dtype=float32)
      %y = mul(%x, %one)
      output %y]], [[
      input %x: float32[2, 3]
      %one = full(size=[3], fill_value=1.0, dtype=float32)
      output %x]])
    becomes([[
      input %x: int32[2]
      %y = div(%x, 1, rounding_mode="floor")
      output %y]], "input %x: int32[2]\noutput %x")
  end)

  it("keeps them where they change the type, the shape or the value", function()
    stays("input %x: int32[2]\n%y = mul(%x, 1.0)\noutput %y")
    stays("input %x: int32[2]\n%y = div(%x, 1)\noutput %y")
    stays("input %x: float32[2]\n%y = div(%x, 1, rounding_mode=\"floor\")\noutput %y")
    stays("input %x: float32[2]\n%y = div(1, %x)\noutput %y")
    stays("input %x: float32[2]\n%y = mul(%x, 1.0000001)\noutput %y")
    stays([[
      input %x: float32[3]
      %one = full(size=[2, 3], fill_value=1.0, dtype=float32)
      %y = mul(%x, %one)
      output %y]])
  end)

  it("knows the sign of zero", function()
    -- -0.0 + 0.0 is 0.0; -0.0 + -0.0 and -0.0 - 0.0 are -0.0
    unary("add(%x, -0.0)", "%x")
    unary("add(-0.0, %x)", "%x")
    unary("sub(%x, 0.0)", "%x")
    unary("sub(%x, 0)", "%x")
    for _, call in ipairs({ "add(%x, 0.0)", "add(%x, 0)", "add(0.0, %x)",
      "sub(%x, -0.0)", "sub(-0.0, %x)", "sub(0, %x)", "add(%x, -0.0, alpha=-1)" }) do
      stays("input %x: float32[2]\n%y = " .. call .. "\noutput %y")
    end
    becomes("input %x: int64[2]\n%y = add(%x, 0)\n%z = sub(%y, 0)\noutput %z",
      "input %x: int64[2]\noutput %x")
  end)

  it("drops two negations and repeated roundings", function()
    becomes([[
      input %x: float32[2]
      %a = neg(%x)
      %b = neg(%a)
      %c = neg(%b)
      output %b, %c]], [[
      input %x: float32[2]
      %a = neg(%x)
      %c = neg(%x)
      output %x, %c]])
    becomes([[
      input %x: float32[2]
      %a = floor(%x)
      %b = floor(%a)
      output %b]], "input %x: float32[2]\n%a = floor(%x)\noutput %a")
    -- not not 3.0 is true, another type
    stays("input %x: float32[2]\n%a = logical_not(%x)\n%b = logical_not(%a)\noutput %b")
  end)

  it("chooses where the condition is known", function()
    becomes([[
      input %x: float16[3]
      input %y: float32[2, 1]
      %c = full(size=[], fill_value=true, dtype=bool)
      %d = full(size=[2, 3], fill_value=false, dtype=bool)
      %a = where(%c, %x, %y)
      %b = where(%d, %x, 2)
      %e = where(%c, %y, %y)
      output %a, %b, %e]], [[
      input %x: float16[3]
      input %y: float32[2, 1]
      %c = full(size=[], fill_value=true, dtype=bool)
      %d = full(size=[2, 3], fill_value=false, dtype=bool)
      %a = cast(%x, dtype=float32)
      %f = expand(%a, size=[2, 3])
      %b = full(size=[2, 3], fill_value=2, dtype=float16)
      output %f, %b, %y]])
  end)

  it("makes a constant of what is filled", function()
    becomes([[
      input %x: float16[3]
      input %s: float16[]
      %a = fill(%x, 2)
      %b = zero(%x)
      %c = fill(%x, %s)
      output %a, %b, %c]], [[
      input %x: float16[3]
      input %s: float16[]
      %a = full(size=[3], fill_value=2, dtype=float16)
      %b = full(size=[3], fill_value=0, dtype=float16)
      %c = fill(%x, %s)
      output %a, %b, %c]])
  end)

  it("drops dropout outside training and where nothing is dropped", function()
    unary("dropout(%x, training=false)", "%x")
    unary("dropout(%x, p=0)", "%x")
    stays("input %x: float32[2]\n%y = dropout(%x) site 0x5\noutput %y")
  end)

  it("masks a gradient by the pooled values before it scatters it", function()
    local before = [[
      input %x: float32[1, 1, 4, 4]
      input %g: float32[1, 1, 2, 2]
      %p, %i = max_pool(%x, kernel_size=[2, 2], stride=[2, 2], padding=[0, 0], ]] ..
      [[dilation=[1, 1], ceil_mode=false)
      %s = max_pool_backward(%g, %i, size=[4, 4])
    ]]
    becomes(before .. [[
      %y = relu_backward(%s, %x)
      output %p, %y]], before .. [[
      %m = relu_backward(%g, %p)
      %y = max_pool_backward(%m, %i, size=[4, 4])
      output %p, %y]])
    stays(before .. [[
      %y = relu_backward(%s, %s)
      output %p, %y]])
  end)

  it("joins heads before it merges them with the next dimension", function()
    local before = [[
      input %q: float32[2, 4, 5, 8]
      input %k: float32[2, 3, 5, 8]
      input %o: float32[2, 5, 9]
      %a = permute(%q, dims=[0, 2, 1, 3])
      %b = reshape(%a, shape=[2, 5, 32])
      %c = permute(%k, dims=[0, 2, 1, 3])
      %d = reshape(%c, shape=[2, 5, 24])
    ]]
    becomes(before .. [[
      %y = cat([%b, %d], dim=2)
      output %y]], before .. [[
      %e = cat([%a, %c], dim=2)
      %y = reshape(%e, shape=[2, 5, 56])
      output %y]])
    stays(before .. [[
      %y = cat([%b, %o], dim=2)
      output %y]])
    stays(before .. [[
      %f = reshape(%c, shape=[2, 15, 8])
      %y = cat([%f, %f], dim=2)
      output %y]])
  end)

  it("gives a value that takes another's place its names", function()
    becomes([[
      input %x "x": float32[2]
      %a "a" "b" = alias(%x)
      %b "c" = clone(%a)
      output %b]], [[
      input %x "x" "a" "b" "c": float32[2]
      output %x]])
  end)
end)

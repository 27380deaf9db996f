--- Loops over elements as they are stored give the bits of the wide ones between
--- conversions.
local torch = require("torch")

local BINARY = { "add", "sub", "mul", "div" }
local UNARY = { "relu", "neg", "abs" }
local WHOLE = { "add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or",
  "bitwise_xor", "eq", "ne", "lt", "le", "gt", "ge" }
local TRUTH = { "add", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor",
  "eq", "ne", "logical_and", "logical_or", "logical_xor" }

-- Equal bits, those of a NaN too.
local function same_bits(want, got)
  assert.equal(want.dtype, got.dtype)
  assert.equal(0, want:view(torch.int16):ne(got:view(torch.int16)):sum():item())
end

describe("halves as they are stored", function()
  for _, t in ipairs({ torch.float16, torch.bfloat16 }) do
    local a = torch.arange(-32768, 32768):to(torch.int16):view(t) -- every pattern
    for _, name in ipairs(BINARY) do
      it(tostring(t) .. " " .. name, function()
        for shift = 1, 5 do
          local b = a:flip({ 0 }):roll(shift * 11003)
          same_bits(torch[name](a:float(), b:float()):to(t), torch[name](a, b))
        end
        local one = a[torch.tensor({ 15360 })]
        same_bits(torch[name](one:float(), a:float()):to(t), torch[name](one, a))
        same_bits(torch[name](a:float(), one:float()):to(t), torch[name](a, one))
      end)
    end
    for _, name in ipairs(UNARY) do
      it(tostring(t) .. " " .. name, function()
        same_bits(torch[name](a:float()):to(t), torch[name](a))
      end)
    end
  end
end)

describe("integers and bools as they are stored", function()
  local function check(name, x, y)
    local got = torch[name](x, y)
    local wide = torch[name](x:long(), type(y) == "number" and y or y:long())
    assert.is_true(torch.equal(got, wide:to(got.dtype)))
    if wide.dtype ~= torch.bool then
      assert.equal(x.dtype, got.dtype)
    end
  end

  for _, t in ipairs({ torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool }) do
    it(tostring(t), function()
      torch.manual_seed(3)
      local x = torch.randint(-3000000000, 3000000000, { 77 }):to(t)
      local y, one = torch.randint(-1, 2, { 77 }):to(t), torch.ones({ 1 }, { dtype = t })
      for _, name in ipairs(t == torch.bool and TRUTH or WHOLE) do
        check(name, x, y)
        check(name, y, x)
        check(name, x, x)
        check(name, x, one)
        check(name, one, x)
        if t ~= torch.bool and name:sub(1, 3) ~= "max" and name:sub(1, 3) ~= "min" then
          check(name, x, 3)
        end
      end
      assert.is_true(torch.equal(x:logical_not(), x:eq(0)))
    end)
  end
end)

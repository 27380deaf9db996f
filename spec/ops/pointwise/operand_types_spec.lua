-- A tensor without dimensions takes the type of the others before anything is
-- computed, as an integer beside half types does. PyTorch's values.
local compile = require("lupine.compile")
local torch = require("torch")

local u8 = torch.tensor({ 0, 1, 200, 253 }, { dtype = torch.uint8 })
local i8 = torch.tensor({ 127, -3 }, { dtype = torch.int8 })
local i32 = torch.tensor({ 70000, -70000 }, { dtype = torch.int32 })
local bf16 = torch.tensor({ 300, 0.5 }, { dtype = torch.bfloat16 })
local function zero_d(v) return torch.tensor(v) end

local cases = {
  { "gt", u8, zero_d(-3), { false, false, false, false } },
  { "gt", u8, -3, { false, false, false, false } },
  { "lt", zero_d(-3), u8, { false, false, false, false } },
  { "eq", u8, zero_d(457), { false, false, false, false } },
  { "eq", u8, zero_d(456), { false, false, true, false } },
  { "eq", i32, zero_d((1 << 32) + 70000), { true, false } },
  { "logical_or", zero_d(256), u8, { false, true, true, true } },
  { "maximum", u8, zero_d(-3), { 253, 253, 253, 253 } },
  { "minimum", u8, zero_d(-70000), { 0, 1, 144, 144 } },
  { "remainder", u8, zero_d(-70000), { 0, 1, 56, 109 } },
  { "bitwise_right_shift", zero_d(70000), u8, { 112, 56, 0, 0 } },
  { "add", u8, zero_d(-3), { 253, 254, 197, 250 } },
  { "pow", i8, zero_d(257), { 127, -3 } },
  { "mul", i32, bf16, { 21102592, -35072 } },
}

describe("a tensor without dimensions", function()
  it("takes the others' type first", function()
    for _, c in ipairs(cases) do
      local name, a, b, want = table.unpack(c)
      local fn = torch[name]
      assert.same(want, fn(a, b):tolist(), name)
      if type(b) ~= "number" then
        assert.same(want, compile(fn, { a, b })(a, b):tolist(), name .. ", compiled")
        assert.same(want, compile(function(x, y)
          return fn(x + x:new_zeros(x.shape), y)
        end, { a, b })(a, b):tolist(), name .. ", fused")
      end
    end
  end)

  it("divides by what it is in that type", function()
    assert.has_error(function() torch.remainder(u8, zero_d(256)) end)
  end)
end)

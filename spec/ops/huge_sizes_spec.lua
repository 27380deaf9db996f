--- Sizes and strides whose products do not fit into 64 bits are errors where
--- they are asked for (PyTorch 2.15: "numel: integer multiplication overflow",
--- "Stride calculation overflowed"), also when a size of 0 leaves no element;
--- under the sanitizers nothing overflows on the way.
local helper = require("spec.helper")
local torch = require("torch")
local F = require("torch.nn.functional")

local MOST = math.maxinteger
local one = torch.zeros(1)

-- {what, error, pattern, function, arguments …}
local REFUSED = {
  { "zeros", "OverflowError", "too many elements", torch.zeros, 0, 3, (1 << 61) + 1 },
  { "zeros with the 0 last", "OverflowError", "too many", torch.zeros, 1 << 40, 1 << 40, 0 },
  { "expand", "OverflowError", "too many elements", one.expand, one, 1 << 62, 4 },
  { "a broadcast", "OverflowError", "too many elements", torch.add, one:expand(1 << 31, 1),
    one:expand(1, 1 << 31) },
  { "outer", "OverflowError", "too many elements", torch.outer, one:expand(1 << 40),
    one:expand(1 << 40) },
  { "unflatten", "RuntimeError", "multiply up", one.unflatten, torch.zeros(0), 0, { 64, 1 << 62 } },
  { "one_hot", "OverflowError", "classes", F.one_hot, torch.tensor({ MOST }) },
  { "pad", "RuntimeError", "negative output size", F.pad, one, { MOST, 1 } },
  { "pad of one side", "RuntimeError", "negative output size", F.pad, torch.zeros(3),
    { -1, MOST } },
  { "repeat", "RuntimeError", "repeats", one["repeat"], torch.zeros(3), 1 << 62 },
  { "tile", "RuntimeError", "repeats", one.tile, torch.zeros(0, 2), 1 << 62, 1 << 62 },
  { "as_strided", "RuntimeError", "overflow", one.as_strided, one, { 2 }, { 1 << 62 } },
  { "as_strided of one element", "RuntimeError", "overflow", one.as_strided, one, { 1 },
    { 1 << 62 } },
  { "as_strided with an offset", "RuntimeError", "overflow", one.as_strided, one, { 2 }, { 1 },
    MOST },
  { "tolist of empty rows", "OverflowError", "tolist.*268435456", one.tolist,
    torch.zeros(1 << 40, 0) },
  { "tolist of an expanded tensor", "OverflowError", "tolist", one.tolist, one:expand(1 << 40) },
  { "numel of a Size", "OverflowError", "overflows", function()
    return torch.Size({ 1 << 62, 4 }):numel()
  end },
}

describe("sizes that overflow", function()
  for _, case in ipairs(REFUSED) do
    it("are refused by " .. case[1], function()
      helper.refuses(case[2], case[3], case[4], table.unpack(case, 5))
    end)
  end

  it("are all sizes but the largest ones", function()
    assert.equal(1 << 60, one:expand(1 << 60):numel())
    assert.equal(0, torch.zeros(1 << 40, 0):sum(0):numel())
    assert.equal(0, torch.zeros(0, 3, 1 << 40):sum():item())
    assert.equal("torch.Size([1, 3])", tostring(torch.zeros(0, 3, 1 << 40):sum({ 2 })
      :new_zeros(1, 3).shape))
    assert.equal(0, torch.zeros(3, 0):unflatten(1, { 0, 1 << 40 }):numel())
  end)
end)

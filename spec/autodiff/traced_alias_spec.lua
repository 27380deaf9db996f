-- What shares memory with what in a traced function: the same as in eager calls.
local compile = require("lupine.compile")
local control = require("lupine.control")
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

-- Compiled, fn gives what it gives eagerly, and leaves its input so.
local function agree(fn, shape)
  local want = torch.arange(12):float():reshape(shape)
  local got = want:clone()
  helper.near(compile(fn, { got })(got), fn(want), helper.exact)
  helper.near(got, want, helper.exact)
end

describe("in a traced function", function()
  local ways = {
    reshape = function(t) return t:reshape(-1) end,
    flatten = function(t) return t:flatten() end,
    contiguous = function(t) return t:contiguous() end,
  }
  local parts = {
    whole = function(t) return t end,
    transposed = function(t) return t:t() end,
    rows = function(t) return t["1:3"] end,
    columns = function(t) return t[":, 1:3"] end,
    column = function(t) return t[":, 0"] end,
    diagonal = function(t) return t["0:3, 0:3"]:diagonal() end,
    expanded = function(t) return t["0:1"]:expand(3, 4) end,
    windows = function(t) return t[0]:unfold(0, 2, 1) end,
  }
  for way, arrange in pairs(ways) do
    for name, part in pairs(parts) do
      it(("%s of %s shares memory or copies as eagerly"):format(way, name), function()
        agree(function(x)
          local y = x + 1
          local v = arrange(part(y))
          y:add_(10)
          return v
        end, { 3, 4 })
        agree(function(x) -- the input is written through the result, or not
          arrange(part(x)):mul_(2)
          return x + 0
        end, { 3, 4 })
      end)
    end
  end

  it("as_strided reads and writes the memory of a view", function()
    agree(function(x)
      local y = x * 1
      local v = y[":, 1:3"]:as_strided({ 2, 2 }, { 5, 1 })
      v:mul_(10)
      return torch.cat({ y, v:reshape(1, 4), y:t()["1:"]:as_strided({ 1, 4 }, { 1, 3 }, 2) })
    end, { 3, 4 })
  end)

  it("as_strided reads broadcast, filled and permuted values in their order", function()
    agree(function(x) return (x["0:1"]:expand(3, 4) * 1):as_strided({ 12 }, { 1 }, 0) end, { 3, 4 })
    agree(function(x)
      local y = x * 1
      y["..."] = 2
      return y:as_strided({ 3, 3 }, { 4, 1 }, 1)
    end, { 3, 4 })
    agree(function(x)
      return (x * 1):view(4, 3):copy_(x:t()):as_strided({ 2, 2 }, { 1, 3 }, 0)
    end, { 3, 4 })
    agree(function(x) return (x["1:"] * 1):as_strided({ 2, 2 }, { 1, 3 }, 0) end, { 3, 4 })
  end)

  it("as_strided stays within the values, and refuses memory in another order", function()
    local x, zero = torch.arange(6):float():reshape(2, 3), torch.zeros(1)
    local flipped = x:clone():t_()
    local seen = flipped:as_strided({ 2, 2 }, { 1, 3 }, 0)
    local outside = {
      ["element 9 is out of bounds"] = function(y) return (y * 1):as_strided({ 10 }, { 1 }) end,
      ["from outside lie in memory in another order"] = function(y)
        return flipped:as_strided({ 2 }, { 1 }) + y
      end,
      ["elements of a tensor from outside lie in memory"] = function(y) -- in a body
        return control.loop(2, function(h) return h + flipped:as_strided({ 1 }, { 1 }) end, { y })
      end,
      ["lie in memory in another order than"] = function(y) return seen + y end,
    }
    for message, fn in pairs(outside) do
      helper.raises("RuntimeError", message, function() compile(fn, { zero }) end)
    end
    local part = x:t():as_strided({ 2, 2 }, { 1, 3 }, 0)
    helper.near(compile(function(y) return part + y end, { zero })(zero), { { 0, 3 }, { 1, 4 } })
  end)

  it("view of another type shows the bits", function()
    local function bits(t) return t:view(torch.int32) end
    for _, fn in ipairs({ bits, function(t) return bits(t:t() + 1) end,
      function(t) return bits(t["1:"]) end,
      function(t) return bits(torch.ones(6, 2)) + t:int() end,
      function(t) return t["1:"]:view(torch.int16):view(torch.int64) end }) do
      agree(fn, { 6, 2 })
    end
    agree(function(t) return (t[0]["0:2"] + 1):view(torch.int64) end, { 3, 4 })
    agree(function(t) return (t[":, 2:"]):contiguous():view(torch.int64) end, { 3, 4 })
    agree(function(t) return (t[":, 2:"]):view(torch.int64) end, { 3, 4 })
    helper.raises("RuntimeError", "made by view_dtype cannot be written", function()
      agree(function(t) return bits(t + 1):fill_(0) end, { 6, 2 })
    end)
  end)

  it("view raises where the strides forbid it", function()
    helper.raises("RuntimeError", "Use .reshape", function()
      compile(function(x)
        return x:t():view(12)
      end, { torch.ones(3, 4) })
    end)
  end)

  it("a write to memory that it shares with an operand in part is refused", function()
    helper.raises("RuntimeError", "clone", function()
      compile(function(x)
        return x["1:"]:add_(x[":-1"])
      end, { torch.ones(4) })
    end)
  end)
end)

describe("a traced module that writes a copy of its buffer", function()
  local Scaled = nn.Module:extend("Scaled")
  function Scaled:init()
    self:register_buffer("b", torch.arange(4):float():reshape(2, 2))
  end
  function Scaled:forward(x)
    return x:matmul(self.b:t():contiguous():add_(100))
  end

  it("leaves the buffer as it is", function()
    local x = torch.eye(2)
    local before = torch.tensor({ { 0, 1 }, { 2, 3 } }):float()
    local m, n = Scaled(), Scaled()
    local f, p = compile(m, { x }), poptorch.inferenceModel(n)
    for _ = 1, 2 do
      helper.near(f(x), { { 100, 102 }, { 101, 103 } }, helper.exact)
      helper.near(p(x), { { 100, 102 }, { 101, 103 } }, helper.exact)
    end
    p:copyWeightsToHost()
    helper.near(m.b, before, helper.exact)
    helper.near(n.b, before, helper.exact)
  end)
end)

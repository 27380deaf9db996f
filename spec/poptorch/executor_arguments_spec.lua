--- What a call of a wrapped model may be given and what it returns.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local function infer(f, options)
  local cls = nn.Module:extend("Function")
  cls.forward = f
  return poptorch.inferenceModel(cls(), options)
end

local function vec(...)
  return torch.tensor({ ... }, { dtype = torch.float32 })
end

describe("arguments", function()
  it("may be not a number", function()
    local f = infer(function(_, x, y)
      return x + y
    end)
    for _ = 1, 2 do
      local got = f(vec(1), 0 / 0):item()
      assert.is_true(got ~= got)
    end
    raises("Error", "compiled in", function()
      f(vec(1), 1.5)
    end)
  end)

  it("are fed again at every call", function()
    local add = infer(function(_, a, b)
      return a + b
    end)
    for _ = 1, 3 do
      near(add(vec(1), vec(2)), { 3 })
    end
    near(add(vec(3), vec(2)), { 5 })
  end)

  it("may be nested lists and dictionaries", function()
    local sum = infer(function(_, t)
      return t[1][1] + t[1][2] + t[2][1][1] + t[2][1][2] + t[2][2].a + t[2][2].b + t[3]
    end)
    local function at(...)
      local v = { ... }
      return { { vec(v[1]), vec(v[2]) }, { { vec(v[3]), vec(v[4]) },
        { a = vec(v[5]), b = vec(v[6]) } }, vec(v[7]) }
    end
    near(sum(at(1, 2, 3, 4, 5, 6, 7)), { 28 })
    near(sum(at(2, 2, 3, 4, 5, 6, 7)), { 29 })
  end)

  it("may come by name, in any order, without another compilation", function()
    local f = infer(function(_, t1, t2, t3, t4)
      return t1 * t3 + t2 * t4
    end)
    near(f(vec(1), vec(2), vec(1), vec(0)), { 1 })
    near(f(vec(1), vec(2), { t3 = vec(1), t4 = vec(4) }), { 9 })
    near(f({ t4 = vec(4), t2 = vec(2), t1 = vec(1), t3 = vec(1) }), { 9 })
  end)

  it("left out at the end are nil", function()
    local f = infer(function(_, a, b)
      return b and a + b or a * 10
    end)
    near(f(vec(1)), { 10 })
    near(f(vec(2), nil), { 20 })
    raises("Error", "expected 1 as compiled, got 2", function()
      f(vec(1), vec(2))
    end)
  end)

  it("that are no tensors are compiled in", function()
    local f = infer(function(_, x, u, kind)
      return kind == "add" and x + u or x * u
    end)
    near(f(vec(1), 5, "add"), { 6 })
    near(f(vec(2), 5, "add"), { 7 })
    local e = raises("Error", "u", function()
      f(vec(1), 3, "add")
    end)
    assert.matches("5.*3", e.message)
    raises("Error", "kind.*add.*mul", function()
      f(vec(1), 5, "mul")
    end)
  end)

  it("may contain nil and booleans", function()
    local f = infer(function(_, x, _, negate)
      return negate and -x or x
    end)
    near(f(vec(1), nil, true), { -1 })
    raises("Error", "negate.*true.*false", function()
      f(vec(1), nil, false)
    end)
  end)

  it("must have the number, shape and type that were compiled", function()
    local f = infer(function(_, a, b, c, d, e)
      return e and a + e or a + b + c + d
    end)
    local one = torch.ones(2, 3)
    f(one, one, one, one)
    raises("Error", "expected 4", function()
      f(one, one, one, one, one)
    end)
    local e = raises("Error", "a: compiled for shape", function()
      f(torch.ones(2, 4), one, one, one)
    end)
    assert.matches("%[2, 3%].*%[2, 4%]", e.message)
    assert.matches("destroy", e.message)
    raises("Error", "b: compiled for dtype torch.float32, got torch.int32", function()
      f(one, one:int(), one, one)
    end)
    raises("Error", "b: compiled for dtype torch.float32, got torch.int64", function()
      f(one, one:long(), one, one)
    end)
    raises("Error", "a: compiled for a tensor, got a list", function()
      f({ one }, one, one, one)
    end)
    raises("Error", "b: compiled for a tensor, got float 2.5", function()
      f(one, 2.5, one, one)
    end)
  end)

  it("in dictionaries must have the keys that were compiled, in any order", function()
    local f = infer(function(_, t)
      return t.a - t.b
    end)
    near(f({ a = vec(3), b = vec(1) }), { 2 })
    near(f({ b = vec(1), a = vec(4) }), { 3 })
    raises("Error", "Missing arguments: b", function()
      f({ a = vec(3) })
    end)
    raises("Error", "Unexpected arguments: c", function()
      f({ a = vec(3), b = vec(1), c = vec(1) })
    end)
  end)

  it("are lists or dictionaries, by names", function()
    local f = infer(function(_, t)
      return t[1] or t.a
    end)
    raises("Error", "t: a table is a list or a dictionary, not both", function()
      f({ vec(1), a = vec(2) })
    end)
    raises("Error", "t: a dictionary's keys are strings, not bool", function()
      f({ [true] = vec(1) })
    end)
  end)

  it("in lists must have the length that was compiled", function()
    local f = infer(function(_, t)
      return t[1] + t[2]
    end)
    near(f({ vec(3), vec(1) }), { 4 })
    raises("Error", "2 elements, got 3", function()
      f({ vec(3), vec(1), vec(1) })
    end)
  end)

  it("too many, unknown or missing are errors", function()
    local f = infer(function(_, first, second)
      return first + second
    end)
    raises("AssertionError", "takes 2 arguments %(first, second%), 3 were given", function()
      f(vec(1), vec(1), vec(1))
    end)
    raises("AssertionError", "no parameter 'secand'.*'second'", function()
      f(vec(1), vec(1), { secand = vec(1) })
    end)
    raises("Error", "without its argument%(s%) 'second'", function()
      f(vec(1))
    end)
  end)

  it("of a variadic forward are taken as they come", function()
    local f = infer(function(_, ...)
      local sum = 0
      for _, t in ipairs({ ... }) do
        sum = sum + t
      end
      return sum
    end)
    near(f(vec(1), vec(2), vec(3)), { 6 })
  end)

  it("may require a gradient, which is told, or have any strides", function()
    local f = infer(function(_, x)
      return x * 2
    end)
    local x = torch.tensor({ { 1.0, 2 }, { 3, 4 } }, { requires_grad = true })
    local y
    assert.matches("requires a gradient", helper.logged(function()
      y = f(x)
    end))
    assert.is_false(y.requires_grad)
    near(y, { { 2, 4 }, { 6, 8 } })
    near(f(x:detach():t()), { { 2, 6 }, { 4, 8 } })
  end)

  it("of 64 bits are narrowed, and so are results", function()
    local seen = {}
    local f = infer(function(_, i, d)
      seen = { i.dtype, d.dtype }
      return i + 1, d + 1
    end)
    local i, d = f(torch.tensor({ 1, 2 }), torch.tensor({ 0.5 }, { dtype = torch.float64 }))
    assert.same({ torch.int32, torch.float32 }, seen)
    assert.equal(torch.int32, i.dtype)
    assert.equal(torch.float32, d.dtype)
    near(i, { 2, 3 })
    near(d, { 1.5 })
  end)

  it("of narrow types pass as they are", function()
    local f = infer(function(_, x)
      return x
    end)
    for _, name in ipairs({ "int8", "uint8", "int16", "bool", "int32", "float16" }) do
      f:destroy()
      assert.equal(torch[name], f(torch.ones(2, { dtype = torch[name] })).dtype)
    end
  end)
end)

describe("results", function()
  it("have the structure that forward returned", function()
    local f = infer(function(_, x)
      return { a = x + 1, b = { x + 2, { x + 3, 7 } } }, x * 0, "text"
    end)
    local t, zero, text = f(vec(1))
    near(t.a, { 2 })
    near(t.b[1], { 3 })
    near(t.b[2][1], { 4 })
    assert.equal(7, t.b[2][2])
    near(zero, { 0 })
    assert.equal("text", text)
  end)

  it("may be nothing", function()
    assert.is_nil((infer(function(_, _x) end)(vec(1))))
  end)

  it("may be one tensor twice, or an input", function()
    local x = vec(1, 2)
    local a, b, same = infer(function(_, v)
      local y = v + 1
      return y, y, v
    end)(x)
    near(a, { 2, 3 })
    near(b, { 2, 3 })
    near(same, { 1, 2 })
    a:add_(1)
    same:add_(1)
    near(b, { 2, 3 })
    near(x, { 1, 2 })
  end)

  it("that are tensors of the host come back as they are, and it is told", function()
    local constant = vec(5)
    local out
    assert.matches("not on the IPU", helper.logged(function()
      out = infer(function(_, x)
        return { x + 1, constant }
      end)(vec(1))
    end))
    assert.is_true(rawequal(out[2], constant))
  end)

  it("may be parameters and buffers", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.weight = nn.Parameter(vec(3))
      self:register_buffer("state", vec(4))
    end
    function Net:forward(x)
      return x + self.weight, self.weight, self.state
    end
    local sum, weight, state = poptorch.inferenceModel(Net())(vec(1))
    near(sum, { 4 })
    near(weight, { 3 })
    near(state, { 4 })
  end)

  it("refuse backward()", function()
    local e = raises("Error", "backward", function()
      infer(function(_, x)
        return x:sum()
      end)(vec(1)):backward()
    end)
    assert.matches("trainingModel", e.message)
  end)
end)

describe("tensors of the host in forward", function()
  it("become constants of the program", function()
    local constant = vec(5)
    local f = infer(function(_, x)
      return x + constant + torch.tensor({ 1.0 })
    end)
    near(f(vec(1)), { 7 })
    constant:add_(1)
    near(f(vec(1)), { 7 })
  end)
end)

describe("a misspelt name next to a right one", function()
  it("is an error", function()
    local Net = nn.Module:extend("Net")
    function Net:forward(ids, mask, labels)
      return ids, mask, labels
    end
    local x = torch.ones(2)
    raises("AssertionError", "no parameter 'lables'", function()
      poptorch.inferenceModel(Net())(x, { mask = x, lables = x })
    end)
  end)
end)

describe("numbers that the device can not hold", function()
  local function logged(value, dtype)
    local model = poptorch.inferenceModel(nn.Identity())
    return helper.logged(function()
      model(torch.tensor({ 1, value }, { dtype = dtype }))
    end)
  end

  it("are warned of", function()
    for _, i in ipairs({ 1 << 40, 1 << 31, -(1 << 31) - 1 }) do
      assert.matches("do not fit in int32", logged(i, torch.int64))
    end
    for _, x in ipairs({ 1e39, -1e39 }) do
      assert.matches("do not fit in float32", logged(x, torch.float64))
    end
  end)

  it("are none at the ends of their range, nor where they are infinite", function()
    for _, i in ipairs({ (1 << 31) - 1, -(1 << 31), 0 }) do
      assert.not_matches("do not fit", logged(i, torch.int64))
    end
    for _, x in ipairs({ math.huge, -math.huge, 3e38, -3e38 }) do
      assert.not_matches("do not fit", logged(x, torch.float64))
    end
  end)
end)

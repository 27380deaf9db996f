--- Conformance: what a wrapped model is called with and what it returns.
local helper = require("spec.helper")
local models = require("spec.support.models")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local infer = models.infer

local function vec(...)
  return torch.tensor({ ... }, { dtype = torch.float32 })
end

-- t1 t3 + t2 t4, where t3 is 1 and t4 is 0 unless they are given.
local function products(calls)
  return infer(function(_, t1, t2, t3, t4)
    calls[#calls + 1] = true
    return t1 * (t3 or 1) + t2 * (t4 or 0)
  end)
end

describe("conformance of arguments and results", function()
  it("ARG01 a model adds what it is given at each call", function()
    local add = infer(function(_, a, b)
      return a + b
    end)
    for _ = 1, 3 do
      near(add(vec(1), vec(2)), { 3 })
    end
    near(add(vec(3), vec(2)), { 5 })
  end)

  it("ARG03 another shape is refused with both", function()
    local add = infer(function(_, a, b)
      return a + b
    end)
    add(vec(1), vec(2))
    local e = raises("Error", "%[1%].*%[2%]", function()
      add(vec(1, 2), vec(1, 2))
    end)
    assert.matches("destroy", e.message)
  end)

  it("ARG04 tensors come in lists of lists", function()
    local sum = infer(function(_, t)
      return t[1] + t[2][1] + t[2][2] + t[3][1][1] + t[3][1][2] + t[3][2] + t[4]
    end)
    near(sum({ vec(1), { vec(2), vec(3) }, { { vec(4), vec(5) }, vec(6) }, vec(7) }), { 28 })
  end)

  it("ARG05 arguments come by name in any order, without another compilation", function()
    local calls = {}
    local f = products(calls)
    near(f(vec(1), vec(2), vec(1), vec(0)), { 1 })
    near(f(vec(1), vec(2), vec(1), { t4 = vec(4) }), { 9 })
    near(f({ t4 = vec(4), t2 = vec(2), t3 = vec(1), t1 = vec(1) }), { 9 })
    assert.equal(1, #calls)
    near(products(calls)(vec(1), vec(2)), { 1 }) -- the defaults of forward
  end)

  it("ARG07 a later call has as many arguments", function()
    local f = infer(function(_, a, b, c, d, e)
      return a + b + c + d + (e or 0)
    end)
    f(vec(1), vec(1), vec(1), vec(1))
    raises("Error", "expected 4", function()
      f(vec(1), vec(1), vec(1), vec(1), vec(1))
    end)
  end)

  it("ARG08 what is no tensor is compiled in", function()
    local f = infer(function(_, x, u)
      return x * u
    end)
    near(f(vec(2), 5), { 10 })
    raises("Error", "u.*5.*3", function()
      f(vec(2), 3)
    end)
  end)

  it("ARG10 too many, unknown and missing arguments are told apart", function()
    local f = infer(function(_, x, y)
      return x + y
    end)
    raises("AssertionError", "2 arguments", function()
      f(vec(1), vec(1), vec(1))
    end)
    raises("AssertionError", "no parameter 'z'; allowed by name are x, y", function()
      f(vec(1), vec(1), { z = vec(1) })
    end)
    raises("AssertionError", "'x' is given twice", function()
      f(vec(1), vec(1), { x = vec(1) })
    end)
    raises("Error", "'y'", function()
      f(vec(1))
    end)
  end)

  it("ARG11 inputs may require a gradient and have any strides", function()
    local f = infer(function(_, x)
      return x * 2
    end)
    local x = torch.tensor({ { 1.0, 2 }, { 3, 4 } }, { requires_grad = true })
    local log = helper.logged(function()
      for _ = 1, 2 do
        local y = f(x)
        assert.is_false(y.requires_grad)
        near(y, { { 2, 4 }, { 6, 8 } })
        near(f(x:detach():t()), { { 2, 6 }, { 4, 8 } })
      end
    end)
    for _, once in ipairs({ "requires a gradient", "not contiguous" }) do
      assert.equal(1, select(2, log:gsub(once, "")))
    end
    assert.not_matches("input", helper.logged(function()
      infer(f.forward)(x:detach())
    end))
  end)

  it("ARG13 results keep their structure", function()
    local t = infer(function(_, x)
      return { a = x, b = x + 1 }
    end)(vec(1))
    near(t.a, { 1 })
    near(t.b, { 2 })
    local ab, cde = infer(function(_, x)
      return { x, x + 1 }, { x + 2, { x + 3, x + 4 } }
    end)(vec(1))
    near(ab[2], { 2 })
    near(cde[1], { 3 })
    near(cde[2][2], { 5 })
  end)

  it("ARG14 forward may return nothing", function()
    assert.equal(0, select("#", infer(function(_, x)
      x:add(1)
    end)(vec(1))))
  end)

  it("ARG15 a result has no backward pass", function()
    raises("Error", "trainingModel", function()
      infer(function(_, x)
        return x:sum()
      end)(vec(1)):backward()
    end)
  end)

  it("ARG17 a tensor of the host that forward makes by type is none of the IPU", function()
    local function with(make, use)
      return infer(function(_, x)
        return use(x, make())
      end)
    end
    local function index()
      return torch.LongTensor({ 1, 0 })
    end
    local e = raises("Error", "[Ee]xpected an IPU tensor.*shape=%[2%], dtype=Long", function()
      with(index, function(x, i)
        return x:index_select(0, i)
      end):compile(vec(1, 2, 3, 4))
    end)
    assert.equal("poptorch_cpp_error", e.type)
    assert.matches("torch.tensor", e.message, 1, true)
    near(with(function()
      return torch.tensor({ 1, 0 })
    end, function(x, i)
      return x:index_select(0, i)
    end)(vec(1, 2)), { 2, 1 })
    near(with(index, function(x, i) -- not with one of the IPU
      return x * #i:tolist()
    end)(vec(1, 2)), { 2, 4 })
  end)

  it("ARG18 a tensor returned twice is two results", function()
    local a, b = infer(function(_, x)
      local y = x + 1
      return y, y
    end)(vec(1))
    near(a:add_(1), { 3 })
    near(b, { 2 })
  end)

  it("ARG19 an input that is returned is copied", function()
    local x = vec(1)
    local y = infer(function(_, v)
      return v
    end)(x)
    near(y:add_(1), { 2 })
    near(x, { 1 })
  end)
end)

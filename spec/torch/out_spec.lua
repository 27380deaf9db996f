-- out= of functions: which take it, and of which types. Values and error
-- classes are PyTorch 2.15's.
local torch = require("torch")
local helper = require("spec.helper")

local near, raises = helper.near, helper.raises
local inf = math.huge

local function empty(dtype)
  return torch.empty({ 0 }, { dtype = dtype })
end

local function fills(want, dtype, call)
  local out = empty(dtype)
  local result = call(out)
  assert.is_true(rawequal(result, out) or result:data_ptr() == out:data_ptr())
  assert.equal(dtype, out.dtype)
  near(out, want)
end

local f64, f32, f16, i64, u8, bool =
  torch.float64, torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool
local x = torch.tensor({ { 1.5, -inf }, { inf, 0 } })
local y = torch.tensor({ 1.5, 2.5, 3 })

describe("out=", function()
  it("of torch.lu is a list of tensors of any type, which are resized", function()
    local a = torch.tensor({ { 2., 1 }, { 4, 4 } })
    local factors, pivots, infos = empty(f64), empty(i64), empty(f32)
    local first = torch.lu(a, { out = { factors, pivots } })
    assert.is_true(rawequal(first, factors) or first:data_ptr() == factors:data_ptr())
    assert.equal(f64, factors.dtype)
    near(factors, { { 4, 4 }, { 0.5, -1 } })
    near(pivots, { 2, 2 })
    torch.lu(a, { get_infos = true, out = { factors, pivots, infos } })
    near(infos, 0)
    raises("TypeError", "a list of 2 tensors, not 3", function()
      torch.lu(a, { out = { factors, pivots, infos } })
    end)
    raises("TypeError", "a list of 2 tensors, not Tensor", function()
      torch.lu(a, { out = factors })
    end)
  end)

  it("of bernoulli has any type", function()
    local p = torch.tensor({ 0, 1, 1, 0. })
    for _, dtype in ipairs({ i64, u8, torch.int32, f64, f16 }) do
      fills({ 0, 1, 1, 0 }, dtype, function(o) return torch.bernoulli(p, { out = o }) end)
    end
    fills({ false, true, true, false }, bool, function(o)
      return torch.bernoulli(p, { out = o })
    end)
    raises("TypeError", "unexpected keyword argument 'out'", function()
      torch.bernoulli(p, 0.5, { out = empty(f32) })
    end)
  end)

  it("goes with the dimension of sum and prod", function()
    for _, name in ipairs({ "sum", "prod" }) do
      raises("TypeError", "unexpected keyword argument 'out'", function()
        torch[name](y, { out = empty(f32) })
      end)
    end
    fills(7, f32, function(o) return torch.sum(y, 0, { out = o }) end)
    fills(11.25, f32, function(o) return torch.prod(y, { dim = 0, out = o }) end)
    fills(7, f32, function(o) return torch.nansum(y, { out = o }) end)
  end)

  it("is taken by what is made of one or several operators", function()
    fills({ { false, false }, { true, false } }, bool, function(o)
      return torch.isposinf(x, { out = o })
    end)
    fills({ { false, true }, { false, false } }, bool, function(o)
      return torch.isneginf(x, { out = o })
    end)
    fills({ 2.5, 3 }, f32, function(o) return torch.narrow_copy(y, 0, 1, 2, { out = o }) end)
    fills({ 1.5, 2.5, 3 }, f64, function(o) return torch.conj_physical(y, { out = o }) end)
    fills({ { 0, 0 }, { 0, 1 }, { 1, 0 } }, i64, function(o)
      return torch.nonzero(x, { out = o })
    end)
    fills({ 2, 1, 0 }, i64, function(o)
      return torch.argsort(y, { descending = true, out = o })
    end)
    fills({ 1, 3 }, f64, function(o)
      return torch.subtract(torch.tensor({ 2, 4 }), 1, { out = o })
    end)
    fills({ 0, 1, 1 }, f32, function(o) return torch.greater(y, 2, { out = o }) end)
    fills({ 2, 4, 3, 6 }, f32, function(o)
      return torch.kron(torch.tensor({ 1, 1.5 }), torch.tensor({ 2, 4 }), { out = o })
    end)
  end)

  it("of histogram are the counts and the edges", function()
    local out = { empty(f32), empty(f32) }
    local counts, edges = torch.histogram(y, 2, { range = { 1, 3 }, out = out })
    near(out[1], { 1, 2 })
    near(out[2], { 1, 2, 3 })
    assert.is_true(rawequal(counts, out[1]) and rawequal(edges, out[2]))
    raises("RuntimeError", "tensor 1 of out has the dtype torch.float64", function()
      torch.histogram(y, 2, { out = { empty(f64), empty(f32) } })
    end)
  end)

  it("decides the type in which sums and products are made", function()
    fills(6, i64, function(o) return torch.sum(y, 0, { out = o }) end)
    fills({ 1, 3, 6 }, i64, function(o) return torch.cumsum(y, 0, { out = o }) end)
    fills({ 1, 2, 6 }, i64, function(o) return torch.cumprod(y, 0, { out = o }) end)
    fills(6, i64, function(o) return torch.nansum(y, 0, { out = o }) end)
    fills(6, i64, function(o) return torch.prod(y, 0, { out = o }) end)
    fills(true, bool, function(o) return torch.sum(y, 0, { out = o }) end)
    raises("RuntimeError", "Expected out tensor to have dtype float32, but got float64", function()
      torch.cumsum(y, 0, { dtype = f32, out = empty(f64) })
    end)
  end)

  it("may be wider where PyTorch casts the result", function()
    fills(3, f64, function(o) return torch.max(y, { out = o }) end)
    fills({ 0, 1, 1 }, f64, function(o) return torch.floor_divide(y, 2, { out = o }) end)
    fills({ { 7, 10 }, { 15, 22 } }, f64, function(o)
      return torch.linalg.matrix_power(torch.tensor({ { 1.0, 2 }, { 3, 4 } }), 2, { out = o })
    end)
    fills(2, f32, function(o) return torch.linalg.matrix_rank(torch.eye(2), { out = o }) end)
    for _, fold in ipairs({ "any", "all" }) do
      fills(1, u8, function(o) return torch[fold](y, { out = o }) end)
      fills(true, bool, function(o) return torch[fold](y:to(u8), { out = o }) end)
    end
    fills(1.5, f16, function(o) return torch.min(y, { out = o }) end)
  end)

  it("of another type is refused elsewhere", function()
    local z = torch.tensor({ 1.0, 2, 3 })
    raises("RuntimeError", "inner: Expected out tensor to have dtype float32", function()
      torch.inner(y, z, { out = empty(f64) })
    end)
    raises("RuntimeError", "lerp: Expected out tensor", function()
      torch.lerp(y, z, z, { out = empty(f64) })
    end)
    raises("RuntimeError", "isposinf: Expected out tensor to have dtype bool", function()
      torch.isposinf(y, { out = empty(f32) })
    end)
    raises("RuntimeError", "any: Expected out tensor", function()
      torch.any(y, { out = empty(f32) })
    end)
    raises("RuntimeError", "can't be cast", function()
      torch.std(y, 0, { out = empty(i64) })
    end)
    raises("RuntimeError", "can't be cast", function()
      torch.nn.functional.normalize(y, { dim = 0, out = empty(i64) })
    end)
    for _, join in ipairs({ "cat", "stack", "hstack", "vstack", "dstack", "column_stack" }) do
      raises("TypeError", "can't be cast", function()
        torch[join]({ y, z }, { out = empty(i64) })
      end)
    end
  end)

  it("is written where it lies, also where it is an operand", function()
    local a, b = torch.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } }), torch.full({ 2, 2 }, 2.0)
    local at, version = a:data_ptr(), a._version
    torch.add(a, b, { out = a })
    near(a, { { 3, 4 }, { 5, 6 } })
    torch.mm(a, b, { out = a })
    near(a, { { 14, 14 }, { 22, 22 } })
    assert.equal(at, a:data_ptr())
    assert.equal(version + 2, a._version)
    local values, places = torch.empty(2), torch.empty({ 2 }, { dtype = i64 })
    torch.max(a, 1, { out = { values, places } })
    near(values, { 14, 22 })
    torch.add(values, torch.tensor({ 1.0, 2.0 }), { out = a[{ 0 }] }) -- a row of a
    near(a, { { 15, 24 }, { 22, 22 } })
    raises("RuntimeError", "single memory location", function()
      torch.add(a, a[{ 0 }], { out = a })
    end)
    near(a, { { 15, 24 }, { 22, 22 } })
  end)

  it("is written by no result if one of them does not fit", function()
    local values, places = torch.zeros(2), torch.zeros(2)
    raises("RuntimeError", "Expected out tensor to have dtype int64", function()
      torch.max(torch.ones(2, 3), 1, { out = { values, places } })
    end)
    raises("RuntimeError", "wrong shape", function()
      torch.max(torch.ones(2, 3), 1, { out = { values, torch.empty({ 3 }, { dtype = i64 }) } })
    end)
    near(values, { 0, 0 })
    local shape = torch.empty(3, { device = "meta" })
    assert.same({ 3 }, { table.unpack(torch.add(shape, 1, { out = shape }).shape) })
  end)

  it("holds results that share memory as if they were written one by one", function()
    local whole = torch.tensor({ { 3, 1, 2 }, { 4, 6, 5 }, { 7, 9, 8 } }, { dtype = i64 })
    local square = torch.tensor({ { 4.0, 1.0, 0.0 }, { 1.0, 3.0, 1.0 }, { 0.0, 1.0, 2.0 } })
    local calls = {
      max = function(...) return torch.max(whole, 1, ...) end,
      median = function(...) return torch.median(whole, 1, ...) end,
      mode = function(...) return torch.mode(whole, 1, ...) end,
      kthvalue = function(...) return torch.kthvalue(whole, 2, 1, ...) end,
      sort = function(...) return torch.sort(whole, 1, ...) end,
      topk = function(...) return torch.topk(whole, 2, 1, ...) end,
      cummax = function(...) return torch.cummax(whole, 1, ...) end,
      aminmax = function(...) return torch.aminmax(whole, ...) end,
      qr = function(...) return torch.linalg.qr(square, ...) end,
      eigh = function(...) return torch.linalg.eigh(square, ...) end,
    }
    for name, call in pairs(calls) do
      local a, b = call()
      for _, between in ipairs({ 0, 1, a:numel() }) do
        local function parts()
          local memory = torch.zeros({ a:numel() + b:numel() }, { dtype = a.dtype })
          return memory, memory:narrow(0, 0, a:numel()):view(a.shape),
            memory:narrow(0, between, b:numel()):view(b.shape)
        end
        local want, first, second = parts()
        first:copy_(a)
        second:copy_(b)
        local got, one, other = parts()
        call({ out = { one, other } })
        assert.same(want:tolist(), got:tolist(), name)
      end
    end
  end)

  it("and a target in place may be no other part of an operand", function()
    local a, line = torch.ones(3, 3), torch.arange(6.0)
    for name, write in pairs({
      add = function() line["1:6"]:add_(line["0:5"]) end,
      turned = function() a:add_(a:t()) end,
      row = function() a:mul_(a[0]) end,
      copy = function() a:copy_(a:t()) end,
      slices = function() line["0:2"] = line["1:3"] end,
      three = function() a:lerp_(a:t(), 0.5) end,
      compare = function() a:eq_(a:t()) end,
    }) do
      local ok, e = pcall(write)
      assert.is_false(ok, name)
      assert.matches("single memory location", e.message)
    end
    near(line, { 0, 1, 2, 3, 4, 5 })
    a:add_(a)
    a:addmm_(a, a) -- no element on element: made apart
    near(a[0], { 14, 14, 14 })
  end)

  it("takes a value of the same memory, given dimensions, by an index", function()
    local m = torch.arange(6.0):reshape(2, 3)
    m["None"] = m
    m["None, :, 0:"] = m
    m["None, ..., None"] = m:unsqueeze(-1)
    m["0:1"] = m[0]
    near(m, { { 0, 1, 2 }, { 3, 4, 5 } })
    m["..."] = m["1:"]
    near(m, { { 3, 4, 5 }, { 3, 4, 5 } })
    local w = torch.ones(2, { requires_grad = true })
    local made = w * 2
    made["None"] = made
    made:sum():backward()
    near(w.grad, { 2, 2 })
  end)

  it("may require a gradient where none is recorded", function()
    local p = torch.ones(2, { requires_grad = true })
    raises("RuntimeError", "automatic differentiation", function()
      torch.add(y:narrow(0, 0, 2), 1, { out = p })
    end)
    near(p, { 1, 1 })
    torch.no_grad(function()
      torch.add(p, p, { out = p })
    end)
    near(p, { 2, 2 })
    assert.is_true(p.requires_grad)
  end)

  it("is no argument of det, var_mean and functions in torch.special", function()
    for _, call in ipairs({
      function() torch.det(torch.eye(2), { out = empty(f32) }) end,
      function() torch.var_mean(y, { out = { empty(f32), empty(f32) } }) end,
      function() torch.std(y, true, { out = empty(f32) }) end,
      function() torch.special.softmax(y, 0, { out = empty(f32) }) end,
      function() torch.nonzero(y, { as_tuple = true, out = empty(i64) }) end,
    }) do
      raises("TypeError", "out", call)
    end
  end)
end)

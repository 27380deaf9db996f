-- A tensor that a gradient needs and that was written since: backward refuses,
-- whatever wrote it. One that no gradient needs may be written. Values are
-- PyTorch 2.15's.
local core = require("lupine.core")
local helper = require("spec.helper")
local nn = require("torch.nn")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local function leaf(...)
  return torch.tensor({ ... }, { requires_grad = true })
end

-- What writes a tensor of three numbers.
local WRITES = {
  ["mul_ by a number"] = function(s) s:mul_(2) end,
  ["mul_ by a tensor"] = function(s) s:mul_(torch.tensor({ 2.0, 3, 4 })) end,
  ["add_"] = function(s) s:add_(1) end,
  ["exp_"] = function(s) s:exp_() end,
  ["clamp_"] = function(s) s:clamp_(0, 1) end,
  ["copy_"] = function(s) s:copy_(torch.ones(3)) end,
  ["copy_ of integers"] = function(s) s:copy_(torch.ones(3, { dtype = torch.int64 })) end,
  ["zero_"] = function(s) s:zero_() end,
  ["fill_"] = function(s) s:fill_(4) end,
  ["masked_fill_"] = function(s) s:masked_fill_(s:gt(1), 0) end,
  ["index_fill_"] = function(s) s:index_fill_(0, torch.tensor({ 1 }), 9) end,
  ["index_add_"] = function(s) s:index_add_(0, torch.tensor({ 1 }), torch.ones(1)) end,
  ["scatter_"] = function(s) s:scatter_(0, torch.tensor({ 1 }), torch.ones(1)) end,
  ["cumsum_"] = function(s) s:cumsum_(0) end,
  ["uniform_"] = function(s) s:uniform_() end,
  ["normal_"] = function(s) s:normal_() end,
  ["an index"] = function(s) s[0] = 7 end,
  ["a mask"] = function(s) s[s:gt(1)] = 7 end,
  ["a range"] = function(s) s:narrow(0, 1, 2):fill_(7) end,
  ["a view"] = function(s) s:view(3, 1):mul_(2) end,
  ["out= of a pointwise function"] = function(s)
    torch.add(torch.ones(3), torch.ones(3), { out = s })
  end,
  ["out= of another"] = function(s) torch.cumsum(torch.ones(3), 0, { out = s }) end,
  ["out= with a cast"] = function(s)
    torch.mul(torch.ones(3, { dtype = torch.float16 }), 2, { out = s })
  end,
}

describe("a tensor that a gradient needs, changed by", function()
  for name, write in pairs(WRITES) do
    it(name .. ", is refused by backward", function()
      local w, s = leaf(1.0, 2.0, 3.0), torch.tensor({ 0.5, 1.5, 2.5 })
      local y, version = (w * s):sum(), s._version
      write(s)
      assert.is_true(s._version > version)
      raises("RuntimeError", "modified by an in%-place operation", function()
        torch.autograd.grad({ y }, { w }, { retain_graph = true })
      end)
      raises("RuntimeError", "modified by an in%-place operation", function() y:backward() end)
      assert.is_nil(w.grad)
    end)

    it(name .. ", does no harm where no gradient reads it", function()
      local w, s = leaf(1.0, 2.0, 3.0), torch.tensor({ 0.5, 1.5, 2.5 })
      local y = (w * 2 + s):sum()
      write(s)
      y:backward()
      near(w.grad, { 2, 2, 2 })
    end)
  end

  it("an operation of the history, is refused", function()
    local w = leaf(1.0, 2.0)
    local h = w * 2
    local y = (h * h):sum()
    h:mul_(3)
    raises("RuntimeError", "modified by an in%-place operation", function() y:backward() end)
    local g = w * 2
    local e = g:exp() -- whose gradient reads its result
    e:add_(1)
    raises("RuntimeError", "modified by an in%-place operation", function()
      e:sum():backward()
    end)
    g = w * 2
    local c = g:sin() -- whose gradient reads the operand alone
    c:add_(1)
    c:sum():backward()
    near(w.grad, { 2 * math.cos(2), 2 * math.cos(4) })
  end)

  it("a slice that is no part of it, is refused: memory has one version", function()
    local w, s = leaf(1.0, 2.0), torch.tensor({ 1.0, 2, 3, 4 })
    local y = (w * s:narrow(0, 0, 2)):sum()
    s[3] = 0
    raises("RuntimeError", "modified by an in%-place operation", function() y:backward() end)
  end)

  it("what is taken under no_grad, is refused too", function()
    local w = leaf(1.0, 2.0)
    local y = (w * w):sum()
    torch.no_grad(function() w:add_(1) end)
    raises("RuntimeError", "modified by an in%-place operation", function() y:backward() end)
  end)

  it("an optimizer's step, is refused", function()
    for name, options in pairs({ SGD = { lr = 0.1 }, Adam = { lr = 0.1 },
      AdamW = { lr = 0.1, foreach = false }, RMSprop = { lr = 0.1 }, Adagrad = { lr = 0.1 } }) do
      torch.manual_seed(1)
      local net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
      local optimizer = torch.optim[name](net:parameters(), options)
      local x = torch.ones(5, 3)
      net(x):sum():backward()
      local late = net(x):sum()
      optimizer:step()
      local ok, e = pcall(raises, "RuntimeError", "modified by an in%-place operation",
        function() late:backward() end)
      assert.is_true(ok, name .. ": " .. tostring(e))
      optimizer:zero_grad()
      net(x):sum():backward() -- a forward after the step
      assert.is_not_nil(net[1].weight.grad)
    end
  end)

  it("nothing, when the write failed", function()
    local w, s = leaf(1.0, 2.0, 3.0), torch.tensor({ 0.5, 1.5, 2.5 })
    local y, version = (w * s):sum(), s._version
    raises("RuntimeError", nil, function() s:mul_(torch.ones(2, 3)) end)
    assert.equal(version, s._version)
    y:backward()
    near(w.grad, { 0.5, 1.5, 2.5 })
  end)
end)

-- A view of a tensor without gradient that was made a leaf. Each case is as in
-- PyTorch, asked there.
describe("a leaf that is a view of a tensor without gradient", function()
  local function view_leaf(base)
    return base:view(2, 5):requires_grad_(true)
  end

  it("is not written in place, nor are its views", function()
    for name, arguments in pairs({ random_ = { 3 }, add_ = { 1 }, mul_ = { 2 }, zero_ = {},
      fill_ = { 1 }, copy_ = { torch.zeros(2, 5) }, normal_ = {}, uniform_ = {}, exp_ = {},
      bernoulli_ = {} }) do
      local x = view_leaf(torch.ones(10))
      raises("RuntimeError", "a view of a leaf tensor that requires grad is being used in an " ..
        "in%-place operation", function() x[name](x, table.unpack(arguments)) end)
      assert.is_true(x.is_leaf)
      near(x:detach(), { { 1.0, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1 } })
    end
    local x = view_leaf(torch.ones(10))
    raises("RuntimeError", "a view of a leaf tensor", function() x[0] = 5 end)
    raises("RuntimeError", "a view of a leaf tensor", function() x[0]:mul_(2) end)
  end)

  it("may be written under no_grad, through its base, and detached", function()
    local base = torch.ones(10)
    local x = view_leaf(base)
    torch.no_grad(function() x:mul_(2) end)
    base:mul_(2)
    x:detach():mul_(2)
    assert.is_true(x.is_leaf)
    near(x:detach(), { { 8.0, 8, 8, 8, 8 }, { 8, 8, 8, 8, 8 } })
    x:sum():backward()
    near(x.grad, { { 1.0, 1, 1, 1, 1 }, { 1, 1, 1, 1, 1 } })
  end)

  -- PyTorch refuses at backward: a leaf has been moved into the graph interior
  local writes = {
    function(base, x) base:copy_((x * 2):reshape(10)) end,
    function(base, x) base:add_((x:exp() + x):sum()) end,
    function(base, x) base[{ torch.slice(0, 5) }]:mul_(x[1]) end,
    function(base, x) base[0] = x[{ 1, 2 }] end,
  }

  it("moves into no history of its base", function()
    for _, write in ipairs(writes) do
      local base = torch.ones(10)
      local x = view_leaf(base)
      raises("RuntimeError", "a leaf that is a view of the tensor it is written to", function()
        write(base, x)
      end)
      assert.is_true(x.is_leaf)
      assert.is_false(base.requires_grad)
      near(base, { 1.0, 1, 1, 1, 1, 1, 1, 1, 1, 1 })
    end
  end)

  it("lets its base have another history", function()
    local base, w = torch.ones(10), torch.ones(10):requires_grad_(true)
    view_leaf(base)
    base:mul_(w)
    base:copy_((view_leaf(torch.ones(10)) * 2):reshape(10) + base)
    base:sum():backward()
    near(w.grad, { 1.0, 1, 1, 1, 1, 1, 1, 1, 1, 1 })
    local x = view_leaf(base:detach())
    base:copy_((x * 3):reshape(10))
    assert.is_true(base.requires_grad)
  end)

  it("leaves nothing behind when it is refused", function()
    local function try()
      for _ = 1, 10 do
        local base = torch.ones(10)
        local x = view_leaf(base)
        pcall(x.add_, x, 1)
        pcall(function() x[0] = 5 end)
        for _, write in ipairs(writes) do
          pcall(write, base, x)
        end
      end
      for _ = 1, 3 do
        collectgarbage()
      end
      return core.mem_live()
    end
    try()
    local blocks = try()
    assert.is_true(try() <= blocks)
  end)
end)

describe("a view whose base was written since", function()
  local function gradient(fn)
    local x = torch.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } }, { requires_grad = true })
    fn(x:clone()):sum():backward()
    return x.grad
  end

  it("may be used more than once", function()
    near(gradient(function(y)
      local v = y[0]
      y:mul_(0.5)
      return v:sin() + v + y:sum()
    end), { { 1.938791275, 1.770151138 }, { 1, 1 } })
    near(gradient(function(y)
      local v = y[0]
      v:add_(1)
      y:mul_(0.5)
      return v:std(0) + y
    end), { { -0.914213538, 1.914213538 }, { 0.5, 0.5 } })
    near(gradient(function(y)
      local v = y[0]
      y:tanh_()
      return v[0] + v
    end), { { 1.259922862, 0.070650816 }, { 0, 0 } })
    near(gradient(function(y) -- in a function of the script's own
      local Twice = torch.autograd.Function:extend("Twice")
      Twice.forward = function(_, a) return a * 2 end
      Twice.backward = function(_, g) return g * 2 end
      local v = y[0]
      y:mul_(0.5)
      return Twice.apply(v) + v
    end), { { 1.5, 1.5 }, { 0, 0 } })
  end)

  it("has its whole gradient when a hook sees it", function()
    local x = torch.ones(2, { requires_grad = false }):requires_grad_(true)
    local y, seen = x:clone(), {}
    local v = y["0:1"]
    y:mul_(0.5)
    local l = (v * 3):sum() + (v * 2):sum()
    v:register_hook(function(g) seen[#seen + 1] = g:item() end)
    l:backward()
    assert.same({ 5 }, seen)
    near(x.grad, { 2.5, 0 })
  end)
end)

describe("what a write reaches beside the view of a part, by strides of its own,", function()
  local Double = torch.autograd.Function:extend("Double")
  function Double.forward(ctx, t)
    ctx:mark_dirty(t)
    return t:mul_(2)
  end
  function Double.backward(_, g) return g * 2 end

  local writes = {
    ["by an operator that does not read it"] = function(v) v:mul_(2) end,
    ["by one that does"] = function(v) v:pow_(3) end,
    ["by an index"] = function(v) v[torch.tensor({ 0 })] = torch.tensor(5.0):double() end,
    ["through a view of it"] = function(v) v["1:"]:exp_() end,
    ["twice"] = function(v) v:mul_(3):sin_() end,
    ["in a function of the script's own"] = function(v) Double.apply(v) end,
  }
  for name, write in pairs(writes) do
    it(name .. ", has its gradient", function()
      for _, turn in ipairs({ false, true }) do
        assert.is_true(torch.autograd.gradcheck(function(x)
          local y = x * 1
          if turn then
            y:t_()
          end
          local v = y["1:"]:as_strided({ 3 }, { 1 }, 0)
          write(v)
          return { y * y, v * 1 }
        end, { torch.arange(1, 7):double():reshape(2, 3):requires_grad_() }))
      end
    end)
  end
end)

-- Operators of two operands or three: f, and which operands may be written
-- before backward where only operand i wants a gradient ({[i] = list}).
local READERS = {
  add = { function(a, b) return a + b end, { { 1, 2 }, { 1, 2 } } },
  mul = { function(a, b) return a * b end, { { 1 }, { 2 } } },
  div = { function(a, b) return a / b end, { { 1 }, {} } },
  fmod = { function(a, b) return a:fmod(b) end, { { 1, 2 }, {} } },
  remainder = { function(a, b) return a:remainder(b) end, { { 1, 2 }, {} } },
  mm = { function(a, b) return a:mm(b) end, { { 1 }, { 2 } } },
  ["mm of a transposed"] = { function(a, b) return a:mm(b:t()) end, { { 1 }, { 2 } } },
  linear = { function(a, b) return nn.functional.linear(a, b) end, { { 1 }, { 2 } } },
  addmm = { function(a, b, c) return torch.addmm(c, a, b) end,
    { { 1, 3 }, { 2, 3 }, { 1, 2, 3 } } },
  baddbmm = { function(a, b, c) return torch.baddbmm(c["None"], a["None"], b["None"]) end,
    { { 1, 3 }, { 2, 3 }, { 1, 2, 3 } } },
  conv1d = { function(a, b) return nn.functional.conv1d(a["None"], b["None"]) end,
    { { 1 }, { 2 } } },
  conv1d_bias = { function(a, b, c)
    return nn.functional.conv1d(a["None"], b["None"], c["0, :1"])
  end, { { 1, 3 }, { 2, 3 }, { 1, 2, 3 } } },
  addcmul = { torch.addcmul, { { 1, 2, 3 }, { 1, 2 }, { 1, 3 } } },
  addcdiv = { torch.addcdiv, { { 1, 2, 3 }, { 1, 2 }, { 1 } } },
  lerp = { torch.lerp, { { 1, 2 }, { 1, 2 }, { 3 } } },
  pow = { function(a, b) return a:pow(b) end, { {}, {} } },
}

describe("a leaf written into what requires no gradient", function()
  it("has the gradient of the whole and of parts", function()
    local w, y = leaf(1.0, 2.0, 3.0), torch.zeros(3)
    y:copy_(w)
    assert.is_true(y.requires_grad)
    assert.is_false(y.is_leaf);
    (y * y):sum():backward()
    near(w.grad, { 2, 4, 6 }, helper.exact)
    local v, z = leaf(1.0, 2.0, 3.0), torch.zeros(2, 3)
    z[1] = v
    z[0]:copy_(v);
    (z * z):sum():backward()
    near(v.grad, { 4, 8, 12 }, helper.exact)
    local u, x = leaf(1.0, 2.0, 3.0), torch.zeros(3)
    x:copy_(u)
    near(torch.autograd.grad({ x:sum() }, { u })[1], { 1, 1, 1 }, helper.exact)
  end)
end)

describe("a result overwritten by a constant requires grad still:", function()
  local cases = {
    { "an index", { 0, 0, 0 }, function(w)
      local x = w * 1
      x["..."] = 3
      return x
    end },
    { "copy_", { 0, 0, 0 }, function(w)
      return (w * 1):copy_(torch.ones(3))
    end },
    { "twice", { 0, 0, 0 }, function(w)
      local x = w * 1
      x["..."] = 3
      return x:copy_(torch.tensor(2))
    end },
    { "through a view, which is returned", { 0, 0, 0 }, function(w)
      local x = w * 1
      return x["0:2"]:copy_(torch.ones(2))
    end },
    { "a view of it", { 0, 0, 0 }, function(w)
      local x = w * 1
      local u = x["1:"]
      x:copy_(torch.ones(3))
      return u
    end },
    { "before a view is written", { 1, 1, 0 }, function(w)
      local x = w * 1
      local u = x["0:2"]
      x["..."] = 3
      u:add_(w["0:2"])
      return x
    end },
    { "a view that is written again", { 2, 4, 8 }, function(w)
      local x = w * 1
      local u = x["0:2"]
      u:copy_(torch.ones(2))
      u:mul_(w["1:"])
      return x * w
    end },
  }
  for _, case in ipairs(cases) do
    it(case[1], function()
      local w = leaf(1.0, 2, 3)
      local y = case[3](w)
      assert.is_true(y.requires_grad)
      assert.is_false(y.is_leaf)
      y:sum():backward()
      near(w.grad, case[2], helper.exact)
    end)
  end
end)

describe("an operand that no wanted gradient reads may be written:", function()
  local function operands(wanted)
    torch.manual_seed(0)
    local list = {}
    for i = 1, 3 do
      list[i] = (torch.rand(3, 3) + 0.5):requires_grad_(not wanted or wanted == i)
    end
    return list
  end

  for name, row in pairs(READERS) do
    local f, may = row[1], row[2]
    it(name, function()
      local all = operands()
      f(table.unpack(all)):sum():backward()
      for i, writable in ipairs(may) do
        for k = 1, #may do
          local leaves, list = operands(i), {}
          for m, x in ipairs(leaves) do
            list[m] = x * 1
          end
          local y = f(table.unpack(list))
          torch.no_grad(function() list[k]:add_(1) end)
          local ok = false
          for _, w in ipairs(writable) do
            ok = ok or w == k
          end
          if ok then
            y:sum():backward()
            near(leaves[i].grad, all[i].grad)
          else
            raises("RuntimeError", "in%-place.*clone", function() y:sum():backward() end)
          end
        end
      end
    end)
  end

  it("the result of a power of a number", function()
    local w = leaf(1.0, 2.0)
    local z = w ^ 2
    z:add_(1)
    z:sqrt():sum():backward()
    near(w.grad, { 0.70710678, 0.89442719 })
  end)

  it("what divides a number, and the quotient", function()
    local w = leaf(1.0, 2.0)
    local n = w * 1
    local y = 2.0 / n
    n:floor_()
    y:add_(1)
    y:sum():backward()
    near(w.grad, { -2, -0.5 })
  end)

  it("one beside a number, also through its view", function()
    local w = leaf(1.0, 2.0, 3.0)
    local y = w * 1
    local v = y["1:"]
    local z = v * 2 + 1
    v:add_(1)
    y[0] = y[0] * 3 / 2;
    (y:sum() + z:sum()):backward()
    near(w.grad, { 1.5, 3, 3 })
  end)

  it("itself in place, without a copy", function()
    local N = 1 << 18
    local w = torch.ones(N, { requires_grad = true })
    local y = w + 0
    collectgarbage()
    local before = torch.memory().live
    for _ = 1, 4 do
      y:mul_(2):div_(4)
    end
    collectgarbage()
    assert.is_true(torch.memory().live - before < 4 * N)
    y:sum():backward()
    near(w.grad[0], 1 / 16)
  end)
end)

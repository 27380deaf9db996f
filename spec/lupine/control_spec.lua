-- lupine.control: what loops, branches and calls mean, eagerly and compiled.
local compiled = require("spec.support.compiled")
local control = require("lupine.control")
local core = require("lupine.core")
local lupine = require("lupine")
local torch = require("torch")
local nn = torch.nn
local F = require("torch.nn.functional")

-- fn in both ways; the results must be the same, and are given back.
local function both(fn, ...)
  local inputs = { ... }
  local want = { fn(table.unpack(inputs)) }
  local got = { lupine.compile(fn, inputs)(table.unpack(inputs)) }
  for i, w in ipairs(want) do
    assert(torch.equal(got[i], w), ("result %d is %s, expected %s"):format(i, got[i], w))
  end
  return table.unpack(got)
end

local function fails(class, message, fn, ...)
  local ok, e = pcall(fn, ...)
  assert(not ok, "no error")
  assert(require("lupine.base.errors")[class]:is(e), tostring(e))
  assert(tostring(e):find(message, 1, true), tostring(e))
end

describe("loop", function()
  it("runs its body so many times", function()
    local function power(n)
      return both(function(x, y)
        return control.loop(n, function(v) return v * y end, { x })[1]
      end, torch.tensor({ 1.0 }), torch.tensor({ 2.0 })):item()
    end
    assert.equal(1024, power(10))
    assert.equal(2, power(1))
    assert.equal(1, power(0))
  end)

  it("requires gradients of what may have them after any number of rounds", function()
    local one, weight = torch.ones(1), torch.ones(1):requires_grad_()
    local function traced(count, body, pick)
      local seen = {}
      compiled.step(function(a, b)
        local out = control.loop(count, body, pick(a, b))
        for i, t in ipairs(out) do
          seen[i] = t.requires_grad
        end
        return out[1]
      end, { one, one }, { { "parameter", "w", weight } })
      return seen
    end
    local function turn(u, v, w)
      return v, w, u
    end
    assert.same({ true, true, true }, traced(2, turn, function(a, b) return { a, b, weight } end))
    assert.same({ false, false, false }, traced(2, turn, function(a, b) return { a, b, a } end))
    assert.same({ true }, traced(0, one.detach, function() return { weight } end))
  end)

  it("takes as many inputs as its body was traced with", function()
    for _, name in ipairs({ "loop", "call" }) do
      fails("ValueError", "a body of 1 inputs, 3 given", lupine.compile, function(x)
        local body = core.body(function(list) return list end, { x })
        return name == "loop" and core.loop(2, body, { x, x, x }) or core.call(body, { x, x, x })
      end, { torch.ones(1) })
    end
  end)

  it("carries several values, in any order", function()
    local a, b, c = both(function(x, y, z)
      local out = control.loop(3, function(p, q, r) return { q, r, p + q } end, { x, y, z })
      return table.unpack(out)
    end, torch.tensor({ 1.0 }), torch.tensor({ 2.0 }), torch.tensor({ 3.0 }))
    assert.same({ 3, 5, 6 }, { a:item(), b:item(), c:item() })
  end)

  it("hands a value on twice, or a captured one", function()
    local a, b, c = both(function(x, y)
      return table.unpack(control.loop(2, function(p, q)
        p:add_(1)
        q:mul_(2)
        return p, p, y
      end, { x, x, x }))
    end, torch.tensor({ 1.0 }), torch.tensor({ 7.0 }))
    assert.same({ 3, 3, 7 }, { a:item(), b:item(), c:item() })
  end)

  it("works on copies: what it is given stays as it is", function()
    local y, x = both(function(x)
      local z = control.loop(3, function(v)
        v:add_(1)
        return v
      end, { x })[1]
      return z, x
    end, torch.ones({ 5 }, { dtype = torch.int32 }))
    assert.same({ 4, 1 }, { y[0]:item(), x[0]:item() })
  end)

  it("sees what was written before it, and not after", function()
    local z, x = both(function(given)
      local x = given:clone()
      x:add_(1)
      local z = control.loop(3, function(v) return v + x end, { x })[1]
      x:add_(1)
      return z, x
    end, torch.ones({ 5 }))
    assert.same({ 8, 3 }, { z[0]:item(), x[0]:item() })
  end)

  it("may write what is made in it, and views of it", function()
    both(function(x)
      return control.loop(3, function(v)
        local t = torch.zeros({ 4 })
        t["1:3"] = v["0:2"]
        v[0]:add_(2)
        local c = torch.tensor({ 1.0, 2.0, 3.0, 4.0 })
        c:add_(1)
        return v + t * c
      end, { x })[1]
    end, torch.rand({ 4 }))
  end)

  it("captures parameters, buffers, views and what is around its parents", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.fc = nn.Linear(4, 4)
      self:register_buffer("shift", torch.rand({ 2, 4 }))
    end
    function Net:forward(x)
      local left = x["..., 0:2"]
      local half = torch.cat({ left, left }, -1)
      return control.loop(2, function(v)
        return control.loop(3, function(u)
          return self.fc(u) + self.shift[1] * half + v
        end, { v })[1]
      end, { x })[1]
    end
    local net, x = Net(), torch.rand({ 3, 4 })
    local run = lupine.compile(net, { x })
    torch.testing.assert_close(run(x), net(x):detach())
    torch.no_grad(function() net.fc.weight:mul_(0.5) end)
    torch.testing.assert_close(run(x), net(x):detach())
  end)

  it("has gradients by what it carries and by what it captures", function()
    local x, w = torch.rand({ 4 }, { dtype = torch.float64 }), torch.rand({ 4 },
      { dtype = torch.float64 })
    local cot = torch.ones_like(x)
    local function f(v, u)
      return control.loop(4, function(t) return torch.sin(t) * u end, { v })[1]
    end
    local leaves = { x:clone():requires_grad_(true), w:clone():requires_grad_(true) }
    local want = torch.autograd.grad({ f(table.unpack(leaves)) }, leaves, { cot })
    local y, got = lupine.compile(f, { x, w }, { cotangents = { cot } })(x, w, { cot })
    torch.testing.assert_close(y, f(x, w))
    torch.testing.assert_close(got[1], want[1])
    torch.testing.assert_close(got[2], want[2])
  end)

  it("draws anew in each round, and the same in the gradient", function()
    -- linear in x: the gradient is the product of the masks, which the result shows
    local x = torch.ones({ 4000 })
    local function f(v)
      return control.loop(3, function(t)
        return control.loop(2, function(s) return F.dropout(s, 0.25, true) end, { t })[1]
      end, { v })[1]
    end
    local run = lupine.compile(f, { x }, { cotangents = { x } })
    local y, grads = run(x, { x })
    assert(torch.equal(y, grads[1]))
    local kept = y:ne(0):to(torch.float32):mean():item()
    assert(math.abs(kept - 0.75 ^ 6) < 0.03, kept)
    assert(not torch.equal(y, (run(x, { x }))))
  end)

  it("draws apart from the same line around it", function()
    local function noise(x)
      return x + torch.rand({ 100 })
    end
    local a, b = lupine.compile(function(x)
      return noise(x), control.loop(1, noise, { x })[1]
    end, { torch.zeros({ 100 }) })(torch.zeros({ 100 }))
    assert(not torch.equal(a, b))
  end)

  it("stacks nothing where no gradient is asked", function()
    local step = compiled.step(function(x)
      return control.loop(50, function(v) return v:sin() end, { x })[1]
    end, { torch.rand({ 3 }) })
    assert.truthy(step:text("micro"):find("float32[50, 3]", 1, true))
    step:complete({})
    assert.is_nil(step:text("micro"):find("float32[50, 3]", 1, true))
  end)

  it("says what is wrong", function()
    local x = torch.rand({ 3 })
    local function id(v) return v end
    fails("TypeError", "loop: count: expected an int, got", control.loop, 1.5, id, { x })
    fails("ValueError", "loop: count: expected 0 to", control.loop, -1, id, { x })
    fails("TypeError", "loop: body: expected a function", control.loop, 1, x, { x })
    fails("TypeError", "loop: inputs: expected a list of tensors", control.loop, 1, id, x)
    fails("TypeError", "loop: inputs: element 1: expected a Tensor", control.loop, 1, id, { x, 5 })
    local wrong = {
      { "ValueError", "the body returns 2 tensors, expected 1, as many as its inputs",
        function(v) return v, v end },
      { "ValueError", "result 0 of the body is a torch.float32 torch.Size",
        function(v) return v:sum() end },
      { "ValueError", "torch.int64", function(v) return v:long() end },
      { "TypeError", "results of body: element 0: expected a Tensor", function() return 3 end },
      { "ValueError", "the body returns 0 tensors, expected 1", function() end },
    }
    for _, w in ipairs(wrong) do
      local function f(v) return control.loop(2, w[3], { v })[1] end
      fails(w[1], w[2], f, x)
      fails(w[1], w[2], lupine.compile, f, { x })
    end
  end)

  it("writes nothing that it captured", function()
    local w = torch.rand({ 3 })
    local function refused(write)
      fails("RuntimeError", "writes in place to a tensor from outside the body", lupine.compile,
        function(x)
          local y = x * 2
          return control.loop(2, function(v)
            write(y, v)
            return v
          end, { x })[1]
        end, { torch.rand({ 3 }) })
    end
    refused(function(y) y:add_(1) end)
    refused(function(y) y[0]:add_(1) end)
    refused(function(y, v) return v + y, y:add_(1) end)
    refused(function() w:mul_(2) end)
    refused(function(_, v) return v * w, w["1:"]:mul_(2) end)
  end)

  it("keeps its tensors to itself", function()
    fails("RuntimeError", "return it from forward, or from the body", lupine.compile, function(x)
      local kept
      control.loop(2, function(v)
        kept = v * 2
        return v
      end, { x })
      return kept
    end, { torch.rand({ 3 }) })
  end)

  it("leaves the trace as it was when its body fails", function()
    local y = lupine.compile(function(x)
      local ok, e = pcall(control.loop, 2, function() error("nonsense") end, { x })
      assert(not ok and tostring(e):find("nonsense"))
      return x + 1
    end, { torch.zeros({ 3 }) })(torch.zeros({ 3 }))
    assert(torch.equal(y, torch.ones({ 3 })))
    assert.is_false(core.is_tracing())
  end)

  it("works in half precision", function()
    local x = torch.rand({ 64 }):half()
    local got = lupine.compile(function(v)
      return control.loop(5, function(t) return t * 1.25 + 0.125 end, { v })[1]
    end, { x })(x)
    local want = x
    for _ = 1, 5 do
      want = want * 1.25 + 0.125
    end
    torch.testing.assert_close(got, want, { rtol = 4e-3, atol = 1e-3 })
  end)
end)

describe("scan", function()
  local function sums(n)
    return function(x, w)
      local out = control.scan(n, function(sum, row)
        sum = sum * w + row
        return sum, sum:tanh(), row
      end, { torch.zeros({ 2 }) }, { x })
      return table.unpack(out)
    end
  end

  it("reads slices, carries values, stacks results", function()
    local x, w = torch.rand({ 5, 2 }), torch.tensor({ 0.5, -1.0 })
    local last, all, rows = both(sums(5), x, w)
    local sum = torch.zeros({ 2 })
    for i = 0, 4 do
      sum = sum * w + x[i]
      assert(torch.equal(all[i], sum:tanh()))
    end
    assert(torch.equal(last, sum))
    assert(torch.equal(rows, x))
  end)

  it("has gradients by stacks, by what it carries and by what it captures", function()
    local inputs = { torch.rand({ 4, 2 }):double(), torch.rand({ 2 }):double(),
      torch.rand({ 2 }):double() }
    local function f(x, start, w)
      return table.unpack(control.scan(4, function(h, row)
        h = (h * w + row):tanh()
        return h, h * row
      end, { start }, { x }))
    end
    local cotangents = { torch.rand({ 2 }):double(), torch.rand({ 4, 2 }):double() }
    local leaves = {}
    for i, t in ipairs(inputs) do
      leaves[i] = t:clone():requires_grad_(true)
    end
    local want = torch.autograd.grad({ f(table.unpack(leaves)) }, leaves, cotangents)
    local run = lupine.compile(f, inputs, { cotangents = cotangents })
    local got = select(3, run(inputs[1], inputs[2], inputs[3], cotangents))
    for i, g in ipairs(want) do
      torch.testing.assert_close(got[i], g)
    end
    assert(torch.autograd.gradcheck(f, leaves))
  end)

  it("stacks without slices, and in loops", function()
    local y = both(function(x)
      return control.loop(2, function(v)
        local out = control.scan(3, function(u) return u + 1, u end, { v }, {})
        return out[1] + out[2]:sum(0)
      end, { x })[1]
    end, torch.tensor({ 1.0, 2.0 }))
    assert.same({ 46, 62 }, { y[0]:item(), y[1]:item() })
  end)

  it("refuses stacks, counts and results that do not fit", function()
    local x = torch.zeros({ 3 })
    fails("ValueError", "scan: stacks: element 0 has the shape torch.Size([3]), expected 2 slices",
      control.scan, 2, function(v) return v end, {}, { x })
    fails("ValueError", "scan: count: expected 1 to 2^31 - 1, got 0", control.scan, 0,
      function() return {} end, {}, {})
    fails("ValueError", "scan: the body returns 0 tensors, expected 1 or more", control.scan, 3,
      function() return {} end, { x }, { x })
    fails("ValueError", "scan: result 0 of the body is a torch.float32 torch.Size([]) tensor",
      control.scan, 3, function(_, row) return row end, { x }, { x })
  end)
end)

describe("branch", function()
  it("runs one side", function()
    local function f(x, y)
      return control.branch(x:sum():gt(0), function(a) return a + y, a end, { x }, function()
        return x * y, y
      end, {})
    end
    local function unpacked(x, y)
      return table.unpack(f(x, y))
    end
    local y = torch.tensor({ 3.0, 4.0 })
    for _, sign in ipairs({ 1, -1 }) do
      both(unpacked, torch.tensor({ 1.0, 2.0 }) * sign, y)
    end
  end)

  it("divides by zero only where it runs", function()
    local function f(c, x)
      return control.branch(c, function() return x end, {}, function()
        return torch.div(x, torch.zeros_like(x), { rounding_mode = "floor" })
      end, {})[1]
    end
    local x = torch.tensor({ 1, 2 }, { dtype = torch.int64 })
    local run = lupine.compile(f, { torch.tensor(true), x })
    assert(torch.equal(x, run(torch.tensor(true), x)))
    fails("RuntimeError", "zero", run, torch.tensor(false), x)
  end)

  it("takes a condition of any type", function()
    for _, name in ipairs({ "bool", "float16", "float32", "int32", "uint8" }) do
      local dtype = torch[name]
      local run = lupine.compile(function(c, x)
        return control.branch(c, function() return x + 1 end, {}, function() return x end, {})[1]
      end, { torch.zeros({ 1, 1 }, { dtype = dtype }), torch.zeros({ 1 }) })
      local x = torch.zeros({ 1 })
      assert.equal(0, run(torch.zeros({ 1, 1 }, { dtype = dtype }), x):item())
      assert.equal(1, run(torch.ones({ 1, 1 }, { dtype = dtype }), x):item())
    end
  end)

  it("gives no gradient to what the other side captures", function()
    local x, w, u = torch.rand({ 3 }), torch.rand({ 3 }), torch.rand({ 3 })
    local cot = torch.ones({ 3 })
    local run = lupine.compile(function(c, a, b, d)
      return control.branch(c, function() return a * b end, {}, function() return a * d end,
        {})[1]
    end, { torch.tensor(1.0), x, w, u }, { cotangents = { cot }, wrt = { 2, 3, 4 } })
    local _, yes = run(torch.tensor(1.0), x, w, u, { cot })
    assert(torch.equal(yes[1], w) and torch.equal(yes[2], x))
    assert(torch.equal(yes[3], torch.zeros({ 3 })))
    local _, no = run(torch.tensor(0.0), x, w, u, { cot })
    assert(torch.equal(no[1], u) and torch.equal(no[3], x))
    assert(torch.equal(no[2], torch.zeros({ 3 })))
  end)

  it("says what is wrong", function()
    local x = torch.rand({ 3 })
    local function id(v) return v end
    fails("TypeError", "condition: expected a Tensor", control.branch, true, id, { x }, id, { x })
    fails("ValueError", "one element, got shape", control.branch, x, id, { x }, id, { x })
    fails("ValueError", "else_body is a torch.float32 torch.Size([]) ", lupine.compile, function(v)
      return control.branch(v[0], id, { v }, function() return v:sum() end, {})[1]
    end, { x })
    fails("ValueError", "else_body returns 2 tensors, expected 1", lupine.compile, function(v)
      return control.branch(v[0], id, { v }, function() return v, v end, {})[1]
    end, { x })
  end)
end)

describe("call", function()
  it("may share its body, which no loop takes afterwards", function()
    local function twice(v)
      local body = core.body(function(list) return { list[1] * 2 } end, { v })
      local y = core.call(body, core.call(body, { v }))[1]
      fails("ValueError", "the body is in use already", core.loop, 3, body, { v })
      return y
    end
    assert.equal(12, lupine.compile(twice, { torch.ones(2) })(torch.ones(2) * 3)[1]:item())
    local function sides(v)
      local body = core.body(function(list) return { list[1] * 2 } end, { v })
      return core.branch(v[0], body, { v }, body, { v + 1 })[1]
    end
    local run = lupine.compile(sides, { torch.ones(2) })
    assert.equal(6, run(torch.ones(2) * 3)[1]:item())
    assert.equal(2, run(torch.zeros(2))[1]:item())
  end)

  it("or a branch or loop has no body that is a loop's", function()
    local x = torch.ones(2)
    lupine.compile(function(v)
      local body = core.body(function(list) return { list[1] * 2 } end, { v })
      local other = core.body(function(list) return { list[1] } end, { v })
      local y = core.loop(3, body, { v })
      for _, use in ipairs({ function() return core.call(body, { v }) end,
        function() return core.loop(2, body, { v }) end,
        function() return core.branch(v[0], body, { v }, other, { v }) end,
        function() return core.branch(v[0], other, { v }, body, { v }) end }) do
        fails("ValueError", "the body is in use already", use)
      end
      return y[1]
    end, { x })
  end)

  it("is its body", function()
    both(function(x, w)
      local function layer(v) return torch.tanh(v) * w, v end
      local out = control.call(layer, { x })
      return table.unpack(control.call(layer, { out[1] }))
    end, torch.rand({ 3 }), torch.rand({ 3 }))
  end)
end)

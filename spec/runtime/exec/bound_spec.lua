-- Variables of programs that lie in the host's tensors, and arenas that programs share.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local helper = require("spec.helper")
local torch = require("torch")

-- Trains w of y = sum(w * x) by plain descent of 0.5; the buffer b counts the runs.
-- `gathers` adds the variable that gradients are divided by.
local function program(rows, gathers)
  local w = torch.nn.Parameter(torch.tensor({ 1.0, 2.0 }))
  local b, x = torch.zeros(1), torch.ones({ rows, 2 })
  local trace = core.trace()
  trace:declare("parameter", "w", w)
  trace:declare("buffer", "b", b)
  local t = trace:declare("input", "x1", nil, { rows, 2 }, x.dtype)
  local loss
  local out = table.pack(trace:run(false, function(v)
    b:add_(1)
    local y = (w * v):sum()
    loss = trace:value(y)
    return y
  end, t))
  local step = trace:step({ out[1] })
  local at = compiled.vars(step)
  local m = { w = w, b = b, x = x, spec = {} }
  local p, lr = at["parameter w"], step:add_var("hyper", "lr", torch.tensor(0.5))
  m.spec.rules = { { op = "sgd_step", param = p, inputs = { p, "grad", false, lr },
    outputs = { p } } }
  m.spec.gathered = gathers and step:add_var("hyper", "calls", torch.tensor(1.0)) or nil
  m.spec.loss, m.spec.host = loss, { weight_layouts = false, packed = false }
  local _, lowered = core.compile(step, m.spec)
  m.exec = lowered:executor()
  m.at = compiled.vars(m.exec:step())
  return m
end

local function run(m)
  return m.exec:run({ [m.at["input x1"]] = m.x }, {})[m.at["output output_1"]]:item()
end

describe("a variable bound to a tensor", function()
  it("is read and written where the tensor is", function()
    local m = program(3)
    m.exec:bind(m.at["parameter w"], m.w)
    m.exec:bind(m.at["buffer b"], m.b)
    local version = m.w._version
    assert.equal(9, run(m)) -- 3 rows of 1 and 2
    helper.near(m.w, { -0.5, 0.5 }, helper.exact) -- less 0.5 times the gradient, 3
    assert.equal(1, m.b:item())
    assert.is_true(m.w._version > version)
    torch.no_grad(function() m.w:fill_(4) end)
    assert.equal(24, run(m))
    m.w.data = torch.tensor({ 0.0, 1.0 })
    assert.equal(3, run(m))
    helper.near(m.w, { -1.5, -0.5 }, helper.exact)
    m.exec:close()
    helper.near(m.w, { -1.5, -0.5 }, helper.exact)
  end)

  it("may be bound again, and is the tensor's for many programs", function()
    local m, n = program(3), program(1)
    for _, p in ipairs({ m, n }) do
      p.exec:bind(p.at["parameter w"], m.w)
    end
    assert.equal(9, run(m))
    assert.equal(0, run(n))
    helper.near(m.w, { -1, 0 }, helper.exact)
    n.exec:bind(n.at["parameter w"], n.w)
    assert.equal(3, run(n))
    helper.near(m.w, { -1, 0 }, helper.exact)
  end)

  it("has the type that was compiled", function()
    local m = program(3)
    local w = m.at["parameter w"]
    helper.raises("Error", "compiled for float32", function()
      m.exec:bind(w, m.w:detach():double())
    end)
    helper.raises("Error", "compiled for float32", function() m.exec:bind(w, torch.ones(3)) end)
    helper.raises("RuntimeError", "not contiguous", function()
      m.exec:bind(w, torch.ones({ 2, 2 })["..., 0"])
    end)
    helper.raises("RuntimeError", "cannot be bound", function()
      m.exec:bind(m.at["input x1"], m.x)
    end)
    m.exec:bind(w, m.w)
    helper.raises("RuntimeError", "'w' is bound to a tensor", function() m.exec:write(w, m.w) end)
    assert.is_true(m.exec:bound())
    m.w.data = m.w.data:double()
    assert.is_false(m.exec:bound())
    helper.raises("Error", "compiled for float32", function() run(m) end)
  end)

  it("brings what another executor owes it", function()
    local m, n = program(3), program(3)
    n.exec:mirror(n.at["parameter w"], m.w)
    n.exec:write(n.at["parameter w"], torch.tensor({ 10.0, 20.0 }))
    n.exec:mark()
    m.exec:bind(m.at["parameter w"], m.w)
    assert.equal(90, run(m))
  end)
end)

describe("gradients that gather over runs", function()
  it("are divided by the calls when a run ends with the update", function()
    local m = program(3, true)
    local g = torch.tensor({ 0.0, 3.0 })
    local sum = m.at["accumulator Gradient___w"]
    m.exec:bind(m.at["parameter w"], m.w)
    m.exec:bind(sum, g)
    m.exec:gathers(true)
    run(m)
    run(m)
    helper.near(m.w, { 1, 2 }, helper.exact)
    helper.near(g, { 6, 9 }, helper.exact)
    m.exec:gathers(false)
    m.exec:write(m.at["hyper calls"], torch.tensor(4.0))
    run(m)
    helper.near(m.w, { 1 - 0.5 * 9 / 4, 2 - 0.5 * 12 / 4 }, helper.exact)
  end)

  it("start anew where nobody has them", function()
    local m = program(3, true)
    for _ = 1, 2 do
      run(m)
    end
    helper.near(m.exec:read(m.at["parameter w"]), { -2, -1 }, helper.exact)
  end)
end)

describe("an arena that programs share", function()
  it("is as large as the largest needs, in any order", function()
    local all = {}
    for i, rows in ipairs({ 40, 4000, 4 }) do
      all[i] = program(rows)
      if i > 1 then
        all[i].exec:share(all[1].exec)
      end
    end
    for _, i in ipairs({ 3, 1, 2, 1, 3, 2 }) do
      torch.no_grad(function() all[i].w:copy_(torch.tensor({ 1.0, 2.0 })) end)
      all[i].exec:write(all[i].at["parameter w"], all[i].w)
      assert.equal(3 * all[i].x:size(0), run(all[i]))
    end
    all[1].exec:close()
    all[2].exec:write(all[2].at["parameter w"], torch.tensor({ 1.0, 2.0 }))
    assert.equal(12000, run(all[2]))
  end)

  it("is shared once, with another one", function()
    local m, n = program(1), program(2)
    helper.raises("RuntimeError", "cannot share", function() m.exec:share(m.exec) end)
    n.exec:share(m.exec)
    helper.raises("RuntimeError", "cannot share", function() n.exec:share(m.exec) end)
  end)
end)

-- What loops and branches cost: their bodies, as often as they run.
local control = require("lupine.control")
local core = require("lupine.core")
local helper = require("spec.passes.ipu.helper")
local torch = require("torch")

local N = 64

-- The report of fn(x, w, trace), and its operators by name; both are squares of o.size,
-- of o.dtype.
local function simulate(fn, o)
  o = o or {}
  local n = o.size or N
  o.declare = function(declare)
    return { declare("input", "x", nil, { n, n }, o.dtype),
      declare("parameter", "w", torch.ones(n, n, { dtype = o.dtype })) }
  end
  local r = helper.simulate(helper.step(function(inputs, place, trace)
    place(0, 0)
    return fn(inputs[1], inputs[2], trace)
  end, o))
  local by_name = {}
  for _, op in ipairs(r.operators) do
    by_name[op.name] = op
  end
  return r, by_name
end

local function product(x, w)
  return torch.matmul(x, w):sin()
end

local function looped(count)
  return function(x, w)
    return control.loop(count, function(v) return product(v, w) end, { x })[1]
  end
end

describe("a loop", function()
  it("costs its body in each round", function()
    local _, once = simulate(product)
    local cycles = once.mm.cycles + once.sin.cycles
    local flops = once.mm.flops + once.sin.flops
    for _, count in ipairs({ 1, 2, 7 }) do
      local _, ops = simulate(looped(count))
      assert.equal(count * cycles, ops.loop.cycles)
      assert.equal(count * flops, ops.loop.flops)
    end
  end)

  it("multiplies with a loop around it", function()
    local _, one = simulate(looped(6))
    local _, two = simulate(function(x, w)
      return control.loop(2, function(u) return looped(3)(u, w) end, { x })[1]
    end)
    assert.equal(one.loop.cycles, two.loop.cycles)
  end)

  it("has more to do where its gradient wants a stack", function()
    local function loss(count)
      return function(x, w) return helper.loss(looped(count)(x, w)) end
    end
    local _, once = simulate(product)
    local _, both = simulate(loss(5), { train = true })
    assert.equal(2, both.loop.instances)
    -- a product forward; again, for the sine's gradient; two for its own
    local products = both.loop.flops / (5 * once.mm.flops)
    assert(products > 4 and products < 4.5, products)
  end)

  it("needs memory for what is inside", function()
    local function wide(inside)
      return function(x)
        return control.loop(2, function(v)
          if not inside then
            return v * 2
          end
          return v * (v:unsqueeze(2) * v:unsqueeze(1)):sin():sum(-1)
        end, { x })[1]
      end
    end
    local small, large = (simulate(wide(false))), (simulate(wide(true)))
    local tiles = 1472
    local more = large.memory[0].max_tile - small.memory[0].max_tile
    assert(more >= N * N * N * 4 / tiles, more)
  end)
end)

describe("a branch", function()
  it("costs its dearer side", function()
    local _, sides = simulate(function(x, w) return product(x, w), x + w end)
    local function branch(first)
      local _, ops = simulate(function(x, w)
        local function dear() return product(x, w) end
        local function cheap() return x + w end
        return control.branch(x[0][0], first and dear or cheap, {}, first and cheap or dear, {})[1]
      end)
      return ops.branch.cycles
    end
    local dear = sides.mm.cycles + sides.sin.cycles
    assert(sides.add.cycles < dear)
    assert.equal(dear, branch(true))
    assert.equal(dear, branch(false))
  end)
end)

describe("a call", function()
  it("costs its body", function()
    local _, once = simulate(product)
    local _, ops = simulate(function(x, w)
      return control.call(function(v) return product(v, w) end, { x })[1]
    end)
    assert.equal(once.mm.cycles + once.sin.cycles, ops.call.cycles)
  end)
end)

describe("what a node has for itself", function()
  local big, half = { size = 512 }, { size = 512, dtype = torch.half }

  -- A product that may take so much of a tile's memory.
  local function sharing(share)
    return function(x, w)
      return core.forms.internal.set_available_memory(torch.matmul(x, w), share):sin()
    end
  end

  -- Two convolutions with these settings, on a square of 32 and one of 16.
  local function convolutions(settings)
    return function(x, w, trace)
      local kernel = w:reshape({ 64, 64, 8, 8 }):narrow(2, 0, 3):narrow(3, 0, 3)
      local small = x:reshape({ 1, 64, 64, 64 })
      trace:origin({ multi_conv = settings })
      local y = torch.nn.functional.conv2d(small, kernel)
      local z = torch.nn.functional.conv2d(small:narrow(3, 0, 16), kernel)
      trace:origin({ multi_conv = "" })
      return y, z
    end
  end

  it("it has in a body: a share of memory", function()
    local cycles = {}
    for _, share in ipairs({ 0.6, 0.004 }) do
      local _, once = simulate(sharing(share), big)
      local function body(w) return function(v) return sharing(share)(v, w) end end
      local _, looping = simulate(function(x, w) return control.loop(3, body(w), { x })[1] end, big)
      local _, calling = simulate(function(x, w) return control.call(body(w), { x })[1] end, big)
      local _, nested = simulate(function(x, w)
        return control.loop(3, function(u) return control.call(body(w), { u })[1] end, { x })[1]
      end, big)
      cycles[#cycles + 1] = once.mm.cycles + once.sin.cycles
      assert.equal(3 * cycles[#cycles], looping.loop.cycles)
      assert.equal(cycles[#cycles], calling.call.cycles)
      assert.equal(looping.loop.cycles, nested.loop.cycles)
    end
    assert(cycles[2] > cycles[1])
  end)

  it("it has in a body: what its multi-convolution gives it", function()
    local function conv_cycles(settings)
      local r = simulate(convolutions(settings), half)
      local n = 0
      for _, node in ipairs(r:nodes()) do
        n = n + (node.operator == "convolution" and node.cycles or 0)
      end
      return n
    end
    local seen = {}
    for _, settings in ipairs({ "1 serial 50 0.1 - -", "1 parallel 50 0.1 - -",
      "1 serial 50 0.1 0.001,0.6 -", "1 serial 50 0.1 - half" }) do
      local _, calling = simulate(function(x, w, trace)
        local list = control.call(function(v) return convolutions(settings)(v, w, trace) end, { x })
        return list[1], list[2]
      end, half)
      local want = conv_cycles(settings)
      assert.equal(want, calling.call.cycles)
      seen[want] = true
    end
    assert.equal(4, #require("lupine.base.tables").keys(seen))
  end)

  it("makes another body of one that is else the same", function()
    local function calls(list)
      local _, ops = simulate(function(x, w, trace)
        local out = {}
        for i, settings in ipairs(list) do
          out[i] = control.call(function(v)
            return (convolutions(settings)(v, w, trace))
          end, { x })[1]
        end
        return table.unpack(out)
      end, half)
      return ops.call.cycles
    end
    local float, narrow = "1 serial 50 0.1 - float", "2 serial 50 0.1 - half"
    assert.equal(calls({ float }) + calls({ narrow }), calls({ float, narrow }))
    assert(calls({ narrow }) < calls({ float }))
  end)
end)

-- What loops and branches cost: their bodies, as often as they run.
local control = require("lupine.control")
local helper = require("spec.passes.ipu.helper")
local torch = require("torch")

local N = 64

-- The report of fn(x), and its operators by name.
local function simulate(fn, o)
  o = o or {}
  o.declare = function(declare)
    return { declare("input", "x", nil, { N, N }), declare("parameter", "w", torch.ones(N, N)) }
  end
  local r = helper.simulate(helper.step(function(inputs, place)
    place(0, 0)
    return fn(table.unpack(inputs))
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

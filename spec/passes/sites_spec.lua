--- Sites of nodes that round, in steps whose numerics are stochastic.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local torch = require("torch")

local STOCHASTIC = { stochastic = true }

local function completed(fn, inputs, numerics)
  local step = compiled.step(fn, inputs)
  step:complete({ numerics = numerics or STOCHASTIC })
  return step
end

local function sites(step)
  local list = {}
  for site in step:text("micro"):gmatch("site (0x%x+)") do
    list[#list + 1] = site
  end
  return list
end

describe("the site of a node that rounds", function()
  local x = torch.ones({ 4 }, { dtype = torch.float16 })

  it("is given to no other, and only where something rounds", function()
    local step = completed(function(v)
      local y = v:relu():neg():float() * 3
      return v * 3, v * 3, y, torch.full_like(v, 0.3) + v
    end, { x })
    local text = step:text("micro")
    assert.equal(3, #sites(step)) -- two products that are not merged, a sum
    assert.is_nil(text:match("relu[^\n]*site"))
    assert.is_nil(text:match("float32[^\n]*site"))
    local seen = {}
    for _, s in ipairs(sites(step)) do
      assert.is_nil(seen[s])
      seen[s] = true
    end
  end)

  it("does not let constants be folded", function()
    local function fn() return torch.full({ 4 }, 1.25, { dtype = torch.float16 }) * 1.3 end
    assert.matches("mul", completed(function(v) return fn() + v end, { x }):text("micro"))
    local nearest = completed(function(v) return fn() + v end, { x }, {})
    assert.is_nil(nearest:text("micro"):match("mul"))
    assert.same({}, sites(nearest))
  end)

  it("does not depend on where it runs or on what else there is", function()
    local function fn(more, ipu)
      local trace = core.trace()
      local v = trace:declare("input", "x", nil, { 4 }, torch.float16)
      local z, other = trace:run(false, function()
        trace:origin({ scope = "layer", ipu = ipu, stage = ipu, block = "b" .. ipu })
        local w = torch.exp(v) * 1.5
        trace:origin({ scope = "other", ipu = 0, stage = 0 })
        return w, more and v * 2.5 or nil
      end)
      local step = trace:step({ z, other })
      step:complete({ numerics = STOCHASTIC })
      return { step:text("micro"):match("exp[^\n]*site (%S+)"),
        step:text("micro"):match("1.5[^\n]*site (%S+)") }
    end
    assert.equal(2, #fn(false, 0))
    assert.same(fn(false, 0), fn(true, 0))
    assert.same(fn(false, 0), fn(false, 1))
  end)

  it("of what a pass makes is no other node's of that place", function()
    local step = completed(function(v, s) -- both operators stand on one line
      local yes = torch.full({ 4 }, true)
      return v * 3, torch.where(yes, s, v)
    end, { x, torch.tensor(0.3) })
    assert.matches("cast[^\n]*site", step:text("micro")) -- of `where`, whose condition holds
    local list = sites(step)
    assert.equal(2, #list)
    assert.are_not.equal(list[1], list[2])
  end)

  it("of a backward node does not depend on what forward has more", function()
    local w = torch.ones({ 4 }, { dtype = torch.float16 })
    local function backward(more)
      local trace = core.trace()
      local v = trace:declare("input", "x", nil, { 4 }, torch.float16)
      local p = trace:declare("parameter", "w", w)
      local step, losses = trace:step({ trace:run(false, function()
        trace:origin({ scope = "layer", ipu = 0, stage = 0 })
        local h, other = v * p, more and v * 2.5 or nil
        return core.forms.internal.identity_loss((h * h):sum(), "none"), other
      end) })
      step:complete({ loss = losses[1], rules = compiled.descent(compiled.vars(step),
        { { "parameter", "w" } }), numerics = STOCHASTIC })
      local list, half = {}, nil
      for line in step:text("micro"):gmatch("[^\n]+") do
        half = line:match("^origin") and line or half
        list[#list + 1] = half and half:match("backward") and line:match("site (%S+)")
      end
      return list
    end
    assert.is_true(#backward(false) >= 2)
    assert.same(backward(false), backward(true))
  end)

  it("is asked for by the verifier, and refused where nothing rounds", function()
    local step = completed(function(v) return v * 3 end, { x })
    local text = step:text("step")
    assert.error_matches(function() core.step_parse((text:gsub(" site 0x%x+", ""))) end,
      "has no site to round at, but the step rounds at random", 1, true)
    assert.error_matches(function() core.step_parse((text:gsub(" stochastic", ""))) end,
      "has a site to round at, but the step does not round at random", 1, true)
    local exact = completed(function(v) return v:relu() end, { x }):text("step")
    assert.error_matches(function()
      core.step_parse((exact:gsub("(relu[^\n]*)", "%1 site 0x1", 1)))
    end, "relu draws no random numbers and does not round, but has a site", 1, true)
  end)
end)

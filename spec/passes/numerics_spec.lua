--- How a step computes where types alone do not say (LpNumerics): given when it
--- is completed, part of its text, refused where nothing computes it.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local report = require("lupine.report")
local torch = require("torch")

local function step_of(dtype, numerics)
  local step = compiled.step(function(x)
    return x * 3
  end, { torch.ones({ 4 }, { dtype = dtype }) })
  step:complete({ numerics = numerics })
  return step
end

local function head(step)
  return step:text("step"):match("^[^\n]*")
end

describe("the numerics of a step", function()
  it("are part of its text, and come back from it", function()
    local all = "step iterations 1 accumulation 1 replicas 1 mean"
    assert.equal(all, head(step_of(torch.float32)))
    for _, name in ipairs({ "stochastic", "half_partials", "half_statistics", "trap" }) do
      local step = step_of(torch.float32, { [name] = true })
      assert.equal(all .. " " .. name, head(step))
      assert.equal(step:text("step"), core.step_parse(step:text("step")):text("step"))
    end
    local step = step_of(torch.float32, { trap = true, stochastic = true, half_partials = false })
    assert.equal(all .. " stochastic trap", head(step))
    assert.equal(head(step), head(core.step_parse(step:text("step"))))
  end)

  it("are known by name and true or false", function()
    local allowed = "Allowed: stochastic, half_partials, half_statistics, trap, each true or false"
    for text, numerics in pairs({ ["stochastc = true"] = { stochastc = true },
      ["trap = 1"] = { trap = 1 }, ["1 = trap"] = { "trap" } }) do
      assert.error_matches(function() step_of(torch.float32, numerics) end,
        "numerics: got " .. text .. ". " .. allowed, 1, true)
    end
  end)

  it("change nothing of float32, and no type is refused", function()
    for _, dtype in ipairs({ torch.float32, torch.float16, torch.bfloat16 }) do
      for _, name in ipairs({ "half_partials", "trap" }) do
        local step = step_of(dtype, { [name] = true })
        local feed = { [1] = torch.ones({ 4 }, { dtype = dtype }) }
        step:compile({})
        report.replay(step, {}, feed)
        report.simulate(step, {})
      end
    end
  end)
end)

--- The text of a complete step: printed, parsed, printed again it is the same,
--- and the parsed step runs as the printed one.
local compiled = require("spec.support.compiled")
local control = require("lupine.control")
local core = require("lupine.core")
local torch = require("torch")

local F = torch.nn.functional

local function parse_error(text)
  local ok, e = pcall(core.step_parse, text)
  assert.is_false(ok)
  return e.message
end

-- A step with every role: dropout, a carried buffer, two parameters with
-- momentum, several loops, one with a body and its gradient.
local function rich()
  local w, b = torch.arange(6):float():reshape(2, 3) / 10, torch.ones(2)
  local seen = torch.zeros({})
  local k = torch.tensor({ 0.5, -0.5, 1.0 })
  local declared = { { "parameter", "w", w }, { "parameter", "b", b }, { "buffer", "seen", seen } }
  local step, losses = compiled.step(function(x)
    seen:add_(1)
    local body = function(v) return F.dropout(v, 0.5) * k * w[0] end
    local y = F.linear(control.loop(2, body, { x })[1], w, b)
    return y, F.mse_loss(y, torch.zeros({ 4, 2 }))
  end, { torch.ones(4, 3) }, declared)
  local at = compiled.vars(step)
  local rules = {}
  for _, name in ipairs({ "w", "b" }) do
    local var = at["parameter " .. name]
    local m = step:add_var("state", "m___" .. name, torch.zeros(step:vars()[var].shape), var)
    local lr = step:add_var("hyper", "lr___" .. name, torch.tensor(0.25))
    rules[#rules + 1] = { op = "popart_sgd_step", param = var, inputs = { var, "grad", m, lr },
      outputs = { var, m } }
  end
  step:complete({ loss = losses[1], rules = rules, device_iterations = 2,
    gradient_accumulation = 3 })
  return step
end

local function values(step, exec, inputs)
  local at = compiled.vars(step)
  local out = exec:run(compiled.feed(at, inputs), {})
  local list = { out[at["output output_1"]], out[at["output output_2"]] }
  for _, name in ipairs({ "parameter w", "parameter b", "state m___w", "buffer seen" }) do
    list[#list + 1] = exec:read(at[name])
  end
  return list
end

local SMALL = [[
step iterations 1 accumulation 1 replicas 1 mean
micro
graph differentiated
input %1 "x": float32[2]
origin
%2 = exp(%1): float32[2]
output %2
var input "x": float32[2] micro %1
var output "y": float32[2] micro -> %2
]]

describe("the text of a step", function()
  it("comes back as it was", function()
    for _, step in ipairs({ rich(), core.step_parse(SMALL) }) do
      local text = step:text("step")
      assert.equal(text, core.step_parse(text):text("step"))
    end
    assert.equal(SMALL, core.step_parse(SMALL):text("step"))
  end)

  it("has every role", function()
    local text = rich():text("step")
    for _, role in ipairs({ "parameter", "buffer", "accumulator", "state", "hyper", "input",
      "output", "constant" }) do
      assert.matches("\nvar " .. role .. ' "', text)
    end
    assert.matches("^step iterations 2 accumulation 3 replicas 1 mean\nmicro\n", text)
  end)

  it("says all that running needs but the data", function()
    local step = rich()
    local read = core.step_parse(step:text("step"))
    local a, b = step:compile({}), read:compile({})
    for i, v in ipairs(step:vars()) do
      if v.role ~= "input" and v.role ~= "output" and v.role ~= "accumulator" then
        b:write(i, a:read(i))
      end
    end
    local x = torch.randn(24, 3)
    local want, got = values(step, a, { x }), values(read, b, { x })
    for i, t in ipairs(want) do
      assert.is_true(torch.equal(t, got[i]))
    end
    assert.equal(6, got[6]:item()) -- three micro-batches, twice
  end)

  it("may be simulated", function()
    local report = require("lupine.report")
    local step = rich()
    assert.equal(report.simulate(step, {}).cycles,
      report.simulate(core.step_parse(step:text("step")), {}).cycles)
  end)

  it("is of a complete step only", function()
    local tr = core.trace()
    local x = tr:declare("input", "x", nil, { 2 }, torch.float32)
    assert.error_matches(function() tr:step({ x }):text("step") end, "the step is not complete")
  end)

  for change, message in pairs({
    [{ "^step", "stop" }] = "line 1, column 1: expected step, found 'stop'",
    [{ "iterations 1", "iterations 0" }] = "line 1, column 17: 0 is outside 1..",
    [{ "mean", "median" }] = "line 1, column 45: expected mean or sum, found 'median'",
    [{ "\nmicro\n", "\n" }] = "line 2, column 1: expected micro, found 'graph'",
    [{ "var input", "var friend" }] = "line 8, column 5: expected a role such as parameter",
    [{ "micro %%1", "micro %%7" }] = "line 8, column 33: %%7 is not defined above",
    [{ "micro %%1", "update %%1" }] = "line 8, column 34: %%1 is not defined above",
    [{ "micro %-> %%2\n", "" }] = "step is not valid: output 'y' is no output of the micro graph",
    [{ "x\": float32%[2%] micro", "x\": float32[3] micro" }] =
      "input 'x' is float32%[3%], but its value is float32%[2%]",
    [{ "output %%2", "output %%1" }] = "output 'y' writes value 2, which is not output 0",
    [{ "\norigin\n", "\n" }] = "it has no origin",
    [{ "$", "var input \"z\": float32[2] of 9\n" }] = "input 'z' belongs to variable 9 of 3",
    [{ "differentiated", "differentiated host" }] = "the micro graph is one of the host's",
    [{ "$", "rest" }] = "line 10, column 1: expected var, found 'rest'",
  }) do
    it("refuses " .. change[2]:gsub("\n", " ") .. " in the place of " .. change[1], function()
      assert.matches(message, parse_error((SMALL:gsub(change[1], change[2], 1))))
    end)
  end

  it("survives texts with something wrong in any place", function()
    local state, text = 1, rich():text("step")
    local function random(n)
      state = state * 48271 % 2147483647
      return state % n + 1
    end
    local parts = { "", " ", "\n", "%", "=", "->", "of 0", "of", "-1", "9", "micro", "update",
      "var", "var state", "graph", '"', "[", "]", ":", ",", "#" }
    for _ = 1, 300 do
      local changed = text
      for _ = 1, random(3) do
        local at, len = random(#changed), random(4) - 1
        changed = changed:sub(1, at - 1) .. parts[random(#parts)] .. changed:sub(at + len)
      end
      local ok, step = pcall(core.step_parse, changed)
      if ok then
        local again = step:text("step")
        assert.equal(again, core.step_parse(again):text("step"))
      end
    end
  end)
end)

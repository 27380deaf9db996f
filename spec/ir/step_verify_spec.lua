-- The verifier of steps catches every way in which the table of variables can
-- differ from the graphs; every step that is completed goes through it.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local program = require("spec.support.program")
local torch = require("torch")

local function probe(damage)
  return program.shell(("%s/tools/step_probe %s"):format(program.build, program.quote(damage)))
end

describe("the verifier of steps", function()
  it("passes what is right", function()
    assert.equal("right\n", probe("none"))
  end)

  for damage, message in pairs({
    ["no such input"] = "input 'x' has input 99 of the micro graph, which does not exist",
    ["number"] = "output 'out' has output 0 of the micro graph, which does not exist",
    ["not an input"] = "buffer 'b' reads value 6, which is no input",
    ["read twice"] = "parameter 'w' reads input 1, as another does",
    ["not read"] = "variables read 3 of 4 inputs and write 3 of 3 outputs of the micro graph",
    ["another output"] = "accumulator 'g' writes value 6, which is not output 2",
    ["not written"] = "variables read 4 of 4 inputs and write 1 of 2 outputs of the update graph",
    ["shape"] = "output 'out' is float32[1, 3], but its value is float32[2, 3]",
    ["dtype"] = "input 'x' is float16[2, 3], but its value is float32[2, 3]",
    ["role"] = "variable 'x' has no role",
    ["input is written"] = "input 'x' may not be an output of the micro graph",
    ["buffer is updated"] = "buffer 'b' may not be an output of the update graph",
    ["output is none"] = "output 'out' is no output of the micro graph",
    ["data"] = "output 'out' has a tensor",
    ["type of data"] = "buffer 'b' has a tensor of int32[3], not float32[3]",
    ["link"] = "state 'm' belongs to variable 7 of 7",
    ["link to another role"] = "state 'm' belongs to buffer 'b'",
    ["type of accumulator"] = "accumulator 'g' is float32[3], but its parameter is float32[4]",
    ["never added to"] = "accumulator 'g' is not read by micro-batches, of which there are 2",
    ["no update"] = "parameter 'w' has input 1 of the update graph, which does not exist",
  }) do
    it("catches damage: " .. damage, function()
      assert.equal("step is not valid: " .. message .. "\n", (probe(damage)))
    end)
  end
end)

describe("loops of a step", function()
  local RULE = "device iterations, gradient accumulation and replicas must be at least 1 and "
    .. "their product countable, got "

  it("are there", function()
    assert.equal("ValueError\n", (probe("no replica")))
  end)

  -- A step's text with other loops.
  local function parsed(iterations, accumulation, replicas)
    local step = compiled.step(function(x) return x + 1 end, { torch.ones(2) })
    step:complete({})
    local text, n = step:text("step"):gsub("iterations %d+ accumulation %d+ replicas %d+",
      ("iterations %d accumulation %d replicas %d"):format(iterations, accumulation, replicas))
    assert.equal(1, n)
    return core.step_parse(text)
  end

  it("are countable in a step that is read, too", function()
    assert.equal("step", parsed(2, 1, 3):text("step"):match("^%a+"))
    for _, n in ipairs({ { math.maxinteger, math.maxinteger, 3 }, { 1, 1, 1 << 62 } }) do
      assert.error_matches(function() parsed(table.unpack(n)) end, RULE)
    end
    assert.error_matches(function() parsed(1 << 61, 1, 1) end, "has too many bytes")
  end)
end)

describe("a completed step", function()
  -- A step of two parameters whose only rule is rule(variables by name, step).
  local function complete(rule)
    local w, p = torch.ones(3), torch.ones(4000)
    local step, losses = compiled.step(function(x)
      return torch.nn.functional.mse_loss((x * w):sum() + p:sum(), torch.zeros({}))
    end, { torch.ones(2, 3) }, { { "parameter", "w", w }, { "parameter", "p", p } })
    step:complete({ loss = losses[1], rules = { rule(compiled.vars(step), step) } })
    return step
  end

  it("may write a parameter with its own type alone", function()
    local function sub(to)
      return complete(function(at)
        return { op = "sub", param = at["parameter w"], inputs = { at["parameter w"], "grad" },
          outputs = { at["parameter " .. to] } }
      end)
    end
    sub("w")
    local ok, e = pcall(sub, "p")
    assert.is_false(ok)
    assert.is_true(errors.RuntimeError:is(e))
    assert.equal("step is not valid: parameter 'p' is float32[4000], but its value is " ..
      "float32[3]", e.message)
  end)

  it("may have state of parameters alone", function()
    local ok, e = pcall(complete, function(at, step)
      step:add_var("state", "m", torch.zeros(3), 99)
      return { op = "sub", param = at["parameter w"], inputs = { at["parameter w"], "grad" },
        outputs = { at["parameter w"] } }
    end)
    assert.is_false(ok)
    assert.matches("state 'm' belongs to variable 98 of", e.message)
  end)
end)

--- Faults on demand: before which instruction a run fails, and what it leaves.
local compiled = require("spec.support.compiled")
local helper = require("spec.helper")
local torch = require("torch")

describe("a trap", function()
  local ITERATIONS, REPLICAS = 3, 2
  local exec, at, data

  before_each(function()
    local count = torch.zeros(2)
    local step = compiled.step(function(x)
      count:add_(1)
      return torch.softmax(torch.tanh(x), 0) * count
    end, { torch.empty(2) }, { { "buffer", "count", count } })
    step:complete({ device_iterations = ITERATIONS, replicas = REPLICAS })
    at = compiled.vars(step)
    exec = step:compile({})
    exec:write(at["buffer count"], torch.zeros(2))
    data = { [at["input x1"]] = torch.ones(2 * ITERATIONS * REPLICAS) }
  end)

  -- The instruction of a device iteration that it sprang at, and how many there are.
  local function struck(iteration, share)
    exec:trap(iteration, share)
    local e = helper.refuses("RuntimeError", "a fault on demand", exec.run, exec, data, {})
    local nr, of = e.message:match("at instruction (%d+) of (%d+)")
    assert.equal(iteration, exec:finished())
    return tonumber(nr), tonumber(of)
  end

  it("springs at its share of a device iteration's instructions", function()
    for _, share in ipairs({ 0, 0.25, 0.5, 0.75, 1 }) do
      local nr, of = struck(1, share)
      assert.truthy(of > 2 and of % REPLICAS == 0)
      assert.equal(math.floor(share * of), nr)
    end
  end)

  it("leaves what the iterations before it did, wherever in its own it springs", function()
    local done = 0
    for _, share in ipairs({ 0, 0.25, 0.5, 0.75, 1 }) do
      for iteration = 0, ITERATIONS - 1 do
        struck(iteration, share)
        done = done + iteration
        for replica = 0, REPLICAS - 1 do
          helper.near(exec:read(at["buffer count"], replica), { done, done })
        end
      end
    end
  end)

  it("is taken away by a negative iteration", function()
    exec:trap(0, 0)
    exec:trap(-1, 0)
    exec:run(data, {})
    assert.equal(ITERATIONS, exec:finished())
  end)
end)

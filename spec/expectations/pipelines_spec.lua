--- A pipeline never waits for what does not come: a placement that would is refused when
--- it is compiled, and of one that runs the report says which stages wait, and how long.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local Stack = nn.Module:extend("Stack")

function Stack:init(ipus)
  self.layers, self.ipus = nn.ModuleList(), ipus
  for _ = 1, #ipus do
    self.layers:append(nn.Linear(64, 64))
  end
end

function Stack:forward(x)
  for i, ipu in ipairs(self.ipus) do
    local _ <close> = poptorch.Block("B" .. i, { ipu_id = ipu })
    x = self.layers[i](x)
  end
  return x
end

local function pipeline(ipus, iterations)
  local net = Stack(ipus)
  return poptorch.inferenceModel(net, poptorch.Options():deviceIterations(iterations)), net
end

local function ipus(n)
  local out = {}
  for i = 1, n do
    out[i] = i - 1
  end
  return out
end

-- By stage, the rows of the schedule, before it is full or while it empties, in which it
-- computes nothing.
local function waits(report)
  local out = {}
  for _, row in ipairs(report.schedule) do
    local busy = {}
    for _, e in ipairs(row.entries) do
      busy[e.stage or -1] = busy[e.stage or -1] or e.kind == "compute"
    end
    for stage = 0, #report.stages - 1 do
      out[stage + 1] = (out[stage + 1] or 0) + (busy[stage] and 0 or row.count)
    end
  end
  return out
end

describe("a pipeline over more than two IPUs", function()
  it("computes what the host does", function()
    for _, n in ipairs({ 3, 4, 8 }) do
      local options = poptorch.Options():deviceIterations(n):autoRoundNumIPUs(true)
      local net = Stack(ipus(n))
      local x = torch.rand(n, 64)
      helper.near(poptorch.inferenceModel(net, options)(x), net(x), { 1e-5, 1e-4 })
    end
  end)

  it("that would wait for ever is refused with the numbers that it needs", function()
    helper.raises("Error", "at least 4, got 3", function()
      pipeline(ipus(4), 3)(torch.rand(3, 64))
    end)
    helper.raises("Error", "ascend", function()
      local model = pipeline({ 0, 1, 0, 1 }, 4)
      model(torch.rand(4, 64))
    end)
  end)

  it("has every stage wait for the others' fill and flush, as the report says", function()
    local model = pipeline(ipus(4), 8)
    model:compile(torch.rand(8, 64))
    local report = model:report()
    assert.same({ 3, 3, 3, 3 }, waits(report))
    -- 8 of 8 + 3 turns are useful, when all stages are alike
    assert.near(8 / 11, report.pipeline_efficiency, 0.05)
    assert.matches("IPUs busy during the loop: %d", report:summary())
  end)

  it("names the stage that the others wait for", function()
    local Uneven = Stack:extend("Uneven")
    function Uneven:forward(x)
      local y = Stack.forward(self, x)
      local _ <close> = poptorch.Block("last", { ipu_id = 3 })
      for _ = 1, 20 do
        y = y:sin()
      end
      return y
    end
    local model = poptorch.inferenceModel(Uneven(ipus(3)), poptorch.Options():deviceIterations(4))
    model:compile(torch.rand(4, 64))
    local slowest = 0
    for stage = 0, 3 do
      local s = model:report():stage(stage)
      slowest = s.forward_cycles > model:report():stage(slowest).forward_cycles and stage or slowest
    end
    assert.equal(3, slowest)
    assert.is_true(model:report().pipeline_efficiency < 0.5)
  end)
end)

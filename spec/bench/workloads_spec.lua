-- What `make bench` times, at a batch of one: it is not run by the tests.
local workloads = require("spec.bench.workloads")

-- Too large for here; they are built of the same classes as gpt-s.
local LARGE = { ["gpt-l"] = true, ["bert-base"] = true }

describe("a workload of the bench", function()
  for _, name in ipairs(workloads.order) do
    if not LARGE[name] then
      it(name .. " has a model that takes its inputs", function()
        local w = workloads.all[name]
        local one = setmetatable({ batch = 1, iterations = 2 }, { __index = w })
        local x, target = workloads.data(one)
        local y = w.model()(x)
        local loss = workloads.loss(w)(y, y:size(0) == target:size(0) and target
          or target:flatten())
        assert.is_true(loss:item() < math.huge)
        assert.same({}, { table.unpack(loss.shape) })
      end)
    end
  end

  it("has a place in the order", function()
    local named = {}
    for name in pairs(workloads.all) do
      named[#named + 1] = name
    end
    local order = { table.unpack(workloads.order) }
    table.sort(named)
    table.sort(order)
    assert.same(named, order)
  end)
end)

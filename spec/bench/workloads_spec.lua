-- What `make bench` times, at a batch of one: it is not run by the tests.
local workloads = require("spec.bench.workloads")

-- Too large for here; they are built of the same classes as others.
local LARGE = { ["gpt-l"] = true, ["bert-base"] = true, gpt2 = true, ["gpt2-token"] = true,
  resnet50 = true, ["resnet50-inference"] = true, ["mobilenet-inference"] = true, vit = true }

local function names_of(all)
  local names = {}
  for name in pairs(all) do
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

describe("a workload of the bench", function()
  for _, name in ipairs(names_of(workloads.all)) do
    if not LARGE[name] then
      it(name .. " has a model that takes its inputs", function()
        local w = workloads.all[name]
        local one = setmetatable({ batch = 1, iterations = 2 }, { __index = w })
        local net = workloads.with_loss(w)
        local loss = net(workloads.data(one))
        assert.is_true(loss:item() < math.huge)
        assert.same({}, { table.unpack(loss.shape) })
        for _, phase in ipairs(w.phases and w.phases(net.model) or {}) do
          assert.is_true(phase[1](workloads.data(one)):item() < math.huge)
          assert.is_true(#phase[2]:parameters() > 0)
        end
      end)
    end
  end

  it("has a place in an order", function()
    local order = { table.unpack(workloads.order) }
    table.move(workloads.more, 1, #workloads.more, #order + 1, order)
    table.sort(order)
    assert.same(names_of(workloads.all), order)
  end)
end)

--- Reports of more IPUs than one machine has: models on device meta, compiled for a system
--- that is not here.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local Net = nn.Module:extend("LargeSystemsNet")

function Net:init()
  self.net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
  poptorch.BeginBlock(self.net[1], { ipu_id = 0 })
  poptorch.BeginBlock(self.net[3], { ipu_id = 1 })
end

function Net:forward(x)
  return poptorch.identity_loss(self.net(x), "mean")
end

local function report(replicas)
  torch.set_default_device("meta")
  local net = Net()
  local options = poptorch.Options():replicationFactor(replicas):useOfflineIpuTarget(21)
  options.Training:gradientAccumulation(8)
  local executor = poptorch.trainingModel(net, options,
    poptorch.optim.SGD(net:parameters(), { lr = 0.1 }))
  executor:compile(torch.zeros(8 * 4 * replicas, 256))
  torch.set_default_device("cpu")
  local r = executor:report()
  executor:destroy()
  for _, row in ipairs(r.schedule) do
    if row.kind == "update" then
      return r, row
    end
  end
end

describe("a model of two IPUs", function()
  it("has a report with up to 512 replicas, whose sums cross racks once", function()
    local before, sums = nil, {}
    for _, replicas in ipairs({ 8, 32, 64, 512 }) do
      local r, update = report(replicas)
      assert.equal(2 * replicas, r.ipus * r.replicas)
      assert.equal(8 * 4 * replicas, r.samples)
      assert.is_true(r.memory[0].fits)
      assert.is_true(not before or r.samples_per_second > before)
      before, sums[replicas] = r.samples_per_second, update.collective
    end
    -- one rack of 32 replicas; 16 of them, of which each replica meets a share: twice 15 hops of
    -- 600 cycles more, and 15 sixteenths of a 32nd at 6.25 GB/s there and back
    local bytes = 4 * (256 * 512 + 512)
    local crossing = 2 * 15 / 16 * bytes / 32 / 6.25e9 * 1.85e9
    assert.near(2 * 15 * 600 + crossing, sums[512] - sums[32], 200)
  end)
end)

--- Weights that differ between groups of replicas. Expected values: the same
--- training on the host, which indexes each replica's slice by hand.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local Kind, Retrieval = poptorch.CommGroupType, poptorch.VariableRetrievalMode
local REPLICAS, ROWS = 4, 2

-- Groups of 4 replicas: the type, its size, the slice of each replica.
local GROUPS = {
  { Kind.Consecutive, 2, { 0, 0, 1, 1 } },
  { Kind.Orthogonal, 2, { 0, 1, 0, 1 } },
  { Kind.NoGrouping, 0, { 0, 1, 2, 3 } },
  { Kind.Consecutive, 4, { 0, 0, 0, 0 } },
  { Kind.Orthogonal, 1, { 0, 1, 2, 3 } },
}

local Net = nn.Module:extend("Net")

-- The first layer's weight has the slices given, the second's shared ones.
function Net:init(slices)
  self.first, self.second = nn.Linear(5, 4), nn.Linear(4, 3)
  if slices then
    self.first.weight = nn.Parameter(torch.randn(slices, 4, 5))
  end
end

function Net:forward(x, target)
  local h, y
  do
    local _ <close> = poptorch.Block("0", { ipu_id = 0 })
    h = self.first(x):tanh()
  end
  do
    local _ <close> = poptorch.Block("1", { ipu_id = 1 })
    y = self.second(h)
    return y, torch.nn.functional.mse_loss(y, target)
  end
end

-- What the host makes of it: one of these for each replica, over one set of
-- tensors.
local function on_host(net, slice_of, x, target, make, how)
  local optimizer, losses = make(net:parameters()), {}
  local di, ga = how.di or 1, how.ga or 1
  x = x:reshape({ di, ga, REPLICAS, ROWS, 5 })
  target = target:reshape({ di, ga, REPLICAS, ROWS, 3 })
  for d = 0, di - 1 do
    optimizer:zero_grad()
    for a = 0, ga - 1 do
      for r = 0, REPLICAS - 1 do
        local w = net.first.weight[slice_of[r + 1]]
        local h = torch.nn.functional.linear(x[{ d, a, r }], w, net.first.bias):tanh()
        local loss = torch.nn.functional.mse_loss(net.second(h), target[{ d, a, r }])
        losses[#losses + 1] = loss:item()
        ;(loss / (how.sum and 1 or ga * REPLICAS)):backward()
      end
    end
    optimizer:step()
  end
  return optimizer, torch.tensor(losses)
end

local function options(how)
  local o = poptorch.Options()
  o:deviceIterations(how.di or 1):replicationFactor(REPLICAS)
  o:setExecutionStrategy(how.strategy or poptorch.ShardedExecution())
  o:outputMode(poptorch.OutputMode.All)
  o.Training:gradientAccumulation(how.ga or 1)
  if how.sum then
    o.Training:accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
  end
  return o
end

-- Trains twice, on the host and on the device, and compares all values.
local function check(group, make, how)
  local slices = math.max(table.unpack(group[3])) + 1
  torch.manual_seed(4)
  local host = Net(slices)
  local device = Net(slices)
  device:load_state_dict(host:state_dict())
  if how.each then
    device.first.weight = nn.Parameter(host.first.weight:detach()[{
      torch.tensor(group[3]) }]:clone())
  end
  local opts = options(how)
  if how.options then
    how.options(opts)
  end
  local optimizer = make(device:parameters())
  local model = poptorch.trainingModel(device, opts, optimizer)
  model.first.weight:replicaGrouping(group[1], group[2],
    how.each and Retrieval.AllReplicas or Retrieval.OnePerGroup)
  local n = (how.di or 1) * (how.ga or 1) * REPLICAS * ROWS
  local x, target = torch.randn(n, 5), torch.randn(n, 3)
  local reference
  for _ = 1, 2 do
    local want
    reference, want = on_host(host, group[3], x, target, reference and function()
      return reference
    end or make, how)
    local _, loss = model(x, target)
    near(loss, want, { 1e-5, 1e-5 })
  end
  local values, expected = device:state_dict(), host:state_dict()
  for name, value in pairs(expected) do
    if how.each and name == "first.weight" then
      value = value[{ torch.tensor(group[3]) }]
    end
    near(values[name], value, { 2e-5, 1e-5 })
  end
  return device, host, optimizer, reference, model
end

local function sgd(p)
  return torch.optim.SGD(p, { lr = 0.1, momentum = 0.9, weight_decay = 0.01 })
end

describe("weights in replica groups train as on the host", function()
  for _, group in ipairs(GROUPS) do
    for _, each in ipairs({ false, true }) do
      it(("%s of %d, %s"):format(group[1], group[2], each and "AllReplicas" or "OnePerGroup"),
        function()
          local device = check(group, sgd, { di = 2, ga = 3, each = each })
          assert.equal(each and 4 or math.max(table.unpack(group[3])) + 1,
            device.first.weight:size(0))
        end)
    end
  end

  it("with the states of each optimizer", function()
    for _, make in ipairs({
      function(p) return torch.optim.SGD(p, { lr = 0.1 }) end,
      function(p) return torch.optim.Adam(p, { lr = 0.05 }) end,
      function(p) return torch.optim.AdamW(p, { lr = 0.05 }) end,
      function(p) return torch.optim.RMSprop(p, { lr = 0.05, momentum = 0.5 }) end,
    }) do
      local _, _, optimizer, reference = check(GROUPS[2], make, { ga = 2 })
      for p, of in pairs(reference.state) do
        if p:dim() == 3 then -- the weight in groups
          local theirs
          for q, has in pairs(optimizer.state) do
            theirs = q:dim() == 3 and has or theirs
          end
          for name, want in pairs(of) do
            near(theirs[name], want, { 1e-5, 1e-4 })
          end
        end
      end
    end
  end)

  it("with the sum of gradients", function()
    check(GROUPS[1], function(p)
      return torch.optim.SGD(p, { lr = 0.01 })
    end, { ga = 2, sum = true })
  end)

  it("with every strategy", function()
    local phases = { poptorch.Phase(poptorch.Stage("0"):ipu(0)),
      poptorch.Phase(poptorch.Stage("1"):ipu(1)) }
    for _, strategy in ipairs({ poptorch.PipelinedExecution("0", "1"),
      poptorch.ShardedExecution("0", "1"), poptorch.SerialPhasedExecution("0", "1"),
      poptorch.ParallelPhasedExecution(table.unpack(phases)) }) do
      check(GROUPS[2], sgd, { ga = 3, strategy = strategy })
    end
  end)

  it("with weights and states that are shared out or off the chip", function()
    local function settings()
      return poptorch.TensorLocationSettings():useOnChipStorage(false)
        :useReplicatedTensorSharding(true):minElementsForReplicatedTensorSharding(2)
        :minElementsForOffChip(0)
    end
    check(GROUPS[2], sgd, { options = function(o)
      o.TensorLocations:setOptimizerLocation(settings())
      o.TensorLocations:setWeightLocation(settings())
    end })
  end)

  it("with a running mean", function()
    check(GROUPS[1], sgd, { ga = 3, options = function(o)
      o.Training:setMeanAccumulationAndReplicationReductionStrategy(
        poptorch.MeanReductionStrategy.Running)
    end })
  end)
end)

describe("LAMB of weights in replica groups", function()
  it("takes each replica's norm", function()
    local w, x = torch.randn(2, 3, 3), torch.randn(2, 3)
    local Loss = nn.Module:extend("Loss")
    function Loss:init(value)
      self.w = nn.Parameter(value:clone())
    end
    function Loss:forward(row)
      return poptorch.identity_loss((row:matmul(self.w)) ^ 2, "sum")
    end
    local function train(value, rows, replicas)
      local net = Loss(value)
      local opts = poptorch.Options():replicationFactor(replicas)
      opts.Training:accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
      local model = poptorch.trainingModel(net, opts, poptorch.optim.LAMB(net:parameters(),
        { lr = 0.1 }))
      if replicas > 1 then
        model.w:replicaGrouping(Kind.NoGrouping, 0, Retrieval.OnePerGroup)
      end
      for _ = 1, 3 do
        model(rows)
      end
      return net.w:detach()
    end
    local both = train(w, x, 2)
    for r = 0, 1 do
      near(both[r], train(w[r], x[{ torch.slice(r, r + 1) }], 1))
    end
  end)
end)

describe("an embedding in replica groups with max_norm", function()
  it("is shortened by one replica of a group after the other, then updated", function()
    for _, group in ipairs(GROUPS) do
      torch.manual_seed(2)
      local slices = math.max(table.unpack(group[3])) + 1
      local first = torch.randn(slices, 5, 3) * 3
      local Net3 = nn.Module:extend("Net3")
      function Net3:init()
        self.embed, self.scale = nn.Embedding(5, 3, { max_norm = 1.5 }), nn.Parameter(torch.ones(3))
        self.embed.weight = nn.Parameter(first:clone())
      end
      function Net3:forward(i)
        local y = self.embed(i) * self.scale
        return y, poptorch.identity_loss(y ^ 3, "mean")
      end
      local net = Net3()
      local model = poptorch.trainingModel(net, options({ di = 2 }),
        torch.optim.SGD(net:parameters(), { lr = 0.5 }))
      model.embed.weight:replicaGrouping(group[1], group[2], Retrieval.OnePerGroup)
      local rows = torch.randint(0, 5, { 2 * REPLICAS * 3 })
      local y = model(rows)
      -- the same by hand
      local w, scale, want = nn.Parameter(first:clone()), nn.Parameter(torch.ones(3)), {}
      local sgd_of_both = torch.optim.SGD({ w, scale }, { lr = 0.5 })
      for d = 0, 1 do
        sgd_of_both:zero_grad()
        for r = 0, REPLICAS - 1 do
          local at = (d * REPLICAS + r) * 3
          local own, slice = rows[{ torch.slice(at, at + 3) }], group[3][r + 1]
          local norms = w:detach()[slice]:norm({ dim = 1, keepdim = true })
          local short = torch.where(norms:gt(1.5), w:detach()[slice] * 1.5 / (norms + 1e-7),
            w:detach()[slice])
          for k = 0, 2 do
            w:detach()[slice][own[k]:item()]:copy_(short[own[k]:item()])
          end
          local out = w[slice]:index_select(0, own) * scale
          want[#want + 1] = out:detach()
          ;((out ^ 3):mean() / REPLICAS):backward()
        end
        sgd_of_both:step()
      end
      near(y, torch.cat(want), { 1e-4, 1e-4 })
      near(net.embed.weight, w:detach(), { 1e-4, 1e-4 })
      near(net.scale, scale:detach(), { 1e-4, 1e-4 })
    end
  end)
end)

-- y = w x, with w in groups and an inference model of it.
local function scaled(value, group, size, retrieval, replicas)
  local net = models.of(function(self, x)
    return self.w * x
  end)
  net.w = nn.Parameter(value)
  local model = poptorch.inferenceModel(net, poptorch.Options():replicationFactor(replicas or 4))
  if group then
    model.w:replicaGrouping(group, size, retrieval or Retrieval.OnePerGroup)
  end
  return model, net
end

describe("an inference model with weights in replica groups", function()
  it("gives each replica its own", function()
    local w = torch.randn(2, 3)
    local model, net = scaled(w:clone(), Kind.Orthogonal, 2)
    local y = model(torch.ones(4, 3))
    near(y, torch.cat({ w, w }))
    net.w:detach():mul_(2)
    near(model(torch.ones(4, 3)), torch.cat({ w, w }))
    model:copyWeightsToDevice()
    near(model(torch.ones(4, 3)), torch.cat({ w, w }) * 2)
    model:load_state_dict({ w = w * 3 })
    near(model(torch.ones(4, 3)), torch.cat({ w, w }) * 3)
  end)

  it("leaves All without effect, which takes groups back", function()
    local w = torch.randn(3)
    local model = scaled(w:clone(), Kind.All, 0)
    near(model(torch.ones(4, 3)), torch.stack({ w, w, w, w }))
    local back = scaled(torch.randn(4, 3), Kind.NoGrouping, 0)
    back.w:replicaGrouping(Kind.All, 0, Retrieval.OnePerGroup)
    assert.same({ 16, 3 }, { table.unpack(back(torch.ones(4, 3)).shape) })
  end)

  it("shows forward what one replica has", function()
    local seen, net = {}, nil
    net = models.of(function(self, x)
      local captured = net.w
      seen = { self.w:dim(), self.w.requires_grad, #self.inner:state_dict().w.shape }
      return x * captured + self.inner.w
    end)
    net.w = nn.Parameter(torch.randn(2, 3))
    net.inner = nn.Module()
    net.inner.w = net.w
    local whole, given = net.w, net.w
    local model = poptorch.inferenceModel(net, poptorch.Options():replicationFactor(4))
    model.inner.w:replicaGrouping(Kind.Consecutive, 2, Retrieval.OnePerGroup)
    near(model(torch.ones(4, 3)), whole:detach()[{ torch.tensor({ 0, 0, 1, 1 }) }] * 2)
    assert.same({ 1, true, 1 }, seen)
    assert.truthy(rawequal(given, net.w) and rawequal(given, net.inner.w))
    local slice = whole:detach()[0]
    local view = models.of(function(self, x)
      return self.w * x + slice
    end)
    view.w = whole
    model = poptorch.inferenceModel(view, poptorch.Options():replicationFactor(4))
    model.w:replicaGrouping(Kind.Consecutive, 2, Retrieval.OnePerGroup)
    raises("Error", "a view of parameter 'w'", function()
      model(torch.ones(4, 3))
    end)
    assert.truthy(rawequal(given, view.w))
  end)

  it("goes into the bodies of loops", function()
    local net = models.of(function(self, x)
      return poptorch.for_loop(3, function(y)
        return { y * self.w }
      end, { x })[1]
    end)
    net.w = nn.Parameter(torch.tensor({ { 2.0 }, { 3.0 } }))
    local model = poptorch.inferenceModel(net, poptorch.Options():replicationFactor(4))
    model.w:replicaGrouping(Kind.Orthogonal, 2, Retrieval.OnePerGroup)
    near(model(torch.ones(4, 1)), { { 8 }, { 27 }, { 8 }, { 27 } })
  end)

  it("has groups of its own beside those of another executor", function()
    local model, net = scaled(torch.randn(2, 3), Kind.Consecutive, 2)
    local whole = poptorch.inferenceModel(net, poptorch.Options())
    near(model(torch.ones(4, 3)), net.w:detach()[{ torch.tensor({ 0, 0, 1, 1 }) }])
    near(whole(torch.ones(1, 3)), net.w:detach())
  end)
end)

describe("values of weights in replica groups", function()
  local function trainer(value, retrieval)
    local net = models.Sum(0)
    net.w = nn.Parameter(value)
    local opts = poptorch.Options():replicationFactor(4)
    opts:anchorTensor("new", "UpdatedVar___w"):anchorTensor("gradient", "Gradient___w")
    local model = poptorch.trainingModel(net, opts, torch.optim.SGD(net:parameters(), { lr = 1 }))
    model.w:replicaGrouping(Kind.Orthogonal, 2, retrieval or Retrieval.OnePerGroup)
    return model, net
  end
  local x = torch.tensor({ 1.0, 2.0, 3.0, 4.0 })
  -- gradients of the groups (0, 2) and (1, 3), divided by 4 replicas
  local after = torch.tensor({ -1.0, 8.5 })

  it("come to the host when they are read, once", function()
    local model, net = trainer(torch.tensor({ 0.0, 10.0 }))
    model(x)
    assert.equal(0, model:weightPulls())
    near(net.w, after)
    near(net:state_dict().w, after)
    assert.equal(1, model:weightPulls())
  end)

  it("go to and fro with copyWeightsToHost and copyWeightsToDevice", function()
    local model, net = trainer(torch.tensor({ 0.0, 10.0 }))
    model(x)
    model:copyWeightsToHost()
    near(net.w, after)
    net.w:detach():copy_(torch.tensor({ 5.0, 6.0 }))
    model:copyWeightsToDevice()
    model(x)
    near(net.w, torch.tensor({ 4.0, 4.5 }))
  end)

  it("survive another device: detach, attach, destroy", function()
    local model, net = trainer(torch.tensor({ 0.0, 10.0 }))
    model(x)
    model:detachFromDevice()
    model:attachToDevice()
    model(x)
    near(net.w, torch.tensor({ -2.0, 7.0 }))
    model:destroy()
    model(x)
    near(net.w, torch.tensor({ -3.0, 5.5 }))
  end)

  it("are each replica's in anchors", function()
    local model = trainer(torch.tensor({ 0.0, 10.0 }))
    model(x)
    near(model:getAnchoredTensor("new"), { -1, 8.5, -1, 8.5 })
    near(model:getAnchoredTensor("gradient"), { 1, 2, 3, 4 })
  end)

  it("of all replicas are equal within a group, or refused", function()
    local model, net = trainer(torch.tensor({ 0.0, 10, 0, 10 }), Retrieval.AllReplicas)
    model(x)
    near(net.w, torch.tensor({ -1.0, 8.5, -1.0, 8.5 }))
    net.w:detach():copy_(torch.tensor({ 1.0, 2, 3, 2 }))
    raises("Error", "replicas 0 and 2 are of one group.*slices 0 and 2 differ", function()
      model:copyWeightsToDevice()
    end)
  end)
end)

describe("replicaGrouping refuses", function()
  local function refused(class, text, ...)
    local args = table.pack(...)
    raises(class, text, function()
      scaled(table.unpack(args, 1, args.n))
    end)
  end

  it("a scalar, and another first dimension", function()
    refused("Error", "'w' is a scalar", torch.tensor(1.0), Kind.NoGrouping, 0)
    refused("Error", "shape %(3, 3%): its first dimension must be 2, one for each group",
      torch.zeros(3, 3), Kind.Consecutive, 2)
    refused("Error", "must be 4, one for each replica", torch.zeros(2, 3), Kind.Consecutive, 2,
      Retrieval.AllReplicas)
  end)

  it("sizes that do not divide the replicas", function()
    for _, size in ipairs({ 3, 0, 8 }) do
      refused("Error", "a divisor of the replication factor 4, got " .. size, torch.zeros(2, 3),
        Kind.Orthogonal, size)
    end
  end)

  it("a model that is compiled, until it is destroyed", function()
    local model = scaled(torch.ones(4), nil, nil, nil, 1)
    model(torch.ones(4))
    raises("Error", "compiled already", function()
      model.w:replicaGrouping(Kind.NoGrouping, 0, Retrieval.OnePerGroup)
    end)
    model:destroy()
    model.w:replicaGrouping(Kind.All, 0, Retrieval.OnePerGroup)
  end)

  it("other tensors and other arguments", function()
    raises("Error", "no parameter of a model", function()
      torch.ones(2):replicaGrouping(Kind.NoGrouping, 0, Retrieval.OnePerGroup)
    end)
    refused("TypeError", "CommGroupType.All", torch.ones(4), 3, 1)
    refused("TypeError", "VariableRetrievalMode.OnePerGroup", torch.ones(4), Kind.NoGrouping, 1,
      Kind.All)
    refused("TypeError", "shards", torch.ones(4), Kind.Consecutive, "2")
  end)

  it("a shape that changed since", function()
    local model, net = scaled(torch.zeros(2, 3), Kind.Consecutive, 2)
    net.w.data = torch.zeros(3, 3)
    raises("Error", "must be 2, one for each group", function()
      model(torch.ones(4, 3))
    end)
  end)

  it("the norm of all gradients, of which a replica has a part", function()
    local net = models.Sum(0)
    net.w = nn.Parameter(torch.zeros(4))
    local model = poptorch.trainingModel(net, poptorch.Options():replicationFactor(4),
      poptorch.optim.Adam(net:parameters(), { max_grad_norm = 1.0 }))
    model.w:replicaGrouping(Kind.NoGrouping, 0, Retrieval.OnePerGroup)
    raises("NotImplementedError", "max_grad_norm", function()
      model(torch.ones(4))
    end)
  end)
end)

-- The weight alone, on the first of two IPUs.
local Apart = nn.Module:extend("Apart")

function Apart:forward(x)
  local h
  do
    local _ <close> = poptorch.Block("0", { ipu_id = 0 })
    h = self.w * x
  end
  local _ <close> = poptorch.Block("1", { ipu_id = 1 })
  return poptorch.identity_loss(h, "sum")
end

describe("the cost of weights in replica groups", function()
  -- For one weight of 4096 elements a replica: bytes that replicas exchange in the
  -- update, the cycles of that, bytes of the state, cycles of the arithmetic.
  local function exchanged(replicas, group, size, location, two)
    local net = two and Apart() or models.Sum(0)
    local slices = group and (group == Kind.NoGrouping and replicas or replicas // size)
    net.w = nn.Parameter(torch.zeros(slices and { slices, 4096 } or { 4096 }))
    local opts = poptorch.Options():replicationFactor(replicas):useOfflineIpuTarget(2)
    opts.Training:gradientAccumulation(two and 4 or 1)
    if location then
      opts.TensorLocations:setOptimizerLocation(poptorch.TensorLocationSettings()
        :useReplicatedTensorSharding(true):minElementsForReplicatedTensorSharding(2))
    end
    local model = poptorch.trainingModel(net, opts, sgd(net:parameters()))
    if group then
      model.w:replicaGrouping(group, size, Retrieval.OnePerGroup)
    end
    model:compile(torch.zeros(replicas * (two and 4 or 1), 4096))
    local r, bytes, cycles, update = model:report(), 0, 0, 0
    for _, row in ipairs(r.schedule) do
      cycles = cycles + row.collective
      for _, entry in ipairs(row.entries) do
        bytes = bytes + (entry.kind == "collective" and entry.bytes or 0)
        update = update + (entry.kind == "update" and entry.cycles or 0)
      end
    end
    return bytes, cycles, r.memory[0].categories.optimizer_state, update
  end

  it("is that of so many replicas as a group has", function()
    assert.same({ exchanged(2) }, { exchanged(8, Kind.Consecutive, 2) })
    assert.same({ exchanged(4) }, { exchanged(8, Kind.Consecutive, 4) })
    assert.same({ 4 * 4096, 4 * 4096 }, { exchanged(8), (exchanged(8, Kind.Orthogonal, 2)) })
    assert.same({ 0, 0 }, { table.unpack({ exchanged(8, Kind.NoGrouping, 0) }, 1, 2) })
  end)

  it("is more where the members are far apart", function()
    local near_by = select(2, exchanged(8, Kind.Consecutive, 2))
    local function far(replicas) -- members are half of them apart
      return (select(2, exchanged(replicas, Kind.Orthogonal, 2)))
    end
    assert.truthy(far(8) > near_by) -- beyond a machine of four
    assert.equal(far(8), far(64))
    assert.truthy(far(128) > far(64)) -- beyond a rack of 64
    local function of_two(replicas)
      return (select(2, exchanged(replicas, Kind.Orthogonal, 2, nil, true)))
    end
    assert.equal(far(64), of_two(32)) -- as far as replicas of one IPU
    assert.equal(far(128), of_two(64))
  end)

  it("divides the update among the replicas of a group that share the state out", function()
    local function update(...)
      return select(4, exchanged(...))
    end
    local whole = update(8, Kind.NoGrouping, 0, true)
    local half, eighth = update(8, Kind.Consecutive, 2, true), update(8, nil, nil, true)
    assert.equal(update(2, nil, nil, true), half)
    assert.truthy(half < whole and 2 * half >= whole)
    assert.truthy(eighth < half and 8 * eighth >= whole)
    assert.equal(whole, update(8, Kind.Consecutive, 2))
  end)

  it("scatters what it shares out, which costs as much as summing it", function()
    local whole, sum = exchanged(8)
    local bytes, cycles = exchanged(8, nil, nil, true) -- gradients there, weights back
    assert.equal(2 * whole, bytes)
    assert.equal(sum, cycles)
  end)

  it("shares optimizer state out within a group", function()
    -- a velocity, and the learning rate
    local _, _, all = exchanged(8, Kind.NoGrouping, 0, true)
    local _, _, half = exchanged(8, Kind.Consecutive, 2, true)
    local _, _, eighth = exchanged(8, nil, nil, true)
    assert.same({ 4 * 4096 + 4, 2 * 4096 + 4, 512 * 4 + 4 }, { all, half, eighth })
  end)
end)

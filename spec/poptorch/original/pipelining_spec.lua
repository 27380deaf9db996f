--- PopTorch's tests of pipelining: where operators lie, instead of the log's lines.
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local function times(factor)
  return models.of(function(_, x)
    return x * factor
  end)
end

-- A module of sub-modules that run one after the other.
local function chain(list)
  local net = models.of(function(self, x)
    for i = 1, #list do
      x = self["l" .. i](x)
    end
    return x
  end)
  for i, module in ipairs(list) do
    net["l" .. i] = module
  end
  return net
end

local function options(di, strategy)
  local opts = poptorch.Options():deviceIterations(di):autoRoundNumIPUs(true)
  return strategy and opts:setExecutionStrategy(strategy) or opts
end

local function increment()
  return poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement)
end

-- Runs inference; {scope, IPU, stage id} of the operators of that name, and whether it
-- is a pipeline.
local function placed(net, opts, operator)
  local model = poptorch.inferenceModel(net, opts)
  local x = torch.randn(opts.device_iterations, 5)
  near(model(x), net(x):detach(), { 1e-4, 1e-4 })
  local r, out = model:report(), {}
  for _, node in ipairs(r:nodes()) do
    if node.operator == operator then
      out[#out + 1] = { node.scope, node.ipu, r.stages[node.stage + 1].id }
    end
  end
  return out, r.pipelined
end

-- The first stage of a model under training whose layers are `products` by weights,
-- with what is to be checkpointed: how many values it stashes, of those.
local function stashed(make)
  local net = models.of(make)
  for i = 1, 2 do
    net["w" .. i] = nn.Parameter(torch.rand(3, 3))
  end
  local opts = poptorch.Options():deviceIterations(2)
  opts.Training:gradientAccumulation(3)
  opts._Popart:set("autoRecomputation", 3)
  local model = poptorch.trainingModel(net, opts)
  model:compile(torch.randn(6, 3, 1), torch.randn(6, 3, 1))
  local r = model:report()
  return r.memory[0].categories.stash, r.stages[1].stash_depth
end

-- Bytes of one value of the models below, over the micro-batches that it is kept for.
local function of_values(n, depth)
  return n * depth * 3 * 4
end

local function checkpointed(first)
  return function(self, x, target)
    poptorch.Block.useAutoId()
    do
      local _ <close> = poptorch.Block({ ipu_id = 0 })
      x = first(self, x)
    end
    local _ <close> = poptorch.Block({ ipu_id = 1 })
    x = x * 2
    return x, nn.functional.l1_loss(x, target)
  end
end

local BlockFn = nn.Module:extend("BlockFn")

function BlockFn:forward(x)
  poptorch.Block.useAutoId()
  return self:mult_2(self:mult_4(x))
end

BlockFn.mult_4 = poptorch.BlockFunction({ ipu_id = 0 })(function(_, x)
  return x * 4
end)
BlockFn.mult_2 = poptorch.BlockFunction({ ipu_id = 1 })(function(_, x)
  return x * 2
end)

describe("pipelining_test", function()
  before_each(function()
    torch.manual_seed(1)
  end)

  it("test_missing_block", function()
    local net = models.of(function(_, x)
      poptorch.Block.useAutoId()
      do
        local _ <close> = poptorch.Block({ ipu_id = 0 })
        x = x * 4
      end
      return x * 4
    end)
    local model = poptorch.inferenceModel(net, options(2, increment()))
    raises("Error", "No active Block", function()
      model:compile(torch.randn(2, 5))
    end)
    assert.is_false(poptorch.isRunningOnIpu())
  end)

  it("test_api_inline", function()
    local function scopes(_, x)
      poptorch.Block.useAutoId()
      do
        local _ <close> = poptorch.Block({ ipu_id = 0 })
        x = x * 4
      end
      local _ <close> = poptorch.Block({ ipu_id = 1 })
      return x * 2
    end
    local function starts(_, x)
      poptorch.Block.useAutoId()
      poptorch.Block.start({ ipu_id = 0 })
      x = x * 4
      poptorch.Block.start({ ipu_id = 1 })
      return x * 2
    end
    for _, forward in ipairs({ scopes, starts }) do
      local at, pipelined = placed(models.of(forward), options(2), "mul")
      assert.same({ { "", 0, 0 }, { "", 1, 1 } }, at)
      assert.is_true(pipelined)
    end
  end)

  it("test_recomputation_checkpoint_tensor", function()
    for n, mark in ipairs({ function(x) return x end, poptorch.recomputationCheckpoint }) do
      local bytes, depth = stashed(checkpointed(function(self, x)
        return self.w1:matmul(mark(self.w1:matmul(x)))
      end))
      assert.equal(of_values(n, depth), bytes) -- the input, the checkpoint
    end
  end)

  it("test_recomputation_checkpoint_tensor_two_inputs", function()
    local bytes, depth = stashed(checkpointed(function(self, x)
      local a, b = poptorch.recomputationCheckpoint(self.w1:matmul(x), self.w2:matmul(x))
      return self.w1:matmul(a * b)
    end))
    assert.equal(of_values(3, depth), bytes)
  end)

  it("test_recomputation_checkpoint_tensor_tuple_inputs", function()
    local bytes, depth = stashed(checkpointed(function(self, x)
      local pair = poptorch.recomputationCheckpoint({ self.w1:matmul(x), self.w2:matmul(x) })
      return self.w1:matmul(pair[1] * pair[2])
    end))
    assert.equal(of_values(3, depth), bytes)
  end)

  it("test_api_wrap", function()
    local net = chain({ times(6), times(6) })
    poptorch.BeginBlock(net.l1, { ipu_id = 0 })
    poptorch.BeginBlock(net.l2, { ipu_id = 0 })
    local at, pipelined = placed(net, options(2), "mul")
    assert.same({ { "l1", 0, 0 }, { "l2", 0, 0 } }, at)
    assert.is_false(pipelined)
  end)

  it("test_api_wrap_2stages", function()
    local net = chain({ times(6), times(6), times(6) })
    poptorch.BeginBlock(net.l2, { ipu_id = 1 })
    poptorch.BeginBlock(net.l3, { ipu_id = 1 })
    local at, pipelined = placed(net, options(2), "mul")
    assert.same({ { "l1", 0, 0 }, { "l2", 1, 1 }, { "l3", 1, 1 } }, at)
    assert.is_true(pipelined)
  end)

  it("test_begin_block_printing", function()
    local net = chain({ times(6), times(6) })
    local function shown(text)
      return { text:find("%(l1%): BeginBlock%(user_id=None, ipu_id=1%)") ~= nil,
        text:find("%(l2%): BeginBlock%(user_id=None, ipu_id=1%)") ~= nil }
    end
    local text = tostring(poptorch.inferenceModel(net, options(2)))
    assert.is_nil(text:find("BeginBlock", 1, true))
    poptorch.BeginBlock(net.l1, { ipu_id = 1 })
    assert.same({ true, false }, shown(tostring(poptorch.inferenceModel(net, options(2)))))
    poptorch.BeginBlock(net.l2, { ipu_id = 1 })
    assert.same({ true, true }, shown(tostring(poptorch.inferenceModel(net, options(2)))))
  end)

  it("test_inline_AutoIncrement", function()
    local net = models.of(function(_, x)
      poptorch.Block.useAutoId()
      for i, ipu in ipairs({ 0, 1, 2, 1 }) do
        local _ <close> = poptorch.Block({ ipu_id = ipu })
        x = x * (i + 1)
      end
      return x
    end)
    local at, pipelined = placed(net, options(4, increment()), "mul")
    assert.same({ { "", 0, 1 }, { "", 1, 2 }, { "", 2, 3 }, { "", 1, 4 } }, at)
    assert.is_true(pipelined)
  end)

  it("test_api_AutoIncrement", function()
    local net = chain({ times(6), times(6), times(6), times(6) })
    for i, ipu in pairs({ [2] = 1, [3] = 2, [4] = 1 }) do
      net["l" .. i] = poptorch.BeginBlock(net["l" .. i], { ipu_id = ipu })
    end
    local at, pipelined = placed(net, options(4, increment()), "mul")
    assert.same({ { "l1", 0, 0 }, { "l2", 1, 1 }, { "l3", 2, 2 }, { "l4", 1, 3 } }, at)
    assert.is_true(pipelined)
  end)

  it("test_ipu_round_up_error", function()
    local net = chain({ times(6), times(6), times(6) })
    for i = 1, 3 do
      poptorch.BeginBlock(net["l" .. i], { ipu_id = i - 1 })
    end
    local model = poptorch.inferenceModel(net, poptorch.Options():deviceIterations(4)
      :setExecutionStrategy(increment()))
    local e = raises("Error", "3", function()
      model(torch.randn(4, 5))
    end)
    assert.matches("4", e.message)
    assert.matches("autoRoundNumIPUs", e.message)
  end)

  it("test_block_function", function()
    local at, pipelined = placed(BlockFn(), options(2), "mul")
    assert.same({ { "", 0, 0 }, { "", 1, 1 } }, at)
    assert.is_true(pipelined)
  end)

  it("test_begin_block_functionality", function()
    local Block = nn.Module:extend("Block")
    function Block:init()
      self.l1, self.l2, self.l3 = nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 3)
    end
    function Block:forward(x)
      return self.l3(self.l2(self.l1(x):relu()):relu()):relu()
    end
    local net = chain({ Block(), Block() })
    local function names()
      local list = {}
      for name in net:named_parameters() do
        list[#list + 1] = name
      end
      return list
    end
    local before, old = names(), net:state_dict()
    assert.is_true(rawequal(net.l1, poptorch.BeginBlock(net.l1, { ipu_id = 1 })))
    assert.is_true(Block:is(net.l2))
    poptorch.BeginBlock(net.l2, { ipu_id = 2 })
    assert.same(before, names())
    local keys = 0
    for name, value in pairs(net:state_dict()) do
      near(value, old[name])
      keys = keys + 1
    end
    assert.equal(#before, keys)
    net:load_state_dict(old, true)
    net.l1:register_buffer("a_buff", torch.zeros(2, 2))
    net.l1:register_parameter("a_param", nn.Parameter(torch.zeros(2, 2)))
    local found = {}
    for name in net:named_buffers() do
      found[name] = true
    end
    assert.same({ ["l1.a_buff"] = true }, found)
    assert.matches("l1.a_param", table.concat(names(), " "))
    local path = os.tmpname()
    torch.save(net:state_dict(), path)
    os.remove(path)
  end)

  it("test_block_function_saving", function()
    local path, x = os.tmpname(), torch.randn(2, 5)
    poptorch.inferenceModel(BlockFn(), options(2)):compileAndExport(path, x)
    local loaded = poptorch.load(path)
    os.remove(path)
    near(loaded(x), x * 8)
    assert.equal(2, #loaded:report().stages)
  end)

  it("test_saving_of_begin_block", function()
    local net = nn.Sequential(nn.Conv2d(3, 10, 5), nn.ReLU(), nn.Conv2d(10, 10, 5), nn.ReLU())
    local function reloaded()
      local path = os.tmpname()
      poptorch.inferenceModel(net, options(1, poptorch.ShardedExecution()))
        :compileAndExport(path, torch.randn(1, 3, 12, 12))
      local loaded = poptorch.load(path)
      os.remove(path)
      assert.equal(getmetatable(net), getmetatable(loaded.model))
      return tostring(loaded)
    end
    assert.is_nil(reloaded():find("BeginBlock", 1, true))
    poptorch.BeginBlock(net, { user_id = 1, ipu_id = 2 })
    assert.matches("BeginBlock%(user_id=1, ipu_id=2%)", reloaded())
  end)

  it("test_begin_block_copy", function()
    local function shown(module)
      return tostring(poptorch.inferenceModel(module)):match("BeginBlock%b()")
    end
    local parts = {}
    for i = 1, 2 do
      parts[i] = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
      poptorch.BeginBlock(parts[i], { user_id = i, ipu_id = i })
    end
    local net = nn.Sequential(parts[1], parts[2])
    for _, module in ipairs({ net, net:deepcopy() }) do
      for i = 1, 2 do
        assert.equal(("BeginBlock(user_id=%d, ipu_id=%d)"):format(i, i), shown(module[i]))
      end
    end
  end)

  it("test_begin_block_with_function", function()
    local block = poptorch.BeginBlock(function(inputs)
      return inputs + 1.0
    end, 1, 2)
    assert.equal("BeginBlock(user_id=1, ipu_id=2)", tostring(block))
    near(block(torch.ones(1)), { 2 })
  end)

  it("test_removeBlocks", function()
    local function part()
      return chain({ nn.Sigmoid(), nn.Sigmoid(), nn.Sigmoid() }) -- a second ReLU goes away
    end
    local net = chain({ part(), part() })
    local function check(ipus)
      local at, pipelined = placed(net, options(10), "sigmoid")
      local want = {}
      for i, ipu in ipairs(ipus) do
        want[i] = { ("l%d/l%d"):format((i + 2) // 3, (i - 1) % 3 + 1), ipu, ipu }
      end
      assert.same(want, at)
      assert.equal(ipus[6] > 0, pipelined)
    end
    local function annotate()
      poptorch.BeginBlock(net.l1.l2, { ipu_id = 1 })
      poptorch.BeginBlock(net.l2, { ipu_id = 2 })
    end
    annotate()
    check({ 0, 1, 1, 2, 2, 2 })
    raises("Error", "block", function()
      poptorch.BeginBlock(net.l1.l2, { ipu_id = 1 })
    end)
    poptorch.removeBlocks(net)
    check({ 0, 0, 0, 0, 0, 0 })
    annotate()
    check({ 0, 1, 1, 2, 2, 2 })
  end)
end)

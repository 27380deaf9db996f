--- PopTorch's optimizers_test.py, by the names of its functions. Where the original
--- reads the log, the values and states behind it are looked at.
local core = require("lupine.core")
local helper = require("spec.helper")
local models = require("spec.support.models")
local optimizers = require("spec.support.optimizers")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local pop, native = poptorch.optim, torch.optim
local f16, f32 = torch.float16, torch.float32
local POPTORCH, ALL, each = optimizers.POPTORCH, optimizers.ALL, optimizers.each

-- ---- the model of most tests ---------------------------------------------------------------

local TestModel = {}
TestModel.__index = TestModel

local function test_model(groups, options)
  local layers = {}
  for i = 1, groups or 1 do
    layers[i] = nn.Linear(10, 10)
  end
  local model = models.of(function(self, data, target)
    local out = self.base_model(data)
    return out, nn.CrossEntropyLoss()(out, target)
  end)
  model.base_model = #layers == 1 and layers[1] or nn.Sequential(table.unpack(layers))
  return setmetatable({ model = model, layers = layers, options = options,
    input = torch.randn(1, 10), label = torch.randint(0, 10, { 1 }) }, TestModel)
end

function TestModel:set(optimizer)
  if self.trainer then
    self.trainer:setOptimizer(optimizer)
  else
    self.trainer = poptorch.trainingModel(self.model, self.options, optimizer)
  end
end

function TestModel:run(n)
  local out, loss
  for _ = 1, n or 1 do
    out, loss = self.trainer(self.input, self.label)
  end
  return out, loss:item()
end

function TestModel:learnt(out)
  return out:argmax(1):item() == self.label:item()
end

-- Clones of all parameters.
function TestModel:weights()
  local list = {}
  for i, p in ipairs(self.model:parameters()) do
    list[i] = p:detach():clone()
  end
  return list
end

-- Numbers of the parameters that differ.
local function moved(before, after)
  local list = {}
  for i = 1, #before do
    list[#list + 1] = not torch.equal(before[i], after[i]) and i or nil
  end
  return list
end

describe("optimizers_test.py", function()
  local level
  before_each(function()
    level = core.host.log_level()
    poptorch.setLogLevel("ERR")
    torch.manual_seed(42)
  end)
  after_each(function()
    core.host.log_level(level)
  end)

  it("test_optimizer", function()
    each(ALL, function(make, name)
      local m = test_model()
      local optimizer = make(m.model:parameters(), { lr = 0.0 })
      m:set(optimizer)
      local _, original = m:run()
      local _, loss = m:run(50)
      assert.equal(original, loss, name)
      optimizer.param_groups[1].lr = 0.01
      m:set(optimizer)
      local out
      out, loss = m:run(1000)
      assert.is_true(loss < original and loss < 0.03 and m:learnt(out), name)
    end)
  end)

  it("test_sgd_IR", function()
    for _, case in ipairs({ { native.SGD, "popart_sgd_step" }, { pop.SGD, "popart_sgd_step" },
      { native.AdamW, "adam_step" }, { pop.AdamW, "adam_step" } }) do
      local m, count = test_model(), {}
      m:set(case[1](m.model:parameters(), { lr = 0.01 }))
      m:run()
      for _, node in ipairs(m.trainer:report():nodes()) do
        count[node.operator] = (count[node.operator] or 0) + 1
      end
      for _, op in ipairs({ "popart_sgd_step", "adam_step" }) do
        assert.equal(op == case[2] and 2 or nil, count[op])
      end
    end
  end)

  -- Types of the states of an optimizer that has run.
  local function state_types(make, keywords)
    local m = test_model()
    keywords.lr = 0.01
    local optimizer = make(m.model:parameters(), keywords)
    m:set(optimizer)
    m:run()
    local types = {}
    for key, value in pairs(optimizer:state_dict().ipu_state) do
      types[key:match("^(%w+)___")] = value.dtype
    end
    return types, m.trainer.options.Training.mean_accumulation_and_replication_reduction_strategy
  end

  local function strategy(accum)
    return accum == f16 and poptorch.MeanReductionStrategy.Running
      or poptorch.MeanReductionStrategy.Post
  end

  it("test_adam_accum_type", function()
    for _, name in ipairs({ "Adam", "AdamW", "AdamWNoBias", "LAMB", "LAMBNoBias" }) do
      for n = 0, 7 do
        local function of(bit)
          return n & bit ~= 0 and f16 or f32
        end
        local types, mean = state_types(POPTORCH[name], { accum_type = of(1),
          first_order_momentum_accum_type = of(2), second_order_momentum_accum_type = of(4) })
        assert.same({ of(2), of(4) }, { types.Accl1, types.Accl2 })
        assert.equal(strategy(of(1)), mean)
      end
    end
  end)

  it("test_sgd_accum_type", function()
    for _, accum in ipairs({ f16, f32 }) do
      for _, velocity in ipairs({ f16, f32 }) do
        local types, mean = state_types(pop.SGD, { momentum = 0.5, accum_type = accum,
          velocity_accum_type = velocity, use_combined_accum = false })
        assert.equal(velocity, types.Accl1)
        assert.equal(strategy(accum), mean)
      end
    end
  end)

  it("test_velocity_scaling_copy", function() -- Lua has no copy.copy: one made alike
    for _, combined in ipairs({ true, false }) do
      local m = test_model()
      for _ = 1, 2 do
        m:set(pop.SGD(m.model:parameters(), { lr = 0.05, loss_scaling = 0.05,
          velocity_scaling = combined and 128.1 or nil, use_combined_accum = combined }))
        m:run()
      end
    end
  end)

  local function two_groups(m, lr1, lr2)
    return { { params = m.layers[1]:parameters(), lr = lr1 },
      { params = m.layers[2]:parameters(), lr = lr2 } }
  end

  it("test_optimizer_groups", function()
    for _, make in ipairs({ native.SGD, pop.SGD }) do
      local m = test_model(2)
      local before = m:weights()
      m:set(make(two_groups(m, 0.0, 0.0), { lr = 0.1 }))
      local _, original = m:run()
      local _, loss = m:run(10)
      assert.equal(original, loss)
      assert.same({}, moved(before, m:weights()))
      m:set(make(two_groups(m, 0.1, 0.0), { lr = 0.1 }))
      _, loss = m:run(11)
      assert.is_true(loss < original)
      assert.same({ 1, 2 }, moved(before, m:weights()))
      m:set(make(two_groups(m, 0.1, 0.1), { lr = 0.1 }))
      local out = m:run(2000)
      assert.same({ 1, 2, 3, 4 }, moved(before, m:weights()))
      assert.is_true(m:learnt(out))
    end
  end)

  it("test_optimizer_groups_none_args", function()
    local m = test_model(2)
    local before = m:weights()
    m:set(native.AdamW(two_groups(m, 0.0, 0.0), { lr = 0.1 }))
    m:run(10)
    assert.same({}, moved(before, m:weights()))
  end)

  it("test_optimizer_SGD_separate_velocity_scale_matched", function()
    local accl = {}
    for i, scale in ipairs({ 1.0, 2.0 }) do
      local net = models.Sum(1, 2)
      local optimizer = pop.SGD(net:parameters(), { lr = 1.0, loss_scaling = scale, momentum = 0.5,
        use_combined_accum = false })
      poptorch.trainingModel(net, nil, optimizer)(torch.ones(2))
      accl[i] = optimizer:state_dict().ipu_state["Accl1___w"]
    end
    near(accl[1], { 1, 1 })
    near(accl[2], { 2, 2 }) -- the velocity is scaled as the loss is
  end)

  it("test_optimizer_SGD_nesterov", function()
    local m = test_model()
    m:set(native.SGD(m.model:parameters(), { nesterov = true, momentum = 0.1, lr = 0.001 }))
    m:run()
  end)

  it("test_optimizer_const", function()
    each(POPTORCH, function(make)
      local m = test_model()
      local optimizer = make(m.model:parameters(), { loss_scaling = 1.0, lr = 1.0 })
      m:set(optimizer)
      m:run()
      optimizer.loss_scaling = 2.0
      m:set(optimizer)
      m:run()
    end)
  end)

  it("test_optimizer_mark_as_variable", function()
    each(POPTORCH, function(make)
      local m = test_model()
      local optimizer = make(m.model:parameters(), { lr = 1.0 })
      assert.is_true(optimizer.variable_attrs:isConstant("loss_scaling"))
      optimizer.variable_attrs:markAsVariable("loss_scaling")
      m:set(optimizer)
      m:run()
      optimizer.loss_scaling = 2.0
      m:set(optimizer)
      m:run()
    end)
  end)

  it("test_lamb_max_weight_norm", function()
    for _, make in ipairs({ pop.LAMB, POPTORCH.LAMBNoBias }) do
      for _, norm in ipairs({ 100.0, torch.none }) do
        torch.manual_seed(42)
        local m = test_model()
        m:set(make(m.model:parameters(), { lr = 0.01, max_weight_norm = norm }))
        local _, original = m:run()
        local out, loss = m:run(1000)
        assert.is_true(loss < original and loss < 0.03 and m:learnt(out))
      end
    end
  end)

  it("test_variable_groups", function()
    poptorch.setLogLevel("WARN")
    for _, combined in ipairs({ true, false }) do
      local m = test_model(2)
      local function optimizer(scale, velocity)
        return pop.SGD({ { params = m.layers[1]:parameters() },
          { params = m.layers[2]:parameters() } }, { lr = 0.01, loss_scaling = scale,
          velocity_scaling = combined and velocity or nil, use_combined_accum = combined })
      end
      local function log(o)
        return helper.logged(function()
          m:set(o)
          m:run()
        end)
      end
      local o = optimizer(2.0, 2.0)
      assert.equal("", log(o))
      o.loss_scaling = 4.0
      o.param_groups[2].velocity_scaling = 4.0
      o.param_groups[1].loss_scaling = 4.0 -- the optimizer has it, not a group
      local text = log(o)
      assert.is_truthy(text:find("unexpected group attribute 'loss_scaling'", 1, true))
      assert.equal(not combined, text:find("velocity_scaling", 1, true) ~= nil)
      near(o:state_dict().ipu_param.lossScaling_FLOAT, 4)
      o = optimizer(1.0, 3.0)
      o.lr = 0.5 -- there is no such attribute
      o.defaults.lr, o.param_groups[1].lr, o.param_groups[2].lr = 0.7, 0.0, 1.0
      assert.is_truthy(log(o):find("unexpected optimizer attribute 'lr'", 1, true))
      local params = o:state_dict().ipu_param
      for group, lr in ipairs({ 0, 1 }) do
        local name = ("___specific___base_model.%d.weight"):format(group - 1)
        near(params["scaledLearningRate0" .. name] or params["learningRate" .. name], lr)
      end
    end
  end)

  it("test_variable_default", function()
    local DEFAULTS = {
      SGD = { momentum = 0.0, dampening = 0.0, weight_decay = 0.0 },
      Adam = { betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0.0 },
      AdamW = { betas = { 0.9, 0.999 }, eps = 1e-8, weight_decay = 0.01 },
      RMSprop = { momentum = 0.0, alpha = 0.99, eps = 1e-8, weight_decay = 0.0 },
    }
    for name, defaults in pairs(DEFAULTS) do
      local function keywords(more)
        local all = { lr = 1.0 }
        for attr, value in pairs(more or {}) do
          all[attr] = value
        end
        return all
      end
      local function changed()
        local all = {}
        for attr, value in pairs(defaults) do
          all[attr] = type(value) == "table" and { value[1] / 2, value[2] / 2 } or value + 0.5
        end
        return keywords(all)
      end
      local m = test_model()
      local params = m.model:parameters()
      -- PyTorch's at its defaults: constant; alike, made in three ways, it fits
      m:set(native[name](params, keywords(defaults)))
      m:run()
      local explicit = pop[name](params, keywords(defaults))
      for attr in pairs(defaults) do
        assert.is_false(explicit.variable_attrs:isConstant(attr), attr)
        explicit.variable_attrs:markAsConstant(attr)
      end
      for _, same in ipairs({ native[name](params, keywords()), pop[name](params, keywords()),
        explicit }) do
        m:set(same)
        m:run()
      end
      raises("Error", "is constant", function()
        m:set(pop[name](params, changed()))
        m:run()
      end)
      -- given ones, and such that are marked, may change
      for _, marked in ipairs({ false, true }) do
        m = test_model()
        params = m.model:parameters()
        local optimizer = pop[name](params, keywords(not marked and defaults or nil))
        for attr in pairs(defaults) do
          assert.equal(marked, optimizer.variable_attrs:isConstant(attr), attr)
          optimizer.variable_attrs:markAsVariable(attr)
        end
        m:set(optimizer)
        m:run()
        m:set(pop[name](params, changed()))
        m:run()
      end
    end
  end)

  local function accumulates()
    for _, reduction in ipairs({ poptorch.ReductionType.Sum, poptorch.ReductionType.Mean }) do
      local opts = poptorch.Options()
      opts.Training:gradientAccumulation(20)
      opts.Training:accumulationAndReplicationReductionType(reduction)
      local m = test_model(3, opts)
      m.trainer = poptorch.trainingModel(m.model, opts)
      m.input, m.label = m.input:expand(20, 10):contiguous(), m.label:expand(20):contiguous()
      local _, loss = m.trainer(m.input, m.label)
      for _ = 1, 500 do
        _, loss = m.trainer(m.input, m.label)
      end
      assert.is_true(loss:mean():item() < 0.03)
    end
  end

  it("test_gradient_accum", accumulates)
  it("test_gradient_accum_new_api", accumulates)

  -- Lines of warnings of a model that runs after `before`, and again after `after`.
  local function extra(options, before, after)
    poptorch.setLogLevel("WARN")
    for _, combined in ipairs({ true, false }) do
      local m = test_model(2, options and options())
      local o = pop.SGD({ { params = m.layers[1]:parameters() },
        { params = m.layers[2]:parameters() } }, { lr = 0.01, loss_scaling = 2.0,
        velocity_scaling = combined and 2.0 or nil, use_combined_accum = combined })
      before(o)
      assert.equal("", helper.logged(function()
        m:set(o)
        m:run()
      end))
      after(o, function()
        return helper.logged(function()
          m:set(o)
          m:run()
        end)
      end)
    end
  end

  local function add(o)
    o.my_step = 0 -- `step` is the optimizer's method in Lua
    o.param_groups[1].my_lr, o.param_groups[2].my_lr = 0.1, 0.1
  end

  local function nothing() end

  it("test_extra_attributes", function()
    extra(nil, nothing, function(o, log)
      add(o)
      local text = log()
      assert.is_truthy(text:find("unexpected optimizer attribute", 1, true))
      assert.is_truthy(text:find("unexpected group attribute", 1, true))
      o.loss_scaling = 3.0
      assert.equal("", log())
    end)
  end)

  it("test_extra_attributes2", function()
    extra(function()
      return poptorch.Options():relaxOptimizerAttributesChecks()
    end, nothing, function(o, log)
      add(o)
      poptorch.setLogLevel("WARN")
      assert.equal("", log())
    end)
  end)

  it("test_extra_attributes3", function()
    extra(nil, add, function(o, log)
      o.loss_scaling, o.initial_lr = 4.0, 0.2
      local text = log()
      assert.is_truthy(text:find("unexpected optimizer attribute", 1, true))
      assert.is_nil(text:find("unexpected group attribute", 1, true))
    end)
  end)

  it("test_rmsprop_tf_variant", function()
    local results = {}
    for i, variant in ipairs({ false, false, true }) do
      torch.manual_seed(0)
      local m = test_model()
      m:set(pop.RMSprop(m.model:parameters(), { lr = 0.02, use_tf_variant = variant }))
      m:run(5)
      results[i] = m:weights()
    end
    assert.same({}, moved(results[1], results[2]))
    assert.same({ 1, 2 }, moved(results[1], results[3]))
  end)

  -- Ten steps on host and device from the same weights: losses and weights.
  local function compare(host_optimizer, device_optimizer, host_extra)
    local model = models.of(function(self, x)
      local y = self.lin(x):log_softmax(0)
      return y, poptorch.identity_loss(y * y, "sum")
    end)
    model.lin = nn.Linear(10, 10)
    local host, x = model:deepcopy(), torch.rand(10)
    local optimizer = host_optimizer(host:parameters())
    local trainer = poptorch.trainingModel(model, nil, device_optimizer(model:parameters()))
    for _ = 1, 10 do
      optimizer:zero_grad()
      local _, loss = host(x)
      loss:backward()
      if host_extra then
        host_extra(host:parameters())
      end
      optimizer:step()
      local _, got = trainer(x)
      near(got, loss:detach(), { 1e-5, 1e-5 })
      for i, p in ipairs(host:parameters()) do
        near(trainer:parameters()[i]:detach(), p:detach(), { 1e-5, 1e-5 })
      end
    end
  end

  it("test_optimizer_results", function()
    each(ALL, function(make)
      local function optimizer(params)
        return make(params, { lr = 0.01 })
      end
      compare(optimizer, optimizer)
    end)
  end)

  it("test_gradient_clipping", function()
    for _, name in ipairs({ "SGD", "Adam", "AdamW" }) do
      compare(function(params)
        return native[name](params, { lr = 0.01 })
      end, function(params)
        return pop[name](params, { lr = 0.01, max_grad_norm = 0.001 })
      end, function(params)
        nn.utils.clip_grad_norm_(params, 0.001)
      end)
    end
  end)

  it("test_gradient_clipping_with_pipelining", function()
    local opts = poptorch.Options()
    opts.Training:gradientAccumulation(3)
    local model = models.of(function(self, x, y)
      x = self.w1(self.w0(x))
      return x, nn.NLLLoss({ reduction = "mean" })(x, y)
    end)
    model.w0 = poptorch.BeginBlock(nn.Linear(3, 3), "w0", { ipu_id = 0 })
    model.w1 = poptorch.BeginBlock(nn.Linear(3, 3), "w1", { ipu_id = 1 })
    poptorch.trainingModel(model, opts, pop.SGD(model:parameters(),
      { lr = 0.01, max_grad_norm = 0.001 }))(torch.randn(15, 3, 3),
      torch.zeros({ 15, 3 }, { dtype = torch.int64 }))
  end)

  local function frozen(optimizer_options)
    local opts = poptorch.Options()
    opts.Training:setMeanAccumulationAndReplicationReductionStrategy(
      poptorch.MeanReductionStrategy.Post)
    local model = optimizers.summing(2)
    local data = torch.utils.data.TensorDataset(torch.ones(1, 2))
    local loader = poptorch.DataLoader(opts, data) -- freezes the options
    optimizer_options.lr = 0.5
    local optimizer = pop.Adam(model:parameters(), optimizer_options)
    local trainer = poptorch.trainingModel(model, opts, optimizer)
    for x in loader do
      trainer:compile(x)
    end
    optimizer.param_groups[1].lr = 0.01
    return trainer, optimizer, trainer.options.Training
      .mean_accumulation_and_replication_reduction_strategy
  end

  it("test_setOptimizer_frozen_options_ok", function()
    local trainer, optimizer, mean = frozen({ accum_type = torch.half })
    assert.equal(poptorch.MeanReductionStrategy.Running, mean)
    trainer:setOptimizer(optimizer)
  end)

  it("test_setOptimizer_frozen_options_broken", function()
    local trainer, optimizer, mean = frozen({})
    assert.equal(poptorch.MeanReductionStrategy.Post, mean)
    optimizer.accum_type = torch.half
    raises("ValueError", "compiled with", function()
      trainer:setOptimizer(optimizer)
    end)
  end)

  it("test_optimizer_warnings", function()
    poptorch.setLogLevel("WARN")
    for _, module in ipairs({ native, pop }) do
      for _, name in ipairs({ "SGD", "Adam", "AdamW", "RMSprop", module == pop and "LAMB" or nil
        }) do
        for _, cls in ipairs({ module[name], module[name]:extend("Subclassed") }) do
          local m = test_model()
          local text = helper.logged(function()
            m:set(cls(m.model:parameters(), { lr = 0.01 }))
          end)
          local warned = text:find("only the update of " .. name, 1, true) ~= nil
          assert.equal(cls ~= module[name], warned, name)
        end
      end
    end
  end)
end)

--- Every parameter that PopTorch's API reference lists takes its argument by
--- position and by name, and a name that there is not is told with the nearest.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local Group = require("poptorch.options.group")
local given = require("spec.support.option_values")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local options = require("poptorch.options")
local poptorch = require("poptorch")
local strategies = require("poptorch.strategies")
local torch = require("torch")

-- ---- what a call did, as text ---------------------------------------------------------

local function shown(v)
  if type(v) ~= "table" or getmetatable(v) and getmetatable(v).__tostring then
    return tostring(v)
  end
  return Group.shown(v)
end

local function texts(...)
  local out = {}
  for i = 1, select("#", ...) do
    out[i] = shown((select(i, ...)))
  end
  return table.concat(out, " ")
end

-- f(subject(), …) and what the subject is then.
local function method(subject, name)
  return function(...)
    local object = subject()
    local result = object[name](object, ...)
    return texts(object, rawequal(result, object) and "itself" or result)
  end
end

local function fn(f)
  return function(...)
    return texts(f(...))
  end
end

-- ---- the table: name, parameters, arguments, what makes the call ------------------------

local x = torch.tensor({ { 3.0, 1, 2 } })
local f = function(v)
  return v * 2
end
local T = { torch.ones(1) }
local body = function(v)
  return v + 1
end
local data = torch.utils.data.TensorDataset(torch.arange(8):float())
local A, B = poptorch.Stage("A"), poptorch.Stage("B")

local function phased()
  return poptorch.SerialPhasedExecution("A", "B")
end

local function attributes()
  return poptorch.optim.VariableAttributes({ "lr" }, { "lr", "momentum" })
end

-- The attributes of an optimizer's constructor.
local function optimizer(class)
  return function(...)
    local o = poptorch.optim[class](...)
    local group, out = o.param_groups[1], {}
    for _, name in ipairs({ "lr", "momentum", "dampening", "weight_decay", "nesterov", "betas",
      "eps", "alpha", "centered", "amsgrad", "max_weight_norm", "velocity_scaling" }) do
      out[#out + 1] = name .. shown(group[name]) .. tostring(o.variable_attrs:isConstant(name))
    end
    for name, value in pairs(o) do
      out[#out + 1] = name:find("^[a-z]") and type(value) ~= "table" and name .. shown(value)
        or nil
    end
    table.sort(out)
    return table.concat(out, " ")
  end
end

local w = { nn.Parameter(torch.ones(2)) }
local h = torch.float16

local function wrapped(wrap)
  return function(...)
    local e = poptorch[wrap](...)
    local text = texts(e.options.device_iterations, tostring(e))
    e:destroy()
    return text
  end
end

local function marked(...)
  local module = poptorch.BeginBlock(...)
  local text = tostring(module)
  poptorch.removeBlocks(module)
  return text
end

local function unmarked(...)
  local m = poptorch.BeginBlock(nn.ReLU(), "A")
  poptorch.removeBlocks(...)
  return tostring(poptorch.BeginBlock(nn.ReLU())) .. tostring(m)
end

local function log_level(...)
  local before = core.host.log_level()
  poptorch.setLogLevel(...)
  local now = core.host.log_level()
  core.host.log_level(before)
  return now
end

local function trainer()
  local net = models.Sum(1)
  return poptorch.trainingModel(net, nil, poptorch.optim.SGD(net:parameters(), { lr = 0.5 })), net
end

local function set_optimizer(...)
  local model = trainer()
  model:setOptimizer(...)
  return "set"
end

local function after_file(...)
  local o = poptorch.Options()
  o:loadFromFile(...)
  return tostring(o)
end

local function loader(...)
  local l = poptorch.DataLoader(...)
  return texts(l.combinedBatchSize, #l, l.drop_last, l.options.device_iterations)
end

local path = os.tmpname()
do
  local file = assert(io.open(path, "w"))
  file:write("deviceIterations(3)\n")
  file:close()
end

-- What the scope keeps of a setter's argument.
local function multi_conv_of(name)
  return function(...)
    local scope = poptorch.MultiConv(function() end) or poptorch.MultiConv()
    scope[name](scope, ...)
    local kept = {}
    for key, value in pairs(scope) do
      kept[#kept + 1] = key .. shown(value)
    end
    table.sort(kept)
    return table.concat(kept, " ")
  end
end

local function anchored(...)
  local o = poptorch.Options()
  o:anchorTensor("w", "w")
  local net = models.Sum(1)
  local model = poptorch.trainingModel(net, o, poptorch.optim.SGD(net:parameters(), { lr = 0.5 }))
  model(torch.ones(1))
  return texts(model:getAnchoredTensor(...))
end

-- A file with a compiled model.
local function saved()
  local model = poptorch.inferenceModel(nn.ReLU())
  model:compile(x)
  model:save(path .. "y")
  return { path .. "y" }
end

local two = poptorch.Options():deviceIterations(2)
local ROWS = {
  { "Options.loadFromFile", "filepath", { path }, after_file },
  { "TensorLocationSettings.useOnChipStorage", "use", { false },
    method(poptorch.TensorLocationSettings, "useOnChipStorage") },
  { "ipuHardwareIsAvailable", "num_ipus", { 100000 }, fn(poptorch.ipuHardwareIsAvailable) },
  { "setLogLevel", "level", { "ERR" }, log_level },
  { "ipu_print_tensor", "tensor title", { x, "x" }, function(...)
    local args = table.pack(...)
    local model = models.infer(function(_, v) -- compiled only: nothing is printed
      return poptorch.ipu_print_tensor(table.unpack(args)) + v
    end)
    model:compile(x)
    return tostring(#model:getTensorNames())
  end },
  { "for_loop", "count body inputs", { 3, body, T }, fn(poptorch.for_loop) },
  { "cond", "condition then_body then_inps else_body else_inps",
    { torch.tensor(true), body, T, body, T }, fn(poptorch.cond) },
  { "identity_loss", "x reduction", { x, "sum" }, fn(poptorch.identity_loss) },
  { "nop", "tensor", { x }, fn(poptorch.nop) },
  { "set_available_memory", "tensor available_memory_proportion", { x, 0.5 },
    fn(poptorch.set_available_memory) },
  { "dynamic_slice", "tensor dim start size step", { x, 1, torch.tensor({ 1 }), 1, 1 },
    fn(poptorch.dynamic_slice) },
  { "dynamic_update", "input src dim start size",
    { x, torch.zeros(1, 2), 1, torch.tensor({ 1 }), 2 }, fn(poptorch.dynamic_update) },
  { "serializedMatMul", "lhs rhs mode factor keep_precision", { torch.ones(4, 4),
    torch.ones(4, 4), poptorch.MatMulSerializationMode.InputChannels, 2, true },
    fn(poptorch.serializedMatMul) },
  { "ctc_beam_search_decoder", "probs lengths blank beam_width top_paths", { torch.tensor(
    { { { 0.5, 0.25, 0.25 } }, { { 0.1, 0.8, 0.1 } } }):log(), torch.tensor({ 2 }), 0, 3, 2 },
    fn(poptorch.ctc_beam_search_decoder) },
  { "set_overlap_for_input", "input_tensors mode", { x, poptorch.OverlapMode.NoOverlap },
    fn(poptorch.set_overlap_for_input) },
  { "set_overlap_for_output", "output_tensors mode", { x, poptorch.OverlapMode.NoOverlap },
    fn(poptorch.set_overlap_for_output) },
  { "CPU", "layer_to_call ID", { f, "twice" }, function(...)
    local op = poptorch.CPU(...)
    return texts(op._ID, op(x))
  end },
  { "MultiConv.availableMemoryProportions", "value", { { 0.5, 0.25 } },
    multi_conv_of("availableMemoryProportions") },
  { "MultiConv.partialsTypes", "value", { torch.half }, multi_conv_of("partialsTypes") },
  { "MultiConv.enableConvDithering", "value", { true }, multi_conv_of("enableConvDithering") },
  { "MultiConv.planType", "value", { poptorch.MultiConvPlanType.Serial },
    multi_conv_of("planType") },
  { "MultiConv.perConvReservedTiles", "value", { 60 }, multi_conv_of("perConvReservedTiles") },
  { "MultiConv.cycleBackOff", "value", { 0.5 }, multi_conv_of("cycleBackOff") },
  { "AsynchronousDataAccessor", "dataset buffer_size miss_sleep_time_in_ms load_indefinitely "
    .. "early_preload sharing_strategy", { { x, x }, 2, 0.2, false, false,
    poptorch.SharingStrategy.Fork }, function(...)
    local accessor, n = poptorch.AsynchronousDataAccessor(...), 0
    for _ in accessor do
      n = n + 1
    end
    accessor:terminate()
    return tostring(n)
  end },
  { "PoplarExecutor.getAnchoredTensor", "short_name", { "w" }, anchored },
  { "PoplarExecutor.save", "filename export_model save_rng_state", { path .. "x", false, false },
    function(...)
      local model = poptorch.inferenceModel(nn.ReLU())
      model:compile(x)
      model:save(...)
      local file = assert(io.open(path .. "x", "rb"))
      local text = file:read("a")
      file:close()
      os.remove(path .. "x")
      return tostring(#text)
    end },
  { "PoplarExecutor.loadExecutable", "filename", saved, function(...)
    local model = poptorch.inferenceModel(nn.ReLU())
    model:loadExecutable(...)
    return texts(model:isCompiled(), model(x))
  end },
  { "load", "filename edit_opts_fn", function()
    return { saved()[1], function() end }
  end, function(...)
    return texts(poptorch.load(...)(x))
  end },
  { "profiling.Channel", "name", { "c" }, fn(poptorch.profiling.Channel) },
  { "profiling.Channel.tracepoint", "name", { "t" }, function(...)
    local channel, args = poptorch.profiling.Channel("c"), table.pack(...)
    args[args.n + 1] = function()
      return "ran"
    end
    return channel:tracepoint(table.unpack(args, 1, args.n + 1)) .. type(channel:tracepoint(...))
  end },
  { "NameScope", "name", { "A" }, fn(poptorch.NameScope) },
  { "autocast", "enabled", { false }, fn(poptorch.autocast) },
  { "autocasting.Policy", "fp16 fp32 promote demote", { { "mm" }, {}, { "cat" }, { "add" } },
    fn(poptorch.autocasting.Policy) },
  { "trainingModel", "model options optimizer", function()
    local linear = nn.Linear(2, 2) -- one may be wrapped once
    return { linear, two, poptorch.optim.SGD(linear:parameters(), { lr = 1 }) }
  end, wrapped("trainingModel") },
  { "inferenceModel", "model options", { nn.Linear(2, 2), two }, wrapped("inferenceModel") },
  { "PoplarExecutor.setOptimizer", "optimizer", { poptorch.optim.SGD(w, { lr = 0.25 }) },
    set_optimizer },
  { "Block", "user_id ipu_id", { "A", 1 }, fn(poptorch.Block) },
  { "BeginBlock", "layer_to_call user_id ipu_id", { nn.ReLU(), "A", 1 }, marked },
  { "BlockFunction", "user_id ipu_id", { "A", 1 }, function(...)
    return texts(poptorch.BlockFunction(...)(f)(x))
  end },
  { "removeBlocks", "module", { nn.ReLU() }, unmarked },
  { "Stage.ipu", "ipu", { 2 }, method(function()
    return poptorch.Stage("A")
  end, "ipu") },
  { "Phase.stage", "idx", { 1 }, method(function()
    return poptorch.Phase(A, B)
  end, "stage") },
  { "ShardedExecution.stage", "block_id", { "B" }, method(function()
    return poptorch.ShardedExecution("A", "B")
  end, "stage") },
  { "PipelinedExecution.stage", "block_id", { "B" }, method(function()
    return poptorch.PipelinedExecution("A", "B")
  end, "stage") },
  { "SerialPhasedExecution.stage", "block_id", { "B" }, method(phased, "stage") },
  { "SerialPhasedExecution.phase", "phase", { 1 }, method(phased, "phase") },
  { "SerialPhasedExecution.setTensorsLiveness", "liveness",
    { poptorch.Liveness.OffChipAfterFwd }, function(...)
      return shown(phased():setTensorsLiveness(...):backendOptions())
    end },
  { "SerialPhasedExecution.useSeparateBackwardPhase", "use", { true }, function(...)
    return shown(phased():useSeparateBackwardPhase(...):backendOptions())
  end },
  { "ParallelPhasedExecution.sendTensorsOffChipAfterFwd", "off_chip", { true }, function(...)
    return shown(poptorch.ParallelPhasedExecution("A", "B"):sendTensorsOffChipAfterFwd(...)
      :backendOptions())
  end },
  { "VariableAttributes", "variable_attributes allowed_attributes", { { "a" }, { "a", "b" } },
    function(...)
      local v = poptorch.optim.VariableAttributes(...)
      v:markAsVariable("b")
      return texts(v:isConstant("a"), v:isConstant("b"))
    end },
  { "VariableAttributes.isConstant", "attr", { "lr" }, function(...)
    return texts(attributes():isConstant(...))
  end },
  { "VariableAttributes.markAsConstant", "attr", { "lr" }, function(...)
    local v = attributes()
    v:markAsConstant(...)
    return texts(v:isConstant("lr"))
  end },
  { "VariableAttributes.markAsVariable", "attr", { "momentum" }, function(...)
    local v = attributes()
    v:markAsVariable(...)
    return texts(v:isConstant("momentum"))
  end },
  { "SGD", "params lr momentum dampening weight_decay nesterov maximize foreach differentiable "
    .. "loss_scaling velocity_scaling use_combined_accum accum_type velocity_accum_type "
    .. "max_grad_norm", { w, 0.5, 0.25, 0.5, 0.125, false, false, false, false, 4, 2, true, h, h,
    math.huge }, optimizer("SGD") },
  { "Adam", "params lr betas eps weight_decay amsgrad foreach maximize capturable "
    .. "differentiable fused loss_scaling accum_type first_order_momentum_accum_type "
    .. "second_order_momentum_accum_type max_grad_norm", { w, 0.5, { 0.5, 0.25 }, 0.125, 0.5,
    false, false, false, false, false, false, 4, h, h, h, 2.0 }, optimizer("Adam") },
  { "AdamW", "params lr betas eps weight_decay amsgrad maximize foreach capturable "
    .. "loss_scaling bias_correction accum_type first_order_momentum_accum_type "
    .. "second_order_momentum_accum_type max_grad_norm", { w, 0.5, { 0.5, 0.25 }, 0.125, 0.5,
    false, false, false, false, 4, false, h, h, h, 2.0 }, optimizer("AdamW") },
  { "RMSprop", "params lr alpha eps weight_decay momentum centered foreach maximize "
    .. "differentiable loss_scaling accum_type first_order_momentum_accum_type "
    .. "second_order_momentum_accum_type use_tf_variant", { w, 0.5, 0.25, 0.125, 0.5, 0.25, true,
    false, false, false, 4, h, h, h, true }, optimizer("RMSprop") },
  { "LAMB", "params lr betas eps weight_decay bias_correction loss_scaling max_weight_norm "
    .. "accum_type first_order_momentum_accum_type second_order_momentum_accum_type",
    { w, 0.5, { 0.5, 0.25 }, 0.125, 0.5, false, 4, 3.0, h, h, h }, optimizer("LAMB") },
  { "LAMB.step", "closure", { function()
    return torch.tensor(2.0)
  end }, function(...)
    return texts(poptorch.optim.LAMB(w):step(...))
  end },
  { "DataLoader", "options dataset batch_size shuffle num_workers drop_last "
    .. "persistent_workers auto_distributed_partitioning mode async_options "
    .. "rebatched_worker_size", { two, data, 2, false, 0, false, false, false,
    poptorch.DataLoaderMode.AsyncRebatched, { buffer_size = 2 }, 1 }, loader,
    dictionary = "async_options" },
}

-- ---- the walk --------------------------------------------------------------------------

local function words(text)
  local out = {}
  for word in text:gmatch("%S+") do
    out[#out + 1] = word
  end
  return out
end

-- The first n arguments by position, the others by name.
local function mixed(names, args, n)
  local list, keywords = table.move(args, 1, n, 1, {}), {}
  for i = n + 1, #names do
    keywords[names[i]] = args[i]
  end
  list[#list + 1] = next(keywords) and keywords or nil
  return list
end

local function check(row)
  local name, names, call = row[1], words(row[2]), row[4]
  local function arguments()
    return type(row[3]) == "function" and row[3]() or row[3]
  end
  local want = call(table.unpack(arguments(), 1, #names))
  for n = 0, #names - 1 do
    if names[n + 1] ~= row.dictionary then -- where a table is the argument
      local list = mixed(names, arguments(), n)
      local ok, got = pcall(call, table.unpack(list))
      assert.is_true(ok, ("%s, %d by position: %s"):format(name, n, tostring(got)))
      assert.equal(want, got, ("%s, %d by position"):format(name, n))
    end
  end
  local last = names[#names]
  local list = mixed(names, arguments(), #names - 1)
  list[#list] = { [last .. "x"] = arguments()[#names] }
  local ok, e = pcall(call, table.unpack(list))
  assert.is_true(not ok and errors.TypeError:is(e), name .. ": " .. tostring(e))
  assert.is_truthy(e.message:find(last .. "x", 1, true)
    and e.message:find("nearest: '" .. last .. "'", 1, true), name .. ": " .. e.message)
end

describe("every parameter goes by position and by name:", function()
  local level
  setup(function()
    level = core.host.log_level()
    core.host.log_level("off")
  end)
  teardown(function()
    core.host.log_level(level)
    os.remove(path)
    os.remove(path .. "y")
  end)

  for _, row in ipairs(ROWS) do
    it(row[1], function()
      check(row)
    end)
  end

  it("setters of options", function()
    local parts = { { "", options.Options } }
    for _, name in ipairs(options.GROUPS) do
      parts[#parts + 1] = { name, options.CLASSES[name] }
    end
    for _, part in ipairs(parts) do
      for _, row in ipairs(part[2]._rows) do
        local args = row.name and not row.varargs and #row.params > 0
          and table.pack(given.arguments(row))
        local names = table.concat(row.params or {}, " ", 1, args and args.n or 0)
        if args and not row.tables then -- whose tables stand by position
          check({ part[1] .. "." .. row.name, names, args, function(...)
            local o = poptorch.Options():replicationFactor(2)
            local group = part[1] == "" and o or o[part[1]]
            group[row.name](group, ...)
            return tostring(o)
          end })
        end
      end
    end
  end)

  it("setters of tensor locations", function()
    for _, row in ipairs(poptorch.TensorLocationSettings._rows) do
      check({ row.name, row.params[1], { row.kind == "int" and 3 or false },
        method(poptorch.TensorLocationSettings, row.name) })
    end
  end)

  it("a model's own", function()
    local net = models.of(function(_, a, b)
      return a - b
    end)
    local model = poptorch.inferenceModel(net)
    local a, b = torch.ones(2), torch.tensor({ 3.0, 4 })
    model:compile(a, { b = b })
    for _, got in ipairs({ model(a, b), model(a, { b = b }), model({ a = a, b = b }) }) do
      helper.near(got, { -2, -3 })
    end
    helper.raises("AssertionError", "no parameter 'bb'.*nearest: 'b'", function()
      model(a, b, { bb = b })
    end)
  end)

  it("state dictionaries stand by position, what follows by name", function()
    local model = poptorch.inferenceModel(nn.Linear(1, 1))
    local state = model:state_dict()
    state.bias = nil
    local result = model:load_state_dict(state, { strict = false })
    assert.same({ "bias" }, { table.unpack(result.missing_keys) })
    helper.raises("TypeError", "nearest: 'strict'", function()
      model:load_state_dict(state, { strictt = false })
    end)
  end)
end)

describe("nil", function()
  it("is an argument's default, where there is one", function()
    local opts = poptorch.Options()
    opts:autoRoundNumIPUs(nil):broadcastBuffers(nil):useOfflineIpuTarget(nil)
    assert.is_true(opts.auto_round_num_ipus and opts.broadcast_buffers)
    assert.equal(2, opts.ipu_version)
    assert.equal("autocast(true)", tostring(poptorch.autocast(nil)))
    helper.raises("AssertionError", "logCycleCount.*expected bool, got nil", function()
      opts:logCycleCount(nil)
    end)
  end)
end)

describe("the walk", function()
  it("has all methods of strategies", function()
    local seen = {}
    for _, row in ipairs(ROWS) do
      seen[row[1]:match("%.(%w+)$") or ""] = true
    end
    for _, class in ipairs({ "Strategy", "SerialPhasedExecution", "ParallelPhasedExecution" }) do
      for name, value in pairs(strategies[class]) do
        local public = type(value) == "function" and not name:find("^_") and name ~= "init"
        assert.is_true(not public or seen[name] or name == "backendOptions", name)
      end
    end
  end)
end)

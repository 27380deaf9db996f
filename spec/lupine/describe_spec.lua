--- What ?NAME prints, and completion of names that load when they are used.
local class = require("lupine.base.class")
local complete = require("lupine.complete").complete
local describe_name = require("lupine.describe")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")

local function shows(name, globals, ...)
  local text = describe_name(name, globals)
  for _, part in ipairs({ ... }) do
    assert.truthy(text:find(part, 1, true), text .. "\nlacks: " .. part)
  end
end

describe("?NAME", function()
  it("shows the forms of operators", function()
    shows("torch.sum", {}, "sum(Tensor self, int[1]? dim=None, bool keepdim=False, *")
    shows("torch.nn.functional.conv2d", {}, "Convolution over",
      "conv2d.padding(", "str padding='valid'")
    shows("x:sum", { x = torch.zeros(1) }, "x:sum: The sum of all elements")
    shows("x:add_", { x = torch.zeros(1) }, "add_(Value self, Value other")
    shows("torch.tensor", {}, "tensor(Any data, *", "nested lists")
  end)

  it("shows a signature and a text of every function of the core", function()
    local core = require("lupine.core")
    for name, f in pairs(core) do
      if type(f) == "function" then
        shows("core." .. name, { core = core }, "core." .. name .. ": ", "\n  " .. name .. "(")
      end
    end
    shows("core.compile", { core = core }, "compile(Step step, Any spec) -> (Plan plan, Program",
      "device_iterations=1", "gradient_accumulation=1", "program:executor()")
    shows("core.grad", { core = core }, "Tensor[] outputs, Tensor[] inputs")
    shows("core.loop", { core = core }, "int count, Body body, Tensor[] inputs")
  end)


  it("shows shapes, an example and the source line", function()
    shows("torch.nn.Linear", {}, "bias=True", "shapes: (*, in_features) -> (*, out_features)",
      "example: nn.Linear(20, 30)(torch.randn(128, 20))  --> [128, 30]", "layers/linear.lua:")
    shows("x:sum", { x = torch.zeros(1) }, "shapes: (*) -> without dim", "example: torch.sum(")
  end)

  it("shows a function of a script with its comment and place", function()
    local path = program.temporary("-- Adds.\n--- Both.\nfunction added(a, b)\n"
      .. "  return a + b\nend\n")
    finally(function()
      os.remove(path)
      _G.added = nil
    end)
    dofile(path)
    shows("added", { added = _G.added }, "added(a, b)\nAdds.\nBoth.\ndefined at " .. path .. ":3")
    shows("typed", { typed = load("\nreturn function(x) end", "=stdin")() },
      "typed(x)\ndefined at stdin:2")
  end)

  it("shows what Lua defines with its description", function()
    shows("torch.isclose", {}, "isclose(input, other, rtol, atol, equal_nan)",
      "|input - other| <= atol + rtol * |other|", "functional.lua:")
    shows("torch.nn.init.kaiming_normal_", {}, "kaiming_normal_(tensor, a=0, mode='fan_in'")
    shows("poptorch.trainingModel", {}, "trainingModel(model, options, optimizer)",
      "Wraps a module for training")
  end)

  it("shows the parameters of PopTorch's operators", function()
    shows("poptorch.custom_op", {}, "custom_op(inputs, name, domain, domain_version, ",
      "Applies an operator of a library", "custom_op.lua:")
    shows("poptorch.for_loop", {}, "for_loop(count, body, inputs)", "Runs the body `count` times")
    shows("poptorch.cond", {}, "cond(condition, then_body, then_inps, else_body, else_inps)",
      "as a tensor of one element says")
    shows("poptorch.identity_loss", {}, "identity_loss(x, reduction)", '"sum", "mean" and "none"')
    shows("poptorch.nop", {}, "nop(tensor)", "does nothing")
    shows("poptorch.set_available_memory", {},
      "set_available_memory(tensor, available_memory_proportion)", "temporaries")
    shows("poptorch.ipu_print_tensor", {}, "ipu_print_tensor(tensor, title, print_gradient",
      "Prints the tensor every time")
  end)

  it("shows classes, their methods, and options", function()
    shows("poptorch.Options", {}, "class Options", "deviceIterations", "isFrozen")
    shows("poptorch.Options.deviceIterations", {}, "property device_iterations", "default 1")
    shows("poptorch.Options.anchorTensor", {}, "short_name: string", "OutputMode.EveryN, ",
      "or nil; if left out outputMode's", "output_return_period: int >= 1; if left out 1")
    shows("poptorch.Options.useIpuId", {}, "ipu_id: int >= 0 or nil")
    shows("poptorch.Options.Training.gradientAccumulation", {}, "property gradient_accumulation")
    shows("Options.TensorLocations", {}, "class _TensorLocationOptions", "setOptimizerLocation")
    shows("poptorch.Options.autoRoundNumIPUs", {}, "auto_round_num_ipus: bool; if left out true")
    shows("poptorch.PoplarExecutor", {}, "class PoplarExecutor", "getPerfCounters")
    shows("poptorch.Block", {}, "A scope whose operators form a block")
    shows("torch.nn.Linear", {}, "Linear(in_features, out_features, bias=True")
    shows("torch.optim.SGD", {}, "SGD(params, lr=")
    shows("lupine.Trainer", {}, "Options by name:\n", "\n  early_stopping ", "\n  close, fit")
  end)

  it("shows the parameters of what loads data and of schedulers", function()
    shows("torch.utils.data.DataLoader", {}, "class DataLoader", "DataLoader(dataset, batch_size=1",
      "worker_init_fn=None", "Batches of a dataset")
    shows("poptorch.DataLoader", {}, "DataLoader(options, dataset, batch_size=1", "drop_last=True")
    for _, space in ipairs({ torch.utils.data, torch.optim.lr_scheduler }) do
      for name, value in pairs(space) do
        if class.is_class(value) and not name:find("LRScheduler") then
          shows(name, space, ": class " .. name, "\n" .. name .. "(", "defined at")
        end
      end
    end
    shows("lupine.transforms.Resize", {}, "class Resize")
    shows("StepLR", {}, "StepLR(optimizer, step_size, gamma=0.1, last_epoch=-1)")
    shows("torch.utils.data.StackDataset", {}, "Datasets of equal length side by side")
  end)

  it("shows the keywords that forms leave out", function()
    shows("torch.zeros", {}, "bool requires_grad=False, Device? device=None) -> Tensor")
    shows("torch.rand", {}, "Generator? generator=None) -> Tensor")
    shows("torch.add", {}, "Tensor? out=None) -> Tensor")
    assert.is_nil(describe_name("x:add", { x = torch.zeros(1) }):find("out=", 1, true))
  end)

  it("knows instances", function()
    local net = nn.Linear(2, 2)
    local model = poptorch.inferenceModel(net)
    local opts = poptorch.Options()
    local names = { net = net, model = model, opts = opts }
    shows("model:isCompiled", names, "@return boolean")
    shows("opts:replicationFactor", names, "property replication_factor")
    shows("net:state_dict", names, "state_dict(")
    shows("net.weight", names, "Parameter containing")
  end)

  it("finds no names that are not there", function()
    assert.equal("no value is named nosuch", describe_name("nosuch", {}))
    assert.equal("no value is named torch.nosuch", describe_name("torch.nosuch", {}))
    assert.equal("no value is named os.nosuch", describe_name("os.nosuch", { os = os }))
  end)

  it("loads what it is asked for", function()
    local out = program.run({ "-i" }, "?torch.nn.functional.relu\n?poptorch.Options.logDir\n")
    assert.matches("relu(Tensor self)", out, 1, true)
    assert.matches("Options.logDir(", out, 1, true)
    assert.matches("no value is named torchvision", (program.run({ "-i" }, "?torchvision\n")), 1,
      true)
  end)
end)

describe("completion", function()
  local function run(text, globals)
    local insert, list = complete(text, globals, function()
      return {}
    end)
    return insert, list or ""
  end

  it("goes into modules that load when they are used", function()
    assert.equal("nctional", (run("torch.nn.fu", { torch = torch })))
    assert.equal("", (run("nn.functional.conv2d", { nn = nn })))
    assert.equal("l_div", (run("y = torch.nn.functional.k", { torch = torch })))
    local _, list = run("torch.o", { torch = torch })
    assert.matches("%f[%w]optim%f[%W]", list)
    assert.equal("ctional", (run("?torch.nn.fun", {})))
    assert.equal("", (run("torch.nn.fun", {})))
  end)

  it("offers methods and fields of tensors, modules, options, executors", function()
    local net = nn.Linear(2, 2)
    local names = { x = torch.zeros(1), net = net, model = poptorch.inferenceModel(net),
      opts = poptorch.Options() }
    assert.equal("ul", (run("x:matm", names)))
    assert.equal("pe", (run("x.sha", names)))
    assert.equal("ght", (run("net.wei", names)))
    assert.equal("e_dict", (run("net:stat", names)))
    assert.equal("ters", (run("model:getPerfCoun", names)))
    assert.equal("terations", (run("opts:deviceI", names)))
    assert.equal("", (run("net:wei", names)))
  end)
end)

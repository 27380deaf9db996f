--- Slips that are easy in Lua and must not pass in silence.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

describe("a nil where an element belongs", function()
  local a, b = nn.Linear(2, 2), nn.ReLU()

  it("is an error with its position in containers of modules", function()
    raises("TypeError", "Sequential: element 2 of 3 is nil", function()
      nn.Sequential(a, nil, b)
    end)
    raises("TypeError", "element 2 of 3", function()
      nn.Sequential({ a, nil, b })
    end)
    raises("TypeError", "element 2 of 2", function()
      nn.Sequential(a, nil)
    end)
    raises("TypeError", "ModuleList: element 2 of 3", function()
      nn.ModuleList({ a, nil, b })
    end)
    raises("TypeError", "append%(module%): expected a module, got nil", function()
      nn.ModuleList({ a }):append(nil)
    end)
    assert.equal(0, #nn.Sequential())
  end)

  it("is one in lists of parameters, tensors and stages", function()
    raises("TypeError", "params: element 2 of 3", function()
      torch.optim.SGD({ a.weight, nil, a.bias })
    end)
    raises("TypeError", "element 2 of 3", function()
      nn.utils.clip_grad_norm_({ a.weight, nil, a.bias }, 1)
    end)
    raises("TypeError", "element 2 of 2", function()
      torch.utils.data.TensorDataset(torch.ones(2), nil)
    end)
    raises("AssertionError", "argument 2 is nil", function()
      poptorch.PipelinedExecution("A", nil, "B")
    end)
    raises("AssertionError", "argument 2 is nil", function()
      poptorch.Stage("A", nil)
    end)
  end)
end)

describe("a module where its parameters belong", function()
  local net = nn.Linear(2, 2)

  it("is a TypeError of gradient clipping", function()
    for _, name in ipairs({ "clip_grad_norm_", "clip_grad_value_" }) do
      raises("TypeError", "did you mean its parameters%(%)", function()
        nn.utils[name](net, 0.1)
      end)
    end
  end)

  it("is a TypeError of an optimizer", function()
    raises("TypeError", "got Linear; did you mean its parameters%(%)", function()
      torch.optim.SGD(net)
    end)
  end)

  it("is fine if it is a list of them", function()
    local list = nn.ParameterList({ torch.ones(2), torch.ones(3) })
    list[1].grad = torch.ones(2)
    helper.near(nn.utils.clip_grad_norm_(list, 10), 2 ^ 0.5)
    assert.equal(2, #torch.optim.SGD(list).param_groups[1].params)
  end)
end)

describe("a method called with a point", function()
  it("is an error that says so", function()
    local net = nn.Linear(2, 2)
    local optimizer = torch.optim.SGD(net:parameters())
    for name, fn in pairs({
      parameters = net.parameters, named_parameters = net.named_parameters, train = net.train,
      state_dict = net.state_dict, load_state_dict = net.load_state_dict,
      step = optimizer.step, zero_grad = optimizer.zero_grad,
    }) do
      raises("TypeError", name .. " is a method: call it with a colon", fn)
    end
    raises("TypeError", "parameters is a method", function()
      torch.optim.SGD(net.parameters)
    end)
  end)
end)

describe("gradients that were switched off for good", function()
  it("are named by backward, with the place", function()
    local function forgets()
      local _ = torch.no_grad()
    end
    forgets()
    local loss = nn.Linear(2, 1)(torch.ones(1, 2)):sum()
    local ok, e = pcall(loss.backward, loss)
    torch.set_grad_enabled(true)
    assert.is_false(ok)
    assert.matches("since torch%.no_grad%(%) at .*slips_spec%.lua:%d+", e.message)
    assert.matches("local _ <close> = torch.no_grad()", e.message, 1, true)
  end)

  it("are not named where a scope was closed", function()
    local loss = torch.no_grad(function()
      return nn.Linear(2, 1)(torch.ones(1, 2)):sum()
    end)
    local e = raises("RuntimeError", "requires a gradient", function()
      loss:backward()
    end)
    assert.not_matches("gradients are off", e.message)
  end)
end)

describe("Python's way to write it", function()
  it("is refused for a class's special methods", function()
    local Net = nn.Module:extend("Net")
    assert.error_matches(function()
      function Net:__init__() end
    end, "Net.__init__ is never called: in Lua it is init")
    local Data = torch.utils.data.Dataset:extend("Data")
    assert.error_matches(function()
      function Data:__init__() end
    end, "in Lua it is init")
  end)

  it("is refused for a loop over a loader", function()
    local loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4)))
    for _, loop in ipairs({ ipairs, pairs }) do
      raises("TypeError", "for x, y in loader do", function()
        for _ in loop(loader) do end
      end)
    end
    local n = 0
    for _ in loader do
      n = n + 1
    end
    assert.equal(4, n)
  end)

  it("is refused for options as arguments of Options", function()
    raises("TypeError", "Options%(%) takes no arguments", function()
      poptorch.Options({ deviceIterations = 3 })
    end)
  end)

  it("calls a static method of an object", function()
    local t = nn.Transformer({ d_model = 4, nhead = 2, dim_feedforward = 4 })
    assert.is_true(torch.equal(t:generate_square_subsequent_mask(3),
      nn.Transformer.generate_square_subsequent_mask(3)))
  end)
end)

describe("values that can not be meant", function()
  it("are refused by binary_cross_entropy", function()
    for _, x in ipairs({ 2, -0.1, 0 / 0 }) do
      raises("RuntimeError", "between 0 and 1", function()
        nn.BCELoss()(torch.tensor({ x }), torch.tensor({ 1.0 }))
      end)
    end
    helper.near(nn.BCELoss()(torch.tensor({ 0.5 }), torch.tensor({ 1.0 })), math.log(2))
  end)

  it("are refused by optimizers", function()
    local net = nn.Linear(2, 2)
    raises("TypeError", "SGD: lr must be a number, got string \"0.1\"", function()
      torch.optim.SGD(net:parameters(), { lr = "0.1" })
    end)
    raises("TypeError", "betas must be a list of two numbers", function()
      torch.optim.Adam(net:parameters(), { betas = 0.9 })
    end)
  end)

  it("are refused by trainingModel: an optimizer of another module", function()
    local Loss = nn.Module:extend("Loss")
    function Loss:init()
      self.fc = nn.Linear(2, 2)
    end
    function Loss:forward(x)
      return poptorch.identity_loss(self.fc(x), "mean")
    end
    local model = poptorch.trainingModel(Loss(), nil,
      torch.optim.SGD(nn.Linear(2, 2):parameters(), { lr = 0.1 }))
    raises("Error", "none of the optimizer's parameters is one of the model's %(Loss%)", function()
      model(torch.ones(1, 2))
    end)
  end)
end)

describe("several arguments in place of one list", function()
  local a, b = nn.Linear(2, 2), nn.ReLU()
  local T, D = require("lupine.transforms"), torch.utils.data

  it("are an error that shows the list", function()
    raises("TypeError", "^ModuleList: expected one list of modules, ModuleList%({a, b}%), got "
      .. "Linear, ReLU", function()
      nn.ModuleList(a, b)
    end)
    raises("TypeError", "ModuleList: expected one list of modules", function()
      nn.ModuleList(a)
    end)
    raises("TypeError", "ParameterList: expected one list of parameters", function()
      nn.ParameterList(a.weight, a.bias)
    end)
    raises("TypeError", "ModuleDict: expected a table by name", function()
      nn.ModuleDict(a, b)
    end)
    raises("TypeError", "Compose: expected one list of transforms", function()
      T.Compose(T.RandomHorizontalFlip(), T.RandomVerticalFlip())
    end)
    local set = D.TensorDataset(torch.ones(2))
    raises("TypeError", "ConcatDataset: expected one list of datasets", function()
      D.ConcatDataset(set, set)
    end)
    raises("TypeError", "ChainDataset: expected one list of datasets", function()
      D.ChainDataset(set, set)
    end)
    raises("TypeError", "StackDataset: expected datasets", function()
      D.StackDataset({ set, set })
    end)
    local opt = torch.optim.SGD(a:parameters(), { lr = 1 })
    local S = torch.optim.lr_scheduler
    local one, other = S.ExponentialLR(opt, 0.9), S.ConstantLR(opt)
    raises("TypeError", "ChainedScheduler: expected one list of schedulers", function()
      S.ChainedScheduler(one, other)
    end)
    raises("TypeError", "ChainedScheduler: expected one list", function()
      S.ChainedScheduler({ one }, other)
    end)
    assert.is_truthy(S.ChainedScheduler({ one, other }, { optimizer = opt }))
  end)

  it("are none where a list or a container is given", function()
    assert.equal(2, #nn.ModuleList(nn.Sequential(a, b)))
    assert.equal(2, #nn.ModuleList({ a, b }))
    assert.equal(0, #nn.ModuleList())
    assert.equal(2, #nn.ParameterList(nn.ParameterList({ a.weight, a.bias })))
    assert.equal(2, #D.StackDataset(D.TensorDataset(torch.ones(2)), { 1, 2 }))
  end)

  it("and a hole in the list is an error", function()
    raises("TypeError", "Compose: element 2 of 3 is nil", function()
      T.Compose({ T.RandomHorizontalFlip(), nil, T.RandomVerticalFlip() })
    end)
    raises("TypeError", "ParameterList: element 2 of 3 is nil", function()
      nn.ParameterList({ a.weight, nil, a.bias })
    end)
    raises("TypeError", "ConcatDataset: element 1 of 2 is nil", function()
      D.ConcatDataset({ nil, D.TensorDataset(torch.ones(2)) })
    end)
  end)
end)

describe("an object where data belong", function()
  it("is refused, a size is a list", function()
    local Point = require("lupine.class").new("Point")
    local plain = setmetatable({ 1, 2 }, { __index = {} })
    for _, value in ipairs({ Point(), plain, { Point() } }) do
      raises("TypeError", "tensor%(%): data.* is .*; numbers, booleans and lists", function()
        torch.tensor(value)
      end)
    end
    raises("TypeError", "data is Point;", function()
      torch.tensor(Point())
    end)
    helper.near(torch.tensor(torch.ones(2, 3).shape), { 2, 3 })
  end)
end)

describe("a warning", function()
  local F = nn.functional
  before_each(require("lupine.warn").reset)

  local function once(text, f)
    assert.is_truthy(helper.logged(f):find(text, 1, true))
    assert.equal("", helper.logged(f))
  end

  it("tells of a target that is broadcast", function()
    for i, name in ipairs({ "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss" }) do
      once(name .. ": the target's size torch.Size([" .. i .. "1]) differs", function()
        F[name](torch.randn(i * 10 + 1, 1), torch.randn(i * 10 + 1))
      end)
      assert.equal("", helper.logged(function()
        F[name](torch.randn(3, 1), torch.randn(3, 1))
      end))
    end
    once("mse_loss: the target's size torch.Size([77]) differs", function()
      nn.MSELoss()(torch.randn(77, 1), { target = torch.randn(77) })
    end)
  end)

  it("tells of kl_div's mean", function()
    local a = torch.rand(2, 2)
    assert.equal("", helper.logged(function()
      F.kl_div(a:log(), a, { reduction = "batchmean" })
      F.kl_div(a:log(), a, nil, nil, "sum")
    end))
    once("kl_div: reduction 'mean' divides", function()
      F.kl_div(a:log(), a)
    end)
  end)

  it("tells of a scheduler's step before the optimizer's", function()
    local opt = torch.optim.SGD({ nn.Parameter(torch.ones(1)) }, { lr = 1 })
    once("ExponentialLR:step() is called before the optimizer's first step", function()
      torch.optim.lr_scheduler.ExponentialLR(opt, 0.5):step()
    end)
    opt:step()
    assert.equal("", helper.logged(function()
      torch.optim.lr_scheduler.StepLR(opt, 2):step()
    end))
  end)

  it("tells of reading the gradient of a tensor that keeps none", function()
    local script = 'local t = require("torch") local x = t.ones(1):requires_grad_(true) '
      .. "local y = x * 2 y:backward() local _ = x.grad %s _ = y.grad _ = y.grad"
    local function told(more)
      local pipe = assert(io.popen(("%s/lupine -e '%s' 2>&1"):format(
        require("spec.support.program").build, script:format(more))))
      local _, n = pipe:read("a"):gsub("%[lupine:warn%] grad of a tensor that is no leaf", "")
      pipe:close()
      return n
    end
    assert.equal(1, told(""))
    assert.equal(0, told("y = x * 2 y:retain_grad()"))
  end)
end)

describe("a wrong argument", function()
  local F, S = nn.functional, torch.optim.lr_scheduler
  local q, ps = torch.randn(2, 3, 4), { nn.Parameter(torch.ones(2)) }
  local opt = torch.optim.SGD(ps, { lr = 1 })
  local Net = nn.Module:extend("Net")

  it("of schedulers, distributions and modules is named", function()
    raises("TypeError", "MultiStepLR: milestones: expected one list of epochs, {a, b}, got int 3",
      function() S.MultiStepLR(opt, 3) end)
    for _, name in ipairs({ "LambdaLR", "MultiplicativeLR" }) do
      raises("TypeError", name .. ": lr_lambda must be a function .* is int 3", function()
        S[name](opt, 3)
      end)
    end
    raises("TypeError", 'Normal: log_prob: value: expected a Tensor or a number, got string "a"',
      function() torch.distributions.Normal(0., 1.):log_prob("a") end)
    raises("TypeError", "new is a method of the class", function() Net.new() end)
    assert.has_error(function() require("lupine.class").new("Point").new() end,
      "new is a method of the class: call the class itself, Name(...), or Name:new(...)")
    raises("TypeError", "Net.forward: expected a function, got int 1", function()
      Net().forward = 1
    end)
  end)

  it("that no form names is described, and listed with the forms", function()
    raises("TypeError", "argument 'generator' %(by name%) must be a torch.Generator, not int 5\n"
      .. ".*randn%(.*, bool requires_grad=False, Device%? device=None, "
      .. "Generator%? generator=None%)",
      function() torch.randn(2, { generator = 5 }) end)
    raises("TypeError", "did you mean 'inplace'%?\nAllowed:\n  relu%(Tensor self, %*, "
      .. "bool inplace=False%) %-> Tensor", function() F.relu(q, { inplase = true }) end)
  end)

  it("of a loss or a mask is named with what is allowed", function()
    local logp = torch.randn(5, 1, 3):log_softmax(2)
    raises("RuntimeError", "ctc_loss: targets: label 1 of sample 0 is 3, allowed are 0 to 2",
      function() F.ctc_loss(logp, torch.tensor({ { 1, 3 } }), { 5 }, { 2 }) end)
    local layer = nn.TransformerEncoderLayer(4, 2, 8)
    raises("RuntimeError", "key_padding_mask must have shape %(3, 2%), got %(2, 2%)", function()
      layer(q, { src_key_padding_mask = torch.zeros(2, 2):bool() })
    end)
    raises("RuntimeError", "attn_mask must have shape %(2, 2%) or %(6, 2, 2%), got %(3, 2%)",
      function() layer(q, { src_mask = torch.zeros(3, 2) }) end)
    raises("ValueError", "Normalize: .* has 2 values, the image 3 channels", function()
      require("lupine.transforms").Normalize({ 1, 2 }, { 1, 2 })(torch.ones(3, 2, 2))
    end)
  end)

  it("is told by the function that was called", function()
    local at = torch.tensor({ 5 })
    raises("IndexError", "^index_add: index 5 is out of bounds", function()
      torch.ones(2, 2):index_add_(0, at, torch.ones(1, 2))
    end)
    raises("ValueError", "^cross_entropy: expected an input", function()
      F.cross_entropy(torch.ones(2, 3), torch.zeros(3, { dtype = torch.int64 }))
    end)
    raises("IndexError", "^gather: ", function() torch.ones(2):gather(0, at) end)
  end)

  it("that is a table or a tensor is described", function()
    raises("TypeError", "got a table with 'param'", function()
      torch.optim.SGD({ { param = ps } }, { lr = 1 })
    end)
    raises("TypeError", "got Tensor torch.float32 %[1, 3, 4%]", function()
      nn.LSTM(4, 4)(q, torch.zeros(1, 3, 4))
    end)
    raises("TypeError", "got a list of 1", function()
      torch.optim.Adam(ps, { betas = { .9 } })
    end)
  end)
end)

describe("a call of a module by name", function()
  local Net = nn.Module:extend("Net")
  function Net:forward(ids, mask, labels)
    return ids, mask, labels
  end

  it("with a misspelt name next to a right one is an error with the nearest", function()
    local x = torch.ones(2)
    raises("TypeError", "forward has no parameter 'lables' %(nearest: 'labels'%)", function()
      Net()(x, { mask = x, lables = x })
    end)
    raises("AssertionError", "no parameter 'lables'", function()
      poptorch.inferenceModel(Net())(x, { mask = x, lables = x })
    end)
  end)

  it("takes a dictionary that shares a name with forward as an argument", function()
    local batch = { input_ids = 1, labels = 2 }
    assert.equal(batch, (Net()(batch)))
    local options = { colour = 1 }
    assert.equal(options, select(2, Net()(1, options)))
  end)

  it("with nothing but misspelt names is an error too", function()
    local A = nn.Module:extend("A")
    function A:forward(x, train)
      return x, train
    end
    raises("TypeError", "forward has no parameter 'trian' %(nearest: 'train'%)", function()
      A()(torch.ones(1), { trian = false })
    end)
  end)

  local q = torch.randn(2, 3, 4)

  it("takes only the names that a layer of torch.nn has", function()
    local m = torch.zeros(2, 2)
    raises("TypeError", "'h0' %(nearest: 'hx'%); allowed by name here: 'hx'", function()
      nn.GRU(4, 4)(q, { h0 = torch.zeros(1, 3, 4) })
    end)
    raises("TypeError", "no parameter 'reduction'; allowed by name here: none", function()
      nn.MSELoss()(q, q, { reduction = "sum" })
    end)
    raises("TypeError", "no parameter 'foo'", function()
      nn.ReLU()(q, { foo = 1 })
    end)
    raises("TypeError", "no parameter 'foo'", function()
      nn.Sequential(nn.ReLU())(q, { foo = 1 })
    end)
    raises("TypeError", "'need_weight' %(nearest: 'need_weights'%)", function()
      nn.MultiheadAttention(4, 2)(q, q, q, { need_weight = false })
    end)
    raises("TypeError", "'tgt_maks' %(nearest: 'tgt_mask'%)", function()
      nn.Transformer(4, 2, 1, 1, 8)(q, q, { tgt_maks = m })
    end)
    raises("TypeError", "'output_sise' %(nearest: 'output_size'%)", function()
      nn.ConvTranspose2d(1, 1, 2)(torch.ones(1, 1, 3, 3), { output_sise = { 4, 4 } })
    end)
    raises("TypeError", "'input' is given twice", function()
      nn.ReLU()(q, { input = q })
    end)
  end)

  it("does so with hooks", function()
    local layer = nn.ReLU()
    layer:register_forward_hook(function() end)
    raises("TypeError", "no parameter 'foo'", function()
      layer(q, { foo = 1 })
    end)
    helper.near(layer({ input = q }), q:relu())
  end)

  it("takes the losses' own names", function()
    local a, b, c = torch.randn(3), torch.randn(3), torch.rand(3) + 1
    helper.near(nn.GaussianNLLLoss()({ input = a, target = b, var = c }),
      nn.functional.gaussian_nll_loss(a, b, c))
    local triplet = { anchor = q[0], positive = q[1], negative = q[0] }
    helper.near(nn.TripletMarginLoss()(triplet), nn.TripletMarginLoss()(q[0], q[1], q[0]))
  end)
end)

describe("more arguments than a layer of torch.nn takes", function()
  local x = torch.randn(2, 4)

  it("are an error, nil at the end is none", function()
    raises("TypeError", "forward takes 1 argument %(input%) but 2 were given", function()
      nn.Linear(4, 4)(x, 3)
    end)
    raises("TypeError", "forward takes 2 arguments %(input, target%) but 3", function()
      nn.MSELoss()(x, x, x)
    end)
    assert.equal(4, nn.Linear(4, 4)(x, nil):size(1))
  end)
end)

describe("names that are not there", function()
  it("say what there is instead of a near name", function()
    for _, name in ipairs({ "jit", "compile", "autocast", "func", "fft", "onnx",
      "distributed" }) do
      raises("NotImplementedError", "^torch%." .. name .. " is not there: ", function()
        return torch[name]
      end)
    end
    raises("NotImplementedError", "Tensor.indices is not there: .*local values, indices", function()
      return torch.ones(2):sort().indices
    end)
    raises("NotImplementedError", "torch.nn.DataParallel", function()
      return nn.DataParallel
    end)
    raises("NotImplementedError", "torch.nn.utils.parametrize", function()
      return torch.nn.utils.parametrize
    end)
    raises("NotImplementedError", "torch.vmap", function()
      return torch.vmap
    end)
    raises("NotImplementedError", "poptorch.cond", function()
      return poptorch.cond
    end)
    raises("AttributeError", "did you mean 'AdamW'", function()
      return torch.optim.AdmW
    end)
  end)

  it("of CUDA are those that scripts ask without one", function()
    assert.is_false(torch.cuda.is_available())
    assert.equal(0, torch.cuda.device_count())
    for _, fn in ipairs({
      function() return torch.ones(1):cuda() end,
      function() return nn.ReLU():cuda() end,
      function() return torch.cuda.synchronize() end,
    }) do
      raises("RuntimeError", "there is no CUDA device here", fn)
    end
  end)
end)

describe("other spellings", function()
  local x = torch.arange(6.0):reshape(2, 3)

  it("of dim and keepdim are NumPy's", function()
    helper.near(x:sum({ axis = 1 }), { 3, 12 })
    assert.same({ 2, 1 }, { table.unpack(x:sum({ axis = 1, keepdims = true }).shape) })
    assert.same({ 2, 6 }, { table.unpack(torch.cat({ x, x }, { axis = 1 }).shape) })
    raises("TypeError", "unexpected keyword argument 'axis'", function()
      x:sum({ dim = 0, axis = 1 })
    end)
  end)

  it("of tensors are constructors by type", function()
    assert.equal(torch.float32, torch.FloatTensor({ 1, 2 }).dtype)
    assert.equal(torch.int64, torch.LongTensor({ 1, 2 }).dtype)
    assert.same({ 2, 3 }, { table.unpack(torch.Tensor(2, 3).shape) })
    helper.near(torch.Tensor({ 1, 2 }), { 1, 2 })
    assert.is_true(torch.Tensor:is(x))
    raises("TypeError", "values are given as one list", function()
      torch.LongTensor(1.5)
    end)
  end)
end)

describe("messages", function()
  it("name the argument that is nil where sizes are listed", function()
    raises("TypeError", "positional argument 2 of 2 is nil", function()
      torch.randn(4, nil)
    end)
  end)

  it("are joined to strings by ..", function()
    local _, e = pcall(error, torch.errors.new("ValueError", nil, "wrong"))
    assert.matches("^failed: .*ValueError: wrong!$", "failed: " .. e .. "!")
  end)

  it("of interpolate name the shape that has nothing to resize", function()
    raises("NotImplementedError", "3, 4 or 5 dimensions", function()
      nn.functional.interpolate(torch.ones(2, 3), { scale_factor = 2 })
    end)
  end)

  it("of torch.load name a pickle", function()
    local path = os.tmpname()
    local f = assert(io.open(path, "wb"))
    f:write("\128\2\138\10l\252\156F\249 j\168P\25.")
    f:close()
    local ok, e = pcall(torch.load, path)
    os.remove(path)
    assert.is_false(ok)
    assert.matches("a pickle", e.message)
  end)

  it("warn of integers that the device can not hold", function()
    local said = {}
    local logging = require("poptorch.logging")
    local warn = logging.warn
    logging.warn = function(...)
      said[#said + 1] = string.format(...)
    end
    local model = poptorch.inferenceModel(nn.Identity())
    local ok = pcall(model, torch.tensor({ 1 << 40 }))
    logging.warn = warn
    assert.is_true(ok)
    assert.matches("do not fit in int32", table.concat(said, "\n"))
  end)
end)

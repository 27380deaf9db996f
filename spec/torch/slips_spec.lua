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
  end)
end)

describe("where the operators of a model come from", function()
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn

  local Net = nn.Module:extend("Net")
  function Net:init()
    self.layer1 = nn.Sequential(nn.Conv2d(1, 4, 5), nn.MaxPool2d(2), nn.ReLU())
    self.layer2 = nn.Sequential(nn.Linear(40, 10), nn.ReLU())
    self.softmax = nn.LogSoftmax(1)
  end
  function Net:forward(x)
    x = self.layer1(x)
    x = self.layer2(x:view(5, 40))
    return poptorch.NameScope("A", function()
      return self.softmax(x) + 1
    end)
  end

  local function names(options)
    local model = poptorch.inferenceModel(Net(), options)
    model:compile(torch.ones(2, 1, 15, 15))
    local of = {}
    for _, name in ipairs(model:getTensorNames()) do
      of[name] = true
    end
    return of
  end

  it("is in their names: the path of the module, inside the name scopes", function()
    local of = names()
    for _, name in ipairs({ "input/x", "layer1.0.weight", "layer1/0/Conv:0",
      "layer1/1/MaxPool:0", "layer1/2/Relu:0", "layer2/0/MatMul:0", "layer2/1/Relu:0",
      "A/softmax/LogSoftmax:0", "A/Add:0" }) do
      assert.is_true(of[name], name)
    end
  end)

  it("without the module's path under disableModuleNamescope", function()
    local of = names(poptorch.Options():disableModuleNamescope())
    for _, name in ipairs({ "Conv:0", "MaxPool:0", "Relu:0", "Relu:0/1", "MatMul:0",
      "A/LogSoftmax:0", "A/Add:0" }) do
      assert.is_true(of[name], name)
    end
  end)

  -- A framework's file, whose frames are on the way to the operators.
  local twice = load("local x = ...\nreturn x + x, x * 2", "@framework/layers.lua")
  local Framed = nn.Module:extend("Framed")
  function Framed.forward(_, x)
    return twice(x)
  end

  local function places(options)
    local model = poptorch.inferenceModel(Framed(), options)
    model:compile(torch.ones(2))
    local list = {}
    for i, node in ipairs(model:report():nodes()) do
      list[i] = ("%s:%d"):format(node.file, node.line)
    end
    return list
  end

  it("is a file and a line, but for frames that sourceLocationExcludes names", function()
    assert.same({ "framework/layers.lua:2", "framework/layers.lua:2" }, places())
    local here = places(poptorch.Options():appendToLocationExcludes("framework/", "other"))
    assert.equal(2, #here)
    assert.matches("origins_spec.lua:%d+$", here[1])
    assert.equal(here[1], here[2])
  end)

  it("may be a line of the library, if its files are not excluded", function()
    local model = poptorch.inferenceModel(nn.ReLU(),
      poptorch.Options():sourceLocationExcludes({ "origins_spec" }))
    model:compile(torch.ones(2))
    assert.matches("torch/nn/", model:report():nodes()[1].file)
    assert.same({}, { table.unpack(model:report().no_effect, 2) })
  end)

  it("is found with excludes of any length", function()
    local here = places(poptorch.Options():appendToLocationExcludes(("a"):rep(9000), "framework/"))
    assert.matches("origins_spec.lua:%d+$", here[1])
    assert.equal("framework/layers.lua:2",
      places(poptorch.Options():appendToLocationExcludes(("a"):rep(9000)))[1])
  end)

  it("is not changed by what a host's function traces meanwhile", function()
    local inner
    local Around = nn.Module:extend("Around")
    function Around:init()
      self.cpu = poptorch.CPU(function(x)
        local model = poptorch.inferenceModel(Framed())
        model:compile(x)
        inner = model:report():nodes()[1].file
        return x
      end, "places")
    end
    function Around:forward(x)
      local _, doubled = twice(self.cpu(x))
      return doubled
    end
    local model = poptorch.inferenceModel(Around(),
      poptorch.Options():appendToLocationExcludes("framework/"))
    model:compile(torch.ones(2))
    assert.equal("framework/layers.lua", inner)
    local nodes = model:report():nodes()
    assert.matches("origins_spec.lua$", nodes[#nodes].file)
  end)
end)

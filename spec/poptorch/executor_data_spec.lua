--- Parameters of a compiled model that get other memory: `p.data = tensor`, views.
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local near = helper.near

-- Its loss is the sum of w * x: a step of SGD takes lr * x from each row.
local Sum = nn.Module:extend("Sum")

function Sum:init(w)
  self.w = nn.Parameter(w)
end

function Sum:forward(x)
  return poptorch.identity_loss((self.w * x):sum(), "sum")
end

local x = torch.tensor({ { 1.0, 2 } })

local function training(w)
  local net = Sum(w)
  return net, poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), { lr = 0.5 }))
end

describe("data that a script puts into a parameter", function()
  it("of another shape or type are refused with both by what needs them", function()
    for _, wrap in ipairs({ training, function(w)
      local net = Sum(w)
      return net, poptorch.inferenceModel(net)
    end }) do
      for data, shown in pairs({ [torch.ones(3)] = "float32 %[3%]",
        [torch.ones(2, 2)] = "float32 %[2, 2%]",
        [torch.ones(3, 2):half()] = "float16 %[3, 2%]" }) do
        local net, model = wrap(torch.ones(3, 2))
        model(x)
        net.w.data = data
        for _, act in ipairs({ "copyWeightsToDevice", "copyWeightsToHost", "detachFromDevice" }) do
          helper.raises("Error", "parameter 'w' is " .. shown
            .. " now, the model was compiled for float32 %[3, 2%]", function()
            model[act](model)
          end)
        end
        model:destroy()
        assert.is_true(torch.equal(net.w:detach(), data))
      end
    end
  end)

  it("are used after copyWeightsToDevice, and overwritten by what was trained else", function()
    local net, model = training(torch.ones(3, 2))
    model(x)
    net.w.data = torch.full({ 3, 2 }, 9.0)
    model(x) -- the device knows nothing of the 9
    near(net.w:detach(), 1 - x:expand(3, 2))
    net.w.data = torch.full({ 3, 2 }, 9.0)
    model:copyWeightsToDevice()
    model(x)
    near(net.w:detach(), 9 - 0.5 * x:expand(3, 2))
    model:destroy()
  end)

  it("leave other names of the old memory what was trained", function()
    local net, model = training(torch.ones(3, 2))
    local alias = net.w:detach()
    model(x)
    net.w.data = torch.zeros(3, 2)
    model:destroy()
    model = nil -- luacheck: ignore 311
    collectgarbage()
    collectgarbage()
    near(alias, 1 - 0.5 * x:expand(3, 2))
    assert.is_true(torch.equal(net.w:detach(), torch.zeros(3, 2)))
  end)

  it("may lie anyhow", function()
    local values = torch.arange(6.0):reshape(3, 2)
    for _, w in ipairs({ values:t():clone():t(), torch.arange(-3.0, 9.0)["3:9"]:reshape(3, 2),
      torch.cat({ values, values }, 1)[":, 2:"] }) do
      local net, model = training(w)
      model(x)
      near(net.w:detach(), values - 0.5 * x)
      model(x)
      near(net.w:detach(), values - x)
      model:destroy()
      net, model = training(torch.ones(3, 2))
      model(x)
      net.w.data = values:t():clone():t()
      model:copyWeightsToDevice()
      model(x)
      near(net.w:detach(), values - 0.5 * x)
      model:destroy()
    end
  end)
end)

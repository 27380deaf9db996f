-- A port's commonest mistake: a method called with a point.
describe("a method that is called with a point", function()
  local errors = require("lupine.base.errors")
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn

  local function refused(object, name)
    for _, arguments in ipairs({ {}, { 3 }, { "x" }, { torch.ones(1) }, { {} } }) do
      local ok, e = pcall(object[name], table.unpack(arguments))
      assert.is_false(ok, name)
      assert.is_true(errors.TypeError:is(e), name .. ": " .. tostring(e))
      assert.matches("is a method.*: call it with a colon, %l+:%w", e.message)
    end
  end

  it("of a wrapped model says how it is called", function()
    local net = nn.Linear(1, 1)
    local model = poptorch.trainingModel(net, nil, torch.optim.SGD(net:parameters(), 0.1))
    for name in pairs(getmetatable(model).__methods) do
      refused(model, name)
    end
  end)

  it("of other objects, too", function()
    local net = nn.Linear(1, 1)
    local optimizer = torch.optim.SGD(net:parameters(), 0.1)
    local data = torch.utils.data.TensorDataset(torch.ones(4))
    for object, names in pairs({
      [net] = "train eval parameters children state_dict half float double type cpu to autocast "
        .. "register_buffer register_parameter add_module get_submodule",
      [optimizer] = "step zero_grad state_dict load_state_dict add_param_group",
      [torch.optim.lr_scheduler.StepLR(optimizer, 1)] =
        "step state_dict load_state_dict get_last_lr",
      [poptorch.DataLoader(poptorch.Options(), data)] = "iter terminate",
      [torch.utils.data.DataLoader(data)] = "iter",
      [poptorch.Options()] = "deviceIterations replicationFactor clone toDict isFrozen",
      [poptorch.MultiConv()] = "availableMemoryProportions planType partialsTypes "
        .. "perConvReservedTiles cycleBackOff enableConvDithering",
    }) do
      for name in names:gmatch("%S+") do
        refused(object, name)
      end
    end
  end)
end)

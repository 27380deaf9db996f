--- Names of PyTorch that are not there say what there is.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

describe("names that are not there", function()
  it("say what there is instead of a near name", function()
    for _, name in ipairs({ "jit", "compile", "func", "fft", "onnx",
      "distributed" }) do
      raises("NotImplementedError", "^torch%." .. name .. " is not there: ", function()
        return torch[name]
      end)
    end
    for _, name in ipairs({ "jit", "compile" }) do
      raises("NotImplementedError", "is not there: lupine.compile%(fn, inputs%) ", function()
        return torch[name]
      end)
    end
    raises("NotImplementedError", "Tensor.indices is not there: .*local values, indices", function()
      return torch.ones(2):sort().indices
    end)
    raises("NotImplementedError", "torch.nn.DataParallel", function()
      return nn.DataParallel
    end)
    raises("NotImplementedError", "torch.vmap", function()
      return torch.vmap
    end)
    raises("NotImplementedError", "Tensor.to_sparse", function()
      return nn.Linear(2, 2).weight:to_sparse()
    end)
    raises("NotImplementedError", "poptorch.save is not there: .*executor:save", function()
      return poptorch.save
    end)
    raises("NotImplementedError", "PoplarExecutor.load is not there", function()
      return poptorch.inferenceModel(nn.ReLU()):load("net")
    end)
    raises("AttributeError", "did you mean 'AdamW'", function()
      return torch.optim.AdmW
    end)
  end)

  -- what a title of the table stands for
  local function owner(title)
    if title == "Tensor" then
      return torch.ones(2)
    elseif title == "poptorch" then
      return poptorch
    elseif title == "PoplarExecutor" then
      return poptorch.inferenceModel(nn.ReLU())
    end
    if title == "popart" then
      return require("popart")
    end
    local t = torch
    for part in title:gmatch("%.([^.]+)") do
      t = t[part]
    end
    return t
  end

  for title, names in pairs(require("lupine.base.absent").names) do
    it("of " .. title .. " are not there, each with a reason", function()
      local module = owner(title)
      for name, why in pairs(names) do
        raises("NotImplementedError", "^" .. title:gsub("%.", "%%.") .. "%." .. name
          .. " is not there: ", function()
          return module[name]
        end)
        assert.is_true(#why > 10, name)
      end
    end)
  end
end)

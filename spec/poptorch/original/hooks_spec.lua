--- PopTorch's tests/hooks_test.py.
describe("hooks_test", function()
  local helper = require("spec.poptorch.helper")
  local poptorch = require("poptorch")
  local torch = require("torch")

  local function run()
    local Model = torch.nn.Module:extend("Model")
    function Model.forward(_, input)
      return input
    end
    poptorch.inferenceModel(Model())(torch.randn({ 10, 10 }))
  end

  local handles = {}
  local function keep(handle)
    handles[#handles + 1] = handle
    return handle
  end
  after_each(function()
    for _, handle in ipairs(handles) do
      handle:remove()
    end
    handles = {}
  end)

  it("test_precompile_and_postcompile_hooks", function()
    local calls = {}
    keep(poptorch.registerPreCompileHook(function()
      calls[#calls + 1] = "pre"
    end))
    keep(poptorch.registerPostCompileHook(function()
      calls[#calls + 1] = "post"
    end))
    run()
    assert.same({ "pre", "post" }, calls)
  end)

  it("test_non_callable", function()
    helper.raises("RuntimeError", poptorch.registerPreCompileHook, 2)
    helper.raises("RuntimeError", poptorch.registerPostCompileHook, false)
  end)

  it("test_called_in_order", function()
    local calls = {}
    for i = 1, 3 do
      keep(poptorch.registerPreCompileHook(function()
        calls[#calls + 1] = i
      end))
    end
    run()
    assert.same({ 1, 2, 3 }, calls)
  end)

  it("test_can_remove", function()
    local called = false
    poptorch.registerPostCompileHook(function()
      called = true
    end):remove()
    run()
    assert.is_false(called)
  end)
end)

--- PopTorch's own misc_test. Its test errors are faults on demand here.
local core = require("lupine.core")
local faults = require("lupine.faults")
local helper = require("spec.helper")
local machine = require("spec.support.machine")
local poptorch = require("poptorch")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

describe("misc_test", function()
  before_each(function()
    machine.begin()
    faults.clear()
  end)

  after_each(function()
    faults.clear()
    machine.finish()
  end)

  it("test_set_log_level", function()
    local before = core.host.log_level()
    for i = 0, 4 do
      poptorch.setLogLevel(i)
    end
    raises("ValueError", "integer", function() poptorch.setLogLevel(5) end)
    for _, level in ipairs({ "TRACE", "DEBUG", "INFO", "WARN", "ERR", "OFF" }) do
      poptorch.setLogLevel(level)
    end
    raises("ValueError", "DEBUG, ERR, INFO, OFF, TRACE and WARN.*wibble", function()
      poptorch.setLogLevel("wibble")
    end)
    core.host.log_level(before)
  end)

  local Op = nn.Module:extend("Op")

  function Op:init(f, loss)
    self.f, self.loss, self.scale = f, loss, nn.Parameter(torch.ones(1))
  end

  function Op:forward(...)
    local out = self.f(...)
    if self.loss then
      out = out * self.scale
      return out, poptorch.identity_loss(out, "sum")
    end
    return out
  end

  it("test_zero_size_tensor_error", function()
    local model = poptorch.inferenceModel(Op(function(x)
      return nn.functional.interpolate(x, { size = { 10, 10 } })
    end))
    raises("Error", "without elements", function() model(torch.randn(0, 2, 5, 5)) end)
  end)

  it("test_torch_backward_error", function()
    local model = poptorch.trainingModel(Op(function(x) return x end, true))
    local out, loss = model(torch.tensor({ 5.0 }))
    for _, t in ipairs({ out, loss }) do
      raises("Error", "backward%(%) on a result of a poptorch model", function() t:backward() end)
    end
  end)

  -- The error of a model that fails.
  local function failed(fault)
    local model = poptorch.inferenceModel(Op(function(x, y) return x + y end))
    faults.inject(fault)
    local ok, e = pcall(model, torch.tensor({ 1.0 }), torch.tensor({ 2.0 }))
    assert.is_false(ok)
    return e
  end

  local function count(text, part)
    return select(2, text:gsub(part, ""))
  end

  it("test_generic_error_handling", function()
    for kind, context in pairs({
      poptorch = true, popart = true, popart_internal = true, poplibs = true, unrecoverable = true,
      unknown = true, recoverable = true, application = true, link = false,
    }) do
      local e = failed(kind)
      assert.is_true(poptorch.Error:is(e))
      if context then
        assert.matches("%[0%] 0 of 1 device iterations finished\n", tostring(e))
        assert.matches("%[2%] on device Id %d", tostring(e))
      else
        assert.matches("%[0%] while program 1 was compiled", tostring(e))
      end
    end
  end)

  it("test_specific_error_handling", function()
    local function check(e, class, type)
      assert.is_true(class:is(e))
      assert.equal(type, e.type)
      -- once: nothing is left of the error before
      assert.equal(1, count(e.location, "iterations finished"))
      assert.equal(1, count(e.location, "on device Id"))
      assert.equal(0, count(e.message, "iterations finished"))
      assert.equal(0, count(e.message, "on device Id"))
    end
    local e = failed({ kind = "recoverable", action = "FULL_RESET", message = "Reboot needed" })
    check(e, poptorch.RecoverableError, "poplar_recoverable_runtime_error")
    assert.equal("FULL_RESET", e.recovery_action)
    assert.equal("Reboot needed", e.message)
    e = failed({ kind = "unrecoverable", message = "This is not recoverable" })
    check(e, poptorch.UnrecoverableError, "poplar_unrecoverable_runtime_error")
    assert.is_nil(e.recovery_action)
    e = failed({ kind = "link", message = "Link error" })
    assert.equal("poplar_link_error", e.type)
    assert.equal(1, count(e.location, "was compiled"))
    assert.equal(0, count(e.location, "on device Id"))
    assert.matches("^Link error\nld: error: ", e.message)
  end)

  it("test_error_on_cpu_tensor", function()
    local model = poptorch.inferenceModel(Op(function(x)
      return torch.index_select(x, 0, torch.LongTensor({ 1, 0 }))
    end))
    local e = raises("Error", "", function() model:compile(torch.rand(4)) end)
    assert.matches("Expected an IPU tensor but got tensor(device=cpu, shape=[2], dtype=Long)",
      e.message, 1, true)
  end)

  it("test_compile_without_ipu", function()
    machine.set("LUPINE_IPUS", "1")
    local taken = poptorch.inferenceModel(nn.Linear(1, 1))
    taken:compile(torch.ones(1, 1))
    local model = poptorch.inferenceModel(Op(function(x, y) return x + y end),
      poptorch.Options():connectionType(poptorch.ConnectionType.Never))
    model:compile(torch.tensor({ 1.0 }), torch.tensor({ 2.0 }))
    assert.is_false(model:isAttachedToDevice())
    taken:destroy()
  end)
end)

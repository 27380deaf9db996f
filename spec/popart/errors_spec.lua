-- PopART's classes of errors and how errors of what lies below become them.
local base = require("lupine.base.errors")
local errors = require("popart.errors")

local classes = errors.classes

local function raised(f, ...)
  local ok, e = pcall(f, ...)
  assert.is_false(ok)
  return e
end

-- What PopART's documents draw.
local BASES = {
  popart_internal_exception = "popart_exception", popart_runtime_error = "popart_exception",
  OutOfMemoryException = "popart_exception", poplar_runtime_error = "poplar_exception",
  poplar_application_runtime_error = "poplar_runtime_error",
  poplar_system_runtime_error = "poplar_runtime_error",
  poplar_recoverable_runtime_error = "poplar_system_runtime_error",
  poplar_unrecoverable_runtime_error = "poplar_system_runtime_error",
  poplar_unknown_runtime_error = "poplar_system_runtime_error",
}

describe("popart.errors", function()
  it("has the tree of the documents, with the class's name as type", function()
    for name, of in pairs(BASES) do
      local e = raised(errors.raise, name, "text %d", 3)
      assert.equal(name, e.type)
      assert.equal("text 3", e.message)
      assert.is_true(classes[name]:is(e) and classes[of]:is(e) and base.Exception:is(e))
    end
    assert.is_false(classes.popart_exception:is(raised(errors.raise, "poplar_exception", "x")))
    assert.is_false(classes.popart_exception:is("popart_exception"))
  end)

  it("knows the names of older releases", function()
    assert.equal(classes.poplar_recoverable_runtime_error, classes.poplar_recoverable_error)
    assert.equal(classes.poplar_unrecoverable_runtime_error, classes.poplar_unrecoverable_error)
    assert.equal(classes.poplar_unknown_runtime_error, classes.unknown_runtime_error)
    assert.equal(errors.RecoveryAction.FULL_RESET, errors.RecoveryAction.POWER_CYCLE)
    assert.equal("FULL_RESET", errors.RecoveryAction.POWER_CYCLE.name)
    assert.equal(4, #errors.RecoveryAction:members())
  end)

  it("checks", function()
    assert.equal(7, errors.check(7, "popart_exception", "no"))
    assert.equal("popart_runtime_error",
      raised(errors.check, nil, "popart_runtime_error", "no").type)
  end)

  it("turns an error of the program, and keeps what it says", function()
    for _, name in ipairs({ "ValueError", "IndexError", "RuntimeError", "Error",
      "NotImplementedError", "AssertionError" }) do
      local e = raised(errors.guard, "popart_exception", function()
        local inner = base.new(name, nil, "sizes differ", "in layer 'fc'")
        inner.hint_kept = true
        error(inner, 0)
      end)
      assert.equal("popart_exception", e.type)
      assert.equal("sizes differ", e.message)
      assert.equal("in layer 'fc'", e.location)
      assert.truthy(e.origin:find("errors_spec.lua:%d+") and e.hint_kept)
    end
  end)

  it("leaves slips of a call, files' errors, texts and its own alone", function()
    for _, name in ipairs({ "TypeError", "AttributeError", "FileNotFoundError",
      "KeyboardInterrupt", "poplibs_exception", "popart_internal_exception" }) do
      local given = base.new(classes[name] or name, nil, "x")
      local kept = given.type
      local e = raised(errors.guard, "popart_exception", error, given, 0)
      assert.equal(given, e)
      assert.equal(kept, e.type)
    end
    assert.equal("text", raised(errors.guard, "popart_exception", error, "text", 0))
  end)

  it("passes results through", function()
    assert.same({ 1, nil, 3 }, { errors.guard("popart_exception", function(...)
      return ...
    end, 1, nil, 3) })
  end)

  it("gives faults of the machine their own class and recoveryAction", function()
    local function fault(cls, type_name, action)
      return raised(errors.guard, "popart_exception", error,
        base.new(cls, type_name, "down", nil, action), 0)
    end
    local e = fault("RecoverableError", "poplar_recoverable_runtime_error", "PARTITION_RESET")
    assert.is_true(classes.poplar_recoverable_error:is(e))
    assert.equal(errors.RecoveryAction.PARTITION_RESET, e.recoveryAction)
    assert.equal("PARTITION_RESET", e.recovery_action)
    for _, name in ipairs({ "poplar_unrecoverable_runtime_error", "poplar_unknown_runtime_error",
      "poplar_application_runtime_error", "popart_internal_exception", "poplibs_exception" }) do
      assert.equal(classes[name], getmetatable(fault("Error", name)))
    end
    assert.is_true(classes.poplar_exception:is(fault("Error", "poplar_link_error")))
    assert.is_true(base.IndexError:is(fault("Error", "std::out_of_range")))
  end)

  it("reports a program that does not fit as PopART does", function()
    local e = raised(errors.guard, "popart_exception", error,
      base.new("Error", "poplar_graph_memory_allocation_error", "tile 3 overflows"), 0)
    assert.is_true(classes.OutOfMemoryException:is(e) and classes.popart_exception:is(e))
    assert.equal("", e:getProfilePath())
    assert.truthy(raised(e.getSummaryReport, e).message:find("'debug.allowOutOfMemory'", 1, true))
    e.summary, e.profile_path = "Target:", "/reports/profile.pop"
    assert.equal("Target:", e:getSummaryReport())
    assert.equal("/reports/profile.pop", e:getProfilePath())
  end)

  it("raises on demand", function()
    local e = raised(errors.throws._throw_recoverable_runtime_error, "try again")
    assert.equal("try again", e.message)
    assert.equal(errors.RecoveryAction.IPU_RESET, e.recoveryAction)
    local n = 0
    for name, throw in pairs(errors.throws) do
      n = n + 1
      assert.equal("m", raised(throw, "m").message, name)
    end
    assert.equal(11, n)
  end)
end)

describe("a name that an object has not", function()
  local popart = require("popart")

  it("is an error with the nearest of those that it has", function()
    local cpu = popart.DeviceManager():createCpuDevice()
    for _, row in ipairs({
      { popart.VariableSettings(), "groupCount", "VariableSettings", "'getGroupCount'" },
      { popart.DataFlow(1, { "a" }), "anchor", "DataFlow", "'anchors'" },
      { popart.SGD({}), "insertSpecfic", "SGD", "'insertSpecific'" },
      { popart.TensorInfo("FLOAT", { 2 }), "shap", "TensorInfo", "'shape'" },
      { popart.PyStepIO({}, {}), "enableRuntimeAssert", "PyStepIO", "'enableRuntimeAsserts'" },
      { popart.PyWeightsIO({}), "wieght", "PyWeightsIO", "'weight'" },
      { popart.AnchorReturnType("All"), "idd", "AnchorReturnType", "'id'" },
      { popart.DeviceManager(), "createCpuDevic", "DeviceManager", "'createCpuDevice'" },
      { cpu, "detac", "DeviceInfo", "'detach'" },
      { popart.Builder(), "addInputTenso", "Builder", "'addInputTensor'" },
    }) do
      local e = raised(function()
        return row[1][row[2]](row[1])
      end)
      assert.is_true(base.AttributeError:is(e))
      assert.matches(("^%s has no attribute '%s' %%(nearest: %s"):format(row[3], row[2], row[4]),
        e.message)
    end
    local b = popart.Builder()
    local o = b.aiOnnx:abs({ b:addInputTensor("FLOAT", { 2 }) })
    local s = popart.InferenceSession(b:getModelProto(), popart.DataFlow(1, { o }), cpu)
    assert.matches("InferenceSession has no attribute 'prepareDevic' %(nearest: 'prepareDevice'",
      raised(function()
        return s.prepareDevic
      end).message)
    assert.is_nil(popart.TensorInfo("FLOAT", { 2 })._own) -- private names stay free
  end)
end)

describe("what a user gets wrong", function()
  local helper = require("spec.popart.helper")
  local popart = require("popart")
  local torch = require("torch")

  local function open(model, flow)
    return popart.InferenceSession(model, flow or popart.DataFlow(1, { "y" }),
      popart.DeviceManager():createCpuDevice())
  end

  it("is told of models that are none", function()
    helper.refuses("popart_exception", 'from the string "": it is empty', open, "")
    helper.refuses("popart_exception", 'from the string "\\x01\\xffa\\x7f": ', open, "\1\255a\127")
    local onnx, core = require("lupine.onnx"), require("lupine.core")
    local folder = require("spec.support.files").unused()
    core.make_folder(folder)
    local b = popart.Builder()
    local w = b:addInitializedInputTensor(torch.ones(2), "w")
    local y = b.aiOnnx:abs({ w })
    b:addOutputTensor(y)
    local model = onnx.load_from_string(b:getModelProto())
    model.opset_import = { { domain = "", version = 99 } }
    helper.refuses("popart_exception", "of ONNX's operator set 99, the newest that is known is",
      open, core.onnx_encode(model, "ModelProto"))
    helper.refuses("NotImplementedError", "operator set 99", onnx.load, model)
    b:saveInitializersExternally({ w }, folder .. "/w.bin")
    b:saveModelProto(folder .. "/model.onnx")
    os.remove(folder .. "/w.bin")
    for _, read in ipairs({ open, popart.Builder }) do
      helper.refuses("popart_exception", "Failed to load a ModelProto: tensor 'w': ", read,
        folder .. "/model.onnx")
    end
    helper.refuses("FileNotFoundError", "tensor 'w': ", onnx.load, folder .. "/model.onnx")
    require("spec.support.files").remove(folder)
  end)

  it("is told of inputs of nodes", function()
    local b = popart.Builder()
    local x = b:addInputTensor("FLOAT", { 2 })
    helper.refuses("TypeError", "add: args: element 0: expected a tensor id, got nil", function()
      b.aiOnnx:add({ nil, x })
    end)
    helper.refuses("popart_exception", "its result depends on the values of 'input'", function()
      b.aiOnnx:nonzero({ x })
    end)
    local body = b:createSubgraphBuilder()
    body:addInputTensor("INT64", {})
    local on = body:addInputTensor("BOOL", {})
    local y = body:addInputTensor("FLOAT", { 2 })
    body:addOutputTensor(on)
    body:addOutputTensor(body.aiOnnx:add({ y, y }))
    local m = b.aiOnnx:constant(torch.tensor(1 << 33, { dtype = torch.int64 }))
    helper.refuses("popart_exception", "its trip count M is 8589934592. Allowed: up to 2147483647",
      function()
        b.aiOnnx:loop({ m, b.aiOnnx:constant(torch.tensor(true)), x }, 1, body)
      end)
  end)

  it("is told of gradients of integers and of weights that are not there", function()
    local b = popart.Builder()
    local i = b:addInputTensor("INT32", { 2 }, "i")
    local w = b:addInitializedInputTensor(torch.ones(2), "w")
    local loss = helper.l1(b, b.aiOnnx:mul({ w, b.aiOnnx:cast({ i }, "FLOAT") }), 1.0)
    helper.refuses("popart_exception", "Gradient___i' not in Ir Tensors: 'i' is of no floating",
      helper.training, b, popart.DataFlow(1, { "Gradient___i" }), loss, popart.ConstSGD(1))
    local s = helper.training(b, popart.DataFlow(1), loss, popart.ConstSGD(1))
    local logging, warned = require("popart.logging"), {}
    local warn = logging.warn
    finally(function()
      logging.warn = warn
    end)
    logging.warn = function(_, fmt, ...)
      warned[#warned + 1] = fmt:format(...)
    end
    s:writeWeights(popart.PyWeightsIO({ ww = torch.ones(2), w = torch.ones(2) }))
    assert.same({ "writeWeights: the model has no weight 'ww' (nearest: 'w')" }, warned)
  end)
end)

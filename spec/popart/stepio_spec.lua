-- Where a run's inputs come from and its anchors go.
local dataflow = require("popart.dataflow")
local helper = require("spec.helper")
local stepio = require("popart.stepio")
local torch = require("torch")
local transfers = require("popart.transfers")

local PyStepIO, PyWeightsIO = stepio.PyStepIO, stepio.PyWeightsIO
local refuses = helper.refuses

-- Descriptions of tensors as a session gives them.
local function described(id, shape, steps, other)
  local d = { id = id, dtype = torch.float32, shape = shape, steps = steps, replicas = 1 }
  for key, value in pairs(other or {}) do
    d[key] = value
  end
  return d
end

local function count(from, to)
  return torch.arange(from, to + 1):float()
end

describe("popart.PyStepIO", function()
  it("B6 refuses tensors that do not lie row by row", function()
    local turned = torch.zeros(2, 3):t()
    local e = refuses
    e("popart_exception", "input array for tensor 'a' as it is not c%-contiguous", PyStepIO,
      { a = turned }, {})
    e("popart_exception", "output array for tensor 'o' as it is not c%-contiguous", PyStepIO, {},
      { o = turned })
    e("popart_exception", "not c%-contiguous", PyStepIO, { a = torch.zeros(4)["::2"] }, {})
    e("TypeError", "inputs%['a'%]: expected a tensor, got a list of 2", PyStepIO,
      { a = { 1, 2 } }, {})
    e("TypeError", "outputs: expected table, got nil", PyStepIO, {})
  end)

  it("gives views of the tensors, and begins again behind the last element", function()
    local a, o = count(1, 6), torch.zeros(4)
    local io = PyStepIO({ a = a:reshape(3, 2) }, { o = o })
    assert.same({ 1, 2 }, io:in_("a", 2, false, false):tolist())
    io:inComplete("a", 2, false)
    assert.same({ 3, 4, 5, 6 }, io:in_("a", 4, false, false):tolist())
    assert.same({ 1 }, io:in_("a", 1, false, false):tolist())
    io:out("o", 3):fill_(7)
    io:outComplete("o")
    assert.same({ 7, 7, 7, 0 }, o:tolist())
    refuses("popart_runtime_error", "Tensor o of PyStepIO's outputs has 4 elements, 2 are needed "
      .. "after the first 3", io.out, io, "o", 2)
  end)

  it("B5 names a tensor that was not given", function()
    local io = PyStepIO({}, {})
    refuses("popart_runtime_error", "No tensor a provided in PyStepIO's inputs", io.in_, io, "a", 1)
    refuses("popart_runtime_error", "No tensor o provided in PyStepIO's outputs", io.out, io, "o",
      1)
    refuses("popart_runtime_error", "No tensor a provided in PyStepIO's inputs", transfers.inputs,
      io, { described("a", { 1 }, 1) })
    refuses("popart_runtime_error", "No tensor o provided in PyStepIO's outputs",
      transfers.outputs, io, { described("o", { 1 }, 1, { value = torch.zeros(1) }) })
  end)

  it("gives a run's values without a copy, run by run", function()
    local a = count(1, 12)
    local io = PyStepIO({ a = a }, {})
    local d = { described("a", { 3 }, 2) }
    local first = transfers.inputs(io, d)[1]
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, first:tolist())
    assert.equal(a:data_ptr(), first:data_ptr())
    assert.same({ { 7, 8, 9 }, { 10, 11, 12 } }, transfers.inputs(io, d)[1]:tolist())
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, transfers.inputs(io, d)[1]:tolist())
  end)

  it("reads a smaller tensor again and again", function()
    local io = PyStepIO({ a = count(1, 2) }, {})
    assert.same({ { 1, 2 }, { 1, 2 }, { 1, 2 } },
      transfers.inputs(io, { described("a", { 2 }, 3) })[1]:tolist())
  end)

  it("takes scalars, replicas and inputs that all replicas share", function()
    local io = PyStepIO({ s = count(1, 6), b = count(1, 6) }, {})
    local s, b = table.unpack(transfers.inputs(io, { described("s", {}, 3, { replicas = 2 }),
      described("b", { 2 }, 3, { replicas = 2, broadcast = true }) }))
    assert.same({ 1, 2, 3, 4, 5, 6 }, s:tolist())
    assert.same({ { 1, 2 }, { 1, 2 }, { 3, 4 }, { 3, 4 }, { 5, 6 }, { 5, 6 } }, b:tolist())
  end)

  it("gives values in the rows that a program reads, whatever shape they were given in", function()
    local a = count(1, 8)
    for _, given in ipairs({ a, a:view(2, 4), a:view(4, 2), a:view(2, 2, 2) }) do
      local got = transfers.inputs(PyStepIO({ a = given }, {}),
        { described("a", { 2, 2 }, 2, { rows = { 4, 2 } }) })[1]
      assert.same({ { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 } }, got:tolist())
      assert.equal(a:data_ptr(), got:data_ptr())
      local o = torch.zeros_like(given)
      transfers.outputs(PyStepIO({}, { o = o }), { described("o", { 2, 2 }, 2, { value = got }) })
      assert.is_true(torch.equal(given, o))
    end
    local shared = transfers.inputs(PyStepIO({ a = a }, {}), { described("a", { 2, 2 }, 2,
      { replicas = 2, broadcast = true, rows = { 8, 2 } }) })[1]
    assert.same({ { 1, 2 }, { 3, 4 }, { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 8 }, { 5, 6 }, { 7, 8 } },
      shared:tolist())
  end)

  it("B11 narrows int64 to int32 and no other type", function()
    local io = PyStepIO({ a = torch.tensor({ 1, 2 }), f = torch.zeros(2), l = torch.zeros(2) }, {})
    local d = described("a", { 2 }, 1, { dtype = torch.int32 })
    local got = transfers.inputs(io, { d })[1]
    assert.equal(torch.int32, got.dtype)
    assert.same({ { 1, 2 } }, got:tolist())
    d.id = "f"
    refuses("popart_runtime_error", "Type discrepancy for tensor f. User provided : FLOAT and "
      .. "expected : INT32", transfers.inputs, io, { d })
    local out = PyStepIO({}, { o = torch.zeros({ 2 }, { dtype = torch.int32 }) })
    refuses("popart_runtime_error", "Type discrepancy for tensor o. User provided : INT32 and "
      .. "expected : FLOAT", transfers.outputs, out,
      { described("o", { 2 }, 1, { value = torch.ones(1, 2) }) })
  end)

  it("B16 puts results into the tensors of the run's own PyStepIO", function()
    local first, second = torch.zeros(2, 2), torch.zeros(4)
    for i, o in ipairs({ first, second }) do
      transfers.outputs(PyStepIO({}, { o = o }),
        { described("o", { 2 }, 2, { value = torch.ones(2, 2) * i }) })
    end
    assert.same({ { 1, 1 }, { 1, 1 } }, first:tolist())
    assert.same({ 2, 2, 2, 2 }, second:tolist())
  end)

  it("does without a history of gradients", function()
    local a = count(1, 2):requires_grad_()
    local o = torch.zeros(2):requires_grad_()
    local io = PyStepIO({ a = a }, { o = o })
    local got = transfers.inputs(io, { described("a", { 2 }, 1) })[1]
    assert.is_false(got.requires_grad)
    transfers.outputs(io, { described("o", { 2 }, 1, { value = got }) })
    assert.same({ 1, 2 }, o:tolist())
  end)
end)

describe("popart.PyStepIOCallback", function()
  -- An IO that notes its calls; `values` by name, in order.
  local function noting(values, results)
    local log = {}
    return stepio.PyStepIOCallback(function(id, prefetch)
      log[#log + 1] = "in " .. id
      assert.is_false(prefetch)
      return table.remove(values[id], 1)
    end, function(id)
      log[#log + 1] = "read " .. id
    end, function(id)
      log[#log + 1] = "out " .. id
      results[#results + 1] = torch.zeros(2)
      return results[#results]
    end, function(id)
      log[#log + 1] = "written " .. id
    end), log
  end

  it("B8 is called for each tensor in each micro-batch, and told when it is done", function()
    local values = { a = { count(1, 2), count(3, 4) }, b = { count(5, 6), count(7, 8) } }
    local results = {}
    local io, log = noting(values, results)
    local a, b = table.unpack(transfers.inputs(io,
      { described("a", { 2 }, 2), described("b", { 2 }, 2) }))
    transfers.outputs(io, { described("o", { 2 }, 2, { value = a + b }) })
    assert.same({ "in a", "read a", "in b", "read b", "in a", "read a", "in b", "read b",
      "out o", "written o", "out o", "written o" }, log)
    assert.same({ { 6, 8 }, { 10, 12 } }, { results[1]:tolist(), results[2]:tolist() })
  end)

  it("is called replica by replica, once for all where they share", function()
    local values, results = { a = {}, b = {} }, {}
    for i = 1, 4 do
      values.a[i], values.b[i] = count(i, i), count(10 * i, 10 * i)
    end
    local io, log = noting(values, results)
    local a, b = table.unpack(transfers.inputs(io, { described("a", { 1 }, 2, { replicas = 2 }),
      described("b", { 1 }, 2, { replicas = 2, broadcast = true }) }))
    assert.same({ { 1 }, { 2 }, { 3 }, { 4 } }, a:tolist())
    assert.same({ { 10 }, { 10 }, { 20 }, { 20 } }, b:tolist())
    assert.equal(2 * (4 + 2), #log)
    assert.equal("in a read a in a read a in b read b", table.concat(log, " ", 1, 6))
  end)

  it("may give and take micro-batches of any shape, and tensors with gradients", function()
    local out = torch.zeros(4):requires_grad_()
    local io = stepio.PyStepIOCallback(function()
      return count(1, 4):requires_grad_()
    end, print, function()
      return out
    end, print)
    function io:inComplete() end
    function io:outComplete() end
    local got = transfers.inputs(io, { described("a", { 2, 2 }, 2) })[1]
    assert.same({ { { 1, 2 }, { 3, 4 } }, { { 1, 2 }, { 3, 4 } } }, got:tolist())
    assert.is_false(got.requires_grad)
    transfers.outputs(io, { described("o", { 2, 2 }, 2, { value = got * 2 }) })
    assert.same({ 2, 4, 6, 8 }, out:tolist())
  end)

  it("refuses what callbacks may not return", function()
    local function io_of(value)
      local function give()
        return value
      end
      return stepio.PyStepIOCallback(give, print, give, print)
    end
    local d = { described("a", { 2 }, 1, { value = torch.zeros(2) }) }
    refuses("popart_runtime_error", "callback for the input 'a' returned nil: expected a tensor of "
      .. "2 elements", transfers.inputs, io_of(nil), d)
    refuses("popart_runtime_error", "callback for the output 'a' returned nil", transfers.outputs,
      io_of(nil), d)
    refuses("popart_exception", "input array for tensor 'a' as it is not c%-contiguous",
      transfers.inputs, io_of(torch.zeros(4)["::2"]), d)
    refuses("popart_runtime_error", "input for tensor a has 3 elements, expected 2",
      transfers.inputs, io_of(torch.zeros(3)), d)
    assert.is_nil(io_of(nil):in_("a", 2, true))
    refuses("TypeError", "output_callback: expected function, got nil", stepio.PyStepIOCallback,
      print, print)
  end)
end)

describe("popart.IStepIO", function()
  it("has the name of C++", function()
    assert.equal(stepio.PyStepIOCallback, stepio.StepIOCallback)
  end)

  it("can be one's own", function()
    local Ones = stepio.IStepIO:extend("Ones")
    function Ones:in_(_, n)
      return torch.ones(n)
    end
    function Ones:inComplete(id, n)
      self.read = (self.read or "") .. id .. n
    end
    local io = Ones()
    assert.same({ { 1, 1 }, { 1, 1 } }, transfers.inputs(io,
      { described("x", { 2 }, 2) })[1]:tolist())
    assert.equal("x2x2", io.read)
    refuses("NotImplementedError", "Ones:out: a class of IStepIO defines", transfers.outputs, io,
      { described("o", { 1 }, 1, { value = torch.zeros(1) }) })
    function Ones:assertNumElements(program)
      self.asked = program
    end
    local program = {}
    transfers.check_sizes(io, program)
    assert.equal(program, io.asked)
  end)
end)

describe("sizes of a run's tensors", function()
  local Art = dataflow.AnchorReturnType

  -- A program that reads "x", returns "o", and has the weight "w"; "unused" was folded away.
  local function program(art)
    return { inputs = { described("x", { 1 }, 1) }, outputs = { described("o", { 2 }, 4,
      { art = art or Art("All") }) }, tensors = { x = true, o = true, w = true },
      model_inputs = { x = true, unused = true }, batches = 2, accumulation = 2, replicas = 1 }
  end

  local function checked(inputs, outputs, p)
    transfers.check_sizes(PyStepIO(inputs, outputs or {}), p or program())
  end

  it("B1 are compared for inputs, with what they follow from", function()
    checked({ x = torch.zeros(1) })
    local e = refuses("popart_runtime_error", "^Unexpected number of input elements for Tensor x. "
      .. "Expected 1, but received 2%.", checked, { x = torch.zeros(2) })
    for _, line in ipairs({ "replication  factor = 1", "accumulation factor = 2",
      "batches per step    = 2", "Tensor nelms        = 1", "enableRuntimeAsserts" }) do
      assert.truthy(e.message:find(line, 1, true), line)
    end
  end)

  it("B4 are compared for anchors, with their return type", function()
    checked({}, { o = torch.zeros(2, 2, 2) })
    local e = refuses("popart_runtime_error", "^Unexpected number of output elements for Tensor o. "
      .. "Expected 8, but received 4%.", checked, {}, { o = torch.zeros(4) })
    assert.matches("The anchor return type is  All$", e.message)
    e = refuses("popart_runtime_error", "Expected 8", checked, {}, { o = torch.zeros(4) },
      program(Art("EveryN", 2)))
    assert.matches("type is  EveryN\nThe return period is 2$", e.message)
  end)

  it("B3 are not compared when that is switched off", function()
    local io = PyStepIO({ x = torch.zeros(2) }, { o = torch.zeros(1) })
    io:enableRuntimeAsserts(false)
    transfers.check_sizes(io, program())
    refuses("TypeError", "on: expected bool", io.enableRuntimeAsserts, io, 1)
  end)

  it("B12 tell what is no input or anchor", function()
    refuses("popart_runtime_error", "'w' .* not registered as one of the inputs to the model",
      checked, { w = torch.zeros(1) })
    refuses("popart_runtime_error", "no Tensor named xx .* original ONNX Model", checked,
      { xx = torch.zeros(1) })
    refuses("popart_runtime_error", "no Tensor named oo in the Ir's tensors", checked, {},
      { oo = torch.zeros(1) })
    refuses("popart_exception", "Tensor w is not an anchor", checked, {}, { w = torch.zeros(1) })
    checked({ unused = torch.zeros(5) }) -- a warning
  end)
end)

describe("popart.PyWeightsIO", function()
  it("keeps tensors by name", function()
    local w = torch.zeros(2)
    local io = PyWeightsIO({ w = w })
    assert.is_true(io:contains("w"))
    assert.is_false(io:contains("v"))
    assert.equal(w, io:weight("w"))
    assert.same({ "w" }, io:ids())
    refuses("popart_exception", "No tensor v provided in PyWeightsIO's weights", io.weight, io, "v")
    refuses("popart_exception", "PyWeightsIO is unable .*'w' as it is not c%-contiguous",
      PyWeightsIO, { w = torch.zeros(2, 3):t() })
  end)
end)

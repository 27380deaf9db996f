-- Inputs and anchors by libraries written for lupine/step_io.h.
local custom_ops = require("spec.support.custom_ops")
local core = require("lupine.core")
local helper = require("spec.popart.helper")
local popart = require("popart")
local program = require("spec.support.program")
local read = require("spec.support.files").read
local torch = require("torch")

local notes = os.tmpname()

-- f of a library, made of the probe with these macros.
local function with(macros, f)
  local flags = { "-Wno-unused -Wno-error" }
  for name, value in pairs(macros) do
    flags[#flags + 1] = program.quote(("-D%s=%s"):format(name, value))
  end
  local library, folder = custom_ops.compile("spec/support/step_io/probe.c",
    table.concat(flags, " "))
  local ok, e = pcall(f, library)
  collectgarbage()
  custom_ops.remove(folder)
  assert(ok, e)
end

-- A session that multiplies x by itself, of a type.
local function squares(dtype, batches)
  local b = popart.Builder()
  local x = b:addInputTensor(popart.TensorInfo(dtype, { 3 }), "x")
  local y = b.aiOnnx:mul({ x, x })
  b:addOutputTensor(y)
  return helper.inference(b, popart.DataFlow(batches or 1, { y })), y
end

describe("popart.StepIO", function()
  teardown(function()
    os.remove(notes)
  end)

  it("feeds a session and takes its anchors, in order, with their types", function()
    with({}, function(library)
      for dtype, number in pairs({ FLOAT = 2, FLOAT16 = 3, INT32 = 6 }) do
        local session, y = squares(dtype, 2)
        do
          local io <close> = popart.StepIO(library, notes)
          session:run(io)
        end
        local d = ("%d 3 0 0\n"):format(number)
        local input = "in x " .. d .. "in_complete x " .. d
        local output = ("out %s %sout_complete %s %slast 4\n"):format(y, d, y, d)
        assert.equal(input .. input .. output .. output .. "close\n", read(notes))
      end
    end)
  end)

  it("tells of prefetching, where nothing need be given, and of broadcasts", function()
    with({ DATA = "NULL" }, function(library)
      local io <close> = popart.StepIO({ path = library, argument = notes })
      assert.is_nil(io:in_("x", 3, true, true, torch.float32))
      assert.equal("in x 2 3 1 1\n", read(notes))
      helper.refuses("popart_runtime_error", "probe%.so: in%('x'%) gave no values", io.in_, io, "x",
        3, false, false, torch.float32)
      io:out("y", 2, torch.float32)
      helper.refuses("popart_runtime_error", "probe%.so: out%('y'%) gave no place", io.outComplete,
        io, "y")
    end)
  end)

  it("raises what the library says", function()
    with({ FAILED = 1 }, function(library)
      local session = squares("FLOAT")
      helper.refuses("popart_runtime_error", "popart%.StepIO: .*probe%.so: in%('x'%): not x$",
        session.run, session, popart.StepIO(library, notes))
      helper.refuses("popart_runtime_error", "popart%.StepIO: .*: it needs a file for notes",
        popart.StepIO, library)
    end)
    with({ FAILED = 1, WHY = '"%s", ""' }, function(library)
      local io <close> = popart.StepIO(library, notes)
      helper.refuses("popart_runtime_error", "it failed, and does not say why", io.in_, io, "x", 1,
        false, false, torch.float32)
    end)
  end)

  for _, case in ipairs({
    { "ABI", "7", "compiled with version 7 of lupine/step_io%.h, this program has version 1" },
    { "BYTES", "8", "its table has 8 bytes, expected %d+: compile it again" },
    { "IN", "NULL", "its table has no function `in`" },
    { "OUT_COMPLETE", "NULL", "its table has no function `out_complete`" },
    { "TABLE", "NULL", "lupine_open_step_io returned NULL" },
    { "SYMBOL", "other", "exports no lupine_open_step_io: .*lupine/step_io%.h" },
  }) do
    it(("refuses a library whose %s is %s"):format(case[1], case[2]), function()
      with({ [case[1]] = case[2] }, function(library)
        helper.refuses("popart_runtime_error", case[3], popart.StepIO, library, notes)
      end)
    end)
  end

  it("takes what lies row by row", function()
    with({}, function(library)
      local io <const> = core.step_io(library, notes)
      local t = torch.arange(6):reshape({ 2, 3 }):float()
      io:write("y", t)
      local noted = "out y 2 6 0 0\nout_complete y 2 6 0 0\n"
      assert.equal(noted, read(notes))
      for _, view in ipairs({ t:t(), t:narrow(1, 0, 2), t:expand({ 2, 2, 3 }) }) do
        local ok, e = pcall(io.write, io, "y", view)
        assert.is_false(ok)
        assert.matches("expected a contiguous tensor", tostring(e))
      end
      assert.equal(noted, read(notes))
    end)
  end)

  it("refuses what is no library", function()
    helper.refuses("FileNotFoundError", "popart%.StepIO: nowhere%.so", popart.StepIO, "nowhere.so")
    helper.refuses("TypeError", "StepIO: path", popart.StepIO, 5)
    local ok, e = pcall(popart.StepIO, "README.md")
    assert.is_false(ok)
    assert.matches("popart%.StepIO: ", e.message)
  end)

  it("is closed once", function()
    with({}, function(library)
      local io = popart.StepIO(library, notes)
      io:close()
      io:close()
      assert.equal("close\n", read(notes))
      assert.is_false((pcall(io.in_, io, "x", 1, false, false, torch.float32)))
    end)
  end)

  it("of tables is a PyStepIO", function()
    local session, y = squares("FLOAT")
    local anchors = session:initAnchorArrays()
    local io = popart.StepIO({ x = torch.tensor({ 1.0, 2, 3 }) }, anchors)
    assert.is_true(popart.PyStepIO:is(io))
    session:run(io)
    assert.same({ 1, 4, 9 }, anchors[y]:tolist())
  end)
end)

describe("the example", function()
  it("numbers squares what a file has", function()
    local library, folder = custom_ops.compile("examples/step_io/numbers.c")
    local out, err, code = program.run({ "examples/step_io/numbers.lua", library })
    custom_ops.remove(folder)
    assert.equal(0, code, err)
    assert.equal("sum 182\n", out)
  end)
end)

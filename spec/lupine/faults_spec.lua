--- Faults on demand: what may be asked for, when it strikes, with what error.
local devices = require("lupine.devices")
local faults = require("lupine.faults")
local helper = require("spec.helper")
local machine = require("spec.support.machine")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")

local nn = torch.nn
local raises = helper.raises

describe("faults on demand", function()
  local folder

  before_each(function()
    folder = machine.begin()
    faults.clear()
  end)

  after_each(function()
    faults.clear()
    machine.finish()
  end)

  local Sum = nn.Module:extend("Sum")
  function Sum:init(net)
    self.net = net
  end
  function Sum:forward(x)
    return poptorch.identity_loss(self.net(x):sum(), "sum")
  end

  -- Weights fall by 1 with each update.
  local function trainer(iterations)
    local net = nn.Linear(1, 1, false)
    nn.init.zeros_(net.weight)
    local options = poptorch.Options():deviceIterations(iterations or 1)
    return poptorch.trainingModel(Sum(net), options, torch.optim.SGD(net:parameters(), { lr = 1 })),
      net.weight, torch.ones(iterations or 1, 1)
  end

  -- Calls the model n times: the steps finished after each call, "!" at those that
  -- failed.
  local function calls(n, model, weight, x)
    local out = {}
    for i = 1, n do
      local ok = pcall(model, x)
      out[i] = ("%d%s"):format(-weight:item(), ok and "" or "!")
    end
    return table.concat(out, " ")
  end

  describe("strike", function()
    it("at the next call, or the n-th one, once or several times", function()
      local model, w, x = trainer()
      faults.inject({ kind = "application" })
      assert.equal("0! 1 2", calls(3, model, w, x))
      faults.inject({ kind = "recoverable", call = 3 })
      assert.equal("3 4 4! 5", calls(4, model, w, x))
      faults.inject({ kind = "recoverable", call = 2, times = 3 })
      assert.equal("6 6! 6! 6! 7", calls(5, model, w, x))
      assert.same({}, faults.pending())
    end)

    it("at the n-th device iteration from now on, or of the n-th call", function()
      local model, w, x = trainer(4)
      faults.inject({ kind = "recoverable", step = 7 })
      assert.equal("4 6! 10 14", calls(4, model, w, x))
      faults.inject({ kind = "recoverable", call = 2, step = 4 })
      assert.equal("18 21! 25", calls(3, model, w, x))
      -- the 3rd iteration again: of the call that repeats it, it is the first
      faults.inject({ kind = "recoverable", step = 3, times = 2 })
      assert.equal("27! 27! 31", calls(3, model, w, x))
    end)

    it("at a cycle of the simulated program", function()
      local model, w, x = trainer(4)
      model:compile(x)
      local cycles = model:report().cycles
      faults.inject({ kind = "recoverable", cycle = 0 })
      assert.equal("0! 4", calls(2, model, w, x))
      faults.inject({ kind = "recoverable", cycle = cycles + cycles // 2 + 10 })
      assert.equal("8 10! 14", calls(3, model, w, x))
      faults.inject({ kind = "recoverable", call = 2, cycle = cycles - 1 })
      assert.equal("18 21! 25", calls(3, model, w, x))
      faults.inject({ kind = "recoverable", step = 2, cycle = cycles // 4 + 10 })
      assert.equal("27! 31", calls(2, model, w, x))
    end)

    it("on a device alone, if one is named", function()
      local a, w, x = trainer()
      local b, v = trainer()
      a:compile(x)
      b:compile(x)
      faults.inject({ kind = "recoverable", device = 1 })
      assert.equal("1 2", calls(2, a, w, x))
      assert.equal("0! 1", calls(2, b, v, x))
    end)

    it("on a device by the iterations of that alone", function()
      local a, w, x = trainer(4)
      local b, v = trainer(4)
      a:compile(x)
      b:compile(x)
      faults.inject({ kind = "recoverable", device = 1, step = 6 })
      assert.equal("4 8", calls(2, a, w, x))
      assert.equal("4 5! 9", calls(3, b, v, x))
    end)

    it("never on the IPU Model, and not after clear", function()
      faults.inject({ kind = "recoverable" })
      local net = nn.Linear(1, 1)
      local model = poptorch.inferenceModel(net, poptorch.Options():useIpuModel(true))
      model(torch.ones(1, 1))
      assert.same({ { kind = "recoverable" } }, faults.pending())
      faults.clear()
      poptorch.inferenceModel(net)(torch.ones(1, 1))
    end)

    it("each in turn, the earliest first", function()
      local model, w, x = trainer(4)
      faults.inject("recoverable step=4; application step=2; unknown call=2")
      assert.equal("1! 1! 3! 7", calls(4, model, w, x))
    end)
  end)

  local KINDS = {
    { "recoverable", "RecoverableError", "poplar_recoverable_runtime_error" },
    { "unrecoverable", "UnrecoverableError", "poplar_unrecoverable_runtime_error" },
    { "unknown", "Error", "poplar_unknown_runtime_error" },
    { "application", "Error", "poplar_application_runtime_error" },
    { "link", "Error", "poplar_link_error" },
    { "popart", "Error", "popart_exception" },
    { "popart_internal", "Error", "popart_internal_exception" },
    { "poplibs", "Error", "poplibs_exception" },
    { "poptorch", "Error", "poptorch_cpp_error" },
    { "exception", "Error", "std::exception" },
    { "out_of_range", "Error", "std::out_of_range" },
  }

  describe("raise", function()
    it("the class and type of each kind, with where it was raised", function()
      for _, row in ipairs(KINDS) do
        local model, _, x = trainer()
        faults.inject({ kind = row[1], message = "it is broken" })
        local e = raises(row[2], "^it is broken", function() model(x) end)
        assert.equal(row[3], e.type)
        assert.is_true(poptorch.Error:is(e))
        assert.equal(row[1] == "recoverable", poptorch.RecoverableError:is(e))
        assert.equal(row[1] == "unrecoverable", poptorch.UnrecoverableError:is(e))
        assert.equal(row[1] == "recoverable" and "IPU_RESET" or nil, e.recovery_action)
        assert.equal(row[1] == "link" and "while program 1 was compiled"
          or ("0 of 1 device iterations finished\nat cycle 0 of %d, call 1\non %s"):format(
            model:report().cycles, row[1] == "unrecoverable" and "device Id 0" or "device Id "
              .. (devices.holder(0) and 0 or 1)), e.location)
        assert.is_nil(e.message:find("device", 1, true))
        if row[1] ~= "link" then
          assert.equal(0, e.finished)
        end
        model:destroy()
      end
    end)

    it("a text of origin, type and message, the action, then the context by number", function()
      local model, _, x = trainer()
      faults.inject({ kind = "recoverable", action = "LINK_RESET", message = "no link" })
      local e = raises("RecoverableError", "no link", function() model(x) end)
      assert.matches("^In spec/lupine/faults_spec.lua:%d+: 'poplar_recoverable_runtime_error': "
        .. "no link\nRecovery action required: LINK_RESET\nError raised in:\n  %[0%] 0 of 1 device "
        .. "iterations finished\n  %[1%] at cycle 0 of %d+, call 1\n  %[2%] on device Id 0$",
        tostring(e))
    end)

    it("the linker's output behind the message", function()
      faults.inject({ kind = "link", call = 2 })
      local model, w, x = trainer()
      assert.equal("1 2", calls(2, model, w, x))
      local other, _, y = trainer()
      local e = raises("Error", "^linking a codelet failed\nld: error: ", function()
        other:compile(y)
      end)
      assert.equal("poplar_link_error", e.type)
      other(y) -- it was compiled at the second try
      assert.is_true(other:isCompiled())
    end)

    it("a pointer to a file for a message of more than 80 lines", function()
      local out, err = program.shell(("cd %s && LUPINE_DEVICES=%s %s -e %s"):format(folder, folder,
        io.popen("realpath " .. program.host):read("l"), program.quote([[
          local torch, poptorch = require("torch"), require("poptorch")
          local faults = require("lupine.faults")
          local m = poptorch.inferenceModel(torch.nn.Linear(1, 1))
          for _, lines in ipairs({ 80, 81 }) do
            faults.inject({ kind = "popart", message = ("line\n"):rep(lines) })
            local e = select(2, pcall(m, torch.ones(1, 1)))
            print(select(2, e.message:gsub("\n", "")), e.message:match("see .*"))
            local f = io.open("poptorch_error.log")
            print(f and select(2, f:read("a"):gsub("line\n", "")))
          end]])))
      assert.equal("80\tnil\nnil\n0\tsee poptorch_error.log for the full message)\n81\n", out, err)
    end)
  end)

  describe("take the device", function()
    it("until it is attached again, where the partition or the system is reset", function()
      for _, action in ipairs({ "PARTITION_RESET", "FULL_RESET" }) do
        local model, w, x = trainer(2)
        faults.inject({ kind = "recoverable", action = action, step = 4 })
        assert.equal("2 3!", calls(2, model, w, x))
        assert.is_false(model:isAttachedToDevice())
        assert.is_nil(devices.holder(0))
        raises("Error", "not attached", function() model:detachFromDevice() end)
        if action == "FULL_RESET" then
          model:attachToDevice()
        end
        assert.equal("5", calls(1, model, w, x))
        assert.is_true(model:isAttachedToDevice())
        model:destroy()
      end
    end)

    it("not where the IPU or a link is reset", function()
      for _, action in ipairs({ "IPU_RESET", "LINK_RESET" }) do
        local model, w, x = trainer()
        faults.inject({ kind = "recoverable", action = action })
        assert.equal("0!", calls(1, model, w, x))
        assert.is_true(model:isAttachedToDevice())
        model:destroy()
      end
    end)

    it("from this process for good, if the error cannot be recovered", function()
      machine.set("LUPINE_IPUS", "2")
      local model, w, x = trainer()
      faults.inject({ kind = "unrecoverable", times = 2 })
      assert.equal("0!", calls(1, model, w, x))
      assert.is_false(model:isAttachedToDevice())
      assert.equal("0! 0!", calls(2, model, w, x)) -- on IPU 1, which breaks, then on none
      raises("Error", "Failed to acquire 1 IPU%(s%): .*out of operation", function() model(x) end)
      local by_id = poptorch.inferenceModel(nn.Linear(1, 1), poptorch.Options():useIpuId(1))
      raises("UnrecoverableError", "Failed to acquire device Id 1: after an unrecoverable error "
        .. "this process cannot use it any more", function() by_id(x) end)
      assert.equal("1\n", (program.shell(("LUPINE_DEVICES=%s LUPINE_IPUS=2 %s -e %s"):format(folder,
        program.host, program.quote('print(require("lupine.devices").attach({ id = 1 }).id)')))))
      faults.clear()
      by_id(x)
      assert.equal("1", calls(1, model, w, x))
    end)
  end)

  describe("refuse", function()
    local function refused(class, pattern, fault)
      raises(class, "^faults.inject: " .. pattern, function() faults.inject(fault) end)
      assert.same({}, faults.pending())
    end

    it("what is no fault", function()
      refused("TypeError", "expected table, got nil")
      refused("TypeError", "expected table, got int 3", 3)
      refused("ValueError", "the text names no fault", " ; ")
      refused("ValueError", "kind: expected one of application, exception, link, .*, got nil", {})
      refused("ValueError", 'kind: expected one of .*, got string "recoverble"',
        { kind = "recoverble" })
      refused("ValueError", "action: expected one of FULL_RESET, IPU_RESET, LINK_RESET, "
        .. 'PARTITION_RESET, got string "RESET"', { kind = "recoverable", action = "RESET" })
      refused("ValueError", "action: only a recoverable fault has one",
        { kind = "unknown", action = "IPU_RESET" })
      refused("ValueError", "step: ", { kind = "unknown", step = 0 })
      refused("TypeError", "call: expected int, got float 1.5", { kind = "unknown", call = 1.5 })
      refused("ValueError", "cycle: ", { kind = "unknown", cycle = -1 })
      refused("ValueError", "times: ", { kind = "unknown", times = 0 })
      refused("ValueError", "no field 'at'%. Allowed: action, call, cycle, device, kind, message, "
        .. "step, times", { kind = "unknown", at = 3 })
      refused("TypeError", "message: ", { kind = "unknown", message = 3 })
      refused("ValueError", "step: a fault of the kind 'link' strikes at a compilation, call = n",
        { kind = "link", step = 3 })
      refused("TypeError", "", 3)
    end)

    it("a text that is none, and reads others", function()
      assert.same({}, faults.parse(""))
      assert.same({}, faults.parse(" ; ;"))
      assert.same({ { kind = "recoverable", action = "LINK_RESET", step = 12 },
        { kind = "unknown", message = "a; b = c", times = 2 } },
        faults.parse(' recoverable  action=LINK_RESET step = 12;unknown message="a; b = c" '
          .. "times=2"))
      for text, pattern in pairs({
        ["recoverable step"] = "expected NAME=VALUE, got 'step'",
        ["recoverable step=; unknown"] = "step: no value",
        ["recoverable step=x"] = 'step: expected int, got string "x"',
        ["recoverable step=1 step=2"] = "step is given twice",
        ["recoverable kind=unknown"] = "kind is given twice",
        ["step=3"] = 'kind: expected one of .* got string "step"',
        ["3"] = "expected a kind of fault, got '3'",
        ['unknown message="a'] = 'message: the double quote is not closed: "a$',
        ['unknown message="a"step=1'] = "expected a blank before 'step=1'",
        ["unknown; wrong"] = 'kind: expected one of .* got string "wrong"',
      }) do
        local ok, e = pcall(faults.parse, text)
        assert.is_false(ok, text)
        assert.matches("^faults.parse: " .. pattern, e.message)
      end
    end)
  end)

  it("come from LUPINE_FAULTS", function()
    local script = [[
      local torch, poptorch = require("torch"), require("poptorch")
      local m = poptorch.inferenceModel(torch.nn.Linear(1, 1))
      for i = 1, 4 do
        local ok, e = pcall(m, torch.ones(1, 1))
        print(i, ok, not ok and (e.recovery_action or e.message))
      end]]
    local function run(text)
      return (program.shell(("LUPINE_DEVICES=%s LUPINE_FAULTS=%s %s -e %s"):format(folder,
        program.quote(text), program.host, program.quote(script))))
    end
    assert.equal("1\ttrue\tfalse\n2\tfalse\tFULL_RESET\n3\tfalse\tno bus\n4\ttrue\tfalse\n",
      run('recoverable action=POWER_CYCLE call=2; application call=3 message="no bus"'))
    assert.matches("1\tfalse\tLUPINE_FAULTS: kind: expected one of application", run("nothing"))
  end)
end)

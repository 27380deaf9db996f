--- The IPUs that processes share: ids, the table and its locks.
local core = require("lupine.core")
local devices = require("lupine.devices")
local helper = require("spec.helper")
local machine = require("spec.support.machine")
local program = require("spec.support.program")

local raises = helper.raises

describe("the simulated machine", function()
  local folder

  before_each(function()
    folder = machine.begin()
  end)

  after_each(function()
    machine.finish()
  end)

  -- What a script of another process prints.
  local function other(script, environment)
    return (program.shell(("LUPINE_DEVICES=%s %s %s -e %s"):format(folder, environment or "",
      program.host, program.quote('local devices = require("lupine.devices") ' .. script))))
  end

  it("numbers its devices as gc-info -l: single ones, pairs, fours, … all", function()
    local list = devices.list()
    assert.equal(127, #list)
    local firsts = { [0] = { 0, 1 }, [63] = { 63, 1 }, [64] = { 0, 2 }, [65] = { 2, 2 },
      [95] = { 62, 2 }, [96] = { 0, 4 }, [112] = { 0, 8 }, [120] = { 0, 16 }, [124] = { 0, 32 },
      [125] = { 32, 32 }, [126] = { 0, 64 } }
    for id, want in pairs(firsts) do
      local group = devices.find(id)
      assert.same({ id = id, first = want[1], count = want[2] }, group)
      assert.same(group, list[id + 1])
    end
    assert.is_nil(devices.find(127))
    assert.is_nil(devices.find(-1))
    assert.equal(16, #devices.list(4))
    assert.equal(0, #devices.list(3))
  end)

  it("has as many IPUs as LUPINE_IPUS, a power of two", function()
    for text, want in pairs({ ["1"] = 1, ["4"] = 4, ["128"] = 128, ["4096"] = 4096, [""] = 64 }) do
      machine.set("LUPINE_IPUS", text)
      assert.equal(want, devices.ipus())
      assert.equal(2 * want - 1, #devices.list())
    end
    for _, text in ipairs({ "0", "3", "8192", "x", "-2", "1.5" }) do
      machine.set("LUPINE_IPUS", text)
      raises("ValueError", "LUPINE_IPUS: expected a power of two from 1 to 4096", devices.ipus)
    end
  end)

  it("gives the first free device of a size and refuses busy ones", function()
    local a = devices.attach({ ipus = 1 })
    local four = devices.attach({ ipus = 4 })
    local b = devices.attach({ ipus = 1 })
    assert.same({ 0, 97, 1 }, { a.id, four.id, b.id })
    assert.equal("device Id 97 (IPUs 4 to 7)", tostring(four))
    assert.is_nil(devices.try_attach({ id = 1 }))
    assert.is_nil(devices.try_attach({ id = 64 })) -- IPUs 0 and 1
    assert.is_nil(devices.try_attach({ id = 126 }))
    local e = raises("Error", "Failed to acquire device Id 97: it is in use, 4 by this process",
      function() devices.attach({ id = 97 }, false) end)
    assert.equal("poptorch_cpp_error", e.type)
    four:detach()
    four:detach() -- nothing more
    assert.equal(5, devices.attach({ id = 5 }).first)
    raises("Error", "Failed to acquire device Id 127: this machine has the ids 0 to 126",
      function() devices.attach({ id = 127 }, true) end)
    raises("Error", "Failed to acquire 3 IPU%(s%): this machine has devices of 1, 2, 4, … 64",
      function() devices.attach({ ipus = 3 }, true) end)
  end)

  it("takes back what nothing refers to any more before it says that it is full", function()
    machine.set("LUPINE_IPUS", "2")
    collectgarbage("stop")
    for _ = 1, 20 do
      assert(devices.attach({ ipus = 1 }, false))
    end
    collectgarbage("restart")
    local a, b = devices.attach({ ipus = 1 }, false), devices.attach({ ipus = 1 }, false)
    raises("Error", "Failed to acquire 1 IPU%(s%): all such devices are in use "
      .. "%(LUPINE_IPUS=2%), 2 by this process",
      function() devices.attach({ ipus = 1 }, false) end)
    assert.same({ 0, 1 }, { math.min(a.id, b.id), math.max(a.id, b.id) })
  end)

  it("is one for all processes", function()
    local mine = devices.attach({ id = 64 })
    local out = other([[
      print(devices.attach({ ipus = 1 }).id, devices.holder(1).script, devices.holder(5))
      print(select(2, pcall(devices.attach, { id = 0 })).message)
    ]])
    assert.equal("2\t" .. arg[0] .. "\tnil\nFailed to acquire device Id 0: it is in use, "
      .. ("1 by process %d (%s)\n"):format(core.devices.process(), arg[0]), out)
    assert.same({ pid = core.devices.process(), first = 0, count = 2, script = arg[0] },
      devices.holder(1))
    assert.is_nil(devices.holder(2)) -- that process has ended
    mine:detach()
    assert.equal("0\n", other("print(devices.attach({ ipus = 2 }).first)"))
  end)

  it("has no part of a device that is out of operation, until it is repaired", function()
    local pair = devices.attach({ id = 64 }) -- IPUs 0 and 1
    pair:break_down()
    pair:detach()
    for _, id in ipairs({ 0, 1, 64, 96 }) do
      raises("UnrecoverableError", "Failed to acquire device Id " .. id, function()
        devices.attach({ id = id })
      end)
    end
    assert.equal(2, devices.attach({ ipus = 1 }).first)
    assert.equal(4, devices.attach({ ipus = 2 }).first)
    devices.repair()
    local second = devices.attach({ id = 1 })
    second:break_down()
    second:detach()
    raises("UnrecoverableError", "device Id 64", function() devices.attach({ id = 64 }) end)
    assert.equal(0, devices.attach({ id = 0 }).first)
    devices.repair()
    collectgarbage()
    assert.equal(0, devices.attach({ ipus = 2 }).first)
  end)

  it("has no record of a device that was given back, for who looks into its table", function()
    local a, b = devices.attach({ id = 64 }), devices.attach({ id = 2 })
    local function recorded()
      local found, f = {}, assert(io.open(folder .. "/ipus", "rb"))
      for bytes in function() return f:read(256) end do
        local who = core.devices.record(bytes)
        found[#found + 1] = who and who.count or 0
      end
      f:close()
      return found
    end
    assert.same({ 2, 2, 1 }, recorded())
    a:detach()
    assert.same({ 0, 0, 1 }, recorded())
    b:detach()
    assert.same({ 0, 0, 0 }, recorded())
  end)

  it("has the IPUs of a killed process back at once", function()
    local script = ([[
      devices = require("lupine.devices")
      print(require("lupine.core").devices.process())
      a = devices.attach({ ipus = 32 })
      print("has it")
      io.stdout:flush()
      require("lupine.core").devices.sleep(60)
    ]]):gsub("\n", " ")
    local p = assert(io.popen(("LUPINE_DEVICES=%s exec %s -e %s"):format(folder, program.host,
      program.quote(script))))
    local pid = p:read("n", "l")
    assert.equal("has it", p:read("l"))
    assert.equal(pid, devices.holder(31).pid)
    assert.equal(32, devices.attach({ ipus = 1 }).id)
    os.execute("kill -9 " .. pid)
    p:close()
    assert.is_nil(devices.holder(31))
    assert.equal(0, devices.attach({ ipus = 16 }).first)
  end)

  it("waits for a busy device, until it is given back", function()
    local p = assert(io.popen(("LUPINE_DEVICES=%s exec %s -e %s"):format(folder, program.host,
      program.quote([[a = require("lupine.devices").attach({ id = 3 }) print("has it")
      io.stdout:flush() require("lupine.core").devices.sleep(0.5)]]))))
    assert.equal("has it", p:read("l"))
    assert.is_nil(devices.try_attach({ id = 3 }))
    local waited = 0
    assert.equal(3, devices.attach({ id = 3 }, true, function() waited = waited + 1 end).id)
    assert.equal(1, waited)
    p:close()
  end)

  it("never gives an IPU to two processes at a time", function()
    local script = ([[
      local devices = require("lupine.devices")
      local core = require("lupine.core")
      local log = io.open(arg[1] .. "/log", "a")
      log:setvbuf("no")
      math.randomseed(core.devices.process())
      for _ = 1, 60 do
        local d = devices.attach({ ipus = 1 << math.random(0, 2) }, true)
        log:write(("+ %d %d\n"):format(d.first, d.count))
        core.devices.sleep(math.random() * 0.002)
        log:write(("- %d %d\n"):format(d.first, d.count))
        d:detach()
      end]])
    local path = program.temporary(script)
    program.shell(("for i in 1 2 3 4 5 6; do LUPINE_IPUS=8 LUPINE_DEVICES=%s %s %s %s & done; wait")
      :format(folder, program.host, path, folder))
    os.remove(path)
    local taken, lines = {}, 0
    for line in io.lines(folder .. "/log") do
      local what, first, count = line:match("^([+-]) (%d+) (%d+)$")
      lines = lines + 1
      for ipu = first, first + count - 1 do
        assert.equal(what == "-", taken[ipu] or false, line)
        taken[ipu] = what == "+"
      end
    end
    assert.equal(6 * 60 * 2, lines)
  end)

  it("survives any damage to its table", function()
    local path = devices.path()
    local mine = devices.attach({ ipus = 4 })
    for seed = 1, 50 do
      math.randomseed(seed)
      local bytes = {}
      for i = 1, math.random(0, 1500) do
        bytes[i] = string.char(math.random(0, 255))
      end
      local f = assert(io.popen("cat >" .. program.quote(path), "w"))
      f:write(table.concat(bytes))
      f:close()
      assert.equal(core.devices.process(), devices.holder(seed % 4).pid)
      assert.is_nil(devices.holder(4))
      assert.is_nil(devices.try_attach({ id = 2 }))
      devices.attach({ id = 7 }):detach()
    end
    mine:detach()
    assert.equal(0, devices.attach({ ipus = 4 }).first)
  end)

  it("goes on when the table was removed", function()
    local mine = devices.attach({ ipus = 1 })
    os.remove(devices.path())
    assert.equal(1, devices.attach({ id = 1 }).first)
    mine:detach()
    assert.is_nil(devices.holder(0))
  end)

  it("reads a record, and nothing else, as one", function()
    local function record(text)
      return core.devices.record(text .. (" "):rep(255 - #text) .. "\n")
    end
    assert.same({ pid = 12, first = 4, count = 2, script = "a b.lua" },
      record("pid 12 ipus 4 2 script a b.lua"))
    assert.equal("a?[2J?", record("pid 1 ipus 0 1 script a\27[2J\127").script)
    assert.equal("", record("pid 1 ipus 0 1 script ").script)
    for _, text in ipairs({ "", "pid", "pid 1", "pid x ipus 0 1 script a",
        "pid 1 ipus 0 0 script a", "pid 99999999999 ipus 0 1 script a",
        "pid 1 ipus 4096 1 script a", "pid 1 ipus 0 1 scrip a",
        "pid 1 ipus 0 4097 script a", "pid -1 ipus 0 1 script a", "pid 1 ipus 0 1" }) do
      assert.is_nil(record(text), text)
    end
    assert.is_nil(core.devices.record("pid 1 ipus 0 1 script a"))
    assert.is_nil(core.devices.record(("x"):rep(256)))
  end)

  it("wants a folder that others cannot enter", function()
    local function refused(path, pattern)
      machine.set("LUPINE_DEVICES", path)
      raises("OSError", pattern, devices.path)
    end
    os.execute("mkdir -m 755 " .. folder .. "/open; touch " .. folder .. "/file; mkdir -m 700 "
      .. folder .. "/own " .. folder .. "/odd; ln -s own " .. folder .. "/link; ln -s /dev/null "
      .. folder .. "/odd/ipus")
    os.execute("mkdir -m 700 " .. folder .. "/pipe; mkfifo " .. folder .. "/pipe/ipus")
    refused(folder .. "/open", "can be entered by other users; name another in LUPINE_DEVICES")
    refused(folder .. "/file", "Not a directory")
    refused(folder .. "/link", "/link: ")
    refused(folder .. "/none/none", "No such file or directory")
    refused(folder .. "/odd", "/odd/ipus: ")
    refused(folder .. "/pipe", "/pipe/ipus is no file of this user")
    if core.devices.user() ~= 0 then
      refused("/root", "denied")
    else
      os.execute("mkdir -m 700 " .. folder .. "/theirs; chown 12345 " .. folder .. "/theirs")
      refused(folder .. "/theirs", "belongs to another user")
    end
    machine.set("LUPINE_DEVICES", folder .. "/own/new")
    assert.equal(folder .. "/own/new/ipus", devices.path())
  end)

  it("is found without LUPINE_DEVICES in the user's folder, else in one of /tmp", function()
    machine.set("LUPINE_DEVICES", false)
    machine.set("XDG_RUNTIME_DIR", folder)
    assert.equal(folder .. "/lupine/ipus", devices.path())
    machine.set("XDG_RUNTIME_DIR", folder .. "/missing")
    assert.equal(("/tmp/lupine-%d/ipus"):format(core.devices.user()), devices.path())
  end)

  it("keeps its IPUs when a script reads the table and closes it", function()
    local mine = devices.attach({ id = 62 })
    for _ = 1, 2 do
      local f = assert(io.open(devices.path(), "r+"))
      assert.matches("script", f:read("a"))
      f:close()
    end
    assert.equal("false\n", other("print((pcall(devices.attach, { id = 62 })))"))
    mine:detach()
    assert.equal("true\n", other("print((pcall(devices.attach, { id = 62 })))"))
  end)

  it("refuses IPUs that no machine has", function()
    local m = core.devices.open(folder)
    for _, ipu in ipairs({ math.maxinteger, math.mininteger, -1, core.devices.most_ipus }) do
      raises("IndexError", "no machine has 1 IPUs from", function() m:holder(ipu) end)
      raises("IndexError", "no machine has 1 IPUs from", function()
        m:take(ipu, 1, "a.lua")
      end)
    end
  end)

  it("is left alone by forked workers", function()
    local mine = devices.attach({ ipus = 1 })
    local worker = core.start_worker(function(channel)
      mine:detach()
      mine = nil
      collectgarbage()
      channel:send(tostring(devices.holder(0).pid), {})
    end)
    assert.equal(tostring(core.devices.process()), (worker:receive(20)))
    worker:close(5)
    assert.equal(arg[0], devices.holder(0).script)
    assert.equal("false\n", other("print((pcall(devices.attach, { id = 0 })))"))
    mine:detach()
  end)

  it("is not held by forked workers, who open it anew", function()
    local mine, inherited = devices.attach({ id = 62 }), core.devices.open(folder)
    local worker = core.start_worker(function(channel)
      local p = assert(io.popen(("ls -l /proc/%d/fd"):format(core.devices.process())))
      channel:send(p:read("a"), {})
      p:close()
      channel:send(tostring(select(2, pcall(inherited.take, inherited, 63, 1, "a.lua"))), {})
      mine, inherited = nil, nil
      local own = devices.attach({ id = 63 })
      collectgarbage()
      channel:send(tostring(own.first), {})
      channel:receive(20)
    end)
    local files = worker:receive(20)
    assert.matches("socket", files)
    assert.is_nil(files:find(folder, 1, true))
    assert.matches("was opened before this process was forked", (worker:receive(20)))
    assert.equal("63", (worker:receive(20)))
    assert.is_nil(devices.try_attach({ id = 63 }))
    assert.equal("false\n", other("print((pcall(devices.attach, { id = 62 })))"))
    worker:send("end", {})
    worker:close(5)
    assert.equal("false\n", other("print((pcall(devices.attach, { id = 62 })))"))
    assert.equal(63, devices.attach({ id = 63 }).first)
    mine:detach()
  end)
end)

-- Programs that a script starts: against what the shell and the system tell of them.
local core = require("lupine.core")
local files = require("spec.support.files")
local helper = require("spec.helper")
local processes = require("spec.support.processes")

describe("a child process", function()
  local output

  before_each(function()
    output = files.unused()
  end)
  after_each(function()
    files.remove(output)
  end)

  local function shell(command, environment)
    return core.start_child({ program = "/bin/sh", arguments = { "sh", "-c", command },
      environment = environment or {}, output = output })
  end

  local function finished(child)
    for _ = 1, 200 do
      local code, signal = child:ended()
      if code then
        return code, signal
      end
      core.wait_for_children({ child }, 1)
    end
  end

  it("gives its exit code", function()
    assert.equal(7, (finished(shell("exit 7"))))
    assert.equal(0, (finished(shell("exit 0"))))
  end)

  it("writes at the end of a file, and reads nothing", function()
    finished(shell("cat; echo one; echo two >&2"))
    finished(shell("echo three"))
    assert.equal("one\ntwo\nthree\n", files.read(output))
  end)

  it("has this process's environment with other values", function()
    finished(shell('echo "$PATH|$LP_A|$LP_B"', { "LP_A=1 2", "LP_B=" }))
    assert.equal(os.getenv("PATH") .. "|1 2|\n", files.read(output))
  end)

  it("is told of signals", function()
    local child = shell("exec sleep 60")
    child:signal("SIGTERM")
    local code, signal = finished(child)
    assert.equal(-1, code)
    assert.equal(15, signal)
    child:signal("SIGTERM") -- of one that ended: nothing
    assert.equal(-1, (child:ended()))
  end)

  it("is in a process group of its own", function()
    local child = shell("cut -d' ' -f1,5 /proc/self/stat; exec sleep 60")
    local line = files.read(("/proc/%d/stat"):format(child:pid()))
    assert.equal(tostring(child:pid()), line:match("^%d+ %b() %a %d+ (%d+)"))
    child:close()
  end)

  local function ends_when_closed(trap)
    local child = shell(trap .. "echo ready; exec sleep 60")
    local pid = child:pid()
    repeat
      core.wait_for_children({ child }, 0.02)
    until files.read(output) == "ready\n"
    local before = core.host.clock()
    child:close()
    assert.is_true(core.host.clock() - before < 30)
    assert.is_true(processes.gone(pid))
    assert.equal(0, processes.settled())
  end

  it("ends when it is closed", function()
    ends_when_closed("")
  end)

  it("ends when it is closed, also if it does not want to #slow", function()
    ends_when_closed("trap '' TERM; ")
  end)

  it("has no other open file of this process", function()
    local file <close> = assert(io.open("/dev/null"))
    assert.equal("file", io.type(file))
    finished(shell("exec ls /proc/self/fd"))
    assert.equal("0\n1\n2\n3\n", files.read(output)) -- the last one is that folder itself
  end)

  it("is nothing to forked workers, which can neither end nor wait for it", function()
    local torch = require("torch")
    local child = shell("exec sleep 60")
    local Told = torch.utils.data.Dataset:extend("Told")
    function Told.__len__()
      return 1
    end
    function Told.__getitem__()
      child:signal("SIGKILL")
      local ended = child:ended() and 1 or 0
      child:close()
      return torch.tensor(ended)
    end
    for ended in torch.utils.data.DataLoader(Told(), { num_workers = 1 }) do
      assert.equal(1, ended:item())
    end
    assert.is_nil((child:ended()))
    child:close()
  end)

  it("gets SIGTERM when whoever started it is killed", function()
    local pid_file = files.unused()
    local script = ([[
      local core = require("lupine.core")
      local child = core.start_child({ program = "/bin/sleep", arguments = { "sleep", "60" },
        environment = {}, output = %q })
      core.write_text(%q, tostring(child:pid()))
      core.wait_for_children({ child }, 60)]]):format(output, pid_file)
    local parent = core.start_child({ program = "/proc/self/exe",
      arguments = { "lupine", "-e", script }, environment = {}, output = output })
    repeat
      core.wait_for_children({ parent }, 0.05)
      local f = io.open(pid_file)
      local pid = f and f:read("n")
      if f then
        f:close()
      end
    until pid or parent:ended()
    local pid = math.tointeger(tonumber(files.read(pid_file)))
    parent:signal("SIGKILL")
    assert.is_true(processes.gone(pid))
    finished(parent)
    files.remove(pid_file)
  end)

  it("is waited for until the first of several ends", function()
    local slow, fast = shell("exec sleep 60"), shell("exit 3")
    local before = core.host.clock()
    while not fast:ended() do
      core.wait_for_children({ slow, fast }, 30)
    end
    core.wait_for_children({ slow, fast }, 30) -- one that was seen to end
    assert.is_true(core.host.clock() - before < 25)
    assert.is_nil((slow:ended()))
    slow:close()
  end)

  it("is refused where there is no such program or file", function()
    helper.refuses("OSError", "/no/such/program", core.start_child, { program = "/no/such/program",
      arguments = { "x" }, output = output })
    helper.refuses("OSError", "/no/such", core.start_child, { program = "/bin/sh",
      arguments = { "x" }, output = "/no/such/file" })
    helper.refuses("TypeError", "arguments", core.start_child, { program = "/bin/sh",
      arguments = { {} }, output = output })
    assert.equal(0, processes.settled())
  end)
end)

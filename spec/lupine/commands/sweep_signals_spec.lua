-- lupine sweep and signals: jobs save, no process is left, and the sweep goes on.
local core = require("lupine.core")
local files = require("spec.support.files")
local processes = require("spec.support.processes")
local program = require("spec.support.program")
local runs = require("spec.support.runs")

local SLOW = [[
local M = {}
M.__index = M
function M:on_step()
  if os.getenv("SLOW") then
    io.popen("sleep " .. os.getenv("SLOW")):close()
  end
end
return { Slow = function() return setmetatable({}, M) end }
]]

describe("a sweep that gets a signal", function()
  local folder

  before_each(function()
    folder = runs.project()
    files.write(folder .. "/slow.lua", SLOW)
    files.write(folder .. "/sweep.yaml", "run: run.yaml\njobs: 2\n"
      .. "set: {seed: 5, epochs: 2, callbacks: [{class: 'slow.lua:Slow'}]}\n"
      .. "parameters: {optimizer.args.lr: [0.3, 0.1]}\n")
  end)
  after_each(function()
    files.remove(folder)
  end)

  local function path(name)
    return folder .. "/runs/" .. name
  end

  local function statuses()
    local out = {}
    for i, job in ipairs(core.json_decode(files.read(path("sweep-001/sweep.json"))).jobs) do
      out[i] = job.status
    end
    return table.concat(out, " ")
  end

  local host = program.host:find("^/") and program.host
    or core.host.process().folder .. "/" .. program.host

  -- Runs a command in the folder; `ready` says when it is where it should be.
  local function start(command, environment, ready)
    local child = core.start_child({ program = "/bin/sh", output = folder .. "/out",
      arguments = { "sh", "-c", ("cd '%s' && exec %s"):format(folder, command) },
      environment = environment })
    for _ = 1, 600 do
      if ready() then
        return child
      end
      core.wait_for_children({ child }, 0.05)
    end
    error("no job trains: " .. files.read(folder .. "/out"))
  end

  local function both_train()
    for i = 1, 2 do
      local rows = io.open(path(("sweep-001/job-00%d-001/metrics.jsonl"):format(i)))
      local line = rows and rows:read("l")
      if rows then
        rows:close()
      end
      if not line then
        return false
      end
    end
    return true
  end

  -- Jobs that train slowly; both have begun.
  local function start_sweep()
    return start(("'%s' sweep sweep.yaml"):format(host), { "SLOW=0.2" }, both_train)
  end

  local function ended(child)
    for _ = 1, 100 do
      local code, signal = child:ended()
      if code then
        return code, signal
      end
      core.wait_for_children({ child }, 1)
    end
  end

  local function check_saved(jobs)
    for i = 1, 2 do
      local name = ("sweep-001/job-00%d-001"):format(i)
      assert.is_true(processes.gone(jobs[i]))
      assert.equal("interrupted", runs.facts(path(name)).status)
      assert.is_true(#(core.list_folder(path(name .. "/checkpoints"))) > 0)
    end
  end

  for _, signal in ipairs({ "SIGTERM", "SIGINT" }) do
    it("has its jobs save and tells how it goes on: " .. signal, function()
      local sweep = start_sweep()
      local jobs = processes.list(sweep:pid())
      assert.equal(2, #jobs)
      sweep:signal(signal)
      assert.equal(75, (ended(sweep)))
      assert.equal("interrupted interrupted", statuses())
      check_saved(jobs)
      assert.matches("this goes on:\nlupine sweep %-%-resume runs/sweep%-001\n$",
        files.read(folder .. "/out"))
    end)
  end

  it("that kills it leaves jobs that save; it goes on with the same bits", function()
    local sweep = start_sweep()
    local jobs = processes.list(sweep:pid())
    sweep:signal("SIGKILL")
    ended(sweep)
    check_saved(jobs)
    assert.equal("running running", statuses())
    local _, err, code = runs.lupine(folder, "sweep --resume runs/sweep-001")
    assert.equal(0, code, err)
    assert.equal("finished finished", statuses())
    _, err, code = runs.lupine(folder, "sweep sweep.yaml name=whole")
    assert.equal(0, code, err)
    for _, job in ipairs({ "job-001-001", "job-002-001" }) do
      assert.equal(runs.weights(path("whole-001/" .. job)), runs.weights(path("sweep-001/" .. job)))
      assert.same(runs.rows(path("whole-001/" .. job)), runs.rows(path("sweep-001/" .. job)))
    end
  end)

  it("ends at once at the second one, and so do jobs that do not listen", function()
    local script = folder .. "/script.lua"
    files.write(script, [[
      local runner = require("lupine.run.sweep.runner")
      runner.program = { path = "/bin/sh",
        words = { "sh", "-c", "trap '' TERM; echo deaf; exec sleep 60" } }
      runner.grace = 0.2
      os.exit(require("lupine.commands.sweep").run("sweep.yaml"), true)]])
    local sweep = start(("'%s' script.lua"):format(host), {}, function()
      local n = 0
      for i = 1, 2 do
        local log = io.open(path(("sweep-001/job-00%d.log"):format(i)))
        n = n + (log and log:read("l") == "deaf" and 1 or 0)
        if log then
          log:close()
        end
      end
      return n == 2
    end)
    local jobs = processes.list(sweep:pid())
    assert.equal(2, #jobs)
    sweep:signal("SIGINT")
    while not files.read(folder .. "/out"):find("SIGINT: 2 running jobs save and stop", 1, true) do
      core.wait_for_children({ sweep }, 0.05)
    end
    core.wait_for_children({ sweep }, 0.3)
    assert.is_nil((sweep:ended())) -- it waits for them
    sweep:signal("SIGINT")
    assert.is_true(ended(sweep) ~= 0)
    for _, job in ipairs(jobs) do
      assert.is_true(processes.gone(job))
    end
    assert.equal("interrupted interrupted", statuses())
  end)

  it("lets no second process go on with it meanwhile", function()
    local sweep = start_sweep()
    local pid = sweep:pid()
    local _, err, code = runs.lupine(folder, "sweep --resume runs/sweep-001")
    assert.equal(2, code)
    assert.matches(("process %d works on the sweep"):format(pid), err)
    sweep:signal("SIGTERM")
    ended(sweep)
  end)
end)

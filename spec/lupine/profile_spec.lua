local files = require("spec.support.files")
local core = require("lupine.core")
local lupine = require("lupine")
local program = require("spec.support.program")
local torch = require("torch")

local profile = require("lupine.profile")

-- A folder of its own for a program that may write files.
local function in_folder(script, command)
  local folder = program.temporary()
  os.remove(folder)
  local path = program.temporary(script)
  local host = program.host:sub(1, 1) == "/" and program.host or "$PWD/" .. program.host
  local out, err, code = program.shell(("host=%s; mkdir %s && cd %s && %s; code=$?; ls >&2; "
    .. "exit $code"):format(host, folder, folder, command:gsub("SCRIPT", path)))
  files.remove(folder)
  os.remove(path)
  return out, err, code, path
end

local function trace_of(p)
  local path = program.temporary()
  p:write_trace(path)
  local file = assert(io.open(path))
  local trace = core.json_decode(file:read("a"))
  file:close()
  os.remove(path)
  return trace
end

local function refused(fn, text)
  local ok, e = pcall(fn)
  assert.is_false(ok)
  assert.is_truthy(tostring(e):find(text, 1, true), tostring(e))
end

local function sum(list, key)
  local s = 0
  for _, e in ipairs(list) do
    s = s + e[key]
  end
  return s
end

-- y = relu(2 (x w) + 1) w2, and the lines where it says so.
local function network()
  local w, w2 = torch.randn(32, 48), torch.randn(48, 8)
  local first = debug.getinfo(1, "l").currentline
  local f = lupine.compile(function(x)
    local h = x:matmul(w) -- first + 2
    h = (h * 2 + 1):relu() -- first + 3
    return h:matmul(w2) -- first + 4
  end, { torch.randn(16, 32) })
  return f, first
end

local function measure(calls)
  profile.start()
  local f, first = network()
  for _ = 1, calls do
    f(torch.randn(16, 32))
  end
  return profile.stop(), first
end

local function named(list, key, value)
  for _, e in ipairs(list) do
    if e[key]:find(value, 1, true) then
      return e
    end
  end
end

describe("lupine.profile", function()
  it("gives parts that add up to the step and to the whole", function()
    local p = measure(7)
    local step = p.steps[1]
    assert.equal(1, #p.steps)
    assert.equal(7, step.runs)
    assert.is_false(step.trains)
    assert.equal(step.ns, sum(step.raw.rows, "ns"))
    assert.near(step.ns, sum(step.kernels, "self_ns"), 1)
    assert.near(step.ns, sum(step.lines, "self_ns"), 1)
    assert.near(step.ns, sum(step.modules, "self_ns"), 1)
    assert.near(p.seconds, sum(p.host, "seconds"), 1e-9)
    assert.near(step.ns / 1e9, named(p.host, "name", "executor").seconds, 1e-9)
  end)

  it("names the lines of the operators, and how often they ran", function()
    local p, first = measure(5)
    local here = debug.getinfo(1, "S").short_src
    for offset, calls in pairs({ [2] = 5, [3] = 5, [4] = 5 }) do
      local line = named(p.steps[1].lines, "where", ("%s:%d"):format(here, first + offset))
      assert.is_table(line, "line " .. offset)
      assert.equal(calls, line.calls)
      assert.is_true(line.self_ns <= line.total_ns)
    end
  end)

  it("counts operations and bytes by the formulas", function()
    local p, first = measure(3)
    local list = {}
    for _, k in ipairs(p.steps[1].kernels) do
      local offset = tonumber(k.where:match(":(%d+)$") or 0) - first
      list[offset] = k
    end
    assert.equal(3 * 2 * 16 * 32 * 48, list[2].flops)
    assert.equal(3 * 3 * 16 * 48, list[3].flops)
    assert.equal(3 * 2 * 16 * 48 * 8, list[4].flops)
    assert.equal(3 * 4 * (16 * 32 + 32 * 48 + 16 * 48), list[2].bytes)
    assert.equal("mul+add+relu", list[3].label)
  end)

  it("counts a convolution and its gradients alike", function()
    local w = torch.randn(8, 4, 3, 3)
    profile.start()
    local x = torch.randn(2, 4, 10, 10)
    local f = lupine.compile(function(a, b)
      return torch.nn.functional.conv2d(a, b)
    end, { x, w }, { cotangents = { torch.randn(2, 8, 8, 8) } })
    f(x, w, { torch.randn(2, 8, 8, 8) })
    local p = profile.stop()
    local parts = {}
    for _, k in ipairs(p.steps[1].kernels) do
      if k.label:find("convolution", 1, true) then
        parts[#parts + 1] = k.flops
      end
    end
    local flops = 2 * (2 * 8 * 8 * 8) * (4 * 3 * 3)
    assert.same({ flops, flops, flops }, parts)
  end)

  it("shares a step among modules, outer ones holding inner ones", function()
    local nn = torch.nn
    local net = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 4)))
    profile.start()
    require("poptorch").inferenceModel(net)(torch.randn(2, 8))
    local p = profile.stop()
    local total = {}
    for _, m in ipairs(p.steps[1].modules) do
      total[m.scope] = m.total_ns
    end
    assert.equal(p.steps[1].ns, total[""])
    assert.is_true(total["1"] >= total["1/1"])
  end)

  it("is for what runs between start and stop only", function()
    local f = network()
    f(torch.randn(16, 32))
    profile.start()
    local p = profile.stop()
    assert.equal(0, #p.steps)
    f(torch.randn(16, 32))
    profile.start()
    f(torch.randn(16, 32))
    assert.equal(1, profile.stop().steps[1].runs)
  end)

  it("outlives the executors that it is of", function()
    profile.start()
    do
      local f = network()
      f(torch.randn(16, 32))
    end
    collectgarbage()
    collectgarbage()
    assert.equal(1, profile.stop().steps[1].runs)
  end)

  it("refuses to start twice, to stop when it has not begun, and what is no number", function()
    profile.start()
    refused(profile.start, "a profile is being taken already")
    local p = profile.stop()
    refused(profile.stop, "no profile is being taken")
    refused(function() p:text({ top = -1 }) end, "top: expected an int >= 0, got")
    refused(function() p:text({ top = 1.5 }) end, "top")
    refused(function() p:text({ tpo = 3 }) end, "unknown option 'tpo'; known is top")
    refused(function() p:text(3) end, "expected a table, got int 3")
    refused(function() p:write_trace(nil) end, "expected a string")
    refused(function() p:write_trace("/nonexistent/x") end, "No such file or directory")
    refused(function() core.machine_peak(0) end, "expected 1..1024")
  end)

  it("writes a trace whose events lie one after another on their tracks", function()
    local p = measure(4)
    local trace = trace_of(p)
    local tracks, last, inside = {}, {}, 0
    for i = 1, trace.traceEvents.n do
      local e = trace.traceEvents[i]
      if e.ph == "M" and e.name == "thread_name" then
        tracks[e.tid] = e.args.name
      elseif e.ph == "X" and e.tid > 0 then
        assert.is_string(tracks[e.tid])
        assert.is_true(e.ts >= (last[e.tid] or 0) - 0.002)
        last[e.tid] = e.ts + e.dur
        inside = inside + (e.tid == 1 and e.dur or 0)
      end
    end
    assert.equal("Lua", tracks[0])
    assert.equal("step 1, replica 0", tracks[1])
    assert.is_true(inside * 1e3 <= p.steps[1].ns + 4 * 2000)
  end)

  it("traces each thread of parallel sections, the libraries' too, within the kernel", function()
    local before = torch.get_num_threads()
    torch.set_num_threads(2)
    local x, w = torch.randn(4, 16, 64, 64), torch.randn(16, 16, 3, 3)
    local m = torch.randn(64, 64)
    local f = lupine.compile(function(a)
      return torch.softmax(torch.nn.functional.conv2d(a, w, nil, { padding = 1 }):matmul(m), 3)
    end, { x })
    profile.start()
    for _ = 1, 3 do
      f(x)
    end
    local p = profile.stop()
    torch.set_num_threads(before)

    local tracks, kernels, threads = {}, {}, {}
    local trace = trace_of(p).traceEvents
    for i = 1, trace.n do
      local e = trace[i]
      if e.ph == "M" and e.name == "thread_name" then
        tracks[e.tid] = e.args.name
      elseif e.ph == "X" and tracks[e.tid] == "step 1, replica 0" then
        kernels[#kernels + 1] = e
      elseif e.ph == "X" and e.tid > 0 then
        local track = tracks[e.tid]
        assert.is_truthy(track == "thread 0" or track == "thread 1", track)
        threads[e.name] = (threads[e.name] or "") .. track:sub(-1)
        local around
        for _, k in ipairs(kernels) do
          around = around or k.name == e.name and k.ts <= e.ts + 0.002
            and e.ts + e.dur <= k.ts + k.dur + 0.002
        end
        assert.is_true(around, e.name)
      end
    end
    for name in pairs({ softmax = true, convolution = true }) do
      assert.is_truthy((threads[name] or ""):find("01.*01.*01"), name)
    end
  end)

  it("knows forward, backward, update and replicas of a training step", function()
    local poptorch = require("poptorch")
    local Net = torch.nn.Module:extend("Net")
    function Net:init()
      torch.nn.Module.init(self)
      self.fc = torch.nn.Linear(8, 4)
    end
    function Net:forward(x, y)
      local out = self.fc(x)
      return out, torch.nn.functional.cross_entropy(out, y)
    end
    local opts = poptorch.Options():replicationFactor(2):hostProfile(true)
    opts.Training:gradientAccumulation(3)
    local net = Net()
    local model = poptorch.trainingModel(net, opts,
      poptorch.optim.SGD(net:parameters(), { lr = 0.1 }))
    local x, y = torch.randn(12, 8), torch.zeros(12, { dtype = torch.int32 })
    refused(function() model:hostProfile() end, "compiled")
    for _ = 1, 2 do
      model(x, y)
    end
    local p = model:hostProfile()
    local expected = { forward = 2 * 2 * 3, backward = 2 * 2 * 3, update = 2 }
    local seen = {}
    for _, row in ipairs(p.steps[1].raw.rows) do
      seen[row.part] = true
      assert.equal(expected[row.part] or row.calls, row.calls, row.label)
    end
    assert.is_true(p.steps[1].trains)
    assert.equal(2, p.steps[1].runs)
    assert.is_true(seen.forward and seen.backward and seen.update)
    assert.is_truthy(tostring(p):find("step 1 (training): 2 calls", 1, true))
  end)

  it("is not there for a model that did not ask for it", function()
    local poptorch = require("poptorch")
    local model = poptorch.inferenceModel(torch.nn.Linear(2, 2))
    model(torch.randn(1, 2))
    refused(function() model:hostProfile() end, "set options:hostProfile(true)")
  end)
end)

describe("lupine profile", function()
  local SCRIPT = [[
local torch, lupine = require("torch"), require("lupine")
local f = lupine.compile(function(x) return (x * 2):exp():sum() end, { torch.ones(10) })
for _ = 1, 3 do f(torch.ones(10)) end
print(arg[0] ~= nil, arg[1], arg[2], ...)
]]

  it("runs a script as the host does, then shows tables and writes a trace", function()
    local out, err, code = in_folder(SCRIPT, "$host profile SCRIPT a 'b c'")
    assert.equal(0, code, err)
    assert.equal("true\ta\tb c\ta\tb c\n", out)
    assert.is_truthy(err:find("step 1 (inference): 3 calls", 1, true))
    assert.is_truthy(err:find("\nprofile.json\n", 1, true))
  end)

  it("writes nothing without being asked", function()
    local _, err, code = in_folder(SCRIPT, "$host SCRIPT a b")
    assert.equal(0, code)
    assert.equal("", err)
  end)

  it("takes files, a number of rows, and scripts whose names are options", function()
    local _, err = in_folder(SCRIPT, "cp SCRIPT ./-x && $host profile -o t.txt --trace t.json "
      .. "--top 1 -- -x && cat t.txt >&2 && rm ./-x")
    assert.is_truthy(err:find("\nt.json\nt.txt\n", 1, true))
    assert.is_truthy(err:find("more", 1, true))
    _, err = in_folder(SCRIPT, "$host profile --no-trace - < SCRIPT")
    assert.is_truthy(err:find("step 1", 1, true))
    assert.is_nil(err:find("json", 1, true))
  end)

  it("reports although the script fails or leaves", function()
    local _, err, code = in_folder(SCRIPT .. "error('stop here')", "$host profile SCRIPT")
    assert.equal(1, code)
    assert.is_truthy(err:find("step 1", 1, true))
    assert.is_truthy(err:find("stop here", 1, true))
    _, err, code = in_folder(SCRIPT .. "os.exit(3)", "$host profile SCRIPT")
    assert.equal(3, code)
    assert.is_truthy(err:find("step 1", 1, true))
  end)

  it("refuses what it cannot do before the script runs", function()
    for command, message in pairs({
      ["$host profile"] = "no script given",
      ["$host profile --frobnicate SCRIPT"] = "unrecognized option '--frobnicate'",
      ["$host profile --top x SCRIPT"] = "--top: expected an int >= 0, got 'x'",
      ["$host profile --top -1 SCRIPT"] = "--top: expected an int >= 0",
      ["$host profile --top 1e400 SCRIPT"] = "--top",
      ["$host profile --top"] = "--top needs a value",
      ["$host profile --trace /nonexistent/x SCRIPT"] = "cannot write /nonexistent/x",
      ["$host profile -o . SCRIPT"] = "cannot write .",
      ["$host profile ''"] = "cannot open",
      ["$host profile /nonexistent.lua"] = "cannot open /nonexistent.lua",
      ["$host profile --no-trace /bin/true"] = "lupine profile: ",
    }) do
      local out, err, code = in_folder("print('ran')", command)
      assert.equal(1, code, command)
      assert.equal("", out, command)
      assert.is_truthy(err:find(message, 1, true), command .. ": " .. err)
    end
  end)
end)

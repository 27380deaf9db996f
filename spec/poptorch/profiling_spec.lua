--- Tracepoints of the host, and report files of compiled models.
local core = require("lupine.core")
local helper = require("spec.poptorch.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local profiling = poptorch.profiling
local torch = require("torch")
local tracepoints = require("lupine.tracepoints")

local folder

before_each(function()
  folder = os.tmpname()
  os.remove(folder)
  poptorch.setLogLevel("WARN")
end)
after_each(function()
  tracepoints._begin(nil)
  os.execute("rm -rf " .. folder)
end)

local function read(path)
  local f = assert(io.open(path))
  local text = f:read("a")
  f:close()
  return text
end

-- The events of a trace that has ended, by name in the order in which they ended.
local function events(path)
  tracepoints._begin(nil)
  local list, by_name = core.json_decode(read(path)), {}
  assert.equal("clock", list[1].name)
  for i = 2, list.n do
    by_name[list[i].name] = list[i]
    by_name[i - 1] = list[i]
  end
  return by_name
end

local function begin(more)
  return tracepoints._begin(('{"enable": "true", "directory": "%s"%s}'):format(folder, more or ""))
end

describe("poptorch.profiling", function()
  it("records tracepoints, one inside another", function()
    local path = begin()
    assert.matches("/%d+%-%d+%-%d+_%d+%-%d+%-%d+_%d+%.pvti%.json$", path)
    local channel = profiling.Channel("MyApp")
    do
      local _ <close> = channel:tracepoint("outer")
      assert.equal(7, channel:tracepoint("inner", function()
        return 7
      end))
    end
    local e = events(path)
    assert.equal(2, #e)
    local outer, inner = e["MyApp.outer"], e["MyApp.inner"]
    assert.same({ "X", "MyApp" }, { outer.ph, outer.cat })
    assert.is_true(outer.ts <= inner.ts and inner.ts + inner.dur <= outer.ts + outer.dur)
  end)

  it("tells the process of each tracepoint, a worker's, too", function()
    local path = begin()
    local channel = profiling.Channel("MyApp")
    local Data = torch.utils.data.Dataset:extend("Data")
    function Data.__getitem__()
      local _ <close> = channel:tracepoint("worker")
      return torch.ones(1)
    end
    function Data.__len__()
      return 1
    end
    do
      local _ <close> = channel:tracepoint("main")
      for _ in torch.utils.data.DataLoader(Data(), { num_workers = 1 }) do end
    end
    local e = events(path)
    assert.equal(core.devices.process(), e["MyApp.main"].pid)
    assert.are_not.equal(e["MyApp.main"].pid, e["MyApp.worker"].pid)
    assert.matches("^PVTI_OPTIONS: directory", helper.raises("OSError", tracepoints._begin,
      '{"enable": "true", "directory": "/proc/none"}').message)
  end)

  it("does nothing unless it is asked to", function()
    for _, options in ipairs({ "", "{}", '{"enable": "false"}' }) do
      assert.is_nil(tracepoints._begin(options))
      local object = { method = function() end }
      local method = object.method
      local channel = profiling.Channel("MyApp")
      assert.equal(object, channel:instrument(object, "method"))
      assert.equal(method, object.method)
      local _ <close> = channel:tracepoint("x")
    end
    assert.is_false(tracepoints.active)
  end)

  it("times the methods of an object", function()
    local path = begin()
    local channel = profiling.Channel("Objects")
    local object = { n = 1 }
    function object:more(by, ...)
      self.n = self.n + by
      return self.n, ...
    end
    assert.equal(object, channel:instrument(object, "more"))
    channel:instrument(object, "more") -- once is enough
    assert.same({ 3, "a", nil, n = 3 }, table.pack(object:more(2, "a", nil)))
    local net = channel:instrument(nn.Linear(2, 2), "forward")
    assert.same({ 1, 2 }, { table.unpack(net(torch.ones(1, 2)).shape) })
    assert.is_false(pcall(object.more, object, {}))
    local e = events(path)
    assert.equal(3, #e)
    assert.truthy(e["Objects.more"] and e["Objects.forward"])
  end)

  it("records the channels that are named, and those of poptorch itself", function()
    local path = begin(', "channels": "poptorch.inferenceModel, dataset"')
    local model = poptorch.inferenceModel(nn.Linear(2, 2))
    local Data = torch.utils.data.Dataset:extend("Data")
    function Data.__getitem__()
      return torch.ones(2)
    end
    function Data.__len__()
      return 2
    end
    profiling.Channel("other"):tracepoint("hidden", function()
      for x in poptorch.DataLoader(poptorch.Options(), Data()) do
        model(x)
      end
    end)
    model:copyWeightsToDevice()
    model:destroy()
    local e = events(path)
    local of = "poptorch.inferenceModel."
    assert.is_nil(e["other.hidden"])
    for _, name in ipairs({ of .. "modelCompilation", of .. "graphPreprocessing",
      of .. "modelExecution", of .. "copyWeightsToDevice", of .. "destroy",
      "dataset.__getitem__" }) do
      assert.truthy(e[name], name)
    end
    local whole, trace = e[of .. "modelCompilation"], e[of .. "graphPreprocessing"]
    assert.is_true(whole.ts <= trace.ts and trace.dur < whole.dur)
  end)

  it("times compiling for a profile as well, with a trace or without", function()
    local profile = require("lupine.profile")
    local function compiling()
      profile.start()
      poptorch.inferenceModel(nn.Linear(2, 2)):compile(torch.ones(1, 2))
      for _, row in ipairs(profile.stop().host) do
        if row.name == "compiling" then
          return row
        end
      end
    end
    assert.equal(1, compiling().calls)
    local path = begin()
    local row = compiling()
    local point = events(path)["poptorch.inferenceModel.modelCompilation"]
    assert.equal(1, row.calls)
    assert.is_true(0 < point.dur and point.dur / 1e6 <= row.seconds + 1e-6)
  end)

  it("records writing and loading a file of an executable", function()
    local path = begin()
    local net = nn.Linear(2, 2)
    local file = folder .. "/model.poptorch"
    local model = poptorch.inferenceModel(net)
    model:compileAndExport(file, torch.ones(1, 2))
    poptorch.inferenceModel(net):loadExecutable(file)
    local e = events(path)
    for _, name in ipairs({ "compileAndExport", "saveExecutableToFile", "loadExecutable" }) do
      assert.truthy(e["poptorch.inferenceModel." .. name], name)
    end
  end)

  it("takes PVTI_OPTIONS, a list of channels too, and refuses what it does not know", function()
    local path = begin(', "channels": ["A"]')
    for _, name in ipairs({ "A", "B" }) do
      local _ <close> = profiling.Channel(name):tracepoint("x")
    end
    local e = events(path)
    assert.equal(1, #e)
    assert.truthy(e["A.x"])
    for text, what in pairs({ ['{"enabled": "true"}'] = "'enabled'. Allowed: enable, directory",
      ["true"] = "expected a JSON object", ["{"] = "expected a JSON object",
      ['{"enable": "true", "channels": 3}'] = "a list of strings" }) do
      assert.matches(what, helper.raises("ValueError", tracepoints._begin, text).message, 1, true)
    end
    helper.raises("AttributeError", profiling.Channel("x").instrument, profiling.Channel("x"), {},
      "none")
  end)

  it("reads the environment of a program and ends its file", function()
    local program = require("spec.support.program")
    local script = program.temporary([[
      local channel = require("poptorch").profiling.Channel("MyApp")
      local _ <close> = channel:tracepoint("all")
    ]])
    local _, err, code = program.shell(("PVTI_OPTIONS='{\"enable\":\"true\",\"directory\":\"%s\"}'"
      .. " %s %s"):format(folder, program.host, script))
    os.remove(script)
    assert.same({ "", 0 }, { err, code })
    local _, files = core.list_folder(folder)
    assert.equal(1, #files)
    assert.truthy(events(folder .. "/" .. files[1])["MyApp.all"])
  end)
end)

describe("report files of a model", function()
  local x = torch.ones(4, 8)

  local function compile(options)
    local model = poptorch.inferenceModel(nn.Linear(8, 8), options)
    model:compile(x)
    return model
  end

  it("stand in a folder of its name under enableProfiling's", function()
    local model = compile(poptorch.Options():enableProfiling(folder):modelName("tommyflowers"))
    local dir = folder .. "/tommyflowers/"
    local profile = core.json_decode(read(dir .. "profile.json"))
    assert.equal(model:report().cycles, profile.report.cycles)
    assert.equal("mm", profile.plan.nodes[2].operator)
    assert.equal(model:report():summary(), read(dir .. "summary.txt"))
    local places = core.json_decode(read(dir .. "debug.json"))
    assert.equal(#model:report():nodes(), places.n)
    assert.matches("profiling_spec.lua$", places[1].file)
    assert.matches("^step iterations 1", read(dir .. "graph.txt"))
    for _, line in ipairs(model:report().no_effect) do
      assert.is_nil(line:find("rofil", 1, true))
    end
  end)

  it("are those that engine options ask for; the environment wins", function()
    helper.with_env({ POPLAR_ENGINE_OPTIONS = ('{"autoReport.all": "true", '
      .. '"autoReport.outputDebugInfo": "false", "autoReport.directory": "%s"}'):format(folder) },
      function()
        compile(poptorch.Options():enableProfiling("elsewhere"))
      end)
    local folders, files = core.list_folder(folder .. "/inference")
    table.sort(files)
    assert.same({ 0, "graph.txt", "profile.json", "summary.txt" }, { #folders,
      table.unpack(files) })
    local options = poptorch.Options():modelName("debug")
    options._Popart:set("engineOptions", { ["autoReport.outputDebugInfo"] = "true",
      ["autoReport.directory"] = folder })
    compile(options)
    assert.same({ "debug.json" }, select(2, core.list_folder(folder .. "/debug")))
  end)

  it("let a tile overflow, unless that is refused", function()
    local function allowed(engine)
      local o = poptorch.Options():outputMode(poptorch.OutputMode.All)
      o._Popart:set("engineOptions", engine)
      return require("poptorch.simulation").settings(o, { kind = "hardware" })
        .allow_out_of_memory
    end
    assert.is_true(allowed({ ["autoReport.all"] = "true" }))
    assert.is_false(allowed({ ["autoReport.all"] = "false" }))
    assert.is_false(allowed({ ["autoReport.all"] = "true", ["debug.allowOutOfMemory"] = "false" }))
  end)

  it("that cannot be written are an error that names option, folder and reason", function()
    local f = assert(io.open(folder, "w"))
    f:close()
    local want = ("the engine option autoReport.directory: the folder '%s/inference' cannot be "
      .. "written: %s: Not a directory"):format(folder, folder)
    local e = helper.raises("OSError", compile, poptorch.Options():enableProfiling(folder))
    assert.equal("enableProfiling: " .. want, e.message)
    helper.with_env({ POPLAR_ENGINE_OPTIONS = ('{"autoReport.all": "true", '
      .. '"autoReport.directory": "%s"}'):format(folder) }, function()
      e = helper.raises("OSError", compile, poptorch.Options())
    end)
    assert.equal(want, e.message)
  end)
end)

describe("poptorch.logging", function()
  local core = require("lupine.core")
  local helper = require("spec.poptorch.helper")
  local logging = require("poptorch.logging")
  local poptorch = require("poptorch")
  local before

  before_each(function()
    before = core.host.log_level()
    logging.set_max_repeats(nil) -- forgets what other specs have repeated
    logging.set_max_repeats(4)
  end)
  after_each(function()
    core.host.log_level(before)
    logging.set_max_repeats(4)
  end)

  it("sets the level by name or number", function()
    local names = { TRACE = "trace", DEBUG = "debug", INFO = "info", WARN = "warn", ERR = "err",
      OFF = "off", TRACE_ALL = "trace", DEBUG_IR = "debug" }
    for name, level in pairs(names) do
      poptorch.setLogLevel(name)
      assert.equal(level, core.host.log_level())
    end
    for number, level in pairs({ [0] = "trace", "debug", "info", "warn", "err", [6] = "off" }) do
      poptorch.setLogLevel(number)
      assert.equal(level, core.host.log_level())
    end
  end)

  it("refuses other levels and lists the names", function()
    assert.matches("integers", helper.raises("ValueError", poptorch.setLogLevel, 5).message)
    local e = helper.raises("ValueError", poptorch.setLogLevel, "wibble")
    assert.matches("DEBUG, ERR, INFO, OFF, TRACE and WARN", e.message, 1, true)
    helper.raises("ValueError", poptorch.setLogLevel, nil)
  end)

  it("stops repeating a line", function()
    local log, lines = core.host.log, {}
    core.host.log = function(_, line)
      lines[#lines + 1] = line
    end
    poptorch.setLogLevel("INFO")
    logging.set_max_repeats(2)
    for _ = 1, 5 do
      logging.info("step %s", "x")
    end
    logging.debug("not shown")
    logging.set_max_repeats(nil)
    for _ = 1, 5 do
      logging.warn("again")
    end
    core.host.log = log
    assert.equal(3 + 5, #lines)
    assert.equal("step x", lines[2])
  end)

  it("counts on when the limit is set to what it is", function()
    poptorch.setLogLevel("INFO")
    local line = "set again " .. os.tmpname()
    local text = require("spec.helper").logged(function()
      logging.set_max_repeats(2)
      for _ = 1, 4 do
        logging.info(line)
        logging.set_max_repeats(2)
      end
    end)
    assert.equal(line .. "\n" .. line .. "\n" .. line .. " (repeated; no longer shown)", text)
  end)

  it("forgets what was repeated after 10,000 other lines, and remembers no more", function()
    poptorch.setLogLevel("INFO")
    local lines = 0
    local log = core.host.log
    core.host.log = function()
      lines = lines + 1
    end
    logging.set_max_repeats(1)
    for _ = 1, 3 do
      logging.info("first")
    end
    assert.equal(2, lines)
    for i = 1, 10000 do
      logging.info("line %d", i)
    end
    lines = 0
    for _ = 1, 3 do
      logging.info("first")
    end
    core.host.log = log
    assert.equal(2, lines)
  end)

  it("has each line in its file at once, whatever then becomes of the program", function()
    local program = require("spec.support.program")
    local path = os.tmpname()
    program.shell(("POPTORCH_LOG_DEST=%s %s -e %s"):format(path, program.host, program.quote(
      'require("poptorch.logging").err("the last words") os.execute("kill -9 $PPID")')))
    local text = require("spec.support.files").read(path)
    os.remove(path)
    assert.matches("the last words\n$", text)
  end)

  it("goes on in a file that it comes back to", function()
    local files = require("spec.support.files")
    local one, other = os.tmpname(), os.tmpname()
    files.write(one, "")
    files.write(other, "")
    poptorch.setLogLevel("ERR")
    for i, path in ipairs({ one, other, one }) do
      logging.use_file(path)
      logging.err("line %d of the files", i)
    end
    logging.use_file(nil)
    local texts = { files.read(one), files.read(other) }
    os.remove(one)
    os.remove(other)
    assert.matches("line 1 of[^\n]*\n[^\n]*line 3 of[^\n]*\n$", texts[1])
    assert.matches("^[^\n]*line 2 of[^\n]*\n$", texts[2])
  end)

  it("stops after as many as Options.maxRepeatLogs of the model wrapped last", function()
    local log, lines = core.host.log, 0
    core.host.log = function()
      lines = lines + 1
    end
    poptorch.setLogLevel("WARN")
    local ok, e = pcall(function()
      poptorch.inferenceModel(require("torch").nn.ReLU(), poptorch.Options():maxRepeatLogs(2))
      for _ = 1, 5 do
        logging.warn("the same line")
      end
    end)
    core.host.log = log
    assert(ok, e)
    assert.equal(3, lines) -- two, and one that says so
  end)

  -- ---- what other programs log ---------------------------------------------------

  local program = require("spec.support.program")
  local LINE = "^%[%d%d:%d%d:%d%d%.%d%d%d%] %[poptorch::lua%] %[(%l+)%] (.*)$"

  -- Standard output and error of a script that logs a line of each level.
  local function logs(environment, code)
    local script = program.temporary([[
      local poptorch, logging = require("poptorch"), require("poptorch.logging")
      for _, level in ipairs({ "trace", "debug", "info", "warn", "err" }) do
        logging[level](level)
      end ]] .. (code or "") .. " return poptorch")
    local out, err, exit = program.shell(("env -u LUPINE_LOG_LEVEL %s %s %s"):format(environment,
      program.host, script))
    os.remove(script)
    return out, err, exit
  end

  local function levels(text)
    local list = {}
    for line in text:gmatch("[^\n]+") do
      list[#list + 1] = line:match(LINE)
    end
    return table.concat(list, " ")
  end

  it("logs INFO and above to stderr unless the environment says otherwise", function()
    local out, err = logs("")
    assert.equal("", out)
    assert.equal("info warning error", levels(err))
    assert.equal("warning error", levels(select(2, logs("LUPINE_LOG_LEVEL=warn"))))
    assert.equal("debug info warning error",
      levels(select(2, logs("LUPINE_LOG_LEVEL=err POPTORCH_LOG_LEVEL=DEBUG"))))
    assert.equal("error", levels(select(2, logs("POPTORCH_LOG_LEVEL=4"))))
    assert.matches("ValueError", select(2, logs("POPTORCH_LOG_LEVEL=wibble")))
  end)

  it("goes where POPTORCH_LOG_DEST says", function()
    local out, err = logs("POPTORCH_LOG_DEST=stdout")
    assert.equal("info warning error", levels(out))
    assert.equal("", err)
    local path = program.temporary("what was there before")
    out, err = logs("POPTORCH_LOG_DEST=" .. path)
    local file = io.open(path)
    assert.equal("info warning error", levels(file:read("a")))
    file:close()
    os.remove(path)
    assert.equal("", out .. err)
    out, err = logs("POPTORCH_LOG_DEST=" .. path .. "/none/x")
    assert.matches("POPTORCH_LOG_DEST: .*the log cannot go there", err)
    assert.equal("", out)
  end)

  it("writes a file a model, once logDir is set", function()
    local dir = os.tmpname() .. "_logs/inner"
    local model = poptorch.inferenceModel(require("torch").nn.ReLU(),
      poptorch.Options():logDir(dir):modelName("relu"))
    poptorch.setLogLevel("ERR")
    core.host.log_to("/dev/null")
    logging.use_file(nil)
    logging.err("before")
    poptorch.setLogLevel("DEBUG")
    model:compile(require("torch").ones(2))
    logging.use_file(nil)
    core.host.log_to("stderr")
    local file = assert(io.open(dir .. "/relu.log"))
    local text = file:read("a")
    file:close()
    for _, made in ipairs({ "/inner/relu.log", "/inner", "" }) do
      os.remove((dir:gsub("/inner$", made)))
    end
    assert.is_nil(text:find("before", 1, true))
    assert.matches("[debug] poptorch.Options set model_name to value relu", text, 1, true)
    assert.matches("%[info%] compiled in %d", text)
  end)

  it("names logDir, the folder and the reason where it cannot write", function()
    local file = program.temporary()
    local e = helper.raises("OSError", poptorch.inferenceModel, require("torch").nn.ReLU(),
      poptorch.Options():logDir(file .. "/x"))
    assert.equal(("logDir: the folder '%s/x' cannot be written: %s: Not a directory"):format(file,
      file), e.message)
    os.remove(file)
  end)

  it("tells options, cycles and why a model is compiled again", function()
    local torch = require("torch")
    local lines, log = {}, core.host.log
    core.host.log = function(level, line, who)
      assert.equal("poptorch::lua", who)
      lines[#lines + 1] = level .. " " .. line
    end
    poptorch.setLogLevel("DEBUG")
    local ok, e = pcall(function()
      local opts = poptorch.Options():logCycleCount(true):deviceIterations(2)
      opts._Popart:set("dotChecks", { "FINAL", "ALL" })
      opts._Popart:set("reportOptions", { showVarStorage = "true" })
      local model = poptorch.inferenceModel(torch.nn.ReLU(), opts)
      model(torch.ones(2))
      model:destroy()
      model(torch.ones(4))
      model:destroy()
      model(torch.ones(4, { dtype = torch.int32 }))
      assert.equal(model:report().cycles, model:cycleCount())
    end)
    core.host.log = log
    assert(ok, e)
    local text = table.concat(lines, "\n")
    for _, line in ipairs({ "debug poptorch.Options set device_iterations to value 2",
      "debug poptorch.Options added FINAL to dotChecks",
      "debug poptorch.Options set reportOptions[showVarStorage] to true",
      "info the model was destroyed and is compiled again: input: compiled for shape "
      .. "torch.Size([2]), got torch.Size([4])\n",
      "compiled for dtype torch.float32, got torch.int32\n" }) do
      assert.matches(line, text, 1, true)
    end
    assert.matches("debug Total number of IPU cycles: %d+", text)
  end)

  it("has the program at TRACE and DEBUG_IR", function()
    local lines, log = {}, core.host.log
    core.host.log = function(_, line)
      lines[#lines + 1] = line
    end
    local found = {}
    local ok, e = pcall(function()
      local torch = require("torch")
      for _, level in ipairs({ "DEBUG", "TRACE", "DEBUG_IR", "TRACE_ALL" }) do
        lines = {}
        poptorch.setLogLevel(level)
        poptorch.inferenceModel(torch.nn.ReLU()):compile(torch.ones(2))
        found[#found + 1] = table.concat(lines, "\n"):find("the program:\nstep .*relu") ~= nil
      end
    end)
    core.host.log = log
    assert(ok, e)
    assert.same({ false, true, true, true }, found)
  end)

  it("has as many lines of the program as POPTORCH_MAX_GRAPH_LEN says", function()
    local torch = require("torch")
    for most, want in pairs({ ["3"] = 3, ["0"] = false, [""] = false, ["100000"] = false }) do
      local text
      helper.with_env({ POPTORCH_MAX_GRAPH_LEN = most }, function()
        poptorch.setLogLevel("DEBUG_IR")
        text = require("spec.helper").logged(function()
          poptorch.inferenceModel(torch.nn.Linear(2, 2)):compile(torch.ones(2))
        end)
      end)
      local shown, more = text:match("the program:\n(.-)\n… and (%d+) lines more")
      assert.equal(want, shown and select(2, shown:gsub("[^\n]+", "")) or false)
      assert.equal(not want, more == nil)
    end
  end)

  it("draws the progress of compiling on a terminal", function()
    if not program.has_terminal() then
      return
    end
    local code = [[
      local torch = require("torch")
      for _, on in ipairs({ true, false }) do
        local o = poptorch.Options():showCompilationProgressBar(on)
        poptorch.inferenceModel(torch.nn.ReLU(), o):compile(torch.ones(2))
      end ]]
    local script = program.temporary('local poptorch = require("poptorch")' .. code)
    local out = program.shell(("script -qec '%s %s' /dev/null"):format(program.host, script))
    os.remove(script)
    local _, bars = out:gsub("Graph compilation 100%%[^\n]* 4/4", "")
    assert.equal(1, bars)
    assert.is_nil((select(2, logs("", code))):find("Graph compilation", 1, true))
  end)
end)

describe("poptorch.logging", function()
  local core = require("lupine.core")
  local helper = require("spec.poptorch.helper")
  local logging = require("poptorch.logging")
  local poptorch = require("poptorch")
  local before

  before_each(function()
    before = core.host.log_level()
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
end)

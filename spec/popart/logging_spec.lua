-- PopART's log: levels of modules, the form of lines, the environment.
local errors = require("popart.errors")
local helper = require("spec.popart.helper")
local logging = require("popart.logging")
local pattern = require("popart.log_pattern")

local logged = helper.stderr_of

local STAMP = "%[%d%d%d%d%-%d%d%-%d%d %d%d:%d%d:%d%d%.%d%d%d%] "

describe("popart.logging", function()
  after_each(function()
    logging.set_level("all", "OFF")
  end)

  it("is off at the start, as documented", function()
    for _, module in ipairs(logging.MODULES) do
      assert.equal("OFF", logging.level(module))
    end
    assert.equal(12, #logging.MODULES)
    assert.equal("", logged(function()
      logging.getLogger():critical("unheard")
    end))
  end)

  it("writes the documented line", function()
    logging.set_level("devicex", "DEBUG")
    local text = logged(function()
      logging.debug("devicex", "Creating poplar::Tensor %d", 1)
      logging.trace("devicex", "below the level")
      logging.debug("ir", "another module")
    end)
    assert.matches("^" .. STAMP .. "%[popart:devicex%] %[debug%] Creating poplar::Tensor 1\n$",
      text)
  end)

  it("sets one module's level or all", function()
    local all, session = logging.getLogger(), logging.getLogger("session")
    assert.matches("Logging levels configured as all=DEBUG", logged(function()
      all:setLevel("DEBUG")
    end))
    logged(function()
      session:setLevel("OFF")
      logging.getLogger("somewhere"):setLevel("TRACE") -- the unidentified module
    end)
    assert.equal("DEBUG", logging.level("opx"))
    assert.equal("OFF", logging.level("session"))
    assert.equal("TRACE", logging.level("none"))
    assert.equal("DEBUG", logging.level("python"))
    all:setLevel("CRITICAL")
    assert.equal("CRITICAL", logging.level("session"))
  end)

  it("orders the levels", function()
    local names = { "TRACE", "DEBUG", "INFO", "WARN", "ERR", "CRITICAL", "OFF" }
    for rank, level in ipairs(names) do
      logging.set_level("op", level)
      for other = 1, 6 do
        assert.equal(other >= rank, logging.enabled("op", names[other]))
      end
    end
  end)

  it("logs a script's lines under python, whichever logger it has", function()
    logging.getLogger():setLevel("INFO")
    local text = logged(function()
      local l = logging.getLogger("ir")
      l:debug("not shown")
      l:info("50% done")
      l:warn("w")
      l:error("e")
      l:critical("c")
    end)
    local got = {}
    for line in text:gmatch("[^\n]+") do
      got[#got + 1] = line:gsub("^" .. STAMP, "")
    end
    assert.same({ "[popart:python] [info] 50% done", "[popart:python] [warning] w",
      "[popart:python] [error] e", "[popart:python] [critical] c" }, got)
  end)

  it("sets levels as C++ does", function()
    logging.logger.setLevel("popart", "DEBUG") -- all of them
    logging.logger.setLevel("session", "OFF")
    assert.same({ "DEBUG", "DEBUG", "OFF" },
      { logging.level("popart"), logging.level("ir"), logging.level("session") })
  end)

  it("refuses a level that is none", function()
    helper.raises("ValueError", "TRACE, DEBUG, INFO, WARN, ERR, CRITICAL, OFF", function()
      logging.getLogger():setLevel("WARNING")
    end)
    helper.raises("TypeError", "expected string, got int 3", function()
      logging.getLogger(3)
    end)
    helper.raises("TypeError", "colon", function()
      logging.getLogger().warn("text")
    end)
  end)

  it("logs PopART's own errors at ERR", function()
    logging.set_level("all", "ERR")
    assert.matches("%[popart:popart%] %[error%] bad 100%%\n$", logged(function()
      pcall(errors.raise, "popart_runtime_error", "bad 100%%", nil)
    end))
    assert.equal("", logged(function()
      pcall(errors.raise, "TypeError", "not PopART's")
    end))
  end)
end)

describe("popart.log_pattern", function()
  local line = { time = 1571234105.359375, last = 1571234105.359, utc = true, name = "popart:ir",
    level = "warning", letter = "W", pid = 42, text = "hello 100%" }

  local function shown(text)
    return pattern.compile(text)(line)
  end

  it("shows spdlog's flags", function()
    -- 2019-10-16 13:55:05 UTC, a Wednesday
    assert.equal("2019-10-16T13:55:05.359375Z popart:ir 42.42 W: hello 100%",
      shown("%^%Y-%m-%dT%H:%M:%S.%fZ %n %P.%t %L: %v%$"))
    assert.equal("[2019-10-16 13:55:05.359] [popart:ir] [warning] hello 100%", shown("%+"))
    assert.equal("Wed Wednesday Oct October 19 10/16/19 01:55:05 PM 13:55 1571234105 % +00:00",
      shown("%a %A %b %B %C %D %r %R %E %% %z"))
  end)

  it("pads as spdlog does", function()
    assert.equal("|  warning|warning  | warning |warning|", shown("|%9l|%-9l|%=9l|%2l|"))
  end)

  it("refuses other flags", function()
    helper.refuses("ValueError", "no flag '%%k'", pattern.compile, "%k")
    helper.refuses("ValueError", "no flag '%%'", pattern.compile, "50%")
  end)
end)

describe("popart.logging in the environment", function()
  local program = (os.getenv("LUPINE_BUILD") or "build") .. "/lupine"

  -- What a program with these variables prints and logs.
  local function run(variables, code)
    local out = assert(io.popen(("%s " .. program .. " -e '%s' 2>&1"):format(variables, code)))
    local text = out:read("a")
    out:close()
    return text
  end

  local LINES = 'local l = require("popart.logging") l.info("session", "one") l.info("ir", "two")'

  it("reads levels, of modules over that of all", function()
    assert.equal("", run("", LINES))
    assert.matches("one\n.*two\n", run("POPART_LOG_LEVEL=INFO", LINES))
    assert.equal("one\n",
      run("POPART_LOG_FORMAT=%v POPART_LOG_LEVEL=INFO POPART_LOG_CONFIG={\\\"ir\\\":\\\"OFF\\\"}",
        LINES))
  end)

  it("reads a file of levels and writes one of lines", function()
    local config, dest = os.tmpname(), os.tmpname()
    local f = assert(io.open(config, "w"))
    f:write('{"ir": "INFO"}')
    f:close()
    local text = run(("POPART_LOG_CONFIG=%s POPART_LOG_DEST=%s POPART_LOG_FORMAT='%%n %%v'"):format(
      config, dest), LINES)
    assert.equal("", text)
    assert.equal("popart:ir two\n", assert(io.open(dest)):read("a"))
    os.remove(config)
    os.remove(dest)
  end)

  it("shows spdlog's letter of each level", function()
    assert.equal("T D I W E C ", run("POPART_LOG_LEVEL=TRACE POPART_LOG_FORMAT='%L'", [[
      local l = require("popart.logging")
      for _, level in ipairs({ "trace", "debug", "info", "warn", "err", "critical" }) do
        l[level]("ir", "")
      end]]):gsub("\n", " "), nil)
  end)

  it("names the variable that is wrong", function()
    assert.matches("POPART_LOG_LEVEL: setLevel", run("POPART_LOG_LEVEL=loud", LINES))
    assert.matches("POPART_LOG_CONFIG: ir: ", run("POPART_LOG_CONFIG={\\\"ir\\\":1}", LINES))
    assert.matches("POPART_LOG_CONFIG: .*No such file", run("POPART_LOG_CONFIG=/none", LINES))
    assert.matches("POPART_LOG_FORMAT: no flag", run("POPART_LOG_FORMAT=%k", LINES))
    assert.matches("POPART_LOG_DEST: ", run("POPART_LOG_DEST=/none/x", LINES))
  end)
end)

local program = require("spec.support.program")
local run = program.run

describe("the host program", function()
  local script

  local function write_script(text)
    script = program.temporary(text)
    return script
  end

  after_each(function()
    if script then
      os.remove(script)
      script = nil
    end
  end)

  -- The lua command is the reference for everything both offer.
  local function as_lua(arguments, input)
    local words = { "lua5.4" }
    for i, a in ipairs(arguments) do
      words[i + 1] = program.quote(a)
    end
    local out, _, code = program.shell(table.concat(words, " "), input)
    local our_out, _, our_code = run(arguments, input)
    assert.equal(out, our_out)
    assert.equal(code, our_code)
    return out, code
  end

  it("gives a script its arguments as lua does", function()
    local path = write_script("print(arg[0], arg[1], arg[2], arg[3], #arg, select('#', ...), ...)")
    as_lua({ path, "a", "-e", "c d" })
    as_lua({ path })
    as_lua({ "-e", "x = 1", path, "a" })
    as_lua({ "-", "a", "b" }, "print(arg[0], ...)")
  end)

  it("runs code, libraries and standard input as lua does", function()
    as_lua({ "-e", "print(1)", "-eprint(2)" })
    as_lua({ "-l", "string", "-e", "print(string.format('%d', 3))" })
    as_lua({ "-l", "s=string", "-e", "print(s.rep('x', 3))" })
    as_lua({}, "print('from stdin', ...)")
    as_lua({ "--", "/nonexistent/file" })
  end)

  describe("obeys the environment as lua does", function()
    -- Standard output and exit code, with what each calls itself left out.
    local function both(environment, arguments)
      local results = {}
      for i, name in ipairs({ "lua5.4", program.host }) do
        local words = { "env -u LUA_INIT -u LUA_INIT_5_4", environment, name }
        for _, a in ipairs(arguments) do
          words[#words + 1] = program.quote(a)
        end
        local out, err, code = program.shell(table.concat(words, " "))
        results[i] = { out, code, err == "" }
      end
      assert.same(results[1], results[2])
      return results[2][1], results[2][2]
    end

    it("runs LUA_INIT before options and script, LUA_INIT_5_4 in its place", function()
      local show = { "-e", "print(x)", "-e", "print(arg[0] ~= nil)" }
      assert.equal("1\ntrue\n", (both("LUA_INIT='x = 1'", show)))
      assert.equal("2\ntrue\n", (both("LUA_INIT='x = 1' LUA_INIT_5_4='x = 2'", show)))
      assert.equal("nil\ntrue\n", (both("LUA_INIT='x = 1' LUA_INIT_5_4=", show)))
      local path = write_script("x = arg[1]")
      assert.equal("-e\ntrue\n", (both("LUA_INIT=@" .. path, show)))
      assert.equal("c\n", (both("LUA_INIT='x = \"c\"'", { "-e", "print(x)" })))
    end)

    it("ends when LUA_INIT fails, and names it", function()
      for _, code in ipairs({ "'error(1)'", "'x ='", "@/no/such/file" }) do
        local out, status = both("LUA_INIT=" .. code, { "-e", "print(1)" })
        assert.equal("", out)
        assert.equal(1, status)
      end
      local _, err = program.shell("env -u LUA_INIT_5_4 LUA_INIT='x =' " .. program.host .. " -v")
      assert.matches("LUA_INIT:1: unexpected symbol", err)
    end)

    it("but not with -E, which leaves LUA_PATH and LUA_CPATH out too", function()
      local environment = "LUA_INIT='x = 1' LUA_PATH='/mine/?.lua;;' LUA_CPATH_5_4='/mine/?.so;;'"
      local show = "print(x, (package.path .. package.cpath):find('/mine/', 1, true) ~= nil)"
      assert.equal("1\ttrue\n", (both(environment, { "-e", show })))
      assert.equal("nil\tfalse\n", (both(environment, { "-E", "-e", show })))
      assert.equal("nil\tfalse\n", (both(environment, { "-e", show, "-E" })))
    end)
  end)

  it("turns warnings on with -W, from its place on", function()
    local function warnings(...)
      local out, code = as_lua({ ... })
      local words = { program.host }
      for i, a in ipairs({ ... }) do
        words[i + 1] = program.quote(a)
      end
      local _, err = program.shell(table.concat(words, " "))
      return err, out, code
    end
    assert.equal("", (warnings("-e", "warn('a')")))
    assert.equal("Lua warning: a\n", (warnings("-W", "-e", "warn('a')")))
    assert.equal("Lua warning: b\n", (warnings("-e", "warn('a')", "-W", "-e", "warn('b')")))
    for _, wrong in ipairs({ "-Wx", "-Ex" }) do
      assert.equal(1, (select(2, as_lua({ wrong }))))
    end
  end)

  it("exits as lua does", function()
    local _, code = as_lua({ "-e", "error('x')" })
    assert.equal(1, code)
    as_lua({ "-e", "error({})" })
    as_lua({ "-e", "os.exit(7)" })
    as_lua({ "-e", "os.exit(true, true)" })
    as_lua({ "-e", "x = = 1" })
    as_lua({ "-z" })
    as_lua({ "-e" })
    as_lua({ "/nonexistent/file" })
  end)

  it("refuses precompiled chunks", function()
    local path = write_script(string.dump(function() end))
    local _, err, code = run({ path })
    assert.equal(1, code)
    assert.matches("attempt to load a binary chunk", err, 1, true)
  end)

  it("tells its version and its usage", function()
    local version = require("lupine.core").version
    assert.equal("lupine " .. version .. " (Lua 5.4.4)\n", (run({ "--version" })))
    local out, _, code = run({ "--help" })
    assert.matches("^usage: ", out)
    assert.equal(0, code)
  end)

  it("finds its Lua files from any folder and puts them first", function()
    local code = [[print(require("lupine").version, package.path:match("^(.-)/%?%.lua"))]]
    local out = program.shell(([[host=$(realpath %s); cd / && "$host" -e %s]]):format(
      program.host, program.quote(code)))
    assert.matches("^%d+%.%d+%.%d+\t/.*/lua\n$", out)
  end)

  it("prints an uncaught error with the traceback of the script", function()
    local path = write_script("local function f()\n  error('boom')\nend\nf()\n")
    local out, err = run({ path })
    assert.equal("", out)
    assert.matches(": " .. path .. ":2: boom\nstack traceback:\n", err, 1, true)
    assert.matches(path .. ":4: in main chunk\n$", err)
  end)

  it("prints the fields of an error object", function()
    local _, err = run({ "-e", [[error({message = "no room", type = "out_of_memory",
      location = "net.lua:3", recovery_action = "none", traceback = "stack: here"})]] })
    assert.matches("no room\n  type: out_of_memory\n  location: net.lua:3\n" ..
      "  recovery_action: none\nstack: here\n", err, 1, true)
    _, err = run({ "-e", [[error(setmetatable({type = "value_error"},
      {__tostring = function() return "as text" end}))]] })
    assert.matches("as text\n  type: value_error\nstack traceback:\n", err, 1, true)
  end)

  it("survives an error object that cannot be printed", function()
    local _, err, code = run({ "-e", [[error(setmetatable({}, {__tostring = error,
      __index = error}))]] })
    assert.matches("cannot be printed", err, 1, true)
    assert.equal(1, code)
    _, err, code = run({ "-e", "error()" })
    assert.matches("(error object is a nil value)", err, 1, true)
    assert.equal(1, code)
  end)

  it("keeps error objects as they are through pcall and xpcall", function()
    local out = run({ "-e", [[local e = {}
      local function same(m) return m end
      print(select(2, pcall(error, e)) == e, select(2, xpcall(error, same, e)) == e)]] })
    assert.equal("true\ttrue\n", out)
  end)

  it("leaves lupine's own frames out of tracebacks unless asked", function()
    local code = [[require("lupine.show").show(setmetatable({}, {__tostring = function()
      error("inner") end}))]]
    local _, err = run({ "-e", code })
    assert.not_matches("show.lua", err, 1, true)
    assert.matches("inside lupine; LUPINE_TRACEBACK=full shows them", err, 1, true)
    _, err = program.shell(("LUPINE_TRACEBACK=full %s -e %s"):format(program.host,
      program.quote(code)))
    assert.matches("show.lua", err, 1, true)
  end)

  it("prints lupine's own errors as plain ones: the script's frames, each place once", function()
    local path = write_script([[local nn = require("torch").nn
      local function build() local m = nn.Linear(2.5, 2) return m end
      local ok = build()]])
    local _, err = run({ path })
    assert.not_matches("/lua/torch/", err, 1, true)
    assert.not_matches("tail calls", err, 1, true)
    assert.not_matches("[C]", err, 1, true)
    assert.not_matches("location:", err, 1, true)
    assert.matches(path .. ":2: in local 'build'", err, 1, true)
    assert.matches("inside lupine; LUPINE_TRACEBACK=full shows them", err, 1, true)
    _, err = program.shell(("LUPINE_TRACEBACK=full %s %s"):format(program.host,
      program.quote(path)))
    assert.matches("/lua/torch/nn/", err, 1, true)
  end)

  it("keeps the script's frames of an error that lupine passed on", function()
    local path = write_script([[local torch = require("torch")
      local Net = torch.nn.Module:extend("Net")
      function Net:forward(x) local y = x:reshape({ 7 }) return y end
      local y = torch.nn.Sequential(Net())(torch.ones(2))]])
    local _, err = run({ path })
    assert.matches(path .. ":3: in ", err, 1, true)
    assert.matches(path .. ":4: in main chunk", err, 1, true)
  end)

  it("cuts the traceback of a stack overflow", function()
    local _, err, code = run({ "-e", "local function f() return 1 + f() end f()" })
    assert.equal(1, code)
    assert.matches("stack overflow", err, 1, true)
    assert.matches("levels)", err, 1, true)
    assert.is_true(select(2, err:gsub("\n", "")) < 40)
  end)

  -- Not os.execute: the C library ignores the signal while that runs.
  local raise = [[io.popen("kill -INT " .. io.open("/proc/self/stat"):read("n")):close()]]

  it("turns an interruption into an error that a script can catch", function()
    local out, _, code = run({ "-e",
      ([[print(pcall(function() %s while true do end end)) print("on")]]):format(raise) })
    assert.equal("false\tinterrupted\non\n", (out:gsub("%(command line%):%d+: ", "")))
    assert.equal(0, code)
  end)

  it("raises KeyboardInterrupt once a script has loaded torch", function()
    local out = run({ "-e", ([=[local errors = require("torch").errors
      local ok, e = pcall(function() %s while true do end end)
      print(ok, errors.KeyboardInterrupt:is(e), e.message)]=]):format(raise) })
    assert.equal("false\ttrue\tinterrupted\n", out)
  end)

  it("ends an interrupted script with its traceback", function()
    local _, err, code = run({ "-e", raise .. " while true do end" })
    assert.matches("interrupted\nstack traceback:", err, 1, true)
    assert.equal(1, code)
  end)
end)

-- What users expect of the loop on a terminal, in a pseudo-terminal.
local files = require("spec.support.files")
local processes = require("spec.support.processes")
local program = require("spec.support.program")

local on_terminal = program.has_terminal() and it or pending

describe("the loop on a terminal", function()
  local home, env, sessions

  before_each(function()
    home, sessions = files.folder(), {}
    env = ("HOME=%s XDG_STATE_HOME=%s/state"):format(home, home)
  end)

  after_each(function()
    for _, s in ipairs(sessions) do
      pcall(s.close, s)
    end
    files.remove(home)
  end)

  local function open()
    local s = program.session(env)
    sessions[#sessions + 1] = s
    return s
  end

  -- Loses a session as if its window were closed for good.
  local function kill(s)
    s:type("io.open('/proc/self/stat'):read('n') .. ' is it'\n")
    local pid = s:expect(" is it\r"):match("(%d+) is it\r")
    os.execute("kill -9 " .. pid)
    assert.is_true(processes.gone(math.tointeger(pid)))
    return pid
  end

  local function history()
    local f = assert(io.open(home .. "/state/lupine/history"))
    local text = f:read("a")
    f:close()
    return text
  end

  -- Fifty lines, tabs among them.
  local function block()
    local lines = { "do" }
    for i = 1, 48 do
      lines[i + 1] = ("\ttotal\t= (total or 0) + %d"):format(i)
    end
    lines[50] = "end runs = (runs or 0) + 1"
    return table.concat(lines, "\r")
  end

  on_terminal("runs a pasted block of 50 lines once", function()
    local s = open()
    s:type("\27[200~" .. block() .. "\27[201~")
    s:send("\n")
    s:type("total .. ' in ' .. runs\n")
    s:expect("1176 in 1")
    assert.equal(50, select(2, history():match("^(do.-runs[^\n]*\n)"):gsub("\n", "")))
  end)

  on_terminal("runs it once where the terminal does not mark pastes", function()
    local s = open()
    s:type(block() .. "\r")
    s:expect("runs = (runs or 0) + 1")
    s:type("total .. ' in ' .. runs\n")
    s:expect("1176 in 1")
  end)

  on_terminal("takes long lines of wide characters whole", function()
    local s = open()
    s:type("\27[200~x = '" .. ("é€"):rep(150) .. ("€"):rep(77) .. "'\27[201~")
    s:send("\n")
    s:type("utf8.len(x) .. ' characters'\n")
    s:expect("377 characters")
  end)

  on_terminal("offers an entry that was given twice running once", function()
    local s = open()
    s:type("'a' .. 1\n")
    s:expect("a1")
    for _ = 1, 2 do
      s:type("'b' .. 2\n")
      s:expect("b2")
    end
    s:type("\27[A\27[A\n")
    s:expect("a1")
  end)

  on_terminal("lets locals live on", function()
    local s = open()
    s:type("local x = 20\n")
    s:type("local function f() x = x + 1 return x end\n")
    s:type("f() * 2\n")
    s:expect("42")
    s:type("tostring(x) .. tostring(_G.x)\n")
    s:expect("21nil")
  end)

  on_terminal("offers an entry of several lines as one", function()
    local s = open()
    s:type("for i = 1, 2 do\n")
    s:type("print('i' .. i)\n", ">> ")
    s:type("end\n", ">> ")
    s:expect("i2")
    kill(s)
    s = open()
    s:type("\27[A\27[A\n")
    s:expect("i1\r\ni2")
  end)

  on_terminal("shares the history of sessions, also of killed ones", function()
    local a, b = open(), open()
    a:type("'from a' .. 1\n")
    a:expect("from a1")
    b:type("'from b' .. 1\n")
    b:expect("from b1")
    kill(a)
    kill(b)
    local text = history()
    assert.matches("'from a' .. 1\n", text, 1, true)
    assert.matches("'from b' .. 1\n", text, 1, true)
    local s = open()
    s:type("\27[A\27[A\27[A\27[A\n") -- over both kills and one entry
    s:expect("from a1")
  end)

  on_terminal("only warns where there is no home", function()
    env = "HOME= XDG_STATE_HOME="
    local s = open()
    s:expect("history is not kept: HOME is not set")
    s:type("1 + 1\n")
    s:expect("2")
  end)

  on_terminal("completes methods, options, keywords, modules and files", function()
    assert(io.open(home .. "/weights.bin", "w")):close()
    local s = open()
    s:type("require('torch.nn.func\t")
    s:expect("tional")
    s:send("') x = require('torch').ones(2)\n")
    s:type("x:ma\t")
    s:expect("matmul")
    s:send("\21nn = require('torch').nn poptorch = require('poptorch')\n")
    s:type("nn.Linear(1, 2, { bi\t")
    s:expect("as")
    s:send("\21poptorch.Options():deviceIter\t")
    s:expect("ations")
    s:send(("\21io.open('%s/wei\t"):format(home))
    s:expect("ghts.bin")
    s:send("\21\n")
  end)

  on_terminal("runs no code of the user for completion", function()
    local s = open()
    s:type("local function ran() print('user' .. ' code') end\n")
    s:type("trap = setmetatable({}, { __index = ran, __pairs = ran, __len = ran, "
      .. "__members = ran, __call = ran, __tostring = ran, __lazy = ran })\n")
    for _, text in ipairs({ "trap.x", "trap:x", "trap().x", "trap({ x", "trap.a.b" }) do
      s:type(text .. "\t")
      s:send("\t\21\n")
    end
    s:type("'end' .. 1\n")
    local seen = s:expect("end1")
    assert.not_matches("user code", seen, 1, true)
  end)

  on_terminal("goes on after a change of the window's size", function()
    local s = open()
    s:type("io.open('/proc/self/stat'):read('n') .. ' is it'\n")
    local pid = s:expect(" is it\r"):match("(%d+) is it\r")
    s:type("'narrow' .. ")
    for _, size in ipairs({ "cols 30 rows 10", "cols 100 rows 40", "cols 8 rows 2" }) do
      os.execute(("stty -F $(readlink /proc/%s/fd/0) %s"):format(pid, size))
    end
    s:send("1\n")
    s:expect("narrow1")
    s:type("'alive' .. 2\n")
    s:expect("alive2")
  end)

  on_terminal("edits wide characters", function()
    local s = open()
    s:type("x = '世x\127界'\n")
    s:type("#x, x\n")
    s:expect("6\t世界")
  end)

  on_terminal("does not hang when nobody reads its output any more", function()
    local out, _, code = program.shell(program.host .. " -i | head -n 1",
      "print('first')\nfor i = 1, 1e5 do print(i) end\n")
    assert.equal("first", out:match("[%a]+"))
    assert.equal(0, code) -- head's; the loop does not hang
  end)
end)

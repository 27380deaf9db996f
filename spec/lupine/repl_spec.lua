local files = require("spec.support.files")
local program = require("spec.support.program")

-- What the loop prints for lines from a pipe.
local function session(lines)
  local out, err, code = program.run({ "-i" }, lines)
  return out, err, code
end

describe("the read-eval-print loop without a terminal", function()
  it("prints expressions and keeps the last value in _", function()
    assert.equal("> 42\n> 43\n> 1\ttwo\tnil\n> 1\n> \n",
      (session("6*7\n_ + 1\n1, 'two', nil\n_\n")))
  end)

  it("prints tensors with their type and shape", function()
    local out = session("torch = require('torch')\ntorch.tensor({{1, 20}, {3, 4}})\n"
      .. "torch.zeros(2000), torch.ones(1, { dtype = torch.float64 }):sum()\n")
    assert.matches("tensor([[ 1, 20],\n        [ 3,  4]])  -- int64 [2, 2]\n", out, 1, true)
    assert.matches("tensor([0., 0., 0.,  ..., 0., 0., 0.])  -- float32 [2000]", out, 1, true)
    assert.matches("-- float64 []", out, 1, true)
  end)

  it("prints nothing for statements and empty results", function()
    assert.equal("> > > \n", (session("x = 1\n(function() end)()\n")))
  end)

  it("goes on with an unfinished chunk, a statement or an expression", function()
    assert.equal("> >> >> 1\n2\n> \n", (session("for i = 1, 2 do\nprint(i)\nend\n")))
    assert.equal("> >> 3\n> \n", (session("1 +\n2\n")))
    assert.equal("> >> 5\n> \n", (session("math.max(\n1, 5)\n")))
  end)

  it("reports errors and goes on", function()
    local out, err, code = session("error('boom')\nx y\n1\n")
    assert.equal("> > > 1\n> \n", out)
    assert.matches("stdin:1: boom\nstack traceback:", err, 1, true)
    assert.matches("syntax error near 'y'", err, 1, true)
    assert.equal(0, code)
  end)

  it("leaves its own frames out of tracebacks", function()
    local _, err = session("torch = require('torch')\ntorch.ones(2):reshape({3})\n")
    assert.matches("stdin:1: in", err, 1, true)
    assert.not_matches("repl.lua", err, 1, true)
  end)

  it("reports a chunk that the end of input cuts", function()
    local _, err = session("while true do\n")
    assert.matches("near <eof>", err, 1, true)
  end)

  it("describes a function from its source", function()
    local out = session("local s = require('lupine.show') show = s.show\n?show\n")
    assert.matches("show(v)", out, 1, true)
    assert.matches("The text of any value", out, 1, true)
    assert.matches("lua/lupine/show.lua:%d+", out)
    assert.matches("no value is named nosuch", (session("?nosuch\n")), 1, true)
  end)

  it("finds public names without their module", function()
    local out = session("?nn.LSTM\n?LSTM\n?F.linear\n?optim.Adam\n?Tensor.copy_\n?DataLoader\n")
    assert.matches("LSTM%(input_size, hidden_size.*LSTM%(input_size, hidden_size", out)
    assert.matches("torch.nn.functional.linear: ", out, 1, true)
    assert.matches("Adam(params, lr=1e-3", out, 1, true)
    assert.matches("Tensor.copy_", out, 1, true)
    assert.matches("torch.utils.data.DataLoader: class DataLoader", out, 1, true)
    assert.matches("no value is named nn.LSTMM (nearest: 'LSTM'", (session("?nn.LSTMM\n")), 1, true)
  end)

  it("lists the names of a module", function()
    local out, err = session("?torch.nn\n:help\n??Matmul\n")
    assert.equal("", err) -- none of them is read as Lua, too
    assert.matches("torch.nn: a module of ", out, 1, true)
    assert.matches("  AdaptiveAvgPool1d, AdaptiveAvgPool2d,", out, 1, true)
    assert.not_matches("0x", out, 1, true)
  end)

  it("says how modules are loaded", function()
    local _, err = session("x = torch.ones(2)\nnn.Linear(1, 1)\n")
    assert.matches("(global 'torch'); write torch = require(\"torch\") first\n", err, 1, true)
    assert.matches("write nn = require(\"torch\").nn first\n", err, 1, true)
    assert.matches('torch = require("torch")', (session(":help\n")), 1, true)
    for line, says in pairs({ ["import torch"] = 'torch = require("torch")',
      ["import torch.nn as nn"] = 'nn = require("torch.nn")',
      ["import torch.nn"] = 'torch = require("torch")',
      ["from torch import nn"] = 'nn = require("torch").nn' }) do
      _, err = session(line .. "\n")
      assert.matches("; write " .. says .. "\n", err, 1, true)
    end
  end)

  it("takes = before an expression", function()
    assert.equal("> 2\n> >> 3\n> \n", (session("=1+1\n = 1 +\n2\n")))
    local _, err = session("= x y\n")
    assert.matches("near 'y'", err, 1, true)
  end)

  it("leaves at exit and quit unless they are names of the script", function()
    for _, word in ipairs({ "exit", "quit", "exit()", " quit( ) ;", ":q", ":quit", " :exit " }) do
      local out, _, code = session(word .. "\nprint('on')\n")
      assert.equal("> ", out)
      assert.equal(0, code)
    end
    assert.equal("> > 4\n> \n", (session("quit = 4\nquit\n")))
  end)

  it("times an expression and knows its commands", function()
    assert.matches("^> 2\n[%d%.e+-]+ s, the mean of %d+; the first took [%d%.e+-]+ s\n> \n$",
      (session(":time 1+1\n")))
    assert.matches("^> >> %d+%.%d+ s, processor %d+%.%d+ s\n> 1\n> \n$",
      (session(":time x = (x or 0) +\n1\nx\n")))
    assert.matches(":help lists them", (session(":nosuch\n")), 1, true)
    assert.matches(":time CODE", (session(":help\n")), 1, true)
  end)
end)

-- busted shows those left out for want of a pseudo-terminal
local on_terminal = program.has_terminal() and it or pending

describe("the read-eval-print loop on a terminal", function()
  local home, env, session_

  before_each(function()
    home = files.folder()
    env = ("HOME=%s XDG_STATE_HOME=%s/state"):format(home, home)
  end)

  after_each(function()
    if session_ then
      session_:close()
      session_ = nil
    end
    files.remove(home)
  end)

  local function open()
    session_ = program.session(env)
    return session_
  end

  local function history()
    local f = assert(io.open(home .. "/state/lupine/history"))
    local text = f:read("a")
    f:close()
    return text
  end

  on_terminal("edits lines with characters beyond ASCII", function()
    local s = open()
    s:type("x = 'dé\127è'\n")
    s:type("#x, x\n")
    s:expect("3\tdè")
  end)

  on_terminal("runs a pasted block once, as one chunk, without completing tabs", function()
    local s = open()
    s:type("\27[200~local n = 0\rfor i = 1, 3 do\r\tn = n + i\rend\rprint('n' .. n)\27[201~")
    s:send("\n")
    s:expect("n6")
    s:type("'done'\n")
    s:expect("done")
    assert.equal("local n = 0\n\tfor i = 1, 3 do\n\t\tn = n + i\n\tend\n" ..
      "\tprint('n' .. n)\n'done'\n", history())
  end)

  on_terminal("completes names at Tab", function()
    local s = open()
    s:type("strin\t")
    s:expect("strin")
    s:expect("g")
    s:send(".rever\t")
    s:expect(".rever")
    s:expect("se")
    s:send("('abc')\n")
    s:expect("cba")
    s:type("string.re\t")
    s:expect("rep      reverse")
  end)

  on_terminal("keeps a private history that later sessions offer", function()
    local s = open()
    s:type("'first' .. 1\n")
    s:expect("first1")
    s:close()
    local modes = program.shell(("cd %s/state && stat -c %%a . lupine lupine/history"):format(home))
    assert.equal("700\n700\n600\n", modes)
    s = open()
    s:type("\27[A\n")
    s:expect("first1")
    assert.equal("'first' .. 1\n'first' .. 1\n", history())
  end)

  on_terminal("only warns when the history cannot be written", function()
    env = "HOME=/proc/none XDG_STATE_HOME=/proc/none"
    local s = open()
    s:expect("history is not kept")
    s:type("1 + 1\n")
    s:expect("2")
  end)

  on_terminal("stops a running chunk at Ctrl-C and goes on", function()
    local s = open()
    s:type("print('be' .. 'gin') while true do end\n")
    s:expect("begin")
    s:send("\3")
    s:expect("interrupted")
    s:type("'alive' .. 1\n")
    s:expect("alive1")
  end)

  on_terminal("drops the line at Ctrl-C", function()
    local s = open()
    s:type("nonsense(")
    s:expect("nonsense(")
    s:send("\3")
    s:expect("^C")
    s:type("'fresh' .. 1\n")
    s:expect("fresh1")
  end)

  on_terminal("drops the line at Ctrl-C on a dumb terminal too", function()
    env = env .. " TERM=dumb"
    local s = open()
    s:expect("> ")
    s:send("\3")
    s:send("for\n")
    s:expect(">> ")
    s:send("\3")
    s:send("'fresh' .. 1\n")
    s:expect("fresh1")
  end)

  on_terminal("leaves at the end of input", function()
    local s = open()
    s:expect("> ")
    session_ = nil
    assert.equal(0, s:close() or 0)
  end)

  on_terminal("uses a plain prompt on a dumb terminal", function()
    env = env .. " TERM=dumb"
    local out = program.shell(("script -qec %s /dev/null"):format(
      program.quote(("env TERM=dumb %s"):format(program.host))), "1+1\n\4")
    assert.not_matches("\27", out, 1, true)
    assert.matches("> 2", out:gsub("1%+1\r?\n", ""), 1, true)
  end)
end)

local files = require("spec.support.files")
local program = require("spec.support.program")

local function session(lines)
  return program.run({ "-i" }, lines)
end

describe("the commands of the loop", function()
  local folder

  before_each(function()
    folder = files.folder()
  end)

  after_each(function()
    files.remove(folder)
  end)

  local function saved(lines)
    local path = folder .. "/saved.lua"
    local out, err = session(lines .. ":save " .. path .. "\n")
    assert.matches("saved.lua: %d+ entries\n", out, nil, nil, err)
    local f = assert(io.open(path))
    local text = f:read("a")
    f:close()
    return text, program.shell(program.host .. " " .. path)
  end

  it("save what ran without an error as a script that does the same", function()
    local text, out = saved([[
local n = 0
local function add(k)
  n = n + k
  return n
end
add(2)
n * 10, 'x'
error('no')
= add(3)
return n, 1;
]])
    assert.equal([[
local n = 0
local function add(k)
  n = n + k
  return n
end
add(2)
print(n * 10, 'x')
print(add(3))
print(n, 1)
]], text)
    assert.equal("20\tx\n5\n5\t1\n", out)
  end)

  it("save commands as comments and what they ran", function()
    local text, out = saved(":time local y = 6 *\n7\n?print\n:nosuch\ny\n")
    assert.equal("-- :time local y = 6 *\n-- 7\nlocal y = 6 *\n7\n-- ?print\nprint(y)\n", text)
    assert.equal("42\n", out)
  end)

  it("save the last value where it is asked for", function()
    local text, out = saved("6 * 7\n_ + 1\n_ + 1\n")
    assert.equal("_ = 6 * 7\nprint(_)\n_ = _ + 1\nprint(_)\nprint(_ + 1)\n", text)
    assert.equal("42\n43\n44\n", out)
  end)

  it("close in the script what the entry closed", function()
    local _, out = saved("local x <close> = setmetatable({}, {__close = function() "
      .. "print('shut') end})\nprint('on')\n")
    assert.equal("shut\non\n", out)
  end)

  it("never replace a file unless told to", function()
    local path = folder .. "/there.lua"
    assert(io.open(path, "w")):close()
    local out = session(("x = 1\n:save %s\n"):format(path))
    assert.matches("is there already; `:save! ", out, 1, true)
    assert.equal("", assert(io.open(path)):read("a"))
    session(("x = 1\n:save! %s\n"):format(path))
    assert.equal("x = 1\n", assert(io.open(path)):read("a"))
    local _, err = session("x = 1\n:save /proc/none/x\n1\n")
    assert.matches("/proc/none", err, 1, true)
    assert.matches(":save needs a file", (session(":save\n")), 1, true)
  end)

  it("load a file whose locals live on", function()
    local path = folder .. "/part.lua"
    local f = assert(io.open(path, "w"))
    f:write("#!/usr/bin/env lupine\nlocal x = 20\nlocal function f() return x + 1 end\n")
    f:close()
    assert.matches("> > 21\n", (session((":load %s\nf()\n"):format(path))), 1, true)
    local out, err = session(":load /nosuch\n:load " .. folder .. "\n1\n")
    assert.matches("/nosuch: No such file", out, 1, true)
    assert.matches("> 1\n", out .. err, 1, true)
  end)

  it("tell the nearest name of one that is unknown", function()
    local out = session(":sav x\n:tim 1\n:qit\n:mem\n")
    assert.matches("no command :sav (nearest: 'save'", out, 1, true)
    assert.matches("no command :tim (nearest: 'time'", out, 1, true)
    assert.matches("no command :mem (nearest: 'memory'", out, 1, true)
  end)

  it("time an expression by its mean and a statement once", function()
    local out = session("n = 0\nfunction f() n = n + 1 return n end\n:time local x = f()\nn\n"
      .. ":time f()\nn > 1\n")
    assert.matches("> %d%.%d+ s, processor %d%.%d+ s\n> 1\n", out)
    assert.matches("> 2\n[%d%.e+-]+ s, the mean of %d+; the first took [%d%.e+-]+ s\n> true\n", out)
  end)

  it("list the largest tensors by the names that lead to them", function()
    local out = session([[
torch = require("torch")
local big = torch.zeros(1000, 10)
net = torch.nn.Sequential(torch.nn.Linear(30, 20))
held = { deep = { torch.zeros(1500) } }
fail = setmetatable({}, { __index = error, __pairs = error, __len = error, __members = error })
:memory
]])
    local _, _, list = out:find("(%s+40%.0 kB.*)\n> ")
    assert.truthy(list, out)
    assert.matches("^%s+40%.0 kB  big%s+float32 %[1000, 10%]\n", list)
    assert.matches("6%.0 kB  held%.deep%[1%]%s+float32 %[1500%]\n", list)
    assert.matches('2%.4 kB  net%["0"%]%.weight%s+float32 %[20, 30%]\n', list)
    assert.matches("\nlive 48%.5 kB, peak [%d%.]+ kB, cached [%d%.]+ k?M?B", list)
  end)

  it("show lupine's own frames of the last error", function()
    local lines = "torch = require('torch')\ntorch.nn.Linear(2.5, 2)\n"
    local out, err = session(lines .. ":traceback\n")
    assert.not_matches("/lua/torch/", err, 1, true)
    assert.matches("/lua/torch/nn/", out, 1, true)
    out, err = session(":traceback full\n" .. lines .. ":traceback nonsense\n")
    assert.matches("/lua/torch/nn/", err, 1, true)
    assert.matches("takes full, short or nothing", out, 1, true)
    assert.matches("no error so far", (session(":traceback\n")), 1, true)
  end)

  it("search names and descriptions", function()
    local out = session("??histogram\n??xyzzy\n")
    assert.matches("descriptions with 'histogram':\n", out, 1, true)
    assert.matches("nothing has 'xyzzy'", out, 1, true)
    assert.matches("names with 'Matmul':.-\n  torch.matmul\n", (session("??Matmul\n")))
  end)
end)

--- What `make install` leaves runs without the source tree: from another folder,
--- with an empty environment and, where namespaces allow it, with the tree
--- hidden.
local files = require("spec.support.files")
local program = require("spec.support.program")

local root, tree, training

-- A small training whose loss falls; prints where its modules come from.
local TRAINING = [[
local torch = require("torch")
local nn = require("torch.nn")
local poptorch = require("poptorch")
torch.manual_seed(1)
local net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
local Training = nn.Module:extend("Training")
function Training:init()
  self.net, self.loss = net, nn.CrossEntropyLoss()
end
function Training:forward(x, y)
  local out = self.net(x)
  return out, self.loss(out, y)
end
local optimizer = torch.optim.SGD(net:parameters(), { lr = 0.1, momentum = 0.9 })
local model = poptorch.trainingModel(Training(), poptorch.Options(), optimizer)
local x = torch.randn(8, 1, 6, 6)
local y = x:sum({ 1, 2, 3 }):gt(0):long()
local first = select(2, model(x, y)):item()
local last
for _ = 1, 30 do
  last = select(2, model(x, y)):item()
end
print(last < 0.5 * first)
print(package.searchpath("poptorch.executor", package.path))
]]

setup(function()
  root = program.shell("pwd -P"):match("[^\n]+")
  tree = files.folder()
  training = tree .. "/training.lua"
  local out, err, code = program.shell(("env -u MAKEFLAGS -u MAKELEVEL make -o all install " ..
    "BUILD=%s DESTDIR=%s PREFIX=/usr"):format(program.build, tree))
  assert(code == 0, out .. err)
  local f = assert(io.open(training, "w"))
  f:write(TRAINING)
  f:close()
end)

teardown(function()
  files.remove(tree)
end)

-- The training under a command, the source tree out of reach.
local function run(command)
  local line = ("cd / && env -i LUPINE_LOG_LEVEL=warn %s %s"):format(command, training)
  local hidden = select(3, program.shell("unshare -rm true")) == 0
  if hidden then
    line = ("unshare -rm sh -c %s"):format(program.quote(
      ("mount -t tmpfs none %s && %s"):format(root, line)))
  end
  return program.shell(line)
end

local function works(command)
  local out, err = run(command)
  assert.equal("", err)
  local falls, from = out:match("^(%a+)\n([^\n]+)\n$")
  assert.equal("true", falls)
  assert.equal(tree .. "/usr/share/", from:sub(1, #tree + 11))
end

describe("the installed files", function()
  it("train with the program", function()
    works(tree .. "/usr/bin/lupine")
  end)

  it("train with a stock interpreter that searches the prefix", function()
    if program.shell("ldd " .. tree .. "/usr/lib/lua/5.4/lupine.so"):find("libasan", 1, true) then
      return pending("a stock interpreter cannot load a sanitized module")
    end
    works(("LUA_PATH_5_4='%s/usr/share/lua/5.4/?.lua;%s/usr/share/lua/5.4/?/init.lua' "):format(
      tree, tree) .. ("LUA_CPATH_5_4='%s/usr/lib/lua/5.4/?.so' lua5.4"):format(tree))
  end)

  it("hold every file of lua/ and no other", function()
    local function names(folder)
      return (program.shell(("cd %s && find . -type f ! -path ./files | sort"):format(folder)))
    end
    assert.equal(names("lua"), names(tree .. "/usr/share/lupine"))
    assert.equal("include/lupine/custom_op.h\ninclude/lupine/step_io.h\nshare/lupine/files\n"
      .. "share/man/man1/lupine.1\n", (program.shell(("cd %s/usr && find . -type f "
        .. "! -path './share/lupine/lupine/*' ! -name '*.lua' ! -name lupine ! -name lupine.so "
        .. "| sed 's,^./,,' | sort")
          :format(tree))))
  end)

  it("go as they came: what others put there stays", function()
    local other = files.folder()
    local own = other .. "/usr/share/lupine/own.txt"
    program.shell(("cp -R %s/. %s && touch %s %s/usr/bin/other"):format(tree, other, own, other))
    local out, err, code = program.shell("env -u MAKEFLAGS -u MAKELEVEL make uninstall DESTDIR="
      .. other .. " PREFIX=/usr")
    assert.equal(0, code, out .. err)
    assert.equal(("%s/training.lua\n%s/usr/bin/other\n%s\n"):format(other, other, own),
      (program.shell(("find %s ! -type d | sort"):format(other))))
    assert.equal("", (program.shell(("find %s/usr/include %s/usr/share -name lupine-meta -o "
      .. "-path '*include/lupine'"):format(other, other))))
    files.remove(other)
  end)
end)

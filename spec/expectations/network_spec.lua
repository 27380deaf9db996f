--- Nothing asks the network, neither built nor run: no system call of a program opens a
--- socket of the internet, and no source knows how.
local files = require("spec.support.files")
local program = require("spec.support.program")

local path

before_each(function()
  path = files.unused()
end)
after_each(function()
  files.remove(path)
end)

-- The calls of a command and of all that it starts.
local function sockets_of(command)
  -- a sanitizer's own tracing of leaks does not work below strace
  local out, err, code = program.shell(("ASAN_OPTIONS=detect_leaks=0 strace -f -qq "
    .. "-e trace=socket,connect,sendto -o %s %s"):format(path, command))
  assert.equal(0, code, out .. err)
  return files.read(path), out
end

local function quiet(command)
  local calls, out = sockets_of(command)
  assert.is_nil(calls:find("AF_INET"), calls)
  return out
end

-- Every module of lua/, required one by one; what runs as a program is left out.
local ALL = [[
  local n = 0
  for line in io.popen("cd lua && find . -name '*.lua'"):lines() do
    local name = line:gsub("^%./", ""):gsub("%.lua$", ""):gsub("/init$", ""):gsub("/", ".")
    if not name:find("meta$") and not name:find("^lupine%.commands") then
      require(name)
      n = n + 1
    end
  end
  print(n > 200)
]]

local TRAINING = [[
  local torch, poptorch = require("torch"), require("poptorch")
  local nn = torch.nn
  local data = torch.utils.data.TensorDataset(torch.rand(32, 4), torch.rand(32, 1))
  local net = nn.Linear(4, 1)
  local Net = nn.Module:extend("Net")
  function Net:init() self.fc = net end
  function Net:forward(x, y)
    local out = self.fc(x)
    return out, nn.functional.mse_loss(out, y)
  end
  local model = Net()
  local trainer = poptorch.trainingModel(model, nil,
    torch.optim.SGD(model:parameters(), { lr = 0.1 }))
  for x, y in poptorch.DataLoader(poptorch.Options(), data, { batch_size = 8, num_workers = 2 }) do
    trainer(x, y)
  end
  local _ = trainer:report():summary()
  print("trained")
]]

describe("the network is not asked by", function()
  local function script(text)
    local name = program.temporary(text)
    finally(function()
      os.remove(name)
    end)
    return name
  end

  it("a training with workers, and its report", function()
    assert.equal("trained\n", quiet(program.host .. " " .. script(TRAINING)))
  end)

  it("any module that is required, by the program and by a stock lua5.4", function()
    assert.equal("true\n", quiet(program.host .. " " .. script(ALL)))
    if program.build:find("asan") then
      return -- a stock interpreter cannot load a sanitized module
    end
    local stock = ("env LUA_PATH_5_4='lua/?.lua;lua/?/init.lua' LUA_CPATH_5_4='%s/?.so' lua5.4 ")
      :format(program.build)
    assert.equal("true\n", quiet(stock .. script(ALL)))
  end)

  it("the read-eval-print loop and --version", function()
    quiet(program.host .. " --version")
    quiet(("sh -c 'echo 1 + 1 | %s -i'"):format(program.host))
  end)

  it("make, once the packages are there: no recipe or source fetches anything", function()
    local out = program.shell("grep -rnE '\\b(curl|wget|git clone|luarocks)\\b' Makefile "
      .. "spec/tools lua src runtime examples | grep -v '^spec/tools/lint'")
    assert.equal("", out)
    out = program.shell("grep -rlE 'AF_INET|getaddrinfo|gethostbyname' src runtime include lua")
    assert.equal("", out)
  end)
end)

it("what the texts tell to set is LUA_PATH_5_4 and LUA_CPATH_5_4", function()
  local told = program.shell("grep -ohE 'LUA_C?PATH(_5_4)?=' README.md docs/*.md Makefile "
    .. "examples/*.md | sort -u")
  assert.equal("LUA_CPATH_5_4=\nLUA_PATH_5_4=\n", told)
end)

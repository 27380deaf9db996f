-- The cache of executables as options and environment ask for it.
local core = require("lupine.core")
local custom_ops = require("spec.support.custom_ops")
local files = require("spec.support.files")
local helper = require("spec.helper")
local models = require("spec.support.models")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local support = require("spec.poptorch.helper")
local torch = require("torch")

local folder

before_each(function()
  folder = files.unused()
end)
after_each(function()
  files.remove(folder)
end)

local Times = nn.Module:extend("Times")

function Times:forward(x)
  return x * 6
end

local function entries()
  local _, names = core.list_folder(folder)
  return #names
end

local function logged(f)
  poptorch.setLogLevel("INFO")
  local ok, lines = pcall(helper.logged, f)
  poptorch.setLogLevel("WARN")
  return assert(ok and lines, lines)
end

local function compile(opts)
  local model = poptorch.inferenceModel(Times(), opts)
  local out = model(torch.ones(2, 3))
  assert.same({ { 6.0, 6.0, 6.0 }, { 6.0, 6.0, 6.0 } }, out:tolist())
  return model
end

describe("executable caching", function()
  it("stores one file, which the second model hits", function()
    local first, second
    assert.truthy(logged(function()
      first = compile(poptorch.Options():enableExecutableCaching(folder))
    end):find("cache: miss.*nothing is stored.*stored as"))
    assert.equal(1, entries())
    local lines = logged(function()
      second = compile(poptorch.Options():enableExecutableCaching(folder))
    end)
    assert.truthy(lines:find("cache: hit", 1, true))
    assert.is_nil(lines:find("miss", 1, true))
    assert.equal(1, entries())
    assert.equal(first:report():summary(), second:report():summary())
  end)

  it("finds a file by its name, however many there are", function()
    compile(poptorch.Options():enableExecutableCaching(folder))
    local list, listed = core.list_folder, 0
    core.list_folder = function(...)
      listed = listed + 1
      return list(...)
    end
    local ok, e = pcall(compile, poptorch.Options():enableExecutableCaching(folder))
    core.list_folder = list
    assert(ok, e)
    assert.equal(0, listed)
  end)

  it("is set by POPTORCH_CACHE_DIR, unless the option says else", function()
    support.with_env({ POPTORCH_CACHE_DIR = folder }, function()
      compile(poptorch.Options())
      assert.equal(1, entries())
      local other = folder .. ".other"
      compile(poptorch.Options():enableExecutableCaching(other))
      assert.is_true(core.is_folder(other))
      files.remove(other)
      local lines = logged(function()
        compile(poptorch.Options():enableExecutableCaching(nil))
      end)
      assert.is_nil(lines:find("cache:", 1, true))
    end)
  end)

  it("serves training models with other weights and learning rates", function()
    local function losses(rate, cached)
      torch.manual_seed(3)
      local model = nn.Sequential(nn.Linear(4, 3))
      local Loss = nn.Module:extend("CachedLoss")
      function Loss:init() self.net, self.loss = model, nn.CrossEntropyLoss() end
      function Loss:forward(x, t) return self.loss(self.net(x), t) end
      local wrapped = Loss()
      local opts = poptorch.Options()
      if cached then
        opts:enableExecutableCaching(folder)
      end
      local trainer = poptorch.trainingModel(wrapped, opts,
        torch.optim.Adam(wrapped:parameters(), { lr = rate }))
      local x, t, out = torch.randn({ 5, 4 }), torch.arange(5, { dtype = torch.int64 }) % 3, {}
      for i = 1, 4 do
        out[i] = trainer(x, t):item()
      end
      return out
    end
    for _, rate in ipairs({ 0.1, 0.01, 0.1 }) do
      assert.same(losses(rate), losses(rate, true))
    end
    assert.equal(1, entries())
  end)

  it("only warns on the IPU Model", function()
    local lines = logged(function()
      compile(poptorch.Options():useIpuModel(true):enableExecutableCaching(folder))
    end)
    assert.truthy(lines:find("no effect on the IPU Model", 1, true))
    assert.is_false(core.is_folder(folder))
  end)

  it("refuses a folder that cannot be written", function()
    files.write(folder, "")
    local model = poptorch.inferenceModel(Times(),
      poptorch.Options():enableExecutableCaching(folder .. "/below"))
    local e = support.raises("AssertionError", model, torch.ones(2, 3))
    assert.equal(("enableExecutableCaching: the folder of the executable cache, %s/below, "
      .. "cannot be written: %s: Not a directory"):format(folder, folder), e.message)
    support.raises("AssertionError", poptorch.Options().enableExecutableCaching, poptorch.Options(),
      "")
  end)

  it("lets one of eight processes compile", function()
    local script = program.temporary([[
      local nn, poptorch, torch = require("torch").nn, require("poptorch"), require("torch")
      poptorch.setLogLevel("DEBUG")
      local M = nn.Module:extend("M")
      function M:init() self.fc, self.loss = nn.Linear(10, 10), nn.CrossEntropyLoss() end
      function M:forward(x, t) local y = self.fc(x) return y, self.loss(y, t) end
      local opts = poptorch.Options():useOfflineIpuTarget():deviceIterations(10)
        :enableExecutableCaching(arg[1])
      poptorch.trainingModel(M(), opts):compile(torch.randn(10, 10),
        torch.zeros(10, { dtype = torch.int64 }))]])
    for round = 1, 4 do
      local _, err = program.shell(("%s %s %s/%d & "):format(program.host, script, folder, round)
        :rep(8) .. "wait")
      local function times(text)
        return select(2, err:gsub(text, ""))
      end
      assert.equal(1, times("cache: miss"), err)
      assert.equal(1, times("compiled and stored"), err)
      assert.equal(7, times("cache: hit"), err)
      assert.equal(times("cache file locked"), times("released the cache lock"))
      local _, names = core.list_folder(("%s/%d"):format(folder, round))
      assert.equal(1, #names) -- no lock is left
    end
    os.remove(script)
  end)

  it("is one for the processes of Distributed, each of which infers its part", function()
    local function part(id, path)
      local opts = poptorch.Options()
      opts.Distributed:configureProcessId(id, 2)
      return logged(function()
        compile(path and opts:enableExecutableCaching(path) or opts)
      end)
    end
    assert.truthy(part(1):find("not cached: each of 2 processes compiles", 1, true))
    assert.truthy(part(0, folder):find("cache: miss", 1, true))
    assert.truthy(part(1, folder):find("cache: hit", 1, true))
    assert.equal(1, entries())
    local opts, net = poptorch.Options(), models.Sum(1)
    opts.Distributed:configureProcessId(0, 2)
    support.raises("NotImplementedError", poptorch.trainingModel(net, opts), torch.ones(1))
  end)

  it("serves eight processes that spoil it meanwhile", function()
    local out, err, code = program.shell(program.host .. " spec/stress/cache.lua 3 8")
    assert.equal("", err)
    assert.matches("by 8 processes, 0 failed", out)
    assert.equal(0, code)
  end)

  it("compiles anew for another build of a custom operator's library", function()
    local script = program.temporary([[
      local poptorch, torch = require("poptorch"), require("torch")
      torch.ops.load_library(arg[1])
      local Net = torch.nn.Module:extend("Net")
      function Net:forward(x)
        return poptorch.custom_op({ x }, "LeakyRelu", "com.acme", 1, { x }, { alpha = 0.5 })[1]
      end
      poptorch.setLogLevel("INFO")
      poptorch.inferenceModel(Net(),
        poptorch.Options():enableExecutableCaching(arg[2]))(torch.ones(2))
    ]])
    local builds = {}
    for i, more in ipairs({ "", "-O3 -fno-inline -DSPEC" }) do
      local library, made = custom_ops.compile("examples/custom_op/leaky_relu.c", more)
      builds[i] = { library, made }
    end
    for i, want in ipairs({ "miss", "hit", "miss", "hit" }) do
      local _, log = program.run({ script, builds[(i + 1) // 2][1], folder })
      assert.truthy(log:find("executable cache: " .. want, 1, true), log)
    end
    assert.equal(2, entries())
    for _, build in ipairs(builds) do
      custom_ops.remove(build[2])
    end
    os.remove(script)
  end)
end)

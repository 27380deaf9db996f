--- PopTorch's rules of executables in files and of their cache, a numbered case each.
local files = require("spec.support.files")
local core = require("lupine.core")
local helper = require("spec.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")

local near, raises = helper.near, helper.raises

local folder

before_each(function()
  folder = files.unused()
  core.make_folder(folder)
end)
after_each(function()
  files.remove(folder)
end)

local Net = nn.Module:extend("Net")

function Net:init()
  self.fc, self.drop, self.loss = nn.Linear(6, 3), nn.Dropout(0.4), nn.MSELoss()
end

function Net:forward(x, target)
  local y = self.fc(self.drop(x))
  if target then
    return y, self.loss(y, target)
  end
  return y
end

local x, target = torch.randn(4, 6), torch.randn(4, 3)

local function made(options)
  torch.manual_seed(5)
  return Net(), options or poptorch.Options():randomSeed(3)
end

local function entries()
  local _, names = core.list_folder(folder)
  return names
end

describe("conformance, executables:", function()
  it("PRE01 exported, loaded and run is what it is directly", function()
    local function inference(...)
      local net, options = made(...)
      net:eval()
      return poptorch.inferenceModel(net, options)
    end
    local path = folder .. "/a.poptorch"
    inference(poptorch.Options():useOfflineIpuTarget()):compileAndExport(path, x)
    local want = inference()(x)
    near(poptorch.load(path)(x), want, helper.exact)
    local edited = poptorch.load(path, function(options)
      options:deviceIterations(2):useIpuId(1)
    end)
    assert.same({ 2, 1 }, { edited.options.device_iterations, edited.options.ipu_id })
    near(edited(torch.cat({ x, x }, 0)), torch.cat({ want, want }, 0), helper.exact)
  end)

  it("PRE03 a folder gets a file of the name model", function()
    local model = poptorch.inferenceModel((made()))
    model(x)
    assert.matches("model.poptorch", helper.logged(function() model:save(folder) end), 1, true)
    assert.same({ "model.poptorch" }, entries())
    near(poptorch.load(folder .. "/model.poptorch")(x):sum() * 0, 0)
  end)

  it("PRE04 a saved training model goes on where it was", function()
    local function trainer()
      local net, options = made()
      return poptorch.trainingModel(net, options, poptorch.optim.Adam(net:parameters(),
        { lr = 0.05 }))
    end
    local function losses(model, n)
      local list = {}
      for i = 1, n do
        list[i] = select(2, model(x, target)):item()
      end
      return list
    end
    local straight = losses(trainer(), 10)
    local model, path = trainer(), folder .. "/half.poptorch"
    assert.same({ table.unpack(straight, 1, 5) }, losses(model, 5))
    model:save(path)
    assert.same({ table.unpack(straight, 6) }, losses(poptorch.load(path), 5))
  end)

  it("PRE06 a cache compiles once", function()
    local function compile()
      local net, options = made()
      poptorch.setLogLevel("INFO")
      local text = helper.logged(function()
        poptorch.inferenceModel(net, options:enableExecutableCaching(folder))(x)
      end)
      poptorch.setLogLevel("WARN")
      return text
    end
    assert.matches("cache: miss", compile(), 1, true)
    local kept = entries()
    assert.equal(1, #kept)
    local second = compile()
    assert.matches("cache: hit", second, 1, true)
    assert.not_matches("cache: miss", second, 1, true)
    assert.same(kept, entries())
  end)

  it("PRE08 what was not compiled is not saved", function()
    raises("Error", "compile", function()
      poptorch.inferenceModel((made())):save(folder .. "/never")
    end)
    assert.same({}, entries())
  end)

  it("PRE09 of six processes with one cache one compiles", function()
    local script = program.temporary([[
      local poptorch, torch = require("poptorch"), require("torch")
      poptorch.setLogLevel("DEBUG")
      local net = torch.nn.Linear(10, 10)
      torch.no_grad(function()
        net.weight:fill_(2)
        net.bias:fill_(1)
      end)
      local y = poptorch.inferenceModel(net,
        poptorch.Options():enableExecutableCaching(arg[1]))(torch.ones(1, 10))
      print(y[0][9]:item())]])
    local out, log = program.shell(("%s %s %s & "):format(program.host, script, folder):rep(6)
      .. "wait")
    os.remove(script)
    local function times(text)
      return select(2, log:gsub(text, ""))
    end
    assert.same({ 1, 1, 5 }, { times("cache: miss"), times("compiled and stored"),
      times("cache: hit") }, log)
    assert.equal(("21.0\n"):rep(6), out)
    assert.equal(1, #entries()) -- and no lock
  end)
end)

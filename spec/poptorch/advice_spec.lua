--- Each hint that an error of the core gives has its advice, and no other has.
local advice = require("poptorch.advice")
local helper = require("spec.poptorch.helper")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local places = require("poptorch.options.places")
local program = require("spec.support.program")
local read = require("spec.support.files").read
local session_options = require("popart.session_options")
local tables = require("lupine.base.tables")
local torch = require("torch")

-- The hints that a call's third argument stands for: itself, or what its variable is set to.
local function hints_of(argument, text)
  local name = argument:match("^(%w+)$")
  return name and (text:match("char %*" .. name .. " =(.-);") or "") or argument
end

local function given()
  local out = {}
  for path in program.shell("grep -rl 'lp_fail_hint(' src runtime --include=*.c"):gmatch("%S+") do
    local text = read(path)
    for argument in text:gmatch("lp_fail_hint%(%s*[&%w%->]+,%s*LP_E_[%w_]+,%s*([^,]+),") do
      local found = false
      for hint in hints_of(argument, text):gmatch('"([%w_]+)"') do
        out[hint], found = path, true
      end
      assert.is_true(found, path .. ": " .. argument)
    end
    local _, calls = text:gsub("lp_fail_hint%(%s*[&%w%->]+,%s*LP_E_", "")
    local _, all = text:gsub("lp_fail_hint%(", "")
    assert.is_true(calls == all or path == "src/base/status.c", path)
  end
  for path in program.shell("grep -rlE 'errors.(fail|raise_hint)' lua/lupine"):gmatch("%S+") do
    local text = read(path)
    for _, pattern in ipairs({ 'errors%.fail%("([%w_]+)"', 'errors%.raise_hint%("([%w_]+)"' }) do
      for hint in text:gmatch(pattern) do
        out[hint] = path
      end
    end
  end
  return out
end

describe("the advice of poptorch", function()
  it("is there for each hint of the core, and for nothing else", function()
    local hints = given()
    for hint, path in pairs(hints) do
      assert.truthy(advice.ADVICE[hint], path .. ": " .. hint)
    end
    for hint in pairs(advice.ADVICE) do
      assert.is_string(hints[hint], hint)
    end
  end)

  it("spells each change that is simulated, and nothing else", function()
    local spelled = tables.with(advice.OPTIONS, {})
    for _, hint in ipairs({ "replicas", "recompute_auto", "recompute_all" }) do -- of lupine.plan
      assert.truthy(spelled[hint], hint)
      spelled[hint] = nil
    end
    for _, name in ipairs({ "remedies", "gains" }) do
      for hint in read(("lua/lupine/plan/%s.lua"):format(name)):gmatch('hint = "([%w_]+)"') do
        assert.truthy(advice.OPTIONS[hint], hint)
        spelled[hint] = nil
      end
    end
    assert.same({}, spelled)
  end)

  it("spells what a location says that is not usual", function()
    local options = poptorch.Options()
    local usual = places.effective(options).weight
    assert.equal("poptorch.TensorLocationSettings():useOnChipStorage(true)", places.spelled(usual))
    local on = session_options.default("weightTensorLocationSettings.minElementsForOffChip")
    assert.equal(on, usual.min_off_chip)
    options.TensorLocations:setWeightLocation(poptorch.TensorLocationSettings()
      :useOnChipStorage(false):minElementsForOffChip(on + 1):useReplicatedTensorSharding(true)
      :minElementsForReplicatedTensorSharding(7):useIOTilesToLoad(true):useIOTilesToStore(true))
    local said = places.effective(options).weight
    local again = load("local poptorch = ...; return " .. places.spelled(said))(poptorch)
    options.TensorLocations:setWeightLocation(again)
    assert.same(said, places.effective(options).weight)
    assert.is_nil(read("lua/poptorch/advice.lua"):find("8192", 1, true))
  end)

  -- The message of a model on two IPUs whose activations overflow the tiles.
  local function too_large(strategy)
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.fc, self.loss = nn.Linear(64, 64), nn.MSELoss()
    end
    function Net:forward(x)
      local h
      do
        local _ <close> = poptorch.Block("A", { ipu_id = 0 })
        h = self.fc(x):sin()
      end
      local _ <close> = poptorch.Block("B", { ipu_id = 1 })
      for _ = 1, 12 do
        h = h:sin()
      end
      return self.loss(h, x)
    end
    local net, o = Net(), poptorch.Options():setExecutionStrategy(strategy)
    o.Training:gradientAccumulation(3)
    local model = poptorch.trainingModel(net, o, torch.optim.SGD(net:parameters(), { lr = 0.1 }))
    return helper.method_raises("Error", model, "compile", torch.zeros(3 * 1200000, 64)).message
  end

  it("is no strategy that the model has already", function()
    local pipelined = too_large(poptorch.PipelinedExecution("A", "B"))
    assert.is_nil(pipelined:find("PipelinedExecution", 1, true))
    assert.matches("gradientAccumulation(24) for the same batch", pipelined, 1, true)
    local sharded = too_large(poptorch.ShardedExecution("A", "B"))
    assert.is_nil(sharded:find("BeginBlock", 1, true))
    assert.matches("gradientAccumulation(24) for the same batch", sharded, 1, true)
  end)
end)

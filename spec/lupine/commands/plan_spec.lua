-- lupine plan: the first program of a script, on other numbers of IPUs.
local files = require("spec.support.files")
local runs = require("spec.support.runs")

local folder

before_each(function()
  folder = files.folder()
end)
after_each(function()
  files.remove(folder)
end)

local SCRIPT = [[
local nn, poptorch, torch = require("torch.nn"), require("poptorch"), require("torch")
local net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, tonumber(arg[1] or 8)))
local options = poptorch.Options():deviceIterations(8)
local model = poptorch.inferenceModel(net, options)
print(model(torch.randn(16, 32)):size(1))
print("ran")
]]

local function lupine(words, script)
  files.write(folder .. "/script.lua", script or SCRIPT)
  return runs.lupine(folder, "plan " .. words)
end

describe("lupine plan", function()
  it("prints what the first program would be on so many IPUs, and runs nothing", function()
    local out, err, code = lupine("--ipus 1..2,4 --tries 20 script.lua -- 5")
    assert.equal(0, code, err)
    assert.matches("^IPUs  stages x replicas  accumulation  samples/s", out)
    for _, pair in ipairs({ "   1  1 x 1", "   2  1 x 2", "   2  2 x 1", "   4  1 x 4",
      "   4  2 x 2" }) do
      assert.matches("\n" .. pair, out, 1, true)
    end
    assert.matches("4 stages: the model cannot be cut into 4 stages", out, 1, true)
    assert.is_nil(out:find("ran", 1, true))
  end)

  it("plans programs of popart", function()
    local out, err, code = lupine("--ipus 1,2 script.lua", [[
      local popart = require("popart")
      local builder = popart.Builder()
      local x = builder:addInputTensor("FLOAT", { 4, 8 })
      local w = builder:addInitializedInputTensor(require("torch").zeros(8, 8))
      local y = builder.aiOnnx:matmul({ x, w })
      builder:addOutputTensor(y)
      popart.InferenceSession(builder:getModelProto(), popart.DataFlow(1, { y }),
        popart.DeviceManager():createIpuModelDevice({})):prepareDevice()
      print("ran")
    ]])
    assert.equal(0, code, err)
    assert.matches("\n   1  1 x 1", out, 1, true)
    assert.is_nil(out:find("ran", 1, true))
  end)

  it("says what is wrong with its words, and with scripts", function()
    for words, message in pairs({ [""] = "expected a script",
      ["--ipus 0 script.lua"] = "--ipus: expected numbers of 1 or more, got '0'",
      ["--ipus 1..x script.lua"] = "--ipus: expected numbers of 1 or more, got '1..x'",
      ["--ipus 4..1 script.lua"] = "--ipus: 4 is more than 1 in '4..1'",
      ["--tries=many script.lua"] = "--tries: expected numbers of 1 or more, got 'many'",
      ["--ips 4 script.lua"] = "unrecognized option '--ips'" }) do
      local _, err, code = lupine(words)
      assert.equal(2, code, words)
      assert.matches(message, err, 1, true)
    end
    local _, err, code = lupine("missing.lua")
    assert.equal(1, code)
    assert.matches("missing.lua", err, 1, true)
    _, err, code = lupine("script.lua", "print(1)")
    assert.equal(1, code)
    assert.matches("the script compiled no program", err, 1, true)
    _, err, code = lupine("script.lua", "error('of the script')")
    assert.equal(1, code)
    assert.matches("of the script", err, 1, true)
  end)
end)

-- The ported listings: what must come out according to the pages they are
-- from. Each is run as it stands, its printed lines and executors caught.
local helper = require("spec.helper")
local lupine = require("lupine")
local poptorch = require("poptorch")
local program = require("spec.support.program")
local torch = require("torch")

-- `modules` replaces what the example requires.
local function run(name, modules)
  local got = { lines = {}, executors = {} }
  local function caught(make)
    return function(...)
      local e = make(...)
      got.executors[#got.executors + 1] = e
      return e
    end
  end
  local proxy = setmetatable({
    trainingModel = caught(poptorch.trainingModel),
    inferenceModel = caught(poptorch.inferenceModel),
  }, { __index = poptorch })
  local env = setmetatable({
    print = function(...)
      local parts = table.pack(...)
      for i = 1, parts.n do
        parts[i] = tostring(parts[i])
      end
      got.lines[#got.lines + 1] = table.concat(parts, "\t")
    end,
    require = function(module)
      return module == "poptorch" and proxy or modules and modules[module] or require(module)
    end,
  }, { __index = _G })
  assert(loadfile(("examples/%s.lua"):format(name), "t", env))()
  got.text = table.concat(got.lines, "\n")
  return got
end

-- The fewest device iterations that an inference pipeline of the model runs
-- with are its stages.
local function stages(executor, input)
  for di = 1, 8 do
    local e = poptorch.inferenceModel(executor.model, poptorch.Options():deviceIterations(di))
    local ok = pcall(e, input:repeat_interleave(di, 0))
    if ok then
      return di
    end
  end
end

describe("listing 4.3", function()
  it("trains until host and device give the target", function()
    local got = run("listing_4_3")
    assert.equal("host and device agree", got.lines[#got.lines])
    local losses = {}
    for loss in got.text:gmatch("%d+: ([%d%.]+)") do
      losses[#losses + 1] = tonumber(loss)
    end
    assert.equal(9, #losses)
    for i = 2, #losses do
      assert.is_true(losses[i] <= losses[i - 1])
    end
    assert.is_true(losses[9] < 1e-5)
    -- gradient descent on one sample: per call the error shrinks by the factor
    -- 1 - lr * 2 / 10 * (|x|^2 + 1), the loss by its square
    local factor = (losses[2] / losses[1]) ^ (1 / 200)
    assert.near(losses[1] * factor ^ 400, losses[3], 1e-3 * losses[1])
  end)
end)

for name, count in pairs({ listing_4_8 = 4, listing_4_9 = 2 }) do
  describe(name:gsub("listing_(%d)_", "listing %1."), function()
    it(("is a pipeline of %d stages whose answers are the host's"):format(count), function()
      local got = run(name)
      assert.equal("device and host agree", got.lines[#got.lines])
      local executor = got.executors[1]
      assert.equal(count, stages(executor, torch.rand({ 1, 5 })))
      local x = torch.rand({ 4, 5 })
      local y = executor(x)
      assert.same({ 4, 5 }, { table.unpack(y.shape) })
      helper.near(y, executor.model(x), { 1e-6, 1e-5 })
      helper.near(y:sum(1), { 1, 1, 1, 1 })
    end)
  end)
end

describe("listing 4.11", function()
  it("runs 12 blocks in 6 phases, on IPUs 0 and 2 and on 1 and 3 by turns", function()
    local got = run("listing_4_11")
    assert.equal("device and host agree", got.lines[#got.lines])
    local r, blocks = got.executors[1]:report(), {}
    for _, s in ipairs(r.stages) do
      blocks[s.block] = { s.phase, s.ipu }
    end
    local count = 0
    for block, at in pairs(blocks) do
      local phase, side = block:match("^phase(%d)_ipu(%d)$")
      assert.same({ tonumber(phase), 2 * side + phase % 2 }, at)
      count = count + 1
    end
    assert.equal(12, count)
  end)

  it("computes both halves of a phase at the same time", function()
    local r = run("listing_4_11").executors[1]:report()
    -- two of four IPUs work; a quarter would be one at a time
    assert.is_true(r.pipeline_efficiency > 0.4 and r.pipeline_efficiency <= 0.5)
  end)
end)

describe("the training loop", function()
  local got
  setup(function()
    got = run("training_loop")
  end)
  teardown(function() -- its IPUs are free again
    got = nil
  end)

  it("needs a tenth of the calls on the IPU", function()
    assert.truthy(got.text:find("ipu: 200 calls", 1, true))
  end)

  it("has the same losses on host and IPU, which fall", function()
    local host, ipu = {}, {}
    for where, loss in got.text:gmatch("(%w+) +batch +%d+  loss ([%d%.]+)") do
      local list = where == "host" and host or ipu
      list[#list + 1] = tonumber(loss)
    end
    assert.equal(4, #host)
    for i = 1, 4 do
      assert.near(host[i], ipu[i], 1e-4)
      assert.is_true(i == 1 or host[i] < host[i - 1])
    end
    assert.is_true(host[4] < 0.1)
  end)

  it("ends with the same weights", function()
    local apart = got.text:match("largest difference of the weights: (%S+)")
    assert.is_true(tonumber(apart) < 1e-4)
  end)
end)

describe("Fashion-MNIST", function()
  -- a tenth of the pictures
  local function part(train)
    local images, labels = lupine.datasets.FashionMNIST(train)
    return images[train and "0:6144" or "0:1000"], labels[train and "0:6144" or "0:1000"]
  end

  local means = {} -- of each epoch
  local function quiet()
    local epoch = #means + 1
    return setmetatable({
      update = function(_, _, values)
        means[epoch] = values["mean loss"]
      end,
    }, { __close = function() end })
  end

  it("is learnt by a pipeline over two IPUs, whose report is plausible", function()
    local got = run("fashion_mnist", { lupine = {
      clock = lupine.clock,
      datasets = { FashionMNIST = part },
      progress = quiet,
    } })
    assert.equal(2, #means)
    assert.is_true(means[2] < means[1] and means[1] < math.log(10)) -- a guess among 10 classes
    local number = "([%d%.]+)"
    local accuracy, seconds, here, there, efficiency = got.lines[#got.lines]:match(
      ("^demo: accuracy=%s seconds=%s samples_per_s=%s simulated_samples_per_s=%s "
      .. "pipeline_efficiency=%s$"):format(number, number, number, number, number))
    assert.is_true(tonumber(accuracy) > 0.7 and tonumber(accuracy) < 0.95)
    assert.is_true(tonumber(seconds) > 0 and tonumber(here) > 0)
    assert.is_true(tonumber(there) > 1000)
    assert.is_true(tonumber(efficiency) > 0.3 and tonumber(efficiency) < 1)
    for ipu = 0, 1 do
      local always = got.text:match(("memory of IPU %d: ([%%d%%.]+) MB"):format(ipu))
      assert.is_true(tonumber(always) > 0 and tonumber(always) < 897) -- Mk2: 897 MB
    end
  end)
end)

describe("the loop on the device", function()
  it("gives square roots, as on the host", function()
    local got = run("for_loop")
    local n = 0
    for difference in got.text:gmatch("differ by (%S+)") do
      n = n + 1
      assert.near(0, tonumber(difference), 1e-6)
    end
    assert.equal(2, n)
    assert.near(0, tonumber(got.text:match("largest error: (%S+)")), 1e-6)
  end)
end)

describe("the line", function()
  it("is found", function()
    local slope, offset = run("linear").text:match("y = (%S+) x (%S+)")
    assert.near(3, tonumber(slope), 0.05)
    assert.near(-1, tonumber(offset), 0.05)
  end)
end)

describe("the example of anchored tensors", function()
  it("follows the weight through every update by the gradients that it saw", function()
    local got = run("anchored_tensors")
    assert.equal("anchors follow the updates", got.lines[#got.lines])
    assert.matches("update 2: ", got.text)
    assert.matches("also there: fc2/MatMul:0", got.text)
    local trainer = got.executors[1]
    local last = trainer:getAnchoredTensor("bias"):reshape(6, 2)[5]
    assert.is_true(torch.equal(last, trainer.model.fc2.bias))
  end)
end)

describe("the script that recovers", function()
  local faults = require("lupine.faults")

  it("meets every fault once and ends with the weights of a run without", function()
    faults.clear()
    local got = run("recovery")
    assert.same({}, faults.pending())
    faults.clear()
    assert.same({ "the IPU is reset", "the links are reset", "the partition is reset",
      "the system is restarted" }, { table.unpack(got.lines, 1, 4) })
    assert.matches("^the device is to be repaired, another one takes over: ", got.lines[5])
    assert.equal("received 'an assertion failed' from poplar_application_runtime_error, 0 of 1 "
      .. "device iterations finished", got.lines[6])
    assert.equal("the weights are the same: true", got.lines[7])
    assert.equal(7, #got.lines)
  end)
end)

describe("listings 4.27 to 4.35", function()
  it("load what was compiled elsewhere and go on training", function()
    -- on IPUs of its own: models of the examples above may have IPU 1
    local out, err, code = program.shell(("d=$(mktemp -d); LUPINE_DEVICES=$d %s "
      .. "examples/precompilation.lua; code=$?; rm -r $d; exit $code"):format(program.host))
    assert.equal(0, code, err)
    local first, second = out:match("epoch 1: ([%d.]+)\nepoch 2: ([%d.]+)\n")
    assert.is_true(tonumber(second) < tonumber(first))
    assert.matches("training reaches the connected model\n$", out)
  end)
end)

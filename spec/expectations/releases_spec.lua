--- Files that earlier versions wrote, one of each format (releases/record.lua), and what
--- Python's packages wrote (releases/record.py), are read. The values are arithmetic:
--- whole numbers less the half that one step of Adam takes of each.
local core = require("lupine.core")
local files = require("spec.support.files")
local lupine = require("lupine")
local near = require("spec.helper").near
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local ROOT = "spec/expectations/releases/"
local PYTHON = ROOT .. "python/"
local WEIGHT = { { -0.5, 0.5 }, { 1.5, 2.5 }, { 3.5, 4.5 } }
local BIAS = { 5.5, 6.5, 7.5 }

local releases = {}
for _, name in ipairs((core.list_folder(ROOT))) do
  if name:find("^%d") then
    releases[#releases + 1] = name
  end
end

local function right(state)
  near(state.weight, WEIGHT)
  near(state.bias, BIAS)
end

-- Its moments after one step with gradients of 1.
local function moments(optimizer, net)
  for _, p in ipairs({ net.weight, net.bias }) do
    local s = optimizer.state[p]
    near(s.exp_avg, torch.full_like(p, 0.1):tolist())
    near(s.exp_avg_sq, torch.full_like(p, 0.001):tolist())
    assert.equal(1, s.step:item())
  end
end

local function fresh()
  local net = nn.Linear(2, 3)
  return net, torch.optim.Adam(net:named_parameters(), { lr = 0.1 })
end

for _, release in ipairs(releases) do
  describe("lupine " .. release, function()
    local folder = ROOT .. release

    it("has weights that load, as safetensors, by torch.load and as arrays", function()
      right(lupine.safetensors.load_file(folder .. "/weights.safetensors"))
      local net = fresh()
      net:load_state_dict(torch.load(folder .. "/weights.pt"))
      right(net:state_dict())
      near(lupine.numpy.load(folder .. "/bias.npy"), BIAS)
      near(lupine.numpy.load(folder .. "/weights.npz").weight, WEIGHT)
    end)

    it("has an optimizer's state that loads", function()
      local net, optimizer = fresh()
      optimizer:load_state_dict(torch.load(folder .. "/optimizer.pt"))
      moments(optimizer, net)
      assert.equal(0.5, optimizer.param_groups[1].lr)
    end)

    it("has a checkpoint that is restored", function()
      local net, optimizer = fresh()
      lupine.checkpoint.restore(folder .. "/checkpoint", { model = net, optimizer = optimizer })
      right(net:state_dict())
      moments(optimizer, net)
      assert.equal(3, lupine.checkpoint.load(folder .. "/checkpoint").epoch)
    end)

    it("has a model in ONNX that computes", function()
      near(lupine.onnx.load(folder .. "/model.onnx")(torch.ones(1, 2)), { { 5.5, 10.5, 15.5 } })
    end)

    it("has options that are read", function()
      local options = poptorch.Options():loadFromFile(folder .. "/poptorch.conf")
      assert.equal(2, options.device_iterations)
      assert.equal(3, options.Training.gradient_accumulation)
      assert.is_true(poptorch.ShardedExecution:is(options.execution_strategy))
    end)

    -- An executable is for the version that compiled it; its weights are for all.
    it("has an executable that runs, or says which version it is of, with its weights", function()
      local path = folder .. "/model.poptorch"
      local stored = lupine.safetensors.load_file(path)
      near(stored["model.weight"], WEIGHT)
      near(stored["model.bias"], BIAS)
      local ok, model = pcall(poptorch.load, path)
      if release == core.version then
        assert(ok, model)
        near(model(torch.ones(2, 2)), { { 5.5, 10.5, 15.5 }, { 5.5, 10.5, 15.5 } })
      elseif not ok then
        assert.matches(release, model.message, 1, true)
        assert.matches("save it again", model.message, 1, true)
      end
    end)
  end)
end

it("this version has recorded its files", function()
  local made
  for _, release in ipairs(releases) do
    made = made or release == core.version
  end
  assert.is_true(made, "run spec/expectations/releases/record.lua")
end)

describe("what Python wrote", function()
  local weight = { { 0, 0.25 }, { 0.5, 0.75 }, { 1, 1.25 } }
  local labels = { 3, -1, 9007199254740993 }

  it("with numpy is read: columns first, archives", function()
    near(lupine.numpy.load(PYTHON .. "columns.npy"), weight)
    local both = lupine.numpy.load(PYTHON .. "both.npz")
    near(both.weight, weight)
    assert.same(labels, both.labels:tolist())
  end)

  it("with safetensors is read, in every bit", function()
    local t = lupine.safetensors.load_file(PYTHON .. "both.safetensors")
    assert.same(labels, t.labels:tolist())
    for name, dtype in pairs({ weight = torch.float32, half = torch.float16,
      brain = torch.bfloat16 }) do
      assert.equal(dtype, t[name].dtype)
      near(t[name], weight, { 0, 0 })
    end
  end)

  it("with onnx is read and computes", function()
    local model = lupine.onnx.load(PYTHON .. "two_nodes.onnx")
    -- (1, 2, -1) times the weight
    near(model(torch.tensor({ { 1.0, 2.0, -1.0 }, { -1.0, 0, 0 } })), { { 0, 0.5 }, { 0, 0 } })
  end)

  it("is not changed by reading", function()
    local before = files.read(PYTHON .. "both.safetensors")
    lupine.safetensors.load_file(PYTHON .. "both.safetensors").weight:add_(1)
    assert.equal(before, files.read(PYTHON .. "both.safetensors"))
  end)
end)

--- What is kept of weights that differ between groups of replicas: states of
--- optimizers, state dicts, executables in files and in a cache.
local files = require("spec.support.files")
local near = require("spec.helper").near
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local Kind, Retrieval = poptorch.CommGroupType, poptorch.VariableRetrievalMode

local Stored = nn.Module:extend("ReplicaGroupsStored")

function Stored:init()
  self.w = nn.Parameter(torch.randn(2, 3))
end

function Stored:forward(x)
  return poptorch.identity_loss((x * self.w) ^ 2, "sum")
end

describe("optimizer states of weights in replica groups", function()
  local x = torch.randn(4, 3)

  local function trainer(net, optimizer, retrieval)
    local model = poptorch.trainingModel(net, poptorch.Options():replicationFactor(4), optimizer)
    model.w:replicaGrouping(Kind.Consecutive, 2, retrieval)
    return model
  end

  -- A net whose weight has a slice a group, or one a replica with the same values.
  local function stored(retrieval)
    torch.manual_seed(5)
    local net = Stored()
    if retrieval == Retrieval.AllReplicas then
      net.w = nn.Parameter(net.w:detach()[{ torch.tensor({ 0, 0, 1, 1 }) }]:clone())
    end
    return net
  end

  for _, retrieval in ipairs({ Retrieval.OnePerGroup, Retrieval.AllReplicas }) do
    it("go through state dicts, before compiling and after: " .. tostring(retrieval), function()
      local function adam(net)
        return poptorch.optim.Adam(net:parameters(), { lr = 0.1 })
      end
      local slices = retrieval == Retrieval.AllReplicas and 4 or 2
      local net = stored(retrieval)
      local optimizer = adam(net)
      local model = trainer(net, optimizer, retrieval)
      model(x)
      model(x)
      local values, states = net:state_dict(), optimizer:state_dict()
      for name, state in pairs(states.ipu_state) do
        assert.same(name:find("Step") and { slices } or { slices, 3 },
          { table.unpack(state.shape) })
      end
      near(states.ipu_state.Step___w, torch.full({ slices }, 2.0))
      values.w = values.w:clone()
      local want = { model(x):tolist(), model(x):tolist() }

      local early = stored(retrieval)
      early:load_state_dict(values)
      local loaded = adam(early)
      loaded:load_state_dict(states)
      local again = trainer(early, loaded, retrieval)
      assert.same(want, { again(x):tolist(), again(x):tolist() })

      again:load_state_dict(values)
      loaded:load_state_dict(states)
      assert.same(want, { again(x):tolist(), again(x):tolist() })
      near(loaded:state_dict().ipu_state.Accl1___w, optimizer:state_dict().ipu_state.Accl1___w)
    end)
  end

  it("come to PyTorch's optimizer, which counts once", function()
    local net = stored()
    local native = torch.optim.Adam(net:parameters(), { lr = 0.1 })
    local model = trainer(net, native, Retrieval.OnePerGroup)
    model(x)
    assert.same({ 2, 3 }, { table.unpack(native.state[net.w].exp_avg.shape) })
    near(native.state[net.w].step, 1)
    model:destroy()
    net.w.grad = torch.ones_like(net.w)
    native:step() -- goes on on the host
    near(native.state[net.w].step, 2)
  end)
end)

describe("executables with weights in replica groups", function()
  local x = torch.randn(4, 3)
  local function trainer(options_of)
    torch.manual_seed(9)
    local net, opts = Stored(), poptorch.Options():replicationFactor(4)
    if options_of then
      options_of(opts)
    end
    local model = poptorch.trainingModel(net, opts, poptorch.optim.AdamW(net:parameters(),
      { lr = 0.1 }))
    model.w:replicaGrouping(Kind.Orthogonal, 2, Retrieval.OnePerGroup)
    return model, net
  end

  it("go on as the model that was saved, in groups", function()
    local model, net = trainer()
    model(x)
    local path = os.tmpname()
    model:save(path)
    local loaded = poptorch.load(path)
    os.remove(path)
    near(loaded.w, net.w:detach())
    near(loaded(x), model(x))
    near(loaded.w, net.w:detach())
    loaded:destroy()
    near(loaded(x), model(x)) -- compiled again
    near(loaded.w, net.w:detach())
  end)

  it("come from the cache", function()
    local folder = files.unused()
    local losses, kinds = {}, {}
    for i, size in ipairs({ 2, 2, 1 }) do
      local net
      local model = trainer(function(o)
        o:enableExecutableCaching(folder)
      end)
      net = model.model
      if size == 1 then
        net.w = nn.Parameter(torch.cat({ net.w:detach(), net.w:detach() }))
        model = poptorch.inferenceModel(net, poptorch.Options():replicationFactor(4)
          :enableExecutableCaching(folder))
        model.w:replicaGrouping(Kind.Orthogonal, 1, Retrieval.OnePerGroup)
      end
      losses[i] = model(x):tolist()
      kinds[i] = net.w:size(0)
    end
    assert.same(losses[1], losses[2])
    assert.same(losses[1], losses[3])
    assert.same({ 2, 2, 4 }, kinds)
    os.execute(("rm -r '%s'"):format(folder))
  end)
end)

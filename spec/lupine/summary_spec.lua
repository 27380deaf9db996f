--- Totals against the parameters counted one by one, multiply-adds against counts by hand.
local core = require("lupine.core")
local helper = require("spec.helper")
local lupine = require("lupine")
local nn = require("torch.nn")
local torch = require("torch")
local torchvision = require("torchvision")

local function row_of(summary, path)
  for _, row in ipairs(summary.rows) do
    if row.path == path then
      return row
    end
  end
  error("no row " .. path)
end

local function total(summary, field)
  local n = 0
  for _, row in ipairs(summary.rows) do
    n = n + row[field]
  end
  return n
end

local MODELS = {
  ["a tied embedding"] = function()
    local Tied = nn.Module:extend("Tied")
    function Tied:init()
      self.first, self.last = nn.Embedding(10, 4), nn.Linear(4, 10, { bias = false })
      self.last.weight = self.first.weight
    end
    function Tied:forward(ids)
      return self.last(self.first(ids))
    end
    return Tied(), torch.zeros(2, 3, { dtype = torch.int64 })
  end,
  ["frozen layers"] = function()
    local m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    m[1]:requires_grad_(false)
    return m, torch.empty(3, 4)
  end,
  resnet18 = function()
    return torchvision.models.resnet18(), torch.empty(1, 3, 64, 64)
  end,
  GPT2 = function()
    return lupine.models.GPT2LMHeadModel({ vocab_size = 40, n_positions = 16, n_embd = 16,
      n_layer = 2, n_head = 2 }), torch.zeros(1, 5, { dtype = torch.int64 })
  end,
  transformer = function()
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2), torch.empty(5, 2, 8)
  end,
}

describe("a summary's totals are the counted parameters of", function()
  for name, make in pairs(MODELS) do
    it(name, function()
      local model, input = make()
      local all, trained, bytes = 0, 0, 0
      for _, p in ipairs(model:parameters()) do
        all, bytes = all + p:numel(), bytes + p:numel() * p:element_size()
        trained = trained + (p.requires_grad and p:numel() or 0)
      end
      for depth = 0, 4 do
        local s = lupine.summary(model, { input }, { depth = depth })
        assert.same({ all, trained, bytes },
          { s.total_params, s.trainable_params, s.total_param_bytes })
        assert.same({ all, s.total_mult_adds }, { total(s, "params"), total(s, "mult_adds") })
      end
    end)
  end
end)

describe("multiply-adds are those counted by hand of", function()
  local function count(model, ...)
    return lupine.summary(model, { ... }).total_mult_adds
  end

  it("linear layers: rows, inputs, outputs", function()
    for _, dtype in ipairs({ torch.float32, torch.float64, torch.float16, torch.bfloat16 }) do
      assert.equal(6 * 4 * 8, count(nn.Linear(4, 8):to(dtype), torch.empty(2, 3, 4):to(dtype)))
    end
  end)

  it("convolutions: places, taps, channels of a group", function()
    assert.equal(2 * 8 * 8 * 4 * 9, count(nn.Conv2d(1, 4, 3, { padding = 1 }),
      torch.empty(2, 1, 8, 8)))
    assert.equal(3 * 3 * 8 * 9 * 2, count(nn.Conv2d(4, 8, 3, { stride = 2, groups = 2 }),
      torch.empty(1, 4, 7, 7)))
    assert.equal(6 * 5 * 3 * 2, count(nn.Conv1d(2, 5, 3), torch.empty(1, 2, 8)))
    assert.equal(6 * 5 * 3 * 2, count(nn.Conv1d(2, 5, 3):half(), torch.empty(1, 2, 8):half()))
  end)

  it("transposed convolutions: places of the input, taps, channels", function()
    assert.equal(4 * 4 * 2 * 3 * 9, count(nn.ConvTranspose2d(2, 3, 3), torch.empty(1, 2, 4, 4)))
  end)

  it("attention, whose products are no layer's: projections, scores, values", function()
    local s = lupine.summary(nn.MultiheadAttention(8, 2), { torch.empty(5, 2, 8),
      torch.empty(5, 2, 8), torch.empty(5, 2, 8) })
    assert.equal(4 * 10 * 8 * 8 + 2 * (2 * 2 * 5 * 5 * 4), s.total_mult_adds)
  end)

  it("plain functions in forward, in the row of the module that calls them", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.inner = nn.Linear(4, 4)
    end
    function Net:forward(x)
      return self.inner(x):matmul(x:t())
    end
    local s = lupine.summary(Net(), { torch.empty(3, 4) })
    assert.equal(3 * 4 * 3, row_of(s, "").mult_adds)
    assert.equal(3 * 4 * 4, row_of(s, "inner").mult_adds)
  end)

  it("resnet18, as torchvision's table has it: 1.81 G", function()
    local n = count(torchvision.models.resnet18(), torch.empty(1, 3, 224, 224))
    assert.near(1.81e9, n, 0.005e9)
  end)
end)

describe("a summary", function()
  local net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))

  it("shows shapes of results, and what was not called", function()
    local List = nn.Module:extend("List")
    function List:init()
      self.layers, self.spare = nn.ModuleList({ nn.Linear(4, 8) }), nn.Linear(1, 1)
    end
    function List:forward(x)
      return self.layers[1](x)
    end
    local s = lupine.summary(List(), { torch.empty(3, 4) })
    assert.same({ { 3, 8 } }, row_of(s, "layers.0").shapes)
    assert.same({}, row_of(s, "spare").shapes)
    assert.matches("spare %(Linear%) +not called +2 +0\n", tostring(s))
    local lstm = lupine.summary(nn.LSTM(4, 8), { torch.empty(5, 2, 4) })
    assert.same({ { 5, 2, 8 }, { 1, 2, 8 }, { 1, 2, 8 } }, lstm.rows[1].shapes)
    assert.matches("LSTM   %[5, 2, 8%] %[1, 2, 8%] %[1, 2, 8%]         448", tostring(lstm))
    assert.matches("parameters: 448 (0.0 MB), of which 448 are trained", tostring(lstm), 1, true)
  end)

  it("changes nothing: random numbers, buffers, hooks, modes", function()
    local now, lua = torch.get_rng_state(), core.lua_random()
    local before = net:state_dict()
    local mean = before["1.running_mean"]:clone()
    lupine.summary(net, { torch.ones(3, 4) })
    assert.is_true(torch.equal(now, torch.get_rng_state()))
    assert.is_true(torch.equal(lua, core.lua_random()))
    assert.is_true(torch.equal(mean, net:state_dict()["1.running_mean"]))
    assert.equal(0, net:state_dict()["1.num_batches_tracked"]:item())
    assert.is_true(net.training and net[3].training)
    assert.equal(0, #net[1]._hooks)
    assert.is_nil(nn.Module.tracer)
  end)

  it("refuses what it cannot sum up", function()
    helper.raises("TypeError", "model: expected a torch.nn.Module, got string", function()
      lupine.summary("x", {})
    end)
    helper.raises("TypeError", "inputs%[1%]: expected a tensor, got int 3", function()
      lupine.summary(net, { 3 })
    end)
    helper.raises("TypeError", "unknown option 'deep'. Allowed: depth", function()
      lupine.summary(net, { torch.empty(3, 4) }, { deep = 1 })
    end)
    helper.raises("ValueError", "depth: expected an int of at least 0", function()
      lupine.summary(net, { torch.empty(3, 4) }, { depth = -1 })
    end)
    helper.raises("RuntimeError", "does not fit `weight`", function()
      lupine.summary(net, { torch.empty(3, 5) })
    end)
    assert.is_nil(nn.Module.tracer)
    assert.equal(0, #net[1]._hooks)
  end)
end)

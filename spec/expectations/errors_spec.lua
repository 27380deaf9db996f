--- What errors of shapes, labels, traces and state dictionaries say.
local F = require("torch.nn").functional
local helper = require("spec.helper")
local lupine = require("lupine")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local raises = helper.raises

local r = torch.rand

-- Two shapes that do not fit, and what the message begins with and has.
local UNFIT = {
  { "linear", "[3, 8]", "[2, 9]", function() F.linear(r(3, 8), r(2, 9)) end, "`weight`" },
  { "matmul", "[3, 8]", "[9, 2]", function() r(3, 8):matmul(r(9, 2)) end, "of the second" },
  { "mm", "[3, 8]", "[9, 2]", function() torch.mm(r(3, 8), r(9, 2)) end, "`mat2`" },
  { "bmm", "[2, 3, 8]", "[2, 9, 2]", function() r(2, 3, 8):bmm(r(2, 9, 2)) end, "`mat2`" },
  { "addmm", "[7]", "[3, 2]", function() torch.addmm(r(7), r(3, 8), r(8, 2)) end, "`self`" },
  { "add", "[3, 4]", "[5, 4]", function() return r(3, 4) + r(5, 4) end, "dimension 0" },
  { "copy_", "[3, 4]", "[5, 4]", function() r(3, 4):copy_(r(5, 4)) end, "in place" },
  { "where", "[3]", "[4]", function() torch.where(r(3):gt(0), r(4), r(3)) end, "dimension 0" },
  { "stack", "[3, 4]", "[3, 5]", function() torch.stack({ r(3, 4), r(3, 5) }) end, "entry 1" },
  { "conv2d", "[4, 2, 3, 3]", "[1, 3, 8, 8]", function()
    F.conv2d(r(1, 3, 8, 8), r(4, 2, 3, 3))
  end, "input" },
  { "layer_norm", "[9]", "[3, 8]", function() F.layer_norm(r(3, 8), { 9 }) end, "input" },
  { "batch_norm", "(8,)", "(7,)", function() F.batch_norm(r(3, 8), r(7), r(7)) end,
    "running_mean" },
  { "cross_entropy", "[3, 4]", "[2]", function()
    F.cross_entropy(r(3, 4), torch.tensor({ 0, 1 }))
  end, "target" },
  { "binary_cross_entropy", "[3, 5]", "[3, 4]", function()
    F.binary_cross_entropy(r(3, 4), r(3, 5))
  end, "target size" },
  { "gather", "[5, 5]", "[3, 4]", function()
    torch.gather(r(3, 4), 0, torch.zeros(5, 5, { dtype = torch.int64 }))
  end, "index" },
}

describe("an error of shapes", function()
  for _, case in ipairs(UNFIT) do
    local name, one, other, call, argument = table.unpack(case)
    it(("of %s names it, the argument, both shapes and the line"):format(name), function()
      local e = raises("Exception", nil, call)
      assert.matches("^" .. name, e.message)
      assert.matches(one, e.message, 1, true)
      assert.matches(other, e.message, 1, true)
      assert.matches(argument, e.message, 1, true)
      assert.matches("errors_spec.lua:%d+", tostring(e))
    end)
  end

  it("in a module has its path, in eager and compiled code", function()
    local Net, line = nn.Module:extend("Net"), nil
    function Net:init()
      self.encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(9, 2))
    end
    function Net:forward(x)
      line = debug.getinfo(1, "l").currentline + 1
      local y = self.encoder(x)
      return y
    end
    local net, x = Net(), r(3, 4)
    for _, call in ipairs({ function() return net(x) end,
      function() return lupine.compile(net, { x })(x) end,
      function() return poptorch.inferenceModel(net)(x) end }) do
      local e = raises("RuntimeError", "%[3, 8%].*%[2, 9%]", call)
      assert.matches("in module 'encoder.2' (Linear) of Net", tostring(e), 1, true)
      assert.matches(("errors_spec.lua:%d"):format(line), tostring(e) .. e.traceback, 1, true)
    end
  end)
end)

describe("a label out of range", function()
  it("is named with the number of classes and the sample", function()
    local logits = r(4, 3)
    for label, where in pairs({ [3] = 2, [-1] = 0, [100] = 3 }) do
      local target = torch.tensor({ 0, 1, 2, 0 })
      target[where] = label
      for _, loss in ipairs({ F.cross_entropy, F.nll_loss }) do
        local e = raises("IndexError", nil, function()
          loss(logits, target)
        end)
        assert.matches(("target %d is out of bounds"):format(label), e.message, 1, true)
        assert.matches("0 to 2, of 3 classes", e.message, 1, true)
        assert.matches(("sample %d of the batch"):format(where), e.message, 1, true)
      end
    end
  end)

  it("has the sample of many elements, and is named by compiled steps too", function()
    local target = torch.zeros(2, 5, { dtype = torch.int64 })
    target[1][2] = 7
    raises("IndexError", "target 7 .* 3 classes %(sample 1 of the batch%)", function()
      F.cross_entropy(r(2, 3, 5), target)
    end)
    local model = nn.Linear(4, 3)
    local step = lupine.compile(model, { loss = nn.CrossEntropyLoss(),
      optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1 }) })
    raises("IndexError", "target 7 .* 3 classes %(sample 1 of the batch%)", function()
      step(r(2, 4), torch.tensor({ 0, 7 }))
    end)
  end)
end)

describe("an indexed row that is not there", function()
  it("says that indices count from 0", function()
    raises("IndexError", "index 3 .* of size 3: indices count from 0", function()
      return r(3)[3]
    end)
    raises("IndexError", "index 9 .* size 4 .*indices count from 0", function()
      F.embedding(torch.tensor({ 9 }), r(4, 2))
    end)
  end)
end)

describe("item() in a traced forward", function()
  it("says what to do instead, and that works", function()
    local Net = nn.Module:extend("Net")
    function Net.forward(_, x)
      return x:sum():item() > 0 and x or -x
    end
    for _, run in ipairs({ poptorch.inferenceModel(Net()), function(x)
      return lupine.compile(Net(), { x })(x)
    end }) do
      local _, e = pcall(run, -torch.ones(2))
      assert.matches("Return it from forward and call item() on the result", e.message, 1, true)
      assert.matches("torch.where or lupine.control.branch", e.message, 1, true)
    end
    function Net.forward(_, x)
      local total = x:sum()
      return torch.where(total:gt(0), x, -x), total
    end
    local y, total = poptorch.inferenceModel(Net())(-torch.ones(2))
    assert.same({ 1, 1 }, y:tolist())
    assert.equal(-2, total:item())
  end)
end)

describe("load_state_dict", function()
  local function state()
    return { weight = torch.ones(1, 2), bias = torch.zeros(3), other = torch.zeros(1) }
  end

  it("returns missing, unexpected and, if they may be, mismatched keys", function()
    local m = nn.BatchNorm1d(3)
    local keys = m:load_state_dict(state(), { strict = false, ignore_mismatched_sizes = true })
    assert.same({ "running_mean", "running_var", "num_batches_tracked" }, keys.missing_keys)
    assert.same({ "other" }, keys.unexpected_keys)
    assert.same({ "weight" }, keys.mismatched_keys)
    assert.same({ 1, 1, 1 }, m.weight:tolist())
    assert.same({ 0, 0, 0 }, m.bias:tolist())
    assert.matches("mismatched_keys=['weight']", tostring(keys), 1, true)
  end)

  it("lists all three in its error otherwise", function()
    local text = raises("RuntimeError", nil, function()
      nn.BatchNorm1d(3):load_state_dict(state())
    end).message
    assert.matches('Missing key(s) in state_dict: "running_mean"', text, 1, true)
    assert.matches('Unexpected key(s) in state_dict: "other"', text, 1, true)
    assert.matches("size mismatch for weight", text, 1, true)
    raises("RuntimeError", "size mismatch for weight", function()
      nn.BatchNorm1d(3):load_state_dict(state(), { strict = false })
    end)
  end)

  it("warns where strict = false loads nothing, and then alone", function()
    require("lupine.base.warn").reset()
    local m = nn.Linear(2, 2)
    local function load(from)
      return helper.logged(function()
        m:load_state_dict(from, { strict = false })
      end)
    end
    assert.matches("nothing was loaded into Linear: it has 'weight', 'bias'; the dictionary has "
      .. "'module.weight'", load({ ["module.weight"] = torch.ones(2, 2) }), 1, true)
    assert.equal("", load({ bias = torch.ones(2) }))
    assert.equal("", helper.logged(function()
      nn.ReLU():load_state_dict({}, { strict = false })
    end))
  end)
end)

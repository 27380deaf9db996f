-- What a GPT's compiled step runs: attention and its backward half whole, by
-- kernels that never write the scores and that give their result in the order
-- in which it is read, so that nothing is copied between them and the products.
local networks = require("spec.bench.networks")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local profile = require("lupine.profile")
local torch = require("torch")

local BATCH, LENGTH, LAYERS, WORDS = 2, 16, 3, 11

-- Instructions by what they run, e.g. {attention = 3, ["add+gelu"] = 3, …}.
local function instructions(run)
  profile.start()
  run()
  local counts = {}
  for _, row in ipairs(profile.stop().steps[1].raw.rows) do
    if row.part == "forward" or row.part == "backward" then
      counts[row.label] = (counts[row.label] or 0) + row.calls
    end
  end
  return counts
end

local function only(counts, names)
  local out = {}
  for _, name in ipairs(names) do
    out[name] = counts[name] or 0
  end
  return out
end

-- Of an attention that runs as the operators it is made of, or is dense.
local PARTS = { "attention", "attention_backward", "softmax", "softmax_backward", "bmm", "copy",
  "cat" }

local Trained = nn.Module:extend("Trained")

function Trained:init()
  self.gpt = networks.GPT(LAYERS, 32, 4, LENGTH, WORDS)
end

function Trained:forward(ids, labels)
  local logits = self.gpt(ids)
  return logits, nn.functional.cross_entropy(logits, labels)
end

local ids, labels = torch.randint(0, WORDS, { BATCH, LENGTH }),
  torch.randint(0, WORDS, { BATCH * LENGTH })

describe("attention in a compiled step", function()
  it("is one instruction a layer forward and one backward, without copies", function()
    local net = Trained()
    local counts = instructions(function()
      poptorch.trainingModel(net, { optimizer = poptorch.optim.SGD(net:parameters(),
        { lr = 0.1 }) })(ids, labels)
    end)
    -- the gradients of queries, keys and values, parts of one product's, are
    -- made where they are joined
    assert.same({ attention = LAYERS, attention_backward = LAYERS, softmax = 0,
      softmax_backward = 0, bmm = 0, copy = 0, cat = 0 }, only(counts, PARTS))
    -- 4 products a layer and the head's, each with two gradients
    assert.equal(3 * (4 * LAYERS + 1), counts.mm)
    assert.equal(LAYERS, counts["add+gelu"])
  end)

  it("is so in inference, too", function()
    local counts = instructions(function()
      poptorch.inferenceModel(networks.GPT(LAYERS, 32, 4, LENGTH, WORDS))(ids)
    end)
    assert.same({ attention = LAYERS, attention_backward = 0, softmax = 0, softmax_backward = 0,
      bmm = 0, copy = 0, cat = 0 }, only(counts, PARTS))
  end)
end)

-- The gradients of x, whose parts are queries, keys and values (or what `parts`
-- makes of them and of `other`), compiled and by autograd; and the instructions.
local function both(x, parts, options, other)
  local function attend(y, z)
    local q, k, v = parts(y, z)
    return nn.functional.scaled_dot_product_attention(q, k, v, options)
  end
  local inputs, leaves = { x, other }, {}
  for i, t in ipairs(inputs) do
    leaves[i] = t:clone():requires_grad_()
  end
  local out = attend(table.unpack(leaves))
  local d = torch.randn(out:size()):to(x.dtype)
  out:backward(d)
  local run, got = require("lupine.compile")(attend, inputs, { cotangents = { d } }), nil
  inputs[#inputs + 1] = { d }
  local counts = instructions(function()
    local _, gradients = run(table.unpack(inputs))
    got = gradients
  end)
  for i, leaf in ipairs(leaves) do
    torch.testing.assert_close(got[i], leaf.grad)
  end
  return only(counts, { "attention_backward", "cat" })
end

local function heads(y, n)
  local b, t, d = table.unpack(y:size())
  return y:view({ b, t, n, d // n }):transpose(1, 2)
end

describe("gradients that a concatenation joins", function()
  local x = torch.randn(2, 40, 3 * 24)
  local WHERE, JOINED = { attention_backward = 1, cat = 0 }, { attention_backward = 1, cat = 1 }

  it("are made in their parts of it, in whatever order", function()
    assert.same(WHERE, both(x, function(y)
      local v, q, k = table.unpack(y:split(24, -1))
      return heads(q, 3), heads(k, 3), heads(v, 3)
    end, { is_causal = true }))
  end)

  it("and along whatever dimension, unpermuted, too", function()
    assert.same(WHERE, both(torch.randn(6, 40, 24), function(y)
      return table.unpack(y:split(2, 0))
    end))
    assert.same(WHERE, both(torch.randn(2, 120, 24):double(), function(y)
      return table.unpack(y:split(40, 1))
    end))
  end)

  it("are converted on the way in half precision", function()
    assert.same(WHERE, both(x:bfloat16(), function(y)
      local q, k, v = table.unpack(y:split(24, -1))
      return heads(q, 3), heads(k, 3), heads(v, 3)
    end))
  end)

  it("are joined by a copy if there is something else among them", function()
    assert.same(JOINED, both(torch.randn(2, 40, 4 * 24), function(y)
      local q, k, v, w = table.unpack(y:split(24, -1))
      return heads(q, 3), heads(k, 3), heads(v * w, 3)
    end))
  end)

  it("are joined by a copy if one is somebody else's gradient, too", function()
    local y = torch.randn(2, 40, 9, 8)
    assert.same(JOINED, both(y, function(t, z)
      local q, k, v = table.unpack(t:split(3, 2))
      return q:transpose(1, 2) + z, k:transpose(1, 2), v:transpose(1, 2)
    end, nil, torch.randn(2, 3, 40, 8)))
    assert.same(JOINED, both(y, function(t, z)
      local q, k, v = table.unpack(t:split(3, 2))
      return q:transpose(1, 2), (k + z):transpose(1, 2), v:transpose(1, 2)
    end, nil, torch.randn(2, 40, 3, 8)))
  end)
end)

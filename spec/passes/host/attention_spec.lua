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
    -- the gradients of queries, keys and values are joined: the product had one
    assert.same({ attention = LAYERS, attention_backward = LAYERS, softmax = 0,
      softmax_backward = 0, bmm = 0, copy = 0, cat = LAYERS }, only(counts, PARTS))
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

--- A small GPT trained in float16 on the device: half weights, float weights with half
--- activations, and a mixture; what loss scaling does where gradients are too small.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local F = nn.functional

local WIDTH, HEADS, TIME, LETTERS = 32, 2, 16, 12

local Gpt = nn.Module:extend("Gpt")

function Gpt:init(factor)
  self.tokens, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(TIME, WIDTH)
  for i = 1, 2 do
    self["norm" .. i] = nn.LayerNorm(WIDTH)
  end
  self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
  self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
  self.head = nn.Linear(WIDTH, LETTERS)
  self.factor, self.loss = factor, nn.CrossEntropyLoss()
end

local function attention(self, x)
  local b = x:size(0)
  local q, k, v = table.unpack(self.qkv(x):reshape(b, TIME, 3, HEADS, WIDTH // HEADS)
    :permute(2, 0, 3, 1, 4):unbind(0))
  local y = F.scaled_dot_product_attention(q, k, v, { is_causal = true })
  return self.out(y:transpose(1, 2):reshape(b, TIME, WIDTH))
end

function Gpt:forward(ids, targets)
  local x = self.tokens(ids) + self.places(torch.arange(TIME))
  if self.halves then -- float weights: what they meet is half
    x = x:half()
  end
  local function normed(name)
    local y = self[name](self.mixed and x:float() or x)
    return self.mixed and y:half() or y
  end
  x = x + attention(self, normed("norm1"))
  x = x + self.down(F.gelu(self.up(normed("norm2"))))
  local y = self.head(x):float()
  return y, poptorch.identity_loss(self.loss(y:reshape(-1, LETTERS), targets:reshape(-1))
    * self.factor, "none")
end

-- A text in which a letter follows from the two before it, mostly.
local function text(n, seed)
  torch.manual_seed(seed)
  local chance = torch.rand(n):tolist()
  local other = torch.randint(0, LETTERS, { n }):tolist()
  local list = { 1, 2 }
  for i = 3, n do
    list[i] = chance[i] < 0.2 and other[i] or (3 * list[i - 1] + 5 * list[i - 2] + 1) % LETTERS
  end
  return torch.tensor(list)
end

local MODES = { "float", "half weights", "half inputs", "mixed" }

local function in_mode(model, mode, halves)
  if mode == "half weights" then
    model:half()
  elseif mode == "mixed" then
    model.mixed = true
    for _, name in ipairs(halves) do
      model[name]:half()
    end
  end
  return mode == "half weights" or mode == "half inputs"
end

-- The mean loss of the last updates.
local function gpt(mode, how)
  how = how or {}
  local factor = how.factor or 1
  torch.manual_seed(2)
  local model = Gpt(factor)
  model.halves = in_mode(model, mode, { "qkv", "out", "up", "down", "head" })
  local opts = poptorch.Options():deviceIterations(20):outputMode(poptorch.OutputMode.All)
  opts.Training:setAutomaticLossScaling(how.automatic or false)
  local trainer = poptorch.trainingModel(model, opts, poptorch.optim.Adam(model:parameters(),
    { lr = 3e-3, eps = 1e-8 * factor, loss_scaling = how.scale or 1.0 }))
  local all, sum = text(20 * 16 * TIME * 25 + 1, 3), 0
  for call = 0, 24 do
    local from, n = call * 20 * 16 * TIME, 20 * 16
    local ids = all:narrow(0, from, n * TIME):reshape(n, TIME)
    local next_ids = all:narrow(0, from + 1, n * TIME):reshape(n, TIME)
    local _, losses = trainer(ids, next_ids)
    sum = call >= 20 and sum + losses:float():mean():item() or sum
  end
  return sum / 5 / factor
end

describe("a small GPT in float16", function()
  local whole
  setup(function()
    whole = gpt("float")
  end)

  for _, mode in ipairs(MODES) do
    if mode ~= "float" then
      it(("with %s and a loss scale has the loss of float32"):format(mode), function()
        assert.is_true(whole < 0.75 * math.log(LETTERS), tostring(whole))
        local got = gpt(mode, { scale = 128.0 })
        assert.is_true(math.abs(got - whole) <= 0.02 * whole, ("%g, not %g"):format(got, whole))
      end)

      it(("with %s learns nothing of gradients below its range, unless they are scaled")
        :format(mode), function()
        local tiny = 2.0 ^ -30
        local lost = gpt(mode, { factor = tiny })
        assert.is_true(lost > 1.2 * whole, ("%g, not more than %g"):format(lost, whole))
        local found = gpt(mode, { factor = tiny, automatic = true })
        assert.is_true(math.abs(found - whole) <= 0.02 * whole, ("%g, not %g"):format(found, whole))
      end)
    end
  end

end)

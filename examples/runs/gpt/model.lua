-- A small GPT-2 over characters.
local lupine = require("lupine")
local torch = require("torch")
local nn, F = torch.nn, torch.nn.functional

local CharGPT = nn.Module:extend("CharGPT")

function CharGPT:init(vocabulary, length, width, layers, heads)
  self.gpt = lupine.models.GPT2LMHeadModel({ vocab_size = vocabulary, n_positions = length,
    n_embd = width, n_layer = layers, n_head = heads, resid_pdrop = 0, embd_pdrop = 0,
    attn_pdrop = 0, eos_token_id = torch.none })
end

-- ids [batch, length] -> logits [batch, length, vocabulary]
function CharGPT:forward(ids)
  return self.gpt(ids).logits
end

--- Goes on with a text: the next characters are drawn by their probabilities, the k most
--- probable ones alone. The lower the temperature, the less is dared.
---@param text string
---@param characters string[]
---@param options table of lupine.models' generate
---@return string
function CharGPT:continue(text, characters, options)
  local place, ids = {}, {}
  for i, c in ipairs(characters) do
    place[c] = i - 1
  end
  for c in text:gmatch(".") do
    ids[#ids + 1] = place[c]
  end
  local out = {}
  for i, id in ipairs(self.gpt:generate(torch.tensor({ ids }), options)[0]:tolist()) do
    out[i] = characters[id + 1]
  end
  return table.concat(out)
end

local function loss(logits, target)
  return F.cross_entropy(logits:flatten(0, 1), target:flatten())
end

return { CharGPT = CharGPT, loss = loss }

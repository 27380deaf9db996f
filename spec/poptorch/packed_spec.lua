-- Packed sequences in a program: their lengths are part of it, like shapes.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn
local rnn = nn.utils.rnn
local near = helper.near

local Tagger = nn.Module:extend("Tagger")

function Tagger:init(layer, lengths)
  self.layer, self.lengths = layer, lengths
  self.tag = nn.Linear(6, 2)
end

function Tagger:forward(x, lengths)
  local out, last = self.layer(rnn.pack_padded_sequence(x, lengths or self.lengths,
    { enforce_sorted = false }))
  local y = self.tag((rnn.pad_packed_sequence(out)))
  last = type(last) == "table" and last[2] or last
  return y, poptorch.identity_loss(y:pow(2):mean() + last:sum(), "none")
end

-- Two steps; lengths as a tensor and as a list.
local function train(kind, compiled)
  torch.manual_seed(3)
  local net = Tagger(nn[kind](4, 3, 2, { bidirectional = true }),
    kind == "GRU" and { 2, 4, 3 } or torch.tensor({ 2, 4, 3 }))
  local x, losses = torch.randn(4, 3, 4), {}
  local sgd = compiled and poptorch.optim.SGD or torch.optim.SGD
  local o = sgd(net:parameters(), { lr = 0.1 })
  local model = compiled and poptorch.trainingModel(net, poptorch.Options(), o)
  for i = 1, 2 do
    local _, loss
    if model then
      _, loss = model(x)
    else
      o:zero_grad()
      _, loss = net(x)
      loss:backward()
      o:step()
    end
    losses[i] = loss:item()
  end
  if model then
    model:copyWeightsToHost()
    model:destroy()
  end
  return losses, net
end

for _, kind in ipairs({ "LSTM", "GRU", "RNN" }) do
  it("a bidirectional " .. kind .. " over packed sequences trains as it does eagerly", function()
    local want, eager = train(kind, false)
    local got, net = train(kind, true)
    near(torch.tensor(got), want)
    local of = net:state_dict()
    for name, p in eager:named_parameters() do
      near(p, of[name])
    end
  end)
end

it("lengths that come with every call are refused by name", function()
  local model = poptorch.inferenceModel(Tagger(nn.LSTM(4, 3, { bidirectional = true })))
  helper.raises("RuntimeError", "pack_padded_sequence: lengths: inside a compiled program they "
    .. "must be known", function()
    model(torch.ones(2, 2, 4), torch.tensor({ 2, 1 }))
  end)
end)

it("a packed sequence itself is no argument of a program", function()
  local model = poptorch.inferenceModel(Tagger(nn.LSTM(4, 3, { bidirectional = true })))
  local packed = rnn.pack_padded_sequence(torch.ones(2, 1, 4), { 2 })
  helper.raises("TypeError", "x: a PackedSequence goes neither into a compiled program nor out",
    function()
      model(packed)
    end)
end)

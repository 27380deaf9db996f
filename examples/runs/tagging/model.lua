local torch = require("torch")
local nn = torch.nn
local rnn = nn.utils.rnn

-- A bidirectional LSTM reads each sentence to its own end.
local Tagger = nn.Module:extend("Tagger")

function Tagger:init(vocabulary, tags, width)
  self.embedding = nn.Embedding(vocabulary, width, { padding_idx = 0 })
  self.lstm = nn.LSTM(width, width, { batch_first = true, bidirectional = true })
  self.head = nn.Linear(2 * width, tags)
end

-- words [batch, length], lengths [batch] -> logits [batch, tags, length], as
-- CrossEntropyLoss and metrics take them
function Tagger:forward(words, lengths)
  local packed = rnn.pack_padded_sequence(self.embedding(words), lengths,
    { batch_first = true, enforce_sorted = false })
  local y = rnn.pad_packed_sequence((self.lstm(packed)),
    { batch_first = true, total_length = words:size(1) })
  return self.head(y):transpose(1, 2)
end

return { Tagger = Tagger }

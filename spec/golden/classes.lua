--- Cases of the area `errors` whose error is of another class than PyTorch's:
--- id -> class, in groups by the reason. An entry that is not needed fails.
local M = {}

local function all(class, ids)
  for id in ids:gmatch("%S+") do
    M[id] = class
  end
end

-- What is no number, or no bool, is refused as such where the arguments are read.
all("TypeError", [[linspace/error/2 linspace.tensor_overload/error/2 logspace/error/2
  logspace.tensor_overload/error/2 narrow/error/8 nn.RNNCell/error/4 nn.GRUCell/error/4]])

-- Shapes and types are checked by the operator, in which they are RuntimeErrors,
-- before or in place of a check by the Python function around it.
all("RuntimeError", [[nn.functional.adaptive_avg_pool2d/error/0
  nn.functional.adaptive_avg_pool3d/error/0 nn.functional.adaptive_max_pool2d/error/0
  nn.functional.adaptive_max_pool3d/error/0 nn.functional.multi_margin_loss/error/0
  nn.functional.multilabel_margin_loss/error/0 nn.RNN/error/2
  nn.GRU/error/2 nn.LSTM/error/2 nn.CircularPad3d/error/0]])

-- How many dimensions a mode pads decides the number of values it takes.
all("NotImplementedError", [[nn.CircularPad1d/error/0 nn.CircularPad2d/error/0]])

return M

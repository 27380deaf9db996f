--- Shapes and examples for ?NAME: `NAME: shapes`, and in the lines below, indented, an
--- example --> the shape of what it gives; spec/lupine/repl/examples_spec.lua runs them all.
local complete = require("lupine.complete")
local core = require("lupine.core")

local M = {}

local MODULES = [[
Linear: (*, in_features) -> (*, out_features)
  nn.Linear(20, 30)(torch.randn(128, 20)) --> [128, 30]
Bilinear: (*, in1_features), (*, in2_features) -> (*, out_features)
  nn.Bilinear(20, 30, 40)(torch.randn(8, 20), torch.randn(8, 30)) --> [8, 40]
Identity: (*) -> (*)
  nn.Identity()(torch.randn(2, 3)) --> [2, 3]
Conv1d: (N, in, L) -> (N, out, L')
  nn.Conv1d(16, 33, 3, { stride = 2 })(torch.randn(20, 16, 50)) --> [20, 33, 24]
Conv2d: (N, in, H, W) -> (N, out, H', W')
  nn.Conv2d(16, 33, 3, { padding = 1 })(torch.randn(2, 16, 50, 100)) --> [2, 33, 50, 100]
Conv3d: (N, in, D, H, W) -> (N, out, D', H', W')
  nn.Conv3d(2, 3, 3)(torch.randn(1, 2, 5, 6, 7)) --> [1, 3, 3, 4, 5]
ConvTranspose1d: (N, in, L) -> (N, out, L')
  nn.ConvTranspose1d(4, 2, 3, { stride = 2 })(torch.randn(1, 4, 5)) --> [1, 2, 11]
ConvTranspose2d: (N, in, H, W) -> (N, out, H', W')
  nn.ConvTranspose2d(4, 2, 3, { stride = 2 })(torch.randn(1, 4, 5, 5)) --> [1, 2, 11, 11]
ConvTranspose3d: (N, in, D, H, W) -> (N, out, D', H', W')
  nn.ConvTranspose3d(2, 1, 2)(torch.randn(1, 2, 3, 3, 3)) --> [1, 1, 4, 4, 4]
MaxPool1d: (N, C, L) -> (N, C, L')
  nn.MaxPool1d(3, { stride = 2 })(torch.randn(2, 4, 9)) --> [2, 4, 4]
MaxPool2d: (N, C, H, W) -> (N, C, H', W')
  nn.MaxPool2d(2)(torch.randn(2, 4, 8, 6)) --> [2, 4, 4, 3]
MaxPool3d: (N, C, D, H, W) -> (N, C, D', H', W')
  nn.MaxPool3d(2)(torch.randn(1, 2, 4, 4, 4)) --> [1, 2, 2, 2, 2]
AvgPool1d: (N, C, L) -> (N, C, L')
  nn.AvgPool1d(2)(torch.randn(2, 4, 8)) --> [2, 4, 4]
AvgPool2d: (N, C, H, W) -> (N, C, H', W')
  nn.AvgPool2d(2)(torch.randn(2, 4, 8, 6)) --> [2, 4, 4, 3]
AvgPool3d: (N, C, D, H, W) -> (N, C, D', H', W')
  nn.AvgPool3d(2)(torch.randn(1, 2, 4, 4, 4)) --> [1, 2, 2, 2, 2]
AdaptiveAvgPool1d: (N, C, L) -> (N, C, output_size)
  nn.AdaptiveAvgPool1d(5)(torch.randn(1, 4, 8)) --> [1, 4, 5]
AdaptiveAvgPool2d: (N, C, H, W) -> (N, C, output_size)
  nn.AdaptiveAvgPool2d({ 5, 7 })(torch.randn(1, 4, 8, 9)) --> [1, 4, 5, 7]
AdaptiveMaxPool1d: (N, C, L) -> (N, C, output_size)
  nn.AdaptiveMaxPool1d(5)(torch.randn(1, 4, 8)) --> [1, 4, 5]
AdaptiveMaxPool2d: (N, C, H, W) -> (N, C, output_size)
  nn.AdaptiveMaxPool2d(3)(torch.randn(1, 4, 8, 9)) --> [1, 4, 3, 3]
LPPool1d: (N, C, L) -> (N, C, L')
  nn.LPPool1d(2, 3, { stride = 2 })(torch.randn(2, 4, 9)) --> [2, 4, 4]
LPPool2d: (N, C, H, W) -> (N, C, H', W')
  nn.LPPool2d(2, 2)(torch.randn(2, 4, 8, 6)) --> [2, 4, 4, 3]
BatchNorm1d: (N, C) or (N, C, L) -> the same
  nn.BatchNorm1d(4)(torch.randn(8, 4)) --> [8, 4]
BatchNorm2d: (N, C, H, W) -> the same
  nn.BatchNorm2d(4)(torch.randn(2, 4, 5, 5)) --> [2, 4, 5, 5]
BatchNorm3d: (N, C, D, H, W) -> the same
  nn.BatchNorm3d(4)(torch.randn(2, 4, 3, 3, 3)) --> [2, 4, 3, 3, 3]
InstanceNorm1d: (N, C, L) -> the same
  nn.InstanceNorm1d(4)(torch.randn(2, 4, 5)) --> [2, 4, 5]
InstanceNorm2d: (N, C, H, W) -> the same
  nn.InstanceNorm2d(4)(torch.randn(2, 4, 5, 5)) --> [2, 4, 5, 5]
GroupNorm: (N, C, *) -> the same
  nn.GroupNorm(3, 6)(torch.randn(2, 6, 5, 5)) --> [2, 6, 5, 5]
LayerNorm: (N, *) -> the same
  nn.LayerNorm(10)(torch.randn(2, 5, 10)) --> [2, 5, 10]
RMSNorm: (N, *) -> the same
  nn.RMSNorm(10)(torch.randn(2, 5, 10)) --> [2, 5, 10]
LocalResponseNorm: (N, C, *) -> the same
  nn.LocalResponseNorm(2)(torch.randn(2, 5, 4, 4)) --> [2, 5, 4, 4]
RNN: (L, N, in) -> (L, N, hidden), (layers, N, hidden)
  nn.RNN(10, 20, 2)(torch.randn(5, 3, 10)) --> [5, 3, 20]
LSTM: (L, N, in) -> (L, N, hidden), { h, c } of (layers, N, hidden)
  nn.LSTM(10, 20, 2)(torch.randn(5, 3, 10)) --> [5, 3, 20]
GRU: (L, N, in) -> (L, N, hidden), (layers, N, hidden)
  nn.GRU(10, 20, { batch_first = true })(torch.randn(3, 5, 10)) --> [3, 5, 20]
RNNCell: (N, in), (N, hidden) -> (N, hidden)
  nn.RNNCell(10, 20)(torch.randn(3, 10)) --> [3, 20]
LSTMCell: (N, in) -> h, c of (N, hidden)
  nn.LSTMCell(10, 20)(torch.randn(3, 10)) --> [3, 20]
GRUCell: (N, in), (N, hidden) -> (N, hidden)
  nn.GRUCell(10, 20)(torch.randn(3, 10)) --> [3, 20]
Embedding: (*) of integers -> (*, embedding_dim)
  nn.Embedding(10, 3)(torch.tensor({ { 1, 2 }, { 4, 9 } })) --> [2, 2, 3]
EmbeddingBag: (N, L) of integers -> (N, embedding_dim)
  nn.EmbeddingBag(10, 3)(torch.tensor({ { 1, 2 }, { 4, 9 } })) --> [2, 3]
MultiheadAttention: (L, N, E), (S, N, E), (S, N, E) -> (L, N, E), (N, L, S)
  nn.MultiheadAttention(8, 2)(torch.randn(4, 1, 8), torch.randn(6, 1, 8), torch.randn(6, 1,
    8)) --> [4, 1, 8]
Transformer: (S, N, E), (T, N, E) -> (T, N, E)
  nn.Transformer(16, 2, 1, 1, 32)(torch.randn(5, 1, 16), torch.randn(4, 1, 16)) --> [4, 1, 16]
TransformerEncoderLayer: (S, N, E) -> the same
  nn.TransformerEncoderLayer(16, 2, 32)(torch.randn(5, 1, 16)) --> [5, 1, 16]
TransformerDecoderLayer: (T, N, E), (S, N, E) -> (T, N, E)
  nn.TransformerDecoderLayer(16, 2, 32)(torch.randn(4, 1, 16), torch.randn(5, 1, 16)) --> [4,
    1, 16]
ReLU: (*) -> (*)
  nn.ReLU()(torch.randn(2)) --> [2]
LeakyReLU: (*) -> (*)
  nn.LeakyReLU(0.1)(torch.randn(2)) --> [2]
PReLU: (N, C, *) -> the same
  nn.PReLU(4)(torch.randn(2, 4)) --> [2, 4]
ELU: (*) -> (*)
  nn.ELU()(torch.randn(2)) --> [2]
GELU: (*) -> (*)
  nn.GELU()(torch.randn(2)) --> [2]
SiLU: (*) -> (*)
  nn.SiLU()(torch.randn(2)) --> [2]
Sigmoid: (*) -> (*)
  nn.Sigmoid()(torch.randn(2)) --> [2]
Tanh: (*) -> (*)
  nn.Tanh()(torch.randn(2)) --> [2]
Softplus: (*) -> (*)
  nn.Softplus()(torch.randn(2)) --> [2]
Softmax: (*) -> the same, sums of 1 over dim
  nn.Softmax({ dim = 1 })(torch.randn(2, 3)) --> [2, 3]
LogSoftmax: (*) -> the same
  nn.LogSoftmax({ dim = 1 })(torch.randn(2, 3)) --> [2, 3]
GLU: (*, 2 n, *) -> (*, n, *)
  nn.GLU()(torch.randn(4, 6)) --> [4, 3]
Dropout: (*) -> (*)
  nn.Dropout(0.2)(torch.randn(20, 16)) --> [20, 16]
Flatten: (N, *) -> (N, the product of *)
  nn.Flatten()(torch.randn(2, 3, 4)) --> [2, 12]
Unflatten: (*, n, *) -> (*, sizes, *)
  nn.Unflatten(1, { 3, 4 })(torch.randn(2, 12)) --> [2, 3, 4]
Upsample: (N, C, H, W) -> (N, C, H', W')
  nn.Upsample({ scale_factor = 2 })(torch.randn(1, 1, 3, 3)) --> [1, 1, 6, 6]
PixelShuffle: (*, C r^2, H, W) -> (*, C, H r, W r)
  nn.PixelShuffle(3)(torch.randn(1, 9, 4, 4)) --> [1, 1, 12, 12]
Unfold: (N, C, *) -> (N, C k, L)
  nn.Unfold({ 2, 3 })(torch.randn(2, 5, 3, 4)) --> [2, 30, 4]
Fold: (N, C k, L) -> (N, C, *)
  nn.Fold({ 4, 5 }, { 2, 2 })(torch.randn(1, 12, 12)) --> [1, 3, 4, 5]
ZeroPad2d: (N, C, H, W) -> (N, C, H', W')
  nn.ZeroPad2d(2)(torch.randn(1, 1, 3, 3)) --> [1, 1, 7, 7]
ReflectionPad2d: (N, C, H, W) -> (N, C, H', W')
  nn.ReflectionPad2d(1)(torch.randn(1, 1, 3, 3)) --> [1, 1, 5, 5]
Sequential: what the first takes -> what the last gives
  nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))(torch.randn(5, 4)) --> [5, 2]
MSELoss: (*), (*) -> ()
  nn.MSELoss()(torch.randn(3, 5), torch.randn(3, 5)) --> []
L1Loss: (*), (*) -> ()
  nn.L1Loss()(torch.randn(3, 5), torch.randn(3, 5)) --> []
SmoothL1Loss: (*), (*) -> ()
  nn.SmoothL1Loss()(torch.randn(3, 5), torch.randn(3, 5)) --> []
HuberLoss: (*), (*) -> ()
  nn.HuberLoss()(torch.randn(3, 5), torch.randn(3, 5)) --> []
CrossEntropyLoss: (N, C, *), (N, *) of classes from 0 -> ()
  nn.CrossEntropyLoss()(torch.randn(3, 5), torch.tensor({ 1, 0, 4 })) --> []
NLLLoss: (N, C, *) of log-probabilities, (N, *) of classes from 0 -> ()
  nn.NLLLoss()(torch.randn(3, 5):log_softmax(1), torch.tensor({ 1, 0, 4 })) --> []
BCELoss: (*) of probabilities, (*) -> ()
  nn.BCELoss()(torch.rand(3), torch.ones(3)) --> []
BCEWithLogitsLoss: (*), (*) -> ()
  nn.BCEWithLogitsLoss()(torch.randn(3), torch.ones(3)) --> []
KLDivLoss: (*) of log-probabilities, (*) of probabilities -> ()
  nn.KLDivLoss({ reduction = "batchmean" })(torch.randn(3, 5):log_softmax(1), torch.rand(3,
    5):softmax(1)) --> []
CTCLoss: (T, N, C), (N, S), (N), (N) -> ()
  nn.CTCLoss()(torch.randn(50, 2, 20):log_softmax(2), torch.randint(1, 20, { 2, 10 }),
    torch.tensor({ 50, 50 }), torch.tensor({ 10, 8 })) --> []
CosineSimilarity: (*, n, *), (*, n, *) -> (*, *)
  nn.CosineSimilarity({ dim = 1 })(torch.randn(8, 16), torch.randn(8, 16)) --> [8]
]]

local FUNCTIONS = [[
tensor: nested lists -> their shape
  torch.tensor({ { 1, 2 }, { 3, 4 } }) --> [2, 2]
zeros: sizes -> (sizes)
  torch.zeros(2, 3) --> [2, 3]
ones: sizes -> (sizes)
  torch.ones({ 2, 3 }, { dtype = torch.float16 }) --> [2, 3]
full: sizes -> (sizes)
  torch.full({ 2, 3 }, 7) --> [2, 3]
arange: -> (n)
  torch.arange(1, 2.5, 0.5) --> [3]
linspace: -> (steps)
  torch.linspace(3, 10, 5) --> [5]
eye: -> (n, m)
  torch.eye(3) --> [3, 3]
rand: sizes -> (sizes), from 0 to 1
  torch.rand(2, 3) --> [2, 3]
randn: sizes -> (sizes), of the normal distribution
  torch.randn(2, 3) --> [2, 3]
randint: sizes -> (sizes), from low to high - 1
  torch.randint(0, 10, { 2, 3 }) --> [2, 3]
randperm: -> (n)
  torch.randperm(10) --> [10]
matmul: (*, n, k), (*, k, m) -> (*, n, m)
  torch.matmul(torch.randn(10, 3, 4), torch.randn(4, 5)) --> [10, 3, 5]
mm: (n, k), (k, m) -> (n, m)
  torch.mm(torch.randn(2, 3), torch.randn(3, 4)) --> [2, 4]
bmm: (b, n, k), (b, k, m) -> (b, n, m)
  torch.bmm(torch.randn(10, 3, 4), torch.randn(10, 4, 5)) --> [10, 3, 5]
einsum: as the letters say
  torch.einsum("bij,bjk->bik", torch.randn(3, 2, 5), torch.randn(3, 5, 4)) --> [3, 2, 4]
add: (*), (*) -> the broadcast of both
  torch.add(torch.ones(2, 3), torch.ones(3), { alpha = 10 }) --> [2, 3]
mul: (*), (*) -> the broadcast of both
  torch.mul(torch.ones(4, 1), torch.ones(1, 4)) --> [4, 4]
sum: (*) -> without dim, or 1 there with keepdim
  torch.sum(torch.ones(2, 3), 1) --> [2]
mean: (*) -> without dim, or 1 there with keepdim
  torch.mean(torch.ones(2, 3), { dim = 1, keepdim = true }) --> [2, 1]
max: (*) -> values and positions without dim, or the largest of all
  torch.max(torch.randn(2, 3), 1) --> [2]
argmax: (*) -> without dim
  torch.argmax(torch.randn(2, 3), 1) --> [2]
sort: (*) -> values and positions of the same shape
  torch.sort(torch.randn(3, 4)) --> [3, 4]
topk: (*, n, *) -> (*, k, *), values and positions
  torch.topk(torch.arange(5), 3) --> [3]
cat: list of (*, n_i, *) -> (*, the sum of n_i, *)
  torch.cat({ torch.ones(2, 3), torch.ones(4, 3) }) --> [6, 3]
stack: list of (*) -> (n, *)
  torch.stack({ torch.ones(3), torch.ones(3) }) --> [2, 3]
where: the broadcast of the three
  torch.where(torch.tensor({ true, false }), 1, 0) --> [2]
gather: (*), index -> the shape of index
  torch.gather(torch.arange(4):view(2, 2), 1, torch.tensor({ { 0, 0 }, { 1, 0 } })) --> [2, 2]
index_select: (*, n, *), (k) -> (*, k, *)
  torch.index_select(torch.randn(3, 4), 0, torch.tensor({ 0, 2 })) --> [2, 4]
masked_select: (*), mask -> (number of trues)
  torch.masked_select(torch.arange(3), torch.tensor({ true, false, true })) --> [2]
reshape: (*) -> (sizes), -1 for what is left
  torch.reshape(torch.arange(4), { 2, -1 }) --> [2, 2]
permute: (*) -> its dimensions in another order
  torch.permute(torch.randn(2, 3, 5), { 2, 0, 1 }) --> [5, 2, 3]
transpose: (*) -> two dimensions swapped
  torch.transpose(torch.randn(2, 3), 0, 1) --> [3, 2]
squeeze: (*, 1, *) -> (*, *)
  torch.squeeze(torch.zeros(2, 1, 2)) --> [2, 2]
unsqueeze: (*) -> (*, 1, *)
  torch.unsqueeze(torch.zeros(4), 1) --> [4, 1]
flatten: (*) -> dimensions from start_dim to end_dim as one
  torch.flatten(torch.randn(2, 3, 4), 1) --> [2, 12]
split: (*, n, *) -> a list of parts
  torch.split(torch.arange(10), 4)[1] --> [4]
cumsum: (*) -> the same
  torch.cumsum(torch.arange(4), 0) --> [4]
clamp: (*) -> the same
  torch.clamp(torch.randn(4), { min = -0.5, max = 0.5 }) --> [4]
norm: (*) -> ()
  torch.norm(torch.ones(3, 4)) --> []
softmax: (*) -> the same
  torch.softmax(torch.randn(2, 3), 1) --> [2, 3]
allclose: (*), (*) -> a boolean
  torch.allclose(torch.ones(2), torch.ones(2) + 1e-9) --> true
]]

local FUNCTIONAL = [[
linear: (*, in), (out, in), (out) -> (*, out)
  F.linear(torch.randn(2, 3), torch.randn(5, 3)) --> [2, 5]
conv2d: (N, in, H, W), (out, in, h, w) -> (N, out, H', W')
  F.conv2d(torch.randn(1, 4, 5, 5), torch.randn(8, 4, 3, 3), { padding = 1 }) --> [1, 8, 5, 5]
max_pool2d: (N, C, H, W) -> (N, C, H', W')
  F.max_pool2d(torch.randn(1, 4, 6, 6), 2) --> [1, 4, 3, 3]
cross_entropy: (N, C, *), (N, *) of classes from 0 -> ()
  F.cross_entropy(torch.randn(3, 5), torch.tensor({ 1, 0, 4 })) --> []
one_hot: (*) of classes from 0 -> (*, num_classes)
  F.one_hot(torch.arange(5) % 3, 4) --> [5, 4]
pad: (*) -> the last dimensions longer
  F.pad(torch.zeros(2, 3), { 1, 1 }) --> [2, 5]
interpolate: (N, C, *) -> (N, C, *')
  F.interpolate(torch.randn(1, 1, 4, 4), { scale_factor = 2 }) --> [1, 1, 8, 8]
scaled_dot_product_attention: (N, *, L, E), (N, *, S, E), (N, *, S, E') -> (N, *, L, E')
  F.scaled_dot_product_attention(torch.rand(2, 8, 16, 4), torch.rand(2, 8, 16, 4),
    torch.rand(2, 8, 16, 4)) --> [2, 8, 16, 4]
]]

--- Full name -> {shapes, code, gives}.
---@type table<string, {shapes: string, code: string, gives: string, body: string}>
M.list = {}

local function read(prefix, lines)
  local e
  for line in lines:gmatch("[^\n]+") do
    local name, shapes = line:match("^([%w_]+): (.*)$")
    if name then
      e = { shapes = shapes, body = "" }
      M.list[prefix .. name] = e
    else
      e.body = e.body .. line:gsub("^%s+", " ")
    end
    e.code, e.gives = e.body:match("^ (.-) %-%-> (.*)$")
  end
end
read("torch.nn.", MODULES)
read("torch.", FUNCTIONS)
read("torch.nn.functional.", FUNCTIONAL)

local by_value

-- What the names stand for, of what is loaded.
local function index()
  by_value = {}
  for name, e in pairs(M.list) do
    local value = complete.resolve(name, {}, true)
    if value ~= nil then
      by_value[value] = e
    end
    local method = core.methods[name:match("^torch%.([%w_]+)$") or ""]
    if method then
      by_value[method] = e
    end
  end
end

--- The text for a function or class, or nil.
---@param value any
---@return string?
function M.text(value)
  if type(value) ~= "function" and type(value) ~= "table" then
    return nil
  elseif not by_value then
    index()
  end
  local e = by_value[value]
  return e and ("shapes: %s\nexample: %s  --> %s"):format(e.shapes, e.code, e.gives)
end

return M

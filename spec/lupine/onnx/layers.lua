--- Modules of torch.nn with inputs, for what every one of them must survive.
local torch = require("torch")
local nn, F = torch.nn, torch.nn.functional

local R = torch.randn

--- A list of {name, module, inputs …}, each the same at every call.
---@return table[]
return function()
  torch.manual_seed(1)
  local list = {}
  local function add(name, module, ...)
    list[#list + 1] = { name, module, ... }
  end
  local x, y = R({ 2, 4 }), R({ 2, 4 })
  local seq, img, vol = R({ 2, 4, 9 }), R({ 2, 4, 8, 8 }), R({ 1, 4, 6, 6, 6 })
  for name in ([[ReLU ReLU6 ELU SELU CELU GELU SiLU Mish Sigmoid LogSigmoid Tanh Softplus Softsign
    Tanhshrink Hardtanh Hardsigmoid Hardswish Hardshrink Softshrink LeakyReLU PReLU RReLU Identity
    Dropout AlphaDropout Flatten GLU]]):gmatch("%S+") do
    add(name, nn[name](), x)
  end
  for _, name in ipairs({ "Softmax", "LogSoftmax", "Softmin" }) do
    add(name, nn[name](1), x)
  end
  add("GELU tanh", nn.GELU({ approximate = "tanh" }), x)
  add("Threshold", nn.Threshold(0.1, 20), x)
  add("Linear", nn.Linear(4, 3), x)
  add("Linear of sequences", nn.Linear(4, 3), R({ 2, 3, 4 }))
  add("Linear without bias", nn.Linear(4, 3, { bias = false }), x)
  add("Bilinear", nn.Bilinear(4, 4, 3), x, y)
  for k, input in ipairs({ seq, img, vol }) do
    local d = k .. "d"
    add("Conv" .. d, nn["Conv" .. d](4, 3, 3), input)
    add("ConvTranspose" .. d, nn["ConvTranspose" .. d](4, 3, 3, { stride = 2,
      output_padding = 1 }), input)
    add("MaxPool" .. d, nn["MaxPool" .. d](2), input)
    add("AvgPool" .. d, nn["AvgPool" .. d](2), input)
    add("AdaptiveAvgPool" .. d, nn["AdaptiveAvgPool" .. d](k == 2 and 5 or 3), input)
    add("AdaptiveMaxPool" .. d, nn["AdaptiveMaxPool" .. d](k == 2 and 5 or 3), input)
    add("BatchNorm" .. d, nn["BatchNorm" .. d](4), k == 1 and x or input)
    add("InstanceNorm" .. d, nn["InstanceNorm" .. d](4, { affine = k == 2 }), input)
  end
  add("Conv2d of groups", nn.Conv2d(4, 6, 3, { stride = 2, padding = 1, dilation = 2,
    groups = 2 }), img)
  add("Conv2d same", nn.Conv2d(4, 6, 3, { padding = "same", padding_mode = "circular" }), img)
  add("LPPool2d", nn.LPPool2d(2, 2), img)
  add("LayerNorm", nn.LayerNorm({ 8, 8 }), img)
  add("GroupNorm", nn.GroupNorm(2, 4), img)
  add("LocalResponseNorm", nn.LocalResponseNorm(2), img)
  add("RMSNorm", nn.RMSNorm({ 4 }), x)
  add("Embedding", nn.Embedding(10, 3), torch.tensor({ { 1, 2 }, { 3, 4 } }))
  add("EmbeddingBag", nn.EmbeddingBag(10, 3), torch.tensor({ { 1, 2 }, { 3, 4 } }))
  for _, name in ipairs({ "RNN", "LSTM", "GRU" }) do
    add(name, nn[name](4, 5), R({ 6, 2, 4 }))
    add(name .. " of two", nn[name](4, 5, { num_layers = 2, bidirectional = true,
      batch_first = true, bias = name ~= "GRU" }), R({ 2, 6, 4 }))
    add(name .. "Cell", nn[name .. "Cell"](4, 5), x)
  end
  local s = R({ 5, 2, 8 })
  add("MultiheadAttention", nn.MultiheadAttention(8, 2), s, s, s)
  add("TransformerEncoderLayer", nn.TransformerEncoderLayer(8, 2, { dim_feedforward = 16 }), s)
  add("TransformerDecoderLayer", nn.TransformerDecoderLayer(8, 2, { dim_feedforward = 16 }), s, s)
  add("Transformer", nn.Transformer({ d_model = 8, nhead = 2, num_encoder_layers = 1,
    num_decoder_layers = 1, dim_feedforward = 16 }), s, R({ 4, 2, 8 }))
  add("PixelShuffle", nn.PixelShuffle(2), img)
  add("PixelUnshuffle", nn.PixelUnshuffle(2), img)
  add("ChannelShuffle", nn.ChannelShuffle(2), img)
  add("Upsample", nn.Upsample({ scale_factor = 2 }), img)
  add("Upsample bilinear", nn.Upsample({ scale_factor = 2, mode = "bilinear" }), img)
  add("Fold", nn.Fold({ 4, 5 }, { 2, 2 }), R({ 1, 12, 12 }))
  add("Unfold", nn.Unfold({ 2, 2 }), img)
  add("Unflatten", nn.Unflatten(1, { 2, 2 }), x)
  add("CosineSimilarity", nn.CosineSimilarity(), x, y)
  add("PairwiseDistance", nn.PairwiseDistance(), x, y)
  add("ConstantPad2d", nn.ConstantPad2d(2, 1.5), img)
  for _, name in ipairs({ "ReflectionPad2d", "ReplicationPad2d", "ZeroPad2d", "CircularPad2d" }) do
    add(name, nn[name](2), img)
  end
  local p, q, labels = torch.rand({ 2, 4 }), torch.rand({ 2, 4 }), torch.tensor({ 1, 3 })
  for _, name in ipairs({ "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss",
    "BCEWithLogitsLoss", "PoissonNLLLoss" }) do
    add(name, nn[name](), x, p)
  end
  add("KLDivLoss", nn.KLDivLoss({ reduction = "batchmean" }), x, p)
  add("BCELoss", nn.BCELoss(), p, q)
  for _, name in ipairs({ "CrossEntropyLoss", "MultiMarginLoss", "NLLLoss" }) do
    add(name, nn[name](), x, labels)
  end
  add("HingeEmbeddingLoss", nn.HingeEmbeddingLoss(), x, y:sign())
  add("MarginRankingLoss", nn.MarginRankingLoss(), x, y, p:sign())
  add("CosineEmbeddingLoss", nn.CosineEmbeddingLoss(), x, y, torch.tensor({ 1, -1 }))
  add("TripletMarginLoss", nn.TripletMarginLoss(), x, y, p)
  add("MultiLabelSoftMarginLoss", nn.MultiLabelSoftMarginLoss(), x, torch.ones({ 2, 4 }))
  add("GaussianNLLLoss", nn.GaussianNLLLoss(), x, y, p)
  add("log_softmax over images", nn.Softmax2d(), F.relu(img))
  return list
end

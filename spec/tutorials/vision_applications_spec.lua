--- Applications to pictures of PopTorch's public examples, small: trained on the device
--- and on the host from the same weights.
local poptorch = require("poptorch")
local torch = require("torch")
local twins = require("spec.support.twins")
local nn = torch.nn
local F = nn.functional
local near, trains = twins.near, twins.trains

local function checkpointed(layer)
  layer:register_forward_hook(function(_, _, out)
    return poptorch.recomputationCheckpoint(out)
  end)
  return layer
end

-- ---- CLIP --------------------------------------------------------------------------

local QuickGELU = nn.Module:extend("QuickGELU")
function QuickGELU:forward(x)
  return x * torch.sigmoid(1.702 * x)
end

local Attended = nn.Module:extend("ResidualAttentionBlock")

function Attended:init(width, heads, mask)
  self.attn = nn.MultiheadAttention(width, heads)
  self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
  self.mlp = nn.Sequential(nn.Linear(width, 2 * width), QuickGELU(), nn.Linear(2 * width, width))
  self.attn_mask = mask
end

function Attended:forward(x)
  local h = self.ln_1(x)
  x = x + (self.attn(h, h, h, { need_weights = false, attn_mask = self.attn_mask }))
  return x + self.mlp(self.ln_2(x))
end

local CLIP = nn.Module:extend("CLIP")

function CLIP:init(batch, memory)
  local width, long = 8, 5
  self.batch, self.memory = batch, memory
  self.conv1 = nn.Conv2d(3, width, 4, { stride = 4, bias = false })
  self.class_embedding = nn.Parameter(torch.randn(width) * 0.3)
  self.image_positions = nn.Parameter(torch.randn(5, width) * 0.3)
  self.proj = nn.Parameter(torch.randn(width, 6) * 0.3)
  self.visual = nn.Sequential(Attended(width, 2), Attended(width, 2))
  local mask = torch.empty(long, long):fill_(-64512):triu_(1)
  self.text = nn.Sequential(Attended(width, 2, mask), Attended(width, 2, mask))
  self.token_embedding = nn.Embedding(9, width)
  self.positions = nn.Parameter(torch.randn(long, width) * 0.1)
  self.ln_final = nn.LayerNorm(width)
  self.text_projection = nn.Parameter(torch.randn(width, 6) * 0.3)
  self.logit_scale = nn.Parameter(torch.ones({}) * math.log(1 / 0.07))
  self:register_buffer("images", torch.randn(memory * batch, 6) * 0.1)
  self:register_buffer("texts", torch.randn(memory * batch, 6) * 0.1)
  self.loss = nn.CrossEntropyLoss()
end

function CLIP:placed()
  for i = 1, 2 do
    self.visual[i] = poptorch.BeginBlock(checkpointed(self.visual[i]), "image" .. i, { ipu_id = 0 })
    self.text[i] = poptorch.BeginBlock(checkpointed(self.text[i]), "text" .. i, { ipu_id = 1 })
  end
  self.token_embedding = poptorch.BeginBlock(self.token_embedding, "embedding", { ipu_id = 1 })
  self.loss = poptorch.BeginBlock(self.loss, "loss", { ipu_id = 1 })
  return self
end

function CLIP:encode_image(images)
  local x = self.conv1(images)
  x = x:reshape(x.shape[1], x.shape[2], -1):permute(0, 2, 1)
  local class = self.class_embedding + torch.zeros(x.shape[1], 1, x.shape[3])
  x = torch.cat({ class, x }, { dim = 1 }) + self.image_positions
  x = self.visual(x:permute(1, 0, 2)):permute(1, 0, 2)
  return x[":, 0, :"]:matmul(self.proj)
end

function CLIP:encode_text(text)
  local x = self.token_embedding(text) + self.positions
  x = self.ln_final(self.text(x:permute(1, 0, 2)):permute(1, 0, 2))
  return x[{ torch.arange(x:size(0)):long(), text:argmax(-1) }]:matmul(self.text_projection)
end

function CLIP:dequeue_enqueue(images, texts)
  local _ <close> = torch.no_grad()
  local kept = (self.memory - 1) * self.batch
  self.images:copy_(torch.cat({ images, self.images[{ torch.slice(nil, kept) }] }, 0))
  self.texts:copy_(torch.cat({ texts, self.texts[{ torch.slice(nil, kept) }] }, 0))
end

function CLIP:forward(images, texts)
  local image, text = self:encode_image(images), self:encode_text(texts)
  image = image / image:norm({ dim = 1, keepdim = true })
  text = text / text:norm({ dim = 1, keepdim = true })
  if not self.training then
    return image:matmul(text:t()) * self.logit_scale:exp()
  end
  local all_images = torch.cat({ image, self.images:clone():detach() }, 0)
  local all_texts = torch.cat({ text, self.texts:clone():detach() }, 0)
  local logits = self.logit_scale:exp() * torch.mm(all_images, all_texts:t())
  local labels = torch.arange(logits:size(0)):long()
  local loss = (self.loss(logits, labels) + self.loss(logits:t(), labels)) / 2
  self:dequeue_enqueue(image, text)
  return poptorch.identity_loss(loss, "mean")
end

local function decayed(optim, net)
  local plain, rest = {}, {}
  for name, p in net:named_parameters() do
    local list = (p:dim() < 2 or name:find("bias") or name:find("ln")) and plain or rest
    list[#list + 1] = p
  end
  return optim.AdamW({ { params = plain, weight_decay = 0.0 },
    { params = rest, weight_decay = 0.1 } }, { lr = 0.01, eps = 1e-2 })
end

describe("CLIP", function()
  it("keeps queues of features over two IPUs, then infers", function()
    torch.manual_seed(1)
    local net = CLIP(2, 2):placed()
    local function data(call)
      torch.manual_seed(call)
      return { torch.randn(6, 3, 8, 8), torch.randint(0, 9, { 6, 5 }) }
    end
    local trainer, twin = trains(net, { micro = 3, rows = 2, optimizer = decayed }, data)
    trainer:detachFromDevice()
    local options = poptorch.Options():deviceIterations(3)
    local model = poptorch.inferenceModel(net:eval(), options)
    local images, texts = table.unpack(data(9))
    local want = {}
    twin:eval()
    for i = 0, 4, 2 do
      want[#want + 1] = twin(images:narrow(0, i, 2), texts:narrow(0, i, 2)):detach()
    end
    near({ model(images, texts) }, { torch.cat(want, 0) }, { 1e-4, 1e-3 })
    model:destroy()
    trainer:destroy()
  end)
end)

-- ---- Swin --------------------------------------------------------------------------

local Window = nn.Module:extend("WindowAttention")

function Window:init(dim, size, heads)
  self.heads, self.scale, self.tokens = heads, (dim // heads) ^ -0.5, size * size
  self.bias_table = nn.Parameter(torch.randn((2 * size - 1) ^ 2 // 1 | 0, heads) * 0.2)
  local axis = torch.arange(size)
  local coords = torch.flatten(torch.stack(torch.meshgrid({ axis, axis }, { indexing = "ij" })), 1)
  local relative = coords[":, :, None"] - coords[":, None, :"]
  relative = relative:permute(1, 2, 0):contiguous()
  relative[":, :, 0"]:add_(size - 1)
  relative[":, :, 1"]:add_(size - 1)
  relative[":, :, 0"]:mul_(2 * size - 1)
  self:register_buffer("relative_position_index", relative:sum(-1))
  self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
  self.softmax = nn.Softmax({ dim = -1 })
end

function Window:forward(x, mask)
  local b, n, c = table.unpack(x.shape)
  local qkv = self.qkv(x):reshape(b, n, 3, self.heads, c // self.heads):permute(2, 0, 3, 1, 4)
  local q, k, v = qkv[0] * torch.tensor(self.scale), qkv[1], qkv[2]
  local attn = q:matmul(k:transpose(-2, -1))
  local bias = self.bias_table[self.relative_position_index:view(-1)]:view(n, n, -1)
  attn = attn + bias:permute(2, 0, 1):contiguous():unsqueeze(0)
  if mask then
    local windows = mask.shape[1]
    attn = attn:view(b // windows, windows, self.heads, n, n) + mask:unsqueeze(1):unsqueeze(0)
    attn = attn:view(-1, self.heads, n, n)
  end
  return self.proj(self.softmax(attn):matmul(v):transpose(1, 2):reshape(b, -1, c))
end

local function partition(x, size)
  local b, h, w, c = table.unpack(x.shape)
  x = x:view(b, h // size, size, w // size, size, c)
  return x:permute(0, 1, 3, 2, 4, 5):contiguous():view(-1, size, size, c)
end

local function joined(windows, size, h, w)
  local b = windows.shape[1] // (h * w // size // size)
  local x = windows:view(b, h // size, w // size, size, size, -1)
  return x:permute(0, 1, 3, 2, 4, 5):contiguous():view(b, h, w, -1)
end

local SwinBlock = nn.Module:extend("SwinTransformerBlock")

function SwinBlock:init(dim, side, heads, size, shift)
  self.side, self.size, self.shift = side, size, shift
  self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
  self.attn = Window(dim, size, heads)
  self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
  local mask
  if shift > 0 then
    local image, count = torch.zeros(1, side, side, 1), 0
    local slices = { torch.slice(0, -size), torch.slice(-size, -shift), torch.slice(-shift, nil) }
    for _, h in ipairs(slices) do
      for _, w in ipairs(slices) do
        image[{ torch.slice(), h, w, torch.slice() }] = count
        count = count + 1
      end
    end
    local windows = partition(image, size):view(-1, size * size)
    mask = windows:unsqueeze(1) - windows:unsqueeze(2)
    mask = mask:masked_fill(mask:ne(0), -100.0):masked_fill(mask:eq(0), 0.0)
  end
  self:register_buffer("attn_mask", mask)
end

function SwinBlock:forward(x)
  local side, size, shift = self.side, self.size, self.shift
  local b, l, c = table.unpack(x.shape)
  local y = self.norm1(x):view(b, side, side, c)
  if shift > 0 then
    y = torch.roll(y, { -shift, -shift }, { 1, 2 })
  end
  local windows = self.attn(partition(y, size):view(-1, size * size, c), self.attn_mask)
  y = joined(windows:view(-1, size, size, c), size, side, side)
  if shift > 0 then
    y = torch.roll(y, { shift, shift }, { 1, 2 })
  end
  x = x + y:view(b, l, c)
  return x + self.mlp(self.norm2(x))
end

local Merging = nn.Module:extend("PatchMerging")

function Merging:init(side, dim)
  self.side = side
  self.reduction, self.norm = nn.Linear(4 * dim, 2 * dim, { bias = false }), nn.LayerNorm(4 * dim)
end

function Merging:forward(x)
  local b, _, c = table.unpack(x.shape)
  x = x:view(b, self.side, self.side, c)
  x = torch.cat({ x[":, 0::2, 0::2, :"], x[":, 1::2, 0::2, :"], x[":, 0::2, 1::2, :"],
    x[":, 1::2, 1::2, :"] }, -1)
  return self.reduction(self.norm(x:view(b, -1, 4 * c)))
end

local Swin = nn.Module:extend("SwinTransformer")

function Swin:init()
  self.patches = nn.Conv2d(3, 4, { kernel_size = 2, stride = 2 })
  self.layers = nn.Sequential(SwinBlock(4, 8, 2, 4, 0), SwinBlock(4, 8, 2, 4, 2), Merging(8, 4),
    SwinBlock(8, 4, 2, 4, 0))
  self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)
  self.pool = nn.AdaptiveAvgPool1d(1)
end

function Swin:forward(x, target)
  x = self.norm(self.layers(self.patches(x):flatten(2):transpose(1, 2)))
  x = self.head(torch.flatten(self.pool(x:transpose(1, 2)), 1))
  -- the examples' SoftTargetCrossEntropy, of labels that mixup made
  local loss = torch.sum(-target * F.log_softmax(x, -1), -1)
  return x, poptorch.identity_loss(loss:mean(), "none")
end

describe("Swin", function()
  it("attends in shifted windows with biases by relative positions, over two IPUs", function()
    torch.manual_seed(6)
    local net = Swin()
    net.layers[1] = poptorch.BeginBlock(net.layers[1], "first", { ipu_id = 0 })
    net.layers[3] = poptorch.BeginBlock(checkpointed(net.layers[3]), "second", { ipu_id = 1 })
    local trainer = trains(net, { micro = 3, rows = 2, optimizer = decayed }, function(call)
      torch.manual_seed(call)
      return { torch.randn(6, 3, 16, 16), torch.rand(6, 5):softmax(-1) }
    end)
    trainer:destroy()
  end)
end)

-- ---- masked autoencoders -----------------------------------------------------------

local MAE = nn.Module:extend("MaskedAutoencoderViT")

function MAE:init(dim, keep, device)
  self.keep, self.device, self.patch = keep, device, 4
  self.patches = nn.Conv2d(3, dim, { kernel_size = 4, stride = 4 })
  self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
  self.pos_embed = nn.Parameter(torch.randn(1, 10, dim), { requires_grad = false })
  self.encoder = nn.TransformerEncoderLayer(dim, 2, { dim_feedforward = 8, dropout = 0.0,
    batch_first = true })
  self.embed, self.mask_token = nn.Linear(dim, 4), nn.Parameter(torch.randn(1, 1, 4) * 0.02)
  self.decoder_pos_embed = nn.Parameter(torch.randn(1, 10, 4), { requires_grad = false })
  self.decoder = nn.TransformerEncoderLayer(4, 2, { dim_feedforward = 8, dropout = 0.0,
    batch_first = true })
  self.pred = nn.Linear(4, 4 * 4 * 3)
end

function MAE:patchify(images)
  local p, n = self.patch, images.shape[1]
  local side = images.shape[3] // p
  local x = images:reshape(n, 3, side, p, side, p):permute(0, 2, 4, 3, 5, 1)
  return x:reshape(n, side * side, p ^ 2 * 3 // 1 | 0)
end

-- What order says: gathered, or as the examples do on the device by a product.
function MAE:ordered(x, order, count)
  if self.device then
    local chosen = F.one_hot(order[{ torch.slice(), torch.slice(nil, count) }], x:size(1))
    return chosen:to(x.dtype):matmul(x)
  end
  local index = order[{ torch.slice(), torch.slice(nil, count) }]
  return torch.gather(x, { dim = 1, index = index:unsqueeze(-1):repeat_(1, 1, x:size(2)) })
end

function MAE:forward(images, noise)
  local shuffle = torch.argsort(noise, { dim = 1 })
  local restore = torch.argsort(shuffle, { dim = 1 })
  local mean = torch.tensor({ 0.485, 0.456, 0.406 }):view(1, 3, 1, 1)
  images = (images / 255.0 - mean) / 0.225
  local x = self.patches(images):flatten(2):transpose(1, 2) + self.pos_embed[":, 1:, :"]
  x = self:ordered(x, shuffle, self.keep)
  local class = (self.cls_token + self.pos_embed[":, :1, :"]):expand(x.shape[1], -1, -1)
  x = self.embed(self.encoder(torch.cat({ class, x }, { dim = 1 })))
  local tokens = self.mask_token:repeat_(x.shape[1], restore.shape[2] + 1 - x.shape[2], 1)
  local all = self:ordered(torch.cat({ x[":, 1:, :"], tokens }, 1), restore, restore:size(1))
  x = torch.cat({ x[":, :1, :"], all }, 1) + self.decoder_pos_embed:detach()
  local pred = self.pred(self.decoder(x))[":, 1:, :"]
  local target = self:patchify(images:detach())
  local centre, var = target:mean(-1, { keepdim = true }), target:var(-1, { keepdim = true })
  local loss = (pred - (target - centre) / (var + 1e-6) ^ 0.5) ^ 2
  local mask = restore:ge(self.keep):to(loss.dtype)
  loss = (loss:mean(-1) * mask):sum() / mask:sum()
  return pred, poptorch.identity_loss(loss, "mean")
end

describe("masked autoencoders", function()
  it("hide patches in an order that is sorted on the device", function()
    for _, device in ipairs({ false, true }) do
      torch.manual_seed(7)
      local net = MAE(6, 3, device)
      local fixed = net.pos_embed:clone()
      local trainer = trains(net, { micro = 2, rows = 2, optimizer = decayed }, function(call)
        torch.manual_seed(call)
        return { torch.rand(4, 3, 12, 12) * 255, torch.rand(4, 9) }
      end)
      trainer:destroy()
      assert.is_true(fixed:equal(net.pos_embed))
    end
  end)
end)

--- Small models after public repositories, written in their authors' way: much in a line,
--- buffers that forward writes, indices that are computed, weights made of others.
--- name -> {class, function that makes the arguments of forward}; forward gives its
--- outputs, then the loss.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local F = nn.functional
local slice = torch.slice
local M = {}

local function kind(name, arguments)
  local cls = nn.Module:extend(name)
  M[name] = { cls, arguments }
  return cls
end

local function loss_of(x)
  return poptorch.identity_loss(x, "none")
end

-- ---- pictures -------------------------------------------------------------------------

-- denoising-diffusion-pytorch: weights that are standardised, scales by the time step,
-- attention linear in the pixels.
local Standardised = nn.Conv2d:extend("Standardised")

function Standardised:forward(x)
  local w = self.weight
  local keep = { keepdim = true }
  w = (w - w:mean({ 1, 2, 3 }, keep)) * (w:var({ 1, 2, 3 }, { keepdim = true, correction = 0 })
    + 1e-5):rsqrt()
  return F.conv2d(x, w, self.bias, self.stride, self.padding)
end

local Block = nn.Module:extend("Block")

function Block:init(from, to)
  self.proj, self.norm = Standardised(from, to, 3, { padding = 1 }), nn.GroupNorm(4, to)
  self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(16, 2 * to))
  self.res = from == to and nn.Identity() or nn.Conv2d(from, to, 1)
end

function Block:forward(x, t)
  local by = self.mlp(t):unsqueeze(-1):unsqueeze(-1):chunk(2, 1)
  return F.silu(self.norm(self.proj(x)) * (by[1] + 1) + by[2]) + self.res(x)
end

local Attention = nn.Module:extend("LinearAttention")

function Attention:init(n)
  self.qkv, self.out = nn.Conv2d(n, 48, 1, { bias = false }), nn.Conv2d(16, n, 1)
end

function Attention:forward(x)
  local b, c, h, w = table.unpack(x.shape)
  local t = self.qkv(F.normalize(x, { dim = 1 }) * c ^ 0.5):reshape(b, 3, 2, 8, h * w)
  local q, k = t[":, 0"]:softmax(-2) * 8 ^ -0.5, t[":, 1"]:softmax(-1)
  local context = torch.einsum("bhdn,bhen->bhde", k, t[":, 2"])
  return self.out(torch.einsum("bhde,bhdn->bhen", context, q):reshape(b, 16, h, w)) + x
end

local Diffusion = kind("Diffusion", function()
  return torch.randn(2, 3, 8, 8), torch.randint(0, 50, { 2 }), torch.randn(2, 3, 8, 8)
end)

function Diffusion:init()
  self.inc, self.time = nn.Conv2d(3, 8, 7, { padding = 3 }), nn.Linear(16, 16)
  self.b1, self.a1, self.down = Block(8, 8), Attention(8), nn.Conv2d(32, 16, 1)
  self.b2, self.up, self.b3 = Block(16, 16), nn.Conv2d(16, 8, 3, { padding = 1 }), Block(16, 8)
  self.out = nn.Conv2d(8, 3, 1)
  local kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)
  self:register_buffer("kept", kept:sqrt())
  self:register_buffer("lost", (1 - kept):sqrt())
end

function Diffusion:forward(x, t, noise)
  local function at(list) return list:gather(0, t):reshape(-1, 1, 1, 1) end
  x = at(self.kept) * x + at(self.lost) * noise
  local rate = torch.exp(torch.arange(8) * -(math.log(10000) / 7)):to(x.dtype)
  local e = t:to(x.dtype):unsqueeze(1) * rate:unsqueeze(0)
  e = F.gelu(self.time(torch.cat({ e:sin(), e:cos() }, -1)))
  local first = self.a1(self.b1(self.inc(x), e))
  local h = self.b2(self.down(F.pixel_unshuffle(first, 2)), e)
  h = self.up(F.interpolate(h, { scale_factor = 2, mode = "nearest" }))
  local out = self.out(self.b3(torch.cat({ h, first }, 1), e))
  return out, loss_of(F.mse_loss(out, noise, { reduction = "none" }):flatten(1):mean(1):mean())
end

-- StyleGAN2: a convolution whose weights each sample modulates, blurred.
local Style = kind("Style", function()
  return torch.randn(3, 8), torch.randn(3, 1, 4, 4)
end)

function Style:init()
  self.map, self.by, self.rgb = nn.Linear(8, 8), nn.Linear(8, 6), nn.Conv2d(5, 3, 1)
  self.const, self.w = nn.Parameter(torch.randn(1, 6, 4, 4)), nn.Parameter(torch.randn(5, 6, 3, 3))
  self.judge, self.out = nn.Conv2d(3, 6, 3), nn.Linear(7, 1)
  local k = torch.tensor({ 1.0, 3, 3, 1 })
  self:register_buffer("blur", torch.outer(k, k):reshape(1, 1, 4, 4) / 64)
end

function Style:forward(z, noise)
  local b = z:size(0)
  z = z * (z:pow(2):mean(1, { keepdim = true }) + 1e-4):rsqrt()
  local by = self.by(F.leaky_relu(self.map(z), 0.2)) + 1
  local w = self.w:unsqueeze(0) * by:reshape(b, 1, 6, 1, 1)
  w = w * (w:pow(2):sum({ 2, 3, 4 }) + 1e-4):rsqrt():reshape(b, 5, 1, 1, 1)
  local x = self.const:expand({ b, -1, -1, -1 }):reshape(1, b * 6, 4, 4)
  x = F.conv2d(x, w:reshape(b * 5, 6, 3, 3), nil, 1, 1, 1, b):reshape(b, 5, 4, 4)
  x = F.interpolate(F.leaky_relu(x + 0.1 * noise, 0.2), { scale_factor = 2, mode = "nearest" })
  local img = self.rgb(F.conv2d(F.pad(x, { 2, 1, 2, 1 }), self.blur:repeat_({ 5, 1, 1, 1 }), nil,
    1, 0, 1, 5))
  local y = self.judge(img)
  local spread = (y:var(0, { correction = 0 }) + 1e-4):sqrt():mean():reshape(1, 1):expand({ b, 1 })
  return img, loss_of(F.softplus(-self.out(torch.cat({ y:mean({ 2, 3 }), spread }, 1))):mean())
end

-- nerf-pytorch: rays, and samples where the first ones weigh most.
local Nerf = kind("Nerf", function()
  return torch.randn(6, 3), torch.randn(6, 3), torch.rand(6, 3)
end)

function Nerf:init()
  self.a, self.b = nn.Linear(18, 24), nn.Linear(24, 4)
end

function Nerf:render(from, to, z)
  local list = {}
  local p = from:unsqueeze(1) + to:unsqueeze(1) * z:unsqueeze(-1)
  for i = 0, 2 do
    list[2 * i + 1], list[2 * i + 2] = (p * 2 ^ i):sin(), (p * 2 ^ i):cos()
  end
  local raw = self.b(F.relu(self.a(torch.cat(list, -1))))
  local ends = torch.full({ z:size(0), 1 }, 10.0, { dtype = z.dtype })
  local far = torch.cat({ z[":, 1:"] - z[":, :-1"], ends }, -1)
  local alpha = 1 - (-F.relu(raw["..., 3"]) * far):exp()
  local w = alpha * torch.cumprod(torch.cat({ ends / 10, 1 - alpha + 1e-3 }, -1), -1)[":, :-1"]
  return (w:unsqueeze(-1) * raw["..., :3"]:sigmoid()):sum(-2), w
end

function Nerf:forward(from, to, target)
  local n = from:size(0)
  local z = torch.linspace(0.5, 3, 8):to(from.dtype):expand({ n, 8 })
  local first, w = self:render(from, to, z)
  local p = (w + 1e-3)[":, 1:-1"]:detach()
  p = (p / p:sum(-1, { keepdim = true })):cumsum(-1)
  p = torch.cat({ torch.zeros(n, 1, { dtype = z.dtype }), p }, -1)
  local u = torch.linspace(0.05, 0.95, 5):to(z.dtype):expand({ n, 5 }):contiguous()
  local at = torch.searchsorted(p, u, { right = true })
  local below, above = (at - 1):clamp({ min = 0 }), at:clamp({ max = p:size(-1) - 1 })
  local middle = 0.5 * (z[":, 1:"] + z[":, :-1"])
  local b, d = middle:gather(1, below), p:gather(1, above) - p:gather(1, below)
  d = torch.where(d:lt(1e-5), torch.ones_like(d), d)
  b = b + (u - p:gather(1, below)) / d * (middle:gather(1, above) - b)
  local out = self:render(from, to, (torch.cat({ z, b }, -1):sort(-1)))
  return out, loss_of(F.mse_loss(first, target) + F.mse_loss(out, target))
end

-- ---- sequences ------------------------------------------------------------------------

-- mamba-minimal: a scan with states that inputs select.
local Mamba = kind("Mamba", function()
  return torch.randn(2, 6, 8), torch.randn(2, 6, 8)
end)

function Mamba:init()
  self.inp, self.out, self.of_x = nn.Linear(8, 32), nn.Linear(16, 8), nn.Linear(16, 10)
  self.conv, self.dt = nn.Conv1d(16, 16, 4, { groups = 16, padding = 3 }), nn.Linear(2, 16)
  self.a = nn.Parameter(torch.log(torch.arange(1, 5):float():repeat_({ 16, 1 })))
  self.d = nn.Parameter(torch.ones(16))
end

function Mamba:forward(x, y)
  local xz, ys = self.inp(x):chunk(2, -1), {}
  local h = F.silu(self.conv(xz[1]:transpose(1, 2))[{ torch.ellipsis, slice(0, x:size(1)) }])
  h = h:transpose(1, 2)
  local dt, b, c = table.unpack(self.of_x(h):split({ 2, 4, 4 }, -1))
  dt = F.softplus(self.dt(dt))
  local keeps = torch.exp(torch.einsum("bld,dn->bldn", dt, -self.a:exp()))
  local adds = torch.einsum("bld,bln,bld->bldn", dt, b, h)
  local state = torch.zeros_like(keeps[":, 0"])
  for i = 0, x:size(1) - 1 do
    state = keeps[{ slice(), i }] * state + adds[{ slice(), i }]
    ys[i + 1] = torch.einsum("bdn,bn->bd", state, c[{ slice(), i }])
  end
  local out = self.out((torch.stack(ys, 1) + h * self.d) * F.silu(xz[2]))
  return out, F.smooth_l1_loss(out, y)
end

-- llama: rotated positions, grouped heads, gates, tied words.
local Llama = kind("Llama", function()
  return torch.randint(0, 20, { 2, 6 }), torch.randint(0, 20, { 2, 6 })
end)

function Llama:init()
  self.words, self.by = nn.Embedding(20, 16), nn.Parameter(torch.ones(2, 16))
  for name, size in pairs({ q = 16, k = 8, v = 8, o = 16, gate = 24, up = 24 }) do
    self[name] = nn.Linear(16, size, { bias = false })
  end
  self.down = nn.Linear(24, 16, { bias = false })
end

local function rotated(x)
  local t, rate = x:size(1), 1 / 10000 ^ (torch.arange(0, 4, 2):float() / 4)
  local angle = torch.outer(torch.arange(t):float(), rate):to(x.dtype):reshape(1, t, 1, 2)
  local a, b = x["..., 0::2"], x["..., 1::2"]
  return torch.stack({ a * angle:cos() - b * angle:sin(), a * angle:sin() + b * angle:cos() },
    -1):flatten(-2)
end

function Llama:forward(x, y)
  local b, t = x:size(0), x:size(1)
  local h = self.words(x)
  local function norm(i)
    return h * (h:pow(2):mean(-1, { keepdim = true }) + 1e-5):rsqrt() * self.by[i]
  end
  local n = norm(0)
  local q, k = rotated(self.q(n):reshape(b, t, 4, 4)), rotated(self.k(n):reshape(b, t, 2, 4))
  local v = self.v(n):reshape(b, t, 2, 4):repeat_interleave(2, 2)
  local a = F.scaled_dot_product_attention(q:transpose(1, 2),
    k:repeat_interleave(2, 2):transpose(1, 2), v:transpose(1, 2), { is_causal = true })
  h = h + self.o(a:transpose(1, 2):reshape(b, t, 16))
  n = norm(1)
  h = h + self.down(F.silu(self.gate(n)) * self.up(n))
  local out = F.linear(h, self.words.weight)
  return out, F.cross_entropy(out:reshape(-1, 20), y:reshape(-1), { ignore_index = 0 })
end

-- ---- vectors --------------------------------------------------------------------------

-- vector-quantize-pytorch: a code book that forward moves, gradients straight through.
local Codes = kind("Codes", function()
  return torch.randn(16, 12)
end)

function Codes:init()
  self.encoder, self.decoder = nn.Linear(12, 8), nn.Linear(8, 12)
  self:register_buffer("code", torch.randn(10, 8))
  self:register_buffer("n", torch.ones(10))
end

function Codes:forward(x)
  local z = self.encoder(x)
  local far = z:pow(2):sum(1, { keepdim = true }) - 2 * z:matmul(self.code:t())
  local hot = F.one_hot((far + self.code:pow(2):sum(1)):argmin(1), 10):to(z.dtype)
  local q = hot:matmul(self.code)
  if self.training then
    self.n:mul_(0.9):add_(hot:sum(0), { alpha = 0.1 })
    local new = hot:t():matmul(z:detach()) / (self.n + 1):unsqueeze(1)
    self.code:copy_(self.code * 0.9 + new * 0.1)
  end
  local y = self.decoder(z + (q - z):detach())
  return y, loss_of(F.mse_loss(y, x) + 0.25 * F.mse_loss(z, q:detach()))
end

-- real-nvp: couplings, and the logarithm of their determinant.
local Flow = kind("Flow", function()
  return torch.randn(16, 4)
end)

function Flow:init()
  for i = 1, 4 do
    self["s" .. i] = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4), nn.Tanh())
    self["t" .. i] = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(), nn.Linear(16, 4))
  end
  self:register_buffer("mask", torch.tensor({ { 1.0, 0, 1, 0 }, { 0, 1, 0, 1 } }):repeat_({ 2, 1 }))
end

function Flow:forward(x)
  local z, log = x, torch.zeros_like(x[":, 0"])
  for i = 1, 4 do
    local m = self.mask[i - 1]
    local s, t = self["s" .. i](z * m) * (1 - m), self["t" .. i](z * m) * (1 - m)
    z, log = z * m + (1 - m) * (z - t) * (-s):exp(), log - s:sum(1)
  end
  return z, loss_of((0.5 * z:pow(2):sum(1) - log):mean())
end

-- efficient-kan: splines beside a layer, in one line.
local Splines = kind("Splines", function()
  return torch.rand(6, 3) * 2 - 1, torch.randn(6, 4)
end)

function Splines:init()
  self.c, self.base = nn.Parameter(torch.randn(4, 3, 8) * 0.1), nn.Linear(3, 4)
  self.out = nn.Linear(4, 4)
  self:register_buffer("grid", torch.arange(-3, 9):float() * 0.4 - 1)
end

function Splines:forward(x, y)
  local xs, g = x:unsqueeze(-1), self.grid
  local b = xs:ge(g[":-1"]):logical_and(xs:lt(g["1:"])):to(x.dtype)
  for k = 1, 3 do
    local low, high = g[":" .. -(k + 1)], g[(k + 1) .. ":"]
    b = (xs - low) / (g[k .. ":-1"] - low) * b["..., :-1"]
      + (high - xs) / (high - g["1:" .. -k]) * b["..., 1:"]
  end
  local out = self.out(torch.einsum("bik,oik->bo", b, self.c) + self.base(F.silu(x)))
  return out, F.mse_loss(out, y)
end

-- dgcnn: neighbours by distances.
local Points = kind("Points", function()
  return torch.randn(3, 7, 3), torch.randint(0, 3, { 3 })
end)

function Points:init()
  self.a, self.norm = nn.Conv2d(6, 8, 1, { bias = false }), nn.BatchNorm2d(8)
  self.out = nn.Linear(8, 3)
end

function Points:forward(x, y)
  local b, n = x:size(0), x:size(1)
  local xx = x:pow(2):sum(-1, { keepdim = true })
  local _, at = (2 * x:matmul(x:transpose(1, 2)) - xx - xx:transpose(1, 2)):topk(3, -1)
  at = at + (torch.arange(b) * n):reshape(-1, 1, 1)
  local near = x:reshape(b * n, 3)[at:reshape(-1)]:reshape(b, n, 3, 3)
  local own = x:unsqueeze(2):expand({ b, n, 3, 3 })
  local h = self.norm(self.a(torch.cat({ near - own, own }, -1):permute({ 0, 3, 1, 2 })))
  local out = self.out(F.leaky_relu(h, 0.2):amax({ 2, 3 }))
  return out, F.multi_margin_loss(out, y)
end

return M

--- The eager operators that are timed, in Lua; python() is the same in Python.
---
--- An expression speaks of the pool's tensors, which pool() below and
--- spec/bench/peers/operators.py have of each size: s is the side of the square
--- matrices, n = s * s the number of elements.
local M = {}

M.SIZES = { 16, 10000, 1000000 }

---@class bench.Operator
---@field name string
---@field lua string an expression
---@field python string
---@field grad string[] the names of the floats of which it has gradients
---@field random boolean? values cannot be compared
---@field most integer? the largest size that is worth its time

---@type bench.Operator[]
M.all = {}

-- Lua's spelling as Python's: lists and methods are all that differ here.
local function python(text)
  text = text:gsub("([%w_%)%]\"']):([%a])", "%1.%2"):gsub("{", "["):gsub("}", "]")
  return (text:gsub("%f[%a]true%f[%A]", "True"):gsub("%f[%a]false%f[%A]", "False")
    :gsub("%f[%a]nil%f[%A]", "None"):gsub(" %^ ", " ** "))
end

-- One row: `grad` names the tensors of which it has gradients, with blanks between.
local function op(name, text, grad, more)
  local row = { name = name, lua = text, python = python(text), grad = {} }
  for word in (grad or ""):gmatch("%S+") do
    row.grad[#row.grad + 1] = word
  end
  for key, value in pairs(more or {}) do
    row[key] = value
  end
  M.all[#M.all + 1] = row
end

local function each(format, names, grad, more)
  for name in names:gmatch("%S+") do
    op(name, (format:gsub("NAME", name)), grad, more)
  end
end

local RANDOM = { random = true }

-- ---- pointwise ------------------------------------------------------------------
each("x:NAME()", "abs neg exp sin cos tanh sigmoid erf expm1 square relu", "x")
each("x:NAME()", "floor round sign isnan clone")
each("u:NAME()", "log sqrt rsqrt reciprocal log1p", "u")
each("F.NAME(x)", "gelu silu softplus leaky_relu elu hardswish mish", "x")
op("add", "x + y", "x y")
op("sub", "x - y", "x y")
op("mul", "x * y", "x y")
op("div", "x / u", "x u")
op("add scalar", "x + 1.5", "x")
op("mul scalar", "x * 1.5", "x")
op("square by pow", "x ^ 2", "x")
op("pow", "u ^ y", "u y")
op("add row", "x + row", "x row")
op("mul column", "x * column", "x column")
each("torch.NAME(x, y)", "maximum minimum atan2", "x y")
each("torch.NAME(x, y)", "eq lt logical_and fmod")
op("clamp", "x:clamp(-0.5, 0.5)", "x")
op("where", "torch.where(mask, x, y)", "x y")
op("lerp", "x:lerp(y, 0.3)", "x y")
op("addcmul", "x:addcmul(y, u, { value = 0.5 })", "x y",
  { python = "x.addcmul(y, u, value=0.5)" })
op("masked_fill", "x:masked_fill(mask, 0.5)", "x")
op("add_", "z:add_(y)", nil, RANDOM) -- the more often, the larger
op("mul_", "z:mul_(1.0)", nil, RANDOM)
op("copy_", "z:copy_(y)")
op("fill_", "z:fill_(0.5)")

-- ---- reductions -----------------------------------------------------------------
each("x:NAME()", "sum mean max var norm", "x")
each("u:NAME()", "prod")
each("x:NAME(1)", "std logsumexp", "x")
op("sum rows", "x:sum(0)", "x")
op("sum columns", "x:sum(1)", "x")
op("mean rows", "x:mean(0)", "x")
op("amax rows", "x:amax(0)", "x")
op("max columns", "x:max(1)", "x", { python = "x.max(1)[0]" })
op("min rows", "x:min(0)", "x", { python = "x.min(0)[0]" })
op("argmax", "x:argmax(1)")
op("any", "mask:any()")
op("count_nonzero", "torch.count_nonzero(x)")
op("median", "x:median(1)", nil, { python = "x.median(1)[0]" })

-- ---- scans ----------------------------------------------------------------------
each("x:NAME(1)", "cumsum", "x")
op("cumsum rows", "x:cumsum(0)", "x")
op("cumprod", "u:cumprod(1)", "u")
op("cummax", "x:cummax(1)", nil, { python = "x.cummax(1)[0]" })
op("logcumsumexp", "x:logcumsumexp(1)", "x")

-- ---- views made contiguous, and copies ------------------------------------------
op("transpose", "x:t():contiguous()", "x")
op("permute", "image:permute({ 0, 2, 3, 1 }):contiguous()", "image")
op("expand", "row:expand({ s, s }):contiguous()", "row")
op("slice", "x:narrow(1, 1, s - 2):contiguous()", "x")
op("flip", "x:flip({ 1 })", "x")
op("roll", "x:roll(1, 1)", "x")
op("tril", "x:tril()", "x")
op("cat", "torch.cat({ x, y }, 0)", "x y")
op("cat columns", "torch.cat({ x, y }, 1)", "x y")
op("stack", "torch.stack({ x, y }, 0)", "x y")
op("tile", "x:tile({ 2, 1 })", "x")
op("repeat_interleave", "x:repeat_interleave(2, 0)", "x")
op("pad", "F.pad(image, { 1, 1, 1, 1 })", "image")
op("pad reflect", "F.pad(image, { 1, 1, 1, 1 }, \"reflect\")", "image")
op("pad replicate", "F.pad(image, { 1, 1, 1, 1 }, \"replicate\")", "image")
op("unfold", "F.unfold(image, 3)", "image", { most = 10000 })
op("view", "x:view({ -1 })")
op("select", "x:select(0, 1)")
op("reshape", "x:t():reshape({ n })", "x")

-- ---- indexing -------------------------------------------------------------------
op("gather", "x:gather(1, index)", "x")
op("gather rows", "x:gather(0, index)", "x")
op("scatter", "x:scatter(1, index, y)", nil)
op("scatter_add", "x:scatter_add(1, index, y)", "x y")
op("index_select", "x:index_select(0, line)", "x")
op("index_select columns", "x:index_select(1, line)", "x")
op("index_add", "x:index_add(0, line, y)", "x y")
op("index", "x[line]", "x")
op("embedding", "F.embedding(line, x)", "x")
op("masked_select", "x:masked_select(mask)", "x")
op("nonzero", "mask:nonzero()")
op("one_hot", "F.one_hot(line, s)")
op("take_along_dim", "x:take_along_dim(index, 1)", "x")

-- ---- sorting --------------------------------------------------------------------
op("sort", "x:sort(1)", "x", { python = "x.sort(1)[0]" })
op("argsort", "x:argsort(1)")
op("topk", "x:topk(3, 1)", "x", { python = "x.topk(3, 1)[0]" })
op("sort all", "flat:sort()", nil, { python = "flat.sort()[0]" })
op("unique", "line:unique()")
op("searchsorted", "torch.searchsorted(sorted, u)")
op("bincount", "index:flatten():bincount()")

-- ---- products -------------------------------------------------------------------
op("matmul", "x:matmul(y)", "x y")
op("mv", "x:mv(row)", "x row")
op("dot", "flat:dot(flat)")
op("outer", "torch.outer(row, row)")
op("linear", "F.linear(x, y, row)", "x y row")
op("addmm", "torch.addmm(row, x, y)", "x y row")
op("bmm", "blocks:bmm(blocks)", "blocks")
op("einsum", "torch.einsum(\"ij,kj->ik\", x, y)", "x y")
op("bilinear", "F.bilinear(thin, thin, cube)", "thin cube")
op("attention", "F.scaled_dot_product_attention(heads, heads, heads)", "heads")

-- ---- convolutions, pooling, resampling ------------------------------------------
op("conv2d", "F.conv2d(image, kernel, nil, 1, 1)", "image kernel")
op("conv2d 1x1", "F.conv2d(image, kernel1)", "image kernel1")
op("conv2d depthwise", "F.conv2d(image, depth, nil, 1, 1, 1, channels)", "image depth")
op("conv1d", "F.conv1d(signal, tap, nil, 1, 1)", "signal tap")
op("conv_transpose2d", "F.conv_transpose2d(image, kernel, nil, 2)", "image kernel")
op("max_pool2d", "F.max_pool2d(image, 2)", "image")
op("avg_pool2d", "F.avg_pool2d(image, 2)", "image")
op("adaptive_avg_pool2d", "F.adaptive_avg_pool2d(image, 2)", "image")
op("max_pool1d", "F.max_pool1d(signal, 2)", "signal")
op("nearest", "F.interpolate(image, nil, 2)", "image")
op("bilinear resampling", "F.interpolate(image, nil, 2, \"bilinear\")", "image")
op("bicubic", "F.interpolate(image, nil, 2, \"bicubic\")", "image")
op("grid_sample", "F.grid_sample(image, grid, \"bilinear\", \"zeros\", false)", "image grid")
op("pixel_shuffle", "F.pixel_shuffle(quad, 2)", "quad")

-- ---- normalisation --------------------------------------------------------------
op("softmax", "x:softmax(1)", "x")
op("softmax rows", "x:softmax(0)", "x")
op("log_softmax", "x:log_softmax(1)", "x")
op("layer_norm", "F.layer_norm(x, { s }, row, row)", "x row")
op("rms_norm", "F.rms_norm(x, { s }, row)", "x row")
op("batch_norm", "F.batch_norm(image, nil, nil, nil, nil, true)", "image")
op("group_norm", "F.group_norm(image, channels)", "image")
op("instance_norm", "F.instance_norm(image)", "image")
op("normalize", "F.normalize(x)", "x")

-- ---- losses ---------------------------------------------------------------------
each("F.NAME(x, y)", "mse_loss l1_loss smooth_l1_loss huber_loss cosine_similarity", "x y")
op("cross_entropy", "F.cross_entropy(x, line)", "x")
op("nll_loss", "F.nll_loss(x, line)", "x")
op("binary_cross_entropy", "F.binary_cross_entropy(u, target)", "u")
op("bce_with_logits", "F.binary_cross_entropy_with_logits(x, target)", "x")
op("kl_div", "F.kl_div(x, target, nil, nil, \"batchmean\")", "x")
op("ctc_loss", "F.ctc_loss(speech, labels, lengths, label_lengths)", "speech")
op("cdist", "torch.cdist(x, y)", "x y", { most = 10000 })

-- ---- random, made from nothing --------------------------------------------------
op("rand", "torch.rand({ s, s })", nil, RANDOM)
op("randn", "torch.randn({ s, s })", nil, RANDOM)
op("randint", "torch.randint(0, 10, { s, s })", nil, RANDOM)
op("randperm", "torch.randperm(n)", nil, RANDOM)
op("bernoulli", "u:bernoulli()", nil, RANDOM)
op("dropout", "F.dropout(x, 0.5)", "x", RANDOM)
op("multinomial", "u:multinomial(2)", nil, RANDOM)
op("normal_", "z:normal_()", nil, RANDOM)
op("uniform_", "z:uniform_()", nil, RANDOM)
op("zeros", "torch.zeros({ s, s })")
op("full", "torch.full({ s, s }, 0.5)")
op("arange", "torch.arange(n)")

-- ---- linear algebra -------------------------------------------------------------
op("inv", "torch.linalg.inv(definite)", "definite")
op("solve", "torch.linalg.solve(definite, row)", "definite row")
op("cholesky", "torch.linalg.cholesky(definite)", "definite")
op("slogdet", "select(2, torch.linalg.slogdet(definite))", "definite",
  { python = "torch.linalg.slogdet(definite)[1]" })
op("qr", "torch.linalg.qr(x)", nil, { python = "torch.linalg.qr(x)[1]",
  lua = "select(2, torch.linalg.qr(x))" })
op("eigvalsh", "torch.linalg.eigvalsh(definite)", nil, { most = 10000 })
op("svdvals", "torch.linalg.svdvals(x)", nil, { most = 10000 })

-- ---- half precision and conversions ---------------------------------------------
op("to half", "x:half()")
op("from half", "half:float()")
op("to bfloat16", "x:bfloat16()")
op("from bfloat16", "brief:float()")
op("half add", "half + half")
op("half gelu", "F.gelu(half)")
op("half sum", "half:sum()")
op("to long", "x:long()")
op("from long", "index:float()")
op("from bool", "mask:float()")

M.python = python

return M

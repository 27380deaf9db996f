--- More steps of random programs (steps.lua): reductions, forms of layers, results
--- that are somebody else's memory, functions with gradients of their own.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local F = require("torch.nn.functional")

local M = { alone = {}, loose = {}, inference = {} }
local steps = {}
M.steps = steps

local function step(forward, init)
  local cls = nn.Module:extend("Step")
  cls.init = init
  cls.forward = forward
  return cls()
end

-- A step without layers, of as many numbers.
local function plain(forward)
  return function(_, width)
    return step(function(_, x, pass)
      return forward(x, pass, width)
    end), width
  end
end

-- One of several forms of a step.
local function forms(list)
  return function(r, width)
    local f = r:pick(list)
    return step(function(_, x, pass)
      return f(x, pass, width)
    end), width
  end
end

-- ---- arithmetic -------------------------------------------------------------------

steps.reduced = forms({
  function(x) return x - x:mean(1, { keepdim = true }) end,
  function(x) return x / (x:std(1, { keepdim = true, correction = 0 }) + 1) end,
  function(x) return x - x:logsumexp(1, { keepdim = true }) end,
  function(x) return x + x:amax(1, { keepdim = true }) end,
  function(x) return x * (1 + x:norm(2, 1, { keepdim = true })):reciprocal() end,
  function(x) return x + (x:min(1, { keepdim = true })) end,
  function(x) return x + x:median(1, { keepdim = true }) end,
  function(x) return x + (x * 0.1 + 1):prod(1, { keepdim = true }) end,
  function(x) return x + x:var(1, { keepdim = true, correction = 0 }) end,
})

steps.shaped = forms({
  function(x, _, w) return F.pad(x, { 1, 0 })[{ torch.slice(), torch.slice(nil, w) }] end,
  function(x)
    local wide = F.pad(x:unsqueeze(1), { 1, 1 }, "replicate")
    return wide:unfold(2, 3, 1):mean(-1):squeeze(1)
  end,
  function(x) return torch.stack({ x, x * 2 }, 2):sum(2) end,
  function(x) return torch.cat(x:chunk(2, 1), 1) end,
  function(x) return x:t():contiguous():t() + 0.5 end,
  function(x) return x:unsqueeze(0):expand(3, -1, -1):mean(0) end,
  function(x) return torch.einsum("bi,bj->bi", x, x * 0.1) end,
  function(x)
    return x:unsqueeze(2):bmm(x:unsqueeze(1)):mul(0.1):diagonal({ dim1 = 1, dim2 = 2 }) + x
  end,
  function(x) return torch.repeat_interleave(x, 2, 1):unflatten(1, { -1, 2 })[":, :, 0"] end,
  function(x) return x:tril() + x:triu(1) end,
  function(x) return torch.hstack({ x[":, :1"], x[":, 1:"] }) end,
  function(x, _, w) return x:as_strided({ x:size(0), w }, { w, 1 }) * 1.5 end,
  function(x) return x:movedim(0, 1):swapaxes(0, 1):ravel():view_as(x) end,
})

steps.pointwise = forms({
  function(x) return torch.addcmul(x, x, x:tanh(), { value = 0.5 }) end,
  function(x) return torch.lerp(x, x:sin(), 0.3) end,
  function(x) return x:clamp(-1, 1) end,
  function(x) return x:abs():add(0.1):sqrt() end,
  function(x) return (x * x + 1):log() end,
  function(x) return torch.atan2(x, x:abs() + 1) end,
  function(x) return x:round():detach() * 0.1 + x end,
  function(x) return torch.maximum(x, -x * 0.5) end,
  function(x) return x % 1.5 end,
  function(x) return x:sign() * x:abs():pow(1.5) end,
  function(x) return torch.hypot(x, x + 1) end,
  function(x) return x:erf() + x:sigmoid():log() end,
  function(x) return F.glu(torch.cat({ x, x }, 1), 1) end,
  function(x) return F.normalize(x, { dim = 1 }) end,
  function(x) return torch.nan_to_num(x / x:abs():clamp(0.1)) end,
  function(x) return x:exp():clamp({ max = 5 }):expm1():log1p() end,
})

steps.integers = forms({
  function(x) return x + x:to(torch.int32):to(x.dtype) * 0.5 end,
  function(x) return x * x:gt(0):logical_and(x:lt(1)) end,
  function(x, pass, w) return x + F.one_hot(pass.ids[":, 0"] % w, w):to(x.dtype) end,
  function(x, pass) return x + (pass.ids // 2 + pass.ids % 3):sum(1, { keepdim = true }) * 0.01 end,
  function(x, pass) return x * torch.where(pass.ids[":, :1"]:gt(3), 1.0, 0.5) end,
  function(x, pass) return x + pass.ids:max(1, { keepdim = true }) * 0.1 end,
})

-- ---- written in place -------------------------------------------------------------

steps.written = forms({
  function(x, _, w)
    local y = torch.zeros(x:size(0), w)
    for i = 0, w - 1 do
      y[{ torch.slice(), i }] = x[{ torch.slice(), w - 1 - i }] * (i + 1) / w
    end
    return y
  end,
  function(x, pass, w)
    local at = pass.ids % w
    return x:scatter_add(1, at, torch.ones(x:size(0), at:size(1)))
  end,
  function(x)
    local column = torch.zeros({ x:size(0) }, { dtype = torch.int64 })
    return x:index_put({ torch.arange(x:size(0)), column }, x:sum(1), { accumulate = true })
  end,
  function(x)
    local y = x * 1.0
    local a, b = table.unpack(y:chunk(2, 1))
    if b then
      b:mul_(2)
    end
    a:add_(1):clamp_(-2, 2)
    return y
  end,
  function(x)
    local y = x:clone()
    y:t()[0]:copy_(x:sum(1))
    y:masked_fill_(y:gt(2), 2.0)
    return y
  end,
  function(x)
    local y = torch.empty_like(x)
    y:copy_(x)
    y:view(-1)["::2"]:mul_(0.5)
    return y
  end,
  function(x)
    local y, z = x:clone(), x * 2
    y, z = z, y
    y:sub_(z)
    z:zero_()
    return y + z
  end,
})

-- ---- layers -----------------------------------------------------------------------

function steps.layer(r, width)
  local kind = r:int(1, 6)
  local layer, out
  if kind == 1 then
    layer = nn.PReLU(width)
  elseif kind == 2 then
    layer, out = nn.Bilinear(width, width, 3), 3
  elseif kind == 3 then
    layer = nn.TransformerEncoderLayer(width, 1, { dim_feedforward = 5, dropout = 0.0,
      batch_first = true, norm_first = r:chance(0.5) })
  elseif kind == 4 then
    layer = nn.MultiheadAttention(width, 1, { batch_first = true })
  elseif kind == 5 then
    layer = nn.GroupNorm(1, width)
  else
    layer, out = nn.GRUCell(width, 4), 4
  end
  out = out or width
  return step(function(m, x)
    if kind == 2 then
      return m.layer(x, x:flip(1))
    elseif kind == 3 then
      return m.layer(x:unsqueeze(1)):squeeze(1)
    elseif kind == 4 then
      local y = x:unsqueeze(1):expand(-1, 2, -1)
      return (m.layer(y, y, y))[":, 0"]
    end
    return m.layer(x)
  end, function(m)
    m.layer = layer
  end), out
end

function steps.transposed_convolution(_, width)
  return step(function(m, x)
    return m.conv(x:unsqueeze(1)):flatten(1)
  end, function(m)
    m.conv = nn.ConvTranspose1d(1, 1, 2, { stride = 2 })
  end), 2 * width
end

function steps.normed(r, width)
  local by = r:pick({ "weight_norm", "parametrizations.weight_norm" })
  return step(function(m, x)
    return m.fc(x)
  end, function(m)
    m.fc = by == "weight_norm" and nn.utils.weight_norm(nn.Linear(width, 4))
      or nn.utils.parametrizations.weight_norm(nn.Linear(width, 4))
  end), 4
end

function steps.bags(_, width)
  return step(function(m, x, pass)
    return x + m.bag(pass.ids)
  end, function(m)
    m.bag = nn.EmbeddingBag(7, width, { mode = "sum" })
  end), width
end

function steps.reused(r, width, nested)
  local inner, out = nested(r, width)
  return step(function(m, x, pass)
    local y = m.back(m.inner(x, pass))
    return m.back(m.inner(y:tanh(), pass)) + x
  end, function(m)
    m.inner, m.back = inner, nn.Linear(out, width)
  end), width
end

function steps.hooked(_, width)
  return step(function(m, x)
    return m.fc(x)
  end, function(m)
    m.fc = nn.Linear(width, width)
    m.fc:register_forward_hook(function(_, _, out)
      return out * 0.5
    end)
    m.fc:register_forward_pre_hook(function(_, args)
      return { args[1] + 1 }
    end)
  end), width
end

-- ---- gradients of their own -------------------------------------------------------

local Halved = torch.autograd.Function:extend("Halved")

function Halved.forward(ctx, x)
  ctx:save_for_backward(x)
  return x:clone()
end

function Halved.backward(ctx, dy)
  local x = table.unpack(ctx.saved_tensors)
  return dy * (x * 0.01 + 0.5)
end

steps.own_gradient = plain(function(x)
  return Halved.apply(x)
end)

-- ---- results that are somebody else's memory --------------------------------------

function steps.given_away(r, width)
  local what = r:int(1, 7)
  return step(function(m, x, pass)
    local extra
    if what == 1 then
      extra = pass.x
    elseif what == 2 then
      extra = x
    elseif what == 3 then
      extra = m.fc.weight
    elseif what == 4 then
      extra = torch.full({ 2 }, 3.0)
    elseif what == 5 then
      extra = x:transpose(0, 1):contiguous():transpose(0, 1)[{ torch.slice(), torch.slice(nil, 1) }]
    elseif what == 6 then
      extra = m.kept
    else
      extra = pass.ids[":, 1"]
    end
    pass.extra[#pass.extra + 1] = extra
    if pass.twice then
      pass.extra[#pass.extra + 1] = extra
    end
    pass.twice = true
    return m.fc(x)
  end, function(m)
    m.fc = nn.Linear(width, width)
    m:register_buffer("kept", torch.arange(3.0))
  end), width
end

function steps.buffer_then_written(r, width)
  local how = r:int(1, 3)
  return step(function(m, x, pass)
    local before = m.state:clone()
    if how == 1 then
      pass.extra[#pass.extra + 1] = m.state[":1"] * 1
    elseif how == 2 then
      pass.extra[#pass.extra + 1] = m.state
    end
    m.state:add_(x:detach():sum(0) * 0.1)
    if how == 3 then
      pass.extra[#pass.extra + 1] = m.state[{ torch.slice(nil, nil, 2) }]
    end
    m.state[0] = 0.5
    return x + before * 0.1 + m.state
  end, function(m)
    m:register_buffer("state", torch.zeros(width))
  end), width
end
M.alone.buffer_then_written = true

function steps.shared_buffer(_, width)
  return step(function(m, x)
    m.first:add_(1)
    return x + m.all:sum() * 0.01
  end, function(m)
    m:register_buffer("all", torch.zeros(2, width))
    m:register_buffer("first", m.all[0])
  end), width
end
M.alone.shared_buffer = true

-- ---- in inference only ------------------------------------------------------------

function steps.host(r, width)
  local two, id = r:chance(0.5), "half_of_" .. r:int(0, 1 << 20)
  return step(function(m, x, pass)
    local y, z = m.op(x, pass.ids)
    return two and x + y or y * 2 + z
  end, function(m)
    m.op = poptorch.CPU(function(x, ids)
      return x * 0.5 + 0.25, x + ids:sum()
    end, id)
  end), width
end
M.inference.host = true

function steps.for_loop(r, width)
  local rounds = r:int(1, 5)
  return step(function(m, x)
    local out = poptorch.for_loop(rounds, function(y, n)
      return m.fc(y):tanh(), n + 1
    end, { x, torch.zeros(1) })
    return out[1] + out[2]
  end, function(m)
    m.fc = nn.Linear(width, width)
  end), width
end
M.inference.for_loop = true

function steps.cond(_, width)
  return step(function(m, x, pass)
    return poptorch.cond(pass.ids:sum():gt(9), function(y)
      return m.fc(y)
    end, { x }, function(y, ids)
      return y + ids:sum()
    end, { x, pass.ids })[1]
  end, function(m)
    m.fc = nn.Linear(width, width)
  end), width
end
M.inference.cond = true

steps.input_written = plain(function(x, pass)
  if rawequal(x, pass.x) then -- else a gradient may need what it was
    pass.x:mul_(0.5)
  end
  return x + pass.x:sum(1, { keepdim = true })
end)

return M

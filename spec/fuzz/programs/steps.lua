--- The steps of random programs: name -> function(r, width) that makes a module
--- for rows of `width` numbers and says how wide its rows are. Its forward gets
--- the rows and what the whole pass shares: `ids` (integers of each row), `extra`
--- (a list of further results), `nested` (makes an inner row of steps).
---
--- Rows do not see one another, but where a step says so: then only micro-batches
--- in the same order give the same numbers. `alone[name]`: not with replicas,
--- whose buffers differ. `loose[name]`: rounds to half precision. `inference[name]`:
--- not in training.
local control = require("lupine.control")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")
local F = require("torch.nn.functional")

local M = { alone = {}, loose = {}, inference = {} }
local steps = {}
M.steps = steps

-- A module of these layers (made by init(m)) and this forward.
local function step(forward, init)
  local cls = nn.Module:extend("Step")
  cls.init = init
  cls.forward = forward
  return cls()
end

local ACTIVATIONS = { "relu", "tanh", "sigmoid", "gelu", "silu", "elu", "softplus", "leaky_relu" }

-- ---- layers -----------------------------------------------------------------------

function steps.linear(r, width)
  local out = r:int(2, 12)
  return step(function(m, x)
    return m.fc(x)
  end, function(m)
    m.fc = nn.Linear(width, out, { bias = r:chance(0.7) })
  end), out
end

function steps.activation(r, width)
  local f = F[r:pick(ACTIVATIONS)]
  return step(function(_, x)
    return f(x)
  end), width
end

function steps.in_place_activation(r, width)
  local inside = r:chance(0.5)
  return step(function(_, x)
    local y = x * 1.5
    if inside then
      return F.relu(y, { inplace = true })
    end
    y:sigmoid_()
    return y * 2
  end), width
end

function steps.layer_norm(_, width)
  return step(function(m, x)
    return m.norm(x)
  end, function(m)
    m.norm = nn.LayerNorm(width)
  end), width
end

function steps.batch_norm(r, width)
  return step(function(m, x)
    return m.norm(x)
  end, function(m)
    m.norm = nn.BatchNorm1d(width, { momentum = r:pick({ 0.1, 0.5 }), affine = r:chance(0.7) })
  end), width
end
M.alone.batch_norm = true

function steps.convolution(r, width)
  local channels, kernel = r:int(1, 3), r:int(1, math.min(3, width))
  return step(function(m, x)
    return m.conv(x:unsqueeze(1)):flatten(1)
  end, function(m)
    m.conv = nn.Conv1d(1, channels, kernel, { bias = r:chance(0.5) })
  end), channels * (width - kernel + 1)
end

function steps.picture(r, width)
  local side = r:int(3, 4)
  local pool = r:pick({ "max_pool2d", "avg_pool2d" })
  return step(function(m, x)
    local y = m.conv(m.fc(x):reshape(-1, 1, side, side)):relu()
    return F[pool](y, 2):flatten(1)
  end, function(m)
    m.fc = nn.Linear(width, side * side)
    m.conv = nn.Conv2d(1, 2, 3, { padding = 1 })
  end), 2 * (side // 2) ^ 2 // 1 | 0
end

function steps.attention(r, width)
  local long, deep = r:int(2, 3), 4
  local own = r:chance(0.5)
  return step(function(m, x)
    local all = m.all(x):reshape(-1, long, 3 * deep)
    local q, k, v = table.unpack(all:split(deep, 2))
    local y = own and F.softmax(q:matmul(k:transpose(1, 2)) / 2, -1):matmul(v)
      or F.scaled_dot_product_attention(q, k, v, { is_causal = true })
    return y:reshape(-1, long * deep)
  end, function(m)
    m.all = nn.Linear(width, long * 3 * deep)
  end), long * deep
end

function steps.recurrent(r, width)
  local kind, hidden = r:pick({ "LSTM", "GRU", "RNN" }), r:int(2, 5)
  return step(function(m, x)
    local y = m.layer(x:unsqueeze(-1):expand(-1, -1, 2))
    return y[":, -1"]
  end, function(m)
    m.layer = nn[kind](2, hidden, { batch_first = true })
  end), hidden, width
end

function steps.words(r, width)
  local deep = r:int(2, 4)
  return step(function(m, x, pass)
    return torch.cat({ x, m.words(pass.ids):mean(1) }, 1)
  end, function(m)
    m.words = nn.Embedding(7, deep, { padding_idx = r:chance(0.3) and 0 or nil })
  end), width + deep
end

function steps.residual(r, width, nested)
  local inner, out = nested(r, width)
  return step(function(m, x, pass)
    return x + m.back(m.inner(x, pass)) * m.scale
  end, function(m)
    m.inner, m.back = inner, nn.Linear(out, width)
    m.scale = nn.Parameter(torch.ones(1))
  end), width
end

function steps.tied(_, width)
  return step(function(m, x)
    return m.fc(m.fc(x):tanh()) + F.linear(x, m.fc.weight:t())
  end, function(m)
    m.fc = nn.Linear(width, width)
  end), width
end

function steps.frozen(_, width)
  return step(function(m, x)
    return m.fc(x) + x
  end, function(m)
    m.fc = nn.Linear(width, width)
    m.fc.weight:requires_grad_(false)
  end), width
end

-- ---- views and places -------------------------------------------------------------

function steps.slices(r, width)
  local at = r:int(0, width - 1)
  return step(function(_, x)
    return torch.cat({ x[{ torch.slice(), torch.slice(at, nil) }] * 1.25,
      x[{ torch.slice(), torch.slice(nil, at) }] - 0.5 }, 1)
  end), width
end

function steps.view_in_place(r, width)
  local at, by = r:int(0, width - 1), r:pick({ "mul_", "add_", "copy_", "fill_" })
  return step(function(_, x)
    local y = x:clone()
    local view = y[{ torch.slice(), torch.slice(at, nil) }]
    if by == "copy_" then
      view:copy_(x[{ torch.slice(), torch.slice(at, nil) }] * 0.5)
    else
      view[by](view, 0.75)
    end
    y[{ torch.slice(), 0 }] = y[{ torch.slice(), -1 }] * 2
    return y
  end), width
end

function steps.transposed(_, width)
  return step(function(_, x)
    local y = x:reshape(-1, 1, width):transpose(1, 2)
    return (y + y:flip(1)):contiguous():view(-1, width)
  end), width
end

function steps.permuted(r, width)
  local order = {}
  for i = 1, width do
    order[i] = r:int(0, width - 1)
  end
  local by = r:int(1, 3)
  local index = torch.tensor(order)
  return step(function(m, x)
    if by == 1 then
      return x:index_select(1, index)
    elseif by == 2 then
      return x[{ torch.slice(), m.order }]
    end
    return x:gather(1, m.order:unsqueeze(0):expand(x:size(0), -1))
  end, function(m)
    m:register_buffer("order", index:clone())
  end), width
end

function steps.scattered(r, width)
  local index = {}
  for i = 1, width do
    index[i] = r:int(0, 3)
  end
  return step(function(_, x)
    local sums = torch.zeros(x:size(0), 4)
    return sums:index_add(1, torch.tensor(index), x)
  end), 4
end

function steps.ordered(r, width)
  local by = r:int(1, 3)
  local k = by == 3 and r:int(1, width) or width
  return step(function(_, x)
    if by == 1 then
      return (x:sort(1))
    elseif by == 2 then
      return x:cumsum(1):roll(1, 1)
    end
    return (x:topk(k, 1))
  end), k
end

function steps.masked(r, width)
  local by = r:int(1, 3)
  return step(function(_, x)
    if by == 1 then
      return torch.where(x:gt(0), x, x * 0.1)
    elseif by == 2 then
      return x:masked_fill(x:lt(-0.5), -0.5)
    end
    local y = x:clone()
    y[y:gt(0.5)] = 0.5
    return y
  end), width
end

function steps.constants(_, width)
  local captured = torch.linspace(-1, 1, width)
  return step(function(_, x)
    return x * torch.arange(1, width + 1):to(x.dtype) / width + captured
      + torch.full({ width }, 0.125) - torch.eye(width)[0]
  end), width
end

-- ---- buffers ----------------------------------------------------------------------

function steps.running_mean(r, width)
  local before = r:chance(0.5)
  return step(function(m, x)
    local y = before and x - m.mean or x
    m.mean:mul_(0.5):add_(x:detach():mean(0) * 0.5)
    return before and y or x - m.mean
  end, function(m)
    m:register_buffer("mean", torch.zeros(width))
  end), width
end
M.alone.running_mean = true

function steps.counter(r, width)
  local part = r:chance(0.5)
  return step(function(m, x)
    if part then
      m.seen[1]:add_(1)
    else
      m.seen:add_(torch.tensor({ 0, 1 }))
    end
    return x * (1 + m.seen[1]:to(x.dtype) * 0.01)
  end, function(m)
    m:register_buffer("seen", torch.zeros({ 2 }, { dtype = torch.int32 }))
  end), width
end
M.alone.counter = true

function steps.memory(_, width)
  return step(function(m, x)
    local out = x + m.rows[0] * 0.1
    m.rows["1:"] = m.rows[":-1"]:clone()
    m.rows[0] = x[0]:detach()
    return out
  end, function(m)
    m:register_buffer("rows", torch.zeros(3, width))
  end), width
end
M.alone.memory = true

-- ---- control ----------------------------------------------------------------------

function steps.unrolled(r, width)
  local rounds = r:int(2, 4)
  return step(function(m, x)
    for i = 1, rounds do
      if i % 2 == 0 then
        x = m.fc(x):tanh()
      else
        x = x + m.bias * i
      end
    end
    return x
  end, function(m)
    m.fc, m.bias = nn.Linear(width, width), nn.Parameter(torch.zeros(width))
  end), width
end

function steps.loop(r, width)
  local rounds = r:int(1, 4)
  return step(function(m, x)
    return control.loop(rounds, function(y)
      return (y * m.w):tanh() + x * 0.1
    end, { x })[1]
  end, function(m)
    m.w = nn.Parameter(torch.ones(width))
  end), width
end

function steps.branch(_, width)
  return step(function(m, x, pass)
    return control.branch(pass.ids:sum():gt(6), function(y)
      return m.fc(y)
    end, { x }, function(y)
      return y * m.w
    end, { x })[1]
  end, function(m)
    m.fc, m.w = nn.Linear(width, width), nn.Parameter(torch.ones(width))
  end), width
end

function steps.no_gradient(_, width)
  return step(function(_, x)
    local scale
    do
      local _ <close> = torch.no_grad()
      scale = x:abs():sum(1, { keepdim = true }) + 1
    end
    return x / scale + x:detach() * 0.1
  end), width
end

function steps.checkpoint(_, width)
  return step(function(_, x)
    return poptorch.recomputationCheckpoint(x * 1.0)
  end), width
end

function steps.further_result(r, width)
  local as = r:int(1, 3)
  return step(function(_, x, pass)
    local y = as == 1 and x * 2 or as == 2 and x:argmax(1) or x:sum()
    pass.extra[#pass.extra + 1] = y
    return x
  end), width
end

-- ---- half precision ---------------------------------------------------------------

function steps.half(r, width)
  local layer = r:chance(0.5)
  return step(function(m, x)
    local y = x:half()
    return (layer and m.fc(y) or y * 0.5 + y):to(torch.float32)
  end, function(m)
    if layer then
      m.fc = nn.Linear(width, width):half()
    end
  end), width
end
M.loose.half = true

return M

--- Recurrent layers of ONNX: RNN, GRU, LSTM.
---
--- T steps of a batch of B, of D directions and H hidden units: X [T, B, I],
--- W [D, gates * H, I], R [D, gates * H, H], B [D, 2 * gates * H], states [D, B, H] ->
--- Y [T, D, B, H]. Gates are in the order of ONNX (LSTM i o f c, GRU z r h). What torch's
--- layers compute as well is theirs, a direction being one operator; the rest goes step
--- by step, with the input's share of all gates in one product.
local torch = require("torch")
local F = require("torch.nn.functional")

-- ---- activations -----------------------------------------------------------------------

-- Name in lower case -> function, defaults of alpha and beta.
local ACTIVATIONS = {
  relu = { F.relu }, tanh = { torch.tanh }, sigmoid = { torch.sigmoid },
  softsign = { F.softsign },
  softplus = { F.softplus },
  affine = { function(x, alpha, beta)
    return x * alpha + beta
  end, 1.0, 0.0 },
  leakyrelu = { F.leaky_relu, 0.01 },
  thresholdedrelu = { function(x, alpha)
    return F.threshold(x, alpha, 0)
  end, 1.0 },
  scaledtanh = { function(x, alpha, beta)
    return (x * beta):tanh() * alpha
  end, 1.0, 1.0 },
  hardsigmoid = { function(x, alpha, beta)
    return (x * alpha + beta):clamp(0, 1)
  end, 0.2, 0.5 },
  elu = { F.elu, 1.0 },
}

-- The functions of all directions: directions[d][i]. Alphas and betas are consumed in
-- the order of the functions that have some.
local function activations(n, usual, count)
  local given = n.attr.activations or {}
  n:check(#given == 0 or #given == #usual * count, "attribute 'activations': expected %d, got %d",
    #usual * count, #given)
  local used = { alpha = 0, beta = 0 }
  local function take(name, default)
    if default == nil then
      return nil
    end
    used[name] = used[name] + 1
    return (n.attr["activation_" .. name] or {})[used[name]] or default
  end
  local out, plain = {}, true
  for d = 1, count do
    out[d] = {}
    for i, name in ipairs(usual) do
      local wanted = (given[(d - 1) * #usual + i] or name):lower()
      local row = n:check(ACTIVATIONS[wanted], "attribute 'activations': got '%s'. Allowed: Relu, "
        .. "Tanh, Sigmoid, Affine, LeakyRelu, ThresholdedRelu, ScaledTanh, HardSigmoid, Elu, "
        .. "Softsign, Softplus", wanted)
      local alpha, beta = take("alpha", row[2]), take("beta", row[3])
      -- ONNX has all inputs of activations clipped; what runs its models, ONNX Runtime, leaves
      -- an LSTM's cell as it is before the last of them, so that files have these values
      local clip = i < 3 and n.attr.clip
      out[d][i] = function(x)
        return row[1](clip and x:clamp(-clip, clip) or x, table.unpack({ alpha, beta }))
      end
      plain = plain and wanted == name:lower()
      out[d].first = wanted
    end
  end
  return out, plain
end

-- ---- one step --------------------------------------------------------------------------
-- step(n, x, state, d): x is the input's share of the gates, d the direction's weights and
-- functions; gives the next state, its output first.

local function rnn_step(_, x, state, d)
  return { d.act[1](x + F.linear(state[1], d.r, d.rb)) }
end

local function gru_step(n, x, state, d)
  local h = state[1]
  local size = h:size(1)
  local xz, xr, xh = table.unpack(x:split(size, -1))
  local z, r, new
  if n.attr.linear_before_reset ~= 0 then
    local hz, hr, hh = table.unpack(F.linear(h, d.r, d.rb):split(size, -1))
    z, r = d.act[1](xz + hz), d.act[1](xr + hr)
    new = xh + r * hh
  else
    local rb = d.rb
    local hz, hr = table.unpack(F.linear(h, d.r:narrow(0, 0, 2 * size),
      rb and rb:narrow(0, 0, 2 * size)):split(size, -1))
    z, r = d.act[1](xz + hz), d.act[1](xr + hr)
    new = xh + F.linear(r * h, d.r:narrow(0, 2 * size, size), rb and rb:narrow(0, 2 * size, size))
  end
  return { (1 - z) * d.act[2](new) + z * h }
end

local function lstm_step(n, x, state, d)
  local h, c = state[1], state[2]
  local i, o, f, g = table.unpack((x + F.linear(h, d.r, d.rb)):split(h:size(1), -1))
  local peep = d.peepholes
  if peep then
    i, f = i + peep[1] * c, f + peep[3] * c
  end
  i = d.act[1](i)
  f = n.attr.input_forget ~= 0 and 1 - i or d.act[1](f)
  c = f * c + i * d.act[2](g)
  o = d.act[1](peep and o + peep[2] * c or o)
  return { o * d.act[3](c), c }
end

-- ---- all steps -------------------------------------------------------------------------
-- whole(n, x, state, d): outputs [T, B, H] and the last state, by torch's layer.

-- Rows of gates in another order.
local function ordered(t, order)
  if not t then
    return torch.none
  end
  local parts = t:chunk(#order, 0)
  local out = {}
  for i, at in ipairs(order) do
    out[i] = parts[at]
  end
  return torch.cat(out, 0)
end

local function rnn_whole(_, x, state, d)
  local y, h = F._rnn_layer(x, state[1], d.w, d.r, d.wb or torch.none, d.rb or torch.none,
    d.reverse, d.act.first == "relu")
  return y, { h }
end

local function gru_whole(_, x, state, d)
  local order = { 2, 1, 3 }
  local y, h = F._gru_layer(x, state[1], ordered(d.w, order), ordered(d.r, order),
    ordered(d.wb, order), ordered(d.rb, order), d.reverse)
  return y, { h }
end

local function lstm_whole(_, x, state, d)
  local order = { 1, 3, 4, 2 }
  local y, h, c = F._lstm_layer(x, state[1], state[2], ordered(d.w, order), ordered(d.r, order),
    ordered(d.wb, order), ordered(d.rb, order), torch.none, d.reverse)
  return y, { h, c }
end

-- What a row of a batch keeps behind the end of its sequence: its state, and no output.
local function held(valid, new, old)
  local out = {}
  for i, t in ipairs(new) do
    out[i] = torch.where(valid, t, old[i])
  end
  return out, new[1] * valid:to(new[1].dtype)
end

local function stepwise(kind, n, x, state, d, lengths)
  local steps, ys = F.linear(x, d.w, d.wb):unbind(0), {}
  local valid = lengths and (torch.arange(#steps):reshape({ -1, 1 })
    :lt(lengths:to(torch.int64):reshape({ 1, -1 }))):unsqueeze(-1):unbind(0)
  for k = 1, #steps do
    local t = d.reverse and #steps + 1 - k or k
    local new = kind.step(n, steps[t], state, d)
    ys[t] = new[1]
    if valid then
      new, ys[t] = held(valid[t], new, state)
    end
    state = new
  end
  return torch.stack(ys, 0), state
end

-- kind: gates, activations, step, whole, whether torch's layer computes it
local KINDS = {
  RNN = { gates = 1, usual = { "Tanh" }, step = rnn_step, whole = rnn_whole },
  GRU = { gates = 3, usual = { "Sigmoid", "Tanh" }, step = gru_step, whole = gru_whole },
  LSTM = { gates = 4, usual = { "Sigmoid", "Tanh", "Tanh" }, step = lstm_step, whole = lstm_whole,
    cell = true },
}

local DIRECTIONS = { forward = { false }, reverse = { true }, bidirectional = { false, true } }

-- Whether torch's layer computes this direction.
local function is_whole(kind, n, d, plain, lengths)
  if lengths or d.peepholes or n.attr.clip then
    return false
  elseif kind == KINDS.RNN then
    return d.act.first == "tanh" or d.act.first == "relu"
  end
  return plain and (n.attr.input_forget or 0) == 0 and (n.attr.linear_before_reset or 1) ~= 0
end

local function check_shape(n, name, t, ...)
  local shape = torch.Size({ ... })
  n:check(not t or tostring(t.shape) == tostring(shape), "%s: expected the shape %s, got %s", name,
    tostring(shape), t and tostring(t.shape))
end

-- Shapes of all operands; x is [T, B, I].
local function check(n, kind, x, v, count)
  n:check(x:dim() == 3, "X must have 3 dimensions, got the shape %s", tostring(x.shape))
  n:check(v.R:dim() == 3, "R must have 3 dimensions, got the shape %s", tostring(v.R.shape))
  local hidden, batch = v.R:size(2), x:size(1)
  n:check(not n.attr.hidden_size or n.attr.hidden_size == hidden,
    "attribute 'hidden_size' is %s, R has %d", n.attr.hidden_size, hidden)
  check_shape(n, "W", v.W, count, kind.gates * hidden, x:size(2))
  check_shape(n, "R", v.R, count, kind.gates * hidden, hidden)
  check_shape(n, "B", v.B, count, 2 * kind.gates * hidden)
  check_shape(n, "P", v.P, count, 3 * hidden)
  check_shape(n, "initial_h", v.h, count, batch, hidden)
  check_shape(n, "initial_c", v.c, count, batch, hidden)
  check_shape(n, "sequence_lens", v.lengths, batch)
end

-- What belongs to one direction.
local function direction(v, i, reverse, act, rows)
  local d = { w = v.W[i], r = v.R[i], reverse = reverse, act = act }
  if v.B then
    d.wb, d.rb = table.unpack(v.B[i]:split(rows, 0))
  end
  d.peepholes = v.P and v.P[i]:chunk(3, 0)
  return d
end

local function first_state(kind, v, x, i)
  local out = {}
  for k, name in ipairs(kind.cell and { "h", "c" } or { "h" }) do
    out[k] = v[name] and v[name][i]
      or torch.zeros({ x:size(1), v.R:size(2) }, { dtype = x.dtype })
  end
  return out
end

-- Of one direction without a copy.
local function stacked(list, dim)
  return #list == 1 and list[1]:unsqueeze(dim) or torch.stack(list, dim)
end

local function swapped(t, a, b)
  return t and t:transpose(a, b)
end

local function run(kind, n, x, v)
  local batch_first = (n.attr.layout or 0) ~= 0
  if batch_first then
    x, v.h, v.c = x:transpose(0, 1), swapped(v.h, 0, 1), swapped(v.c, 0, 1)
  end
  local ways = n:check(DIRECTIONS[n.attr.direction], "attribute 'direction': got '%s'. Allowed: "
    .. "forward, reverse, bidirectional", n.attr.direction)
  check(n, kind, x, v, #ways)
  local acts, plain = activations(n, kind.usual, #ways)
  local ys, last = {}, { {}, {} }
  for i, reverse in ipairs(ways) do
    local d = direction(v, i - 1, reverse, acts[i], kind.gates * v.R:size(2))
    local state = first_state(kind, v, x, i - 1)
    if is_whole(kind, n, d, plain, v.lengths) then
      ys[i], state = kind.whole(n, x, state, d)
    else
      ys[i], state = stepwise(kind, n, x, state, d, v.lengths)
    end
    for k, t in ipairs(state) do
      last[k][i] = t
    end
  end
  local results = { stacked(ys, 1), stacked(last[1], 0), kind.cell and stacked(last[2], 0) }
  if batch_first then
    results = { results[1]:permute({ 2, 0, 1, 3 }), results[2]:transpose(0, 1),
      swapped(results[3] or nil, 0, 1) }
  end
  return table.unpack(results, 1, kind.cell and 3 or 2)
end

-- Attributes of all; `more` are those of one operator.
local function text(name, inputs, more, outputs, version)
  local list = { "activation_alpha: floats, activation_beta: floats, activations: strings, "
    .. "clip: float, direction: string = 'forward', hidden_size: int" }
  list[#list + 1] = more
  list[#list + 1] = version < 7 and "output_sequence: int = 0" or version >= 14
    and "layout: int = 0" or nil
  return ("%s(X, W, R, B?, sequence_lens?, initial_h?%s; %s) -> (Y?, Y_h?%s)"):format(name, inputs,
    table.concat(list, ", "), outputs)
end

return function(op)
  for _, version in ipairs({ 1, 7, 14 }) do
    op(text("RNN", "", nil, "", version), version, function(n, x, w, r, b, lengths, h)
      return run(KINDS.RNN, n, x, { W = w, R = r, B = b, lengths = lengths, h = h })
    end)
    op(text("GRU", "", "linear_before_reset: int = 0", "", version), version,
      function(n, x, w, r, b, lengths, h)
        return run(KINDS.GRU, n, x, { W = w, R = r, B = b, lengths = lengths, h = h })
      end)
    op(text("LSTM", ", initial_c?, P?", "input_forget: int = 0", ", Y_c?", version), version,
      function(n, x, w, r, b, lengths, h, c, p)
        return run(KINDS.LSTM, n, x,
          { W = w, R = r, B = b, lengths = lengths, h = h, c = c, P = p })
      end)
  end
end

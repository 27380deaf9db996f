--- RNN, LSTM, GRU and their cells. A direction of a layer is one operator;
--- packed sequences, whose rows change from step to step, and cells go step by
--- step, with the input's share of all gates in one product.
---
--- source: the equations of the PyTorch documentation of each class
local F = require("torch.nn.functional")
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local fill = require("torch.nn.fill")
local layer = require("torch.nn.layer")

local PackedSequence = require("torch.nn.utils.rnn").PackedSequence

local M = {}

-- ---- one step --------------------------------------------------------------
-- step(self, x, state, w): x is the input's share of the gates, w {w_hh, b_hh,
-- w_hr}; gives the next state, its output first.

local function rnn_step(self, x, state, w)
  local sum = x + F.linear(state[1], w[1], w[2])
  return { self.nonlinearity == "relu" and F.relu(sum) or sum:tanh() }
end

local function lstm_step(_, x, state, w)
  local i, f, g, o = table.unpack((x + F.linear(state[1], w[1], w[2])):chunk(4, -1))
  local c = f:sigmoid() * state[2] + i:sigmoid() * g:tanh()
  local h = o:sigmoid() * c:tanh()
  return { w[3] and F.linear(h, w[3]) or h, c }
end

local function gru_step(_, x, state, w)
  local h = state[1]
  local xr, xz, xn = table.unpack(x:chunk(3, -1))
  local hr, hz, hn = table.unpack(F.linear(h, w[1], w[2]):chunk(3, -1))
  local z = (xz + hz):sigmoid()
  local n = (xn + (xr + hr):sigmoid() * hn):tanh()
  return { (1 - z) * n + z * h }
end

-- whole(self, x, state, w, reverse): all steps; w {w_ih, w_hh, b_ih, b_hh,
-- w_hr}, holes as torch.none. Gives the outputs and the last state.

local function rnn_whole(self, x, state, w, reverse)
  local out, h = F._rnn_layer(x, state[1], w[1], w[2], w[3], w[4], reverse,
    self.nonlinearity == "relu")
  return out, { h }
end

local function lstm_whole(_, x, state, w, reverse)
  local out, h, c = F._lstm_layer(x, state[1], state[2], w[1], w[2], w[3], w[4], w[5], reverse)
  return out, { h, c }
end

local function gru_whole(_, x, state, w, reverse)
  local out, h = F._gru_layer(x, state[1], w[1], w[2], w[3], w[4], reverse)
  return out, { h }
end

-- class -> its steps, rows of gates, whether the state has a cell too
local KINDS = {
  RNN = { step = rnn_step, whole = rnn_whole, gates = 1 },
  LSTM = { step = lstm_step, whole = lstm_whole, gates = 4, cell = true },
  GRU = { step = gru_step, whole = gru_whole, gates = 3 },
}

local function check_nonlinearity(self)
  errors.check(self.nonlinearity == nil or self.nonlinearity == "tanh"
    or self.nonlinearity == "relu", "ValueError",
    "Unknown nonlinearity '%s'. Select from 'tanh' or 'relu'.", tostring(self.nonlinearity))
end

local function reset(self)
  local bound = self.hidden_size > 0 and 1 / math.sqrt(self.hidden_size) or 0
  fill.uniform(bound, table.unpack(self:parameters()))
end

local OPTIONS = { { "proj_size", 0 }, { "num_layers", 1 }, { "bias", true },
  { "batch_first", false }, { "dropout", 0 }, { "bidirectional", false },
  { "nonlinearity", "tanh" } }

-- Sizes, and the options that differ from the usual.
local function describe(skip)
  local text = require("torch.nn.text")
  return function(self)
    local parts = { ("%d, %d"):format(self.input_size, self.hidden_size) }
    for _, option in ipairs(OPTIONS) do
      local name, usual = option[1], option[2]
      local value = self[name]
      if name ~= skip and value ~= nil and value ~= usual then
        parts[#parts + 1] = name .. "=" .. (type(value) == "string" and value or text.repr(value))
      end
    end
    return table.concat(parts, ", ")
  end
end

-- ---- layers ----------------------------------------------------------------

local function suffixes(self)
  local out = {}
  for l = 0, self.num_layers - 1 do
    out[#out + 1] = { layer = l, name = "_l" .. l }
    if self.bidirectional then
      out[#out + 1] = { layer = l, name = ("_l%d_reverse"):format(l), reverse = true }
    end
  end
  return out
end

local function build(kind)
  return function(self, a)
    check_nonlinearity(self)
    self.proj_size = self.proj_size or 0
    errors.check(self.num_layers > 0, "ValueError", "num_layers must be greater than zero")
    errors.check(self.dropout >= 0 and self.dropout <= 1, "ValueError",
      "dropout should be a number in range [0, 1], got %s", self.dropout)
    errors.check(self.proj_size < self.hidden_size, "ValueError",
      "proj_size has to be smaller than hidden_size")
    local rows = kind.gates * self.hidden_size
    local out = self.proj_size > 0 and self.proj_size or self.hidden_size
    for _, s in ipairs(suffixes(self)) do
      local input = s.layer == 0 and self.input_size or out * (self.bidirectional and 2 or 1)
      self["weight_ih" .. s.name] = fill.parameter({ rows, input }, a)
      self["weight_hh" .. s.name] = fill.parameter({ rows, out }, a)
      if self.bias then
        self["bias_ih" .. s.name] = fill.parameter({ rows }, a)
        self["bias_hh" .. s.name] = fill.parameter({ rows }, a)
      end
      if self.proj_size > 0 then
        self["weight_hr" .. s.name] = fill.parameter({ out, self.hidden_size }, a)
      end
    end
    reset(self)
  end
end

-- Of packed sequences only the first `size` take part in a step: the rows of
-- the others leave the state (forward, kept in `done`) or have not come yet
-- (backward: they start from `first`).
local function resize(state, size, done, first)
  local torch = require("torch")
  local rows = state[1]:size(0)
  if size == rows then
    return state
  end
  local out = {}
  for k, part in ipairs(state) do
    if size < rows then
      table.insert(done[k], 1, part:narrow(0, size, rows - size))
      out[k] = part:narrow(0, 0, size)
    else
      out[k] = torch.cat({ part, first[k]:narrow(0, rows, size - rows) }, 0)
    end
  end
  return out
end

-- One direction of one layer over packed sequences: x is [sum of sizes,
-- input], sizes[t] rows a step. Outputs and the last state.
local function packed_direction(self, kind, x, first, s, sizes)
  local torch = require("torch")
  local gates = F.linear(x, self["weight_ih" .. s.name], self["bias_ih" .. s.name])
  local w = { self["weight_hh" .. s.name], self["bias_hh" .. s.name],
    self["weight_hr" .. s.name] }
  local steps = gates:split(sizes, 0)
  local n, out, done = #steps, {}, { {}, {} }
  local state = s.reverse and resize(first, sizes[n], { {}, {} }) or first
  for i = 1, n do
    local t = s.reverse and n + 1 - i or i
    state = kind.step(self, steps[t], resize(state, sizes[t], done, first), w)
    out[t] = state[1]
  end
  for k, part in ipairs(state) do
    state[k] = #done[k] > 0 and torch.cat({ part, table.unpack(done[k]) }, 0) or part
  end
  return torch.cat(out, 0), state
end

-- The same of x [T, B, input]: outputs [T, B, H].
local function direction(self, kind, x, first, s)
  local w = {}
  for i, part in ipairs({ "weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr" }) do
    w[i] = self[part .. s.name] or require("torch").none
  end
  return kind.whole(self, x, first, w, s.reverse == true)
end

-- The states that a call was given: {h}, {h, c} of an LSTM, {} if it was given none.
-- A tensor is no list here: its [1] would be its second row.
local function given_states(self, kind, hx)
  if hx == nil then
    return {}
  end
  local list = kind.cell and hx or { hx }
  local good = type(list) == "table" and #list == (kind.cell and 2 or 1)
  for i = 1, good and #list or 0 do
    good = good and core.is_tensor(list[i])
  end
  errors.check(good, "TypeError", "%s: the state is %s, got %s", self:_get_name(),
    kind.cell and "a list {h_0, c_0}" or "a tensor", check.describe(hx))
  return list
end

-- The first states of all layers: {h, c}, each [layers * directions, B, size];
-- zeros, or false unless `zeros`, where none is given.
local function start(self, kind, given, batch, like, zeros)
  local torch = require("torch")
  local n = self.num_layers * (self.bidirectional and 2 or 1)
  local sizes = { self.proj_size > 0 and self.proj_size or self.hidden_size, self.hidden_size }
  local out = {}
  for i = 1, kind.cell and 2 or 1 do
    out[i] = given[i] or zeros and torch.zeros({ n, batch, sizes[i] }, { dtype = like.dtype })
      or false
    local shape = out[i] and out[i].shape
    errors.check(not shape or #shape == 3 and shape[1] == n and shape[2] == batch
      and shape[3] == sizes[i],
      "RuntimeError", "Expected hidden size (%d, %d, %d), got %s", n, batch, sizes[i],
      tostring(shape))
  end
  return out
end

-- All layers over x [T, B, input], or over packed sequences.
local function run(self, kind, x, states, sizes)
  local torch = require("torch")
  local last, per_layer = { {}, {} }, self.bidirectional and 2 or 1
  local list = suffixes(self)
  for l = 0, self.num_layers - 1 do
    local outs = {}
    for d = 1, per_layer do
      local at = l * per_layer + d
      local state = {}
      for i, all in ipairs(states) do
        state[i] = all and all[at - 1] or torch.none
      end
      local over = sizes and packed_direction or direction
      outs[d], state = over(self, kind, x, state, list[at], sizes)
      for i, value in ipairs(state) do
        last[i][at] = value
      end
    end
    x = per_layer == 2 and torch.cat(outs, -1) or outs[1]
    if self.dropout > 0 and l < self.num_layers - 1 then
      x = F.dropout(x, self.dropout, self.training)
    end
  end
  local final = {}
  for i in ipairs(states) do
    final[i] = torch.stack(last[i], 0)
  end
  return x, final
end

-- Rows of the states in another order.
local function permuted(states, order)
  for i, s in ipairs(states) do
    states[i] = order and s:index_select(1, order) or s
  end
  return states
end

local function forward_packed(self, kind, packed, hx)
  local sizes = packed.batch_sizes:tolist()
  local given = given_states(self, kind, hx)
  local states = permuted(start(self, kind, given, sizes[1], packed.data, true),
    packed.sorted_indices)
  local out, final = run(self, kind, packed.data, states, sizes)
  final = permuted(final, packed.unsorted_indices)
  return packed:with(out), kind.cell and final or final[1]
end

local function forward(kind)
  return function(self, input, hx)
    if PackedSequence:is(input) then
      return forward_packed(self, kind, input, hx)
    end
    errors.check(core.is_tensor(input) and (input:dim() == 2 or input:dim() == 3), "ValueError",
      "%s: Expected input to be 2D or 3D, got %s", self:_get_name(),
      core.is_tensor(input) and input:dim() .. "D" or check.describe(input))
    local single = input:dim() == 2
    local turned = self.batch_first and not single
    local x = single and input:unsqueeze(1) or turned and input:transpose(0, 1) or input
    errors.check(x:size(-1) == self.input_size, "RuntimeError",
      "input.size(-1) must be equal to input_size. Expected %d, got %d", self.input_size,
      x:size(-1))
    local first = {}
    for i, state in ipairs(given_states(self, kind, hx)) do
      first[i] = single and state:unsqueeze(1) or state
    end
    local out, final = run(self, kind, x, start(self, kind, first, x:size(1), x))
    if single then
      out = out:squeeze(1)
      for i, s in ipairs(final) do
        final[i] = s:squeeze(1)
      end
    end
    return turned and out:transpose(0, 1) or out, kind.cell and final or final[1]
  end
end

local SIZES = "(input_size, hidden_size, num_layers=1, %sbias=True, batch_first=False, "
  .. "dropout=0.0, bidirectional=False, %sdevice=None, dtype=None)"

for name, kind in pairs(KINDS) do
  local sig = SIZES:format(name == "RNN" and "nonlinearity='tanh', " or "",
    name == "LSTM" and "proj_size=0, " or "")
  M[name] = layer(name .. sig, {
    build = build(kind),
    forward = forward(kind),
    repr = describe("nonlinearity"),
  })
  M[name].reset_parameters = reset

  -- As in PyTorch: nothing to do, the weights need no flattening.
  M[name].flatten_parameters = function() end
end

-- ---- cells -----------------------------------------------------------------

local function build_cell(kind)
  return function(self, a)
    check_nonlinearity(self)
    local rows = kind.gates * self.hidden_size
    self.weight_ih = fill.parameter({ rows, self.input_size }, a)
    self.weight_hh = fill.parameter({ rows, self.hidden_size }, a)
    self:register_parameter("bias_ih", self.bias and fill.parameter({ rows }, a) or nil)
    self:register_parameter("bias_hh", self.bias and fill.parameter({ rows }, a) or nil)
    reset(self)
  end
end

-- A cell's states, [B, H] each: zeros where none is given.
local function cell_states(self, kind, hx, x, single)
  local given, state = given_states(self, kind, hx), {}
  for i = 1, kind.cell and 2 or 1 do
    local s = given[i]
      or require("torch").zeros({ x:size(0), self.hidden_size }, { dtype = x.dtype })
    s = given[i] and single and s:dim() == 1 and s:unsqueeze(0) or s
    errors.check(s:dim() == 2 and s:size(0) == x:size(0) and s:size(1) == self.hidden_size,
      "RuntimeError", "%s: Expected a state of size %s, got %s", self:_get_name(),
      single and ("(%d)"):format(self.hidden_size)
        or ("(%d, %d)"):format(x:size(0), self.hidden_size), tostring(given[i] and given[i].shape))
    state[i] = s
  end
  return state
end

-- Several results: the hidden state and, for LSTM, the cell's.
local function cell_forward(kind)
  return function(self, input, hx)
    local dims = core.is_tensor(input) and input:dim()
    errors.check(dims == 1 or dims == 2, "ValueError",
      "%s: Expected input to be 1D or 2D, got %s instead", self:_get_name(),
      dims and dims .. "D" or check.describe(input))
    local single = dims == 1
    local x = single and input:unsqueeze(0) or input
    errors.check(x:size(1) == self.input_size, "RuntimeError",
      "%s: input.size(-1) must be equal to input_size. Expected %d, got %d", self:_get_name(),
      self.input_size, x:size(1))
    local out = kind.step(self, F.linear(x, self.weight_ih, self.bias_ih),
      cell_states(self, kind, hx, x, single), { self.weight_hh, self.bias_hh })
    for i, s in ipairs(out) do
      out[i] = single and s:squeeze(0) or s
    end
    return table.unpack(out)
  end
end

for name, kind in pairs(KINDS) do
  local cell = name .. "Cell"
  M[cell] = layer(("%s(input_size, hidden_size, bias=True, %sdevice=None, dtype=None)"):format(
    cell, name == "RNN" and "nonlinearity='tanh', " or ""), {
      build = build_cell(kind),
      forward = cell_forward(kind),
      repr = describe(),
    })
  M[cell].reset_parameters = reset
end

return M

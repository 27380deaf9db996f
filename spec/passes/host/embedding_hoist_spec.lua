--- Recurrent layers over rows of a table, compiled with the table multiplied
--- in the place of the rows: against eager float64, where nothing is looked up
--- that way, and against the plain lowering.
local compiled = require("spec.support.compiled")
local core = require("lupine.core")
local graphs = require("spec.support.graphs")
local helper = require("spec.helper")
local nn = require("torch.nn")
local F = nn.functional
local torch = require("torch")

-- Sums over steps are made in two chunks of 144 rows.
local ROWS, WIDTH, HIDDEN, STEPS, BATCH = 11, 20, 24, 18, 16

local CASES = {
  { "LSTM", { batch_first = true } }, { "LSTM", { bias = true } }, { "LSTM", { proj_size = 7 } },
  { "GRU", { batch_first = true } }, { "GRU", { bias = false } },
  { "RNN", { batch_first = true } }, { "RNN", { nonlinearity = "relu" } },
  { "LSTM", { bidirectional = true } }, { "LSTM", { num_layers = 2 } },
  { "LSTM", { batch_first = true }, padding = { padding_idx = 3 } },
  { "LSTM", { batch_first = true }, frozen = "table" },
  { "GRU", { batch_first = true }, frozen = "layer" },
  { "LSTM", { batch_first = true }, narrow = true },
}

local function network(case, dtype)
  torch.manual_seed(7)
  local net = nn.ModuleDict({
    table = case.padding and nn.Embedding(ROWS, WIDTH, case.padding)
      or nn.Embedding(ROWS, WIDTH),
    layer = nn[case[1]](WIDTH, HIDDEN, case[2]),
  }):to(dtype)
  if case.frozen then
    net[case.frozen]:requires_grad_(false)
  end
  return net
end

local function ids(case)
  torch.manual_seed(9)
  return torch.randint(0, ROWS, case[2].batch_first and { BATCH, STEPS } or { STEPS, BATCH },
    { dtype = case.narrow and torch.int32 or nil })
end

local function trained(net)
  local all = {}
  for key, p in net:named_parameters() do
    all[#all + 1] = p.requires_grad and { key, p } or nil
  end
  return all
end

-- The output and what one step of gradient descent of length 1 makes of the parameters.
local function eager(net, x)
  local y = net.layer(net.table(x))
  F.mse_loss(y, torch.ones_like(y)):backward()
  local all = { y:detach() }
  for i, p in ipairs(trained(net)) do
    all[i + 1] = (p[2] - p[2].grad):detach()
  end
  return all
end

local function run(net, x, options)
  local declared = {}
  for i, p in ipairs(trained(net)) do
    declared[i] = { "parameter", p[1], p[2] }
  end
  local step, losses = compiled.step(function(row)
    local y = net.layer(net.table(row))
    return y, F.mse_loss(y, torch.ones_like(y))
  end, { x }, declared)
  step:complete({ loss = losses[1], rules = compiled.descent(compiled.vars(step), declared) })
  local at = compiled.vars(step)
  local exec = step:compile(options or {})
  local all = { exec:run(compiled.feed(at, { x }), {})[at["output output_1"]] }
  for i, p in ipairs(declared) do
    all[i + 1] = exec:read(at["parameter " .. p[2]])
  end
  return all
end

local function name(case)
  local words = { case[1] }
  for k in pairs(case[2]) do
    words[#words + 1] = k
  end
  words[#words + 1] = case.padding and "padding"
  words[#words + 1] = case.narrow and "int32 indices"
  words[#words + 1] = case.frozen and "frozen " .. case.frozen
  return table.concat(words, ", ")
end

local function off(got, want)
  return (got:double() - want):abs():max():item() / want:abs():max():item()
end

describe("a recurrent layer over looked up rows", function()
  for _, case in ipairs(CASES) do
    it("has the values and gradients of eager float64: " .. name(case), function()
      local want = eager(network(case, torch.float64), ids(case))
      local plain = run(network(case, torch.float32), ids(case), { embedding_hoist = false })
      for threads = 1, 2 do
        local got = run(network(case, torch.float32), ids(case), { threads = threads })
        assert.equal(#want, #got)
        for i, w in ipairs(want) do
          assert.is_true(off(got[i], w) < 1e-6 + 2 * off(plain[i], w))
        end
      end
    end)
  end

  it("refuses indices that are not rows of the table", function()
    local net = network(CASES[1], torch.float32)
    for _, bad in ipairs({ ROWS, -1 }) do
      helper.raises("IndexError", "index %-?%d+ is out of bounds", function()
        run(net, torch.full({ BATCH, STEPS }, bad, { dtype = torch.int64 }))
      end)
    end
  end)

  it("is what runs: the table's gradient is summed in another order", function()
    local net = network(CASES[1], torch.float32)
    local a, b = run(net, ids(CASES[1])), run(net, ids(CASES[1]), { embedding_hoist = false })
    local same = true
    for i = 1, #a do
      same = same and compiled.same_bits(a[i], b[i])
    end
    assert.is_false(same)
  end)

  it("keeps its indices until it has read them", function()
    local case, results = CASES[1], {}
    for i, lookups in ipairs({ true, false }) do
      local net = network(case, torch.float32)
      local w = net.table.weight
      local step, losses = compiled.step(function(row)
        local at = (row * 2) % ROWS -- lies in the arena, as nobody's variable
        local sum = (at * 3):sum()
        local y = net.layer(net.table(at))
        return sum, F.mse_loss(y, torch.ones_like(y))
      end, { ids(case) }, { { "parameter", "w", w } })
      local param = compiled.vars(step)["parameter w"]
      local rule = { op = "sub", param = param, inputs = { param, "grad" }, outputs = { param } }
      step:complete({ loss = losses[1], rules = { rule } })
      local at = compiled.vars(step)
      local exec = step:compile({ embedding_hoist = lookups })
      local got = exec:run(compiled.feed(at, { ids(case) }), {})
      results[i] = exec:read(param)
      assert.equal((((ids(case) * 2) % ROWS) * 3):sum():item(),
        got[at["output output_1"]]:item())
    end
    assert.is_true(off(results[1], results[2]:double()) < 1e-6)
  end)

  it("is in the text of the host's graph, not in the step's", function()
    local net, x = network(CASES[1], torch.float32), ids(CASES[1])
    local step = compiled.step(function(row)
      return (net.layer(net.table(row)))
    end, { x })
    step:complete({})
    local exec = step:compile({})
    assert.matches("lstm_rows", exec:text("micro"))
    assert.not_matches("= embedding", exec:text("micro"))
    assert.is_true(core.graph_parse(exec:text()):verify())
    assert.equal("", exec:text("update"))
    assert.not_matches("lstm_rows", step:text("micro"))
    assert.matches("= embedding", step:compile({ embedding_hoist = false }):text("micro"))
  end)

  it("stays a layer over rows where the table has as many", function()
    local net = network(CASES[1], torch.float32)
    local few = torch.tensor({ { 1, 2, 3 }, { 5, 6, 7 } })
    local a, b = run(net, few), run(net, few, { embedding_hoist = false })
    for i = 1, #a do
      assert(compiled.same_bits(a[i], b[i]))
    end
  end)
end)

-- Texts before and after: 4 rows of 3, looked up by ids of a batch of 2.
describe("the graph of such a layer", function()
  local HEAD = "graph differentiated host\n"
  local INPUTS = [[
    input %w: float32[4, 3]
    input %ids: int32[2, 5]
    input %wi: float32[2, 3]
    input %wh: float32[2, 2]
    input %g: float32[5, 2, 2]
  ]]

  local function becomes(before, after)
    graphs.becomes("embedding_hoist", INPUTS .. before, INPUTS .. after, HEAD)
  end

  local BEFORE = [[
    %x = embedding(%w, %ids)
    %p = permute(%x, dims=[1, 0, 2])
    %y, %h = rnn(%p, _, %wi, %wh, _, _, reverse=false, relu=false)
    %dx, %dh, %dwi, %dwh, %dbi, %dbh = rnn_backward(%g, _, %p, _, %wi, %wh, _, _, %y,
      reverse=false, relu=false, need=13)
    %dp = permute(%dx, dims=[1, 0, 2])
    %dw = embedding_backward(%dp, %ids, num_weights=4, padding_idx=None)
  ]]
  BEFORE = BEFORE:gsub("%%y,\n%s*", "%%y, ")
  local FORWARD = [[
    %i = permute(%ids, dims=[1, 0])
    %y, %h = rnn_rows(%w, _, %wi, %wh, _, _, %i, reverse=false, relu=false)
    %j = permute(%ids, dims=[1, 0])
  ]]

  local AFTER = FORWARD
    .. "%dw, %dh, %dwi, %dwh, %dbi, %dbh = rnn_rows_backward(%g, _, %w, _, %wi, %wh, _, _, %y, "
    .. "%j, reverse=false, relu=false, need=13)\n"

  it("has it over the table, forward and backward", function()
    becomes(BEFORE .. "output %h, %dw, %dwh", AFTER .. "output %h, %dw, %dwh")
  end)

  it("keeps the rows that somebody else reads, and a gradient that is wanted of them", function()
    becomes(BEFORE .. "%s = neg(%x)\noutput %h, %s, %dx", [[
      %x = embedding(%w, %ids)
      %p = permute(%x, dims=[1, 0, 2])
      %i = permute(%ids, dims=[1, 0])
      %y, %h = rnn_rows(%w, _, %wi, %wh, _, _, %i, reverse=false, relu=false)
      ]] .. "%dx, %dh, %dwi, %dwh, %dbi, %dbh = rnn_backward(%g, _, %p, _, %wi, %wh, _, _, %y, "
      .. "reverse=false, relu=false, need=13)\n%s = neg(%x)\noutput %h, %s, %dx")
  end)

  it("rounds at random where it did", function()
    local function half(text)
      return (text:gsub("float32", "float16"):gsub("relu=false%)", "%0 site 1")
        :gsub("need=13%)", "%0 site 2"))
    end
    graphs.becomes("embedding_hoist", half(INPUTS .. BEFORE) .. "output %h, %dw, %dwh",
      half(INPUTS .. AFTER) .. "output %h, %dw, %dwh", HEAD)
  end)

  it("stays where the table has more than half as many rows", function()
    local few = BEFORE:gsub("4", "6")
    local inputs = INPUTS:gsub("4, 3", "6, 3")
    graphs.stays("embedding_hoist", inputs .. few .. "output %h, %dw, %dwh", HEAD)
  end)
end)

--- Replicas side by side: where no instruction has work for more than one thread
--- the replicas of a step run on several, and nobody can tell by the values.
local compiled = require("spec.support.compiled")
local torch = require("torch")
local F = require("torch.nn").functional

local ROWS, WIDTH, CLASSES = 6, 12, 5

local function parameters()
  torch.manual_seed(8)
  return {
    { "parameter", "image", torch.randn(3, 1, 3, 3) * 0.3 },
    { "parameter", "up", torch.randn(WIDTH, 12) * 0.3 },
    { "parameter", "down", torch.randn(CLASSES, WIDTH) * 0.3 },
    { "parameter", "table", torch.randn(7, WIDTH) },
    { "buffer", "mean", torch.zeros(3) },
    { "buffer", "var", torch.ones(3) },
  }
end

-- The library's convolution, normalisation with carried buffers, dropout, a
-- lookup, products and a loss.
local function loss_of(list, x, ids)
  local y = F.conv2d(x:reshape(-1, 1, 4, 4), list[1][3])
  y = F.batch_norm(y, list[5][3], list[6][3], nil, nil, true)
  y = torch.tanh(F.linear(y:flatten(1), list[2][3])) + list[4][3][ids]
  y = F.dropout(F.gelu(y), 0.3, true)
  return F.cross_entropy(F.linear(y, list[3][3]), ids % CLASSES)
end

local function step_of(list, x, ids, options)
  local step, losses = compiled.step(function(a, b)
    return loss_of(list, a, b)
  end, { x, ids }, list)
  local at = compiled.vars(step)
  step:complete({ loss = losses[1], rules = compiled.descent(at, list), replicas = options.replicas,
    gradient_accumulation = options.accumulation, device_iterations = options.iterations })
  return step, at
end

-- Losses, parameters and the buffers of all replicas after three runs.
local function train(options)
  local list = parameters()
  local x, ids = torch.randn(ROWS, 16), torch.randint(0, 7, { ROWS })
  torch.set_num_threads(options.threads)
  local step, at = step_of(list, x, ids, options)
  local exec, out = step:compile({}), {}
  torch.manual_seed(9)
  local n = ROWS * options.replicas * (options.accumulation or 1) * (options.iterations or 1)
  local inputs = { torch.randn(n, 16), torch.randint(0, 7, { n }) }
  exec:rng(3, 0)
  for _ = 1, 3 do
    local var = at["output output_1"]
    local how = options.mode and { mode = options.mode, period = 2 }
    out[#out + 1] = exec:run(compiled.feed(at, inputs), { [var] = how })[var]
  end
  for _, p in ipairs(list) do
    for r = 0, p[1] == "buffer" and options.replicas - 1 or 0 do
      out[#out + 1] = exec:read(at[p[1] .. " " .. p[2]], r)
    end
  end
  return out, exec:stats().lanes, exec, at, inputs
end

describe("replicas with little work", function()
  local before = torch.get_num_threads()

  after_each(function()
    torch.set_num_threads(before)
  end)

  it("run side by side and give the same bits", function()
    for _, options in ipairs({
      { replicas = 2 },
      { replicas = 4, accumulation = 3, iterations = 2 },
      { replicas = 3, iterations = 4, mode = "sum" },
      { replicas = 3, iterations = 4, mode = "everyn" },
      { replicas = 5, accumulation = 2, mode = "final" },
    }) do
      options.threads = 1
      local want, lanes = train(options)
      assert.equal(1, lanes)
      for _, threads in ipairs({ 2, 3, 8 }) do
        options.threads = threads
        local got
        got, lanes = train(options)
        assert.equal(math.min(threads, options.replicas), lanes)
        assert.equal(#want, #got)
        for i, v in ipairs(want) do
          assert.is_true(compiled.same_bits(v, got[i]), "result " .. i)
        end
      end
    end
  end)

  it("run side by side with what is copied on the way: attention, recurrent layers", function()
    local nn = require("torch.nn")
    torch.manual_seed(8)
    local x = torch.randn(ROWS, 5, 8)
    for _, layer in ipairs({
      nn.LSTM(8, 4, { batch_first = true, bidirectional = true, num_layers = 2 }),
      nn.GRU(8, 8, { batch_first = true }),
      nn.TransformerEncoderLayer(8, 2, 16, { batch_first = true, dropout = 0.0 }),
    }) do
      local list = {}
      for name, p in layer:named_parameters() do
        list[#list + 1] = { "parameter", name, p }
      end
      local function run(threads)
        torch.set_num_threads(threads)
        local step, losses = compiled.step(function(a)
          return (layer(a)):square():sum()
        end, { x }, list)
        local at, out = compiled.vars(step), {}
        step:complete({ loss = losses[1], replicas = 3,
          rules = compiled.descent(at, list, { alpha = 0.01 }) })
        local exec = step:compile({})
        for i = 1, 2 do
          local got = exec:run(compiled.feed(at, { torch.cat({ x, x * 2, x - 1 }) }), {})
          out[i] = got[at["output output_1"]]
        end
        for _, p in ipairs(list) do
          out[#out + 1] = exec:read(at["parameter " .. p[2]])
        end
        return out, exec:stats().lanes
      end
      local want = run(1)
      local got, lanes = run(2)
      assert.equal(2, lanes)
      for i, v in ipairs(want) do
        assert.is_true(compiled.same_bits(v, got[i]), "result " .. i)
      end
    end
  end)

  it("fail as one after the other: with the first one's error, and nothing is updated", function()
    for threads = 2, 4 do -- on two lanes the first has replicas 0 and 2
      local options = { replicas = 4, threads = threads, iterations = 2 }
      local _, lanes, exec, at, inputs = train(options)
      assert.equal(threads, lanes)
      local kept = exec:read(at["parameter up"])
      local means = exec:read(at["buffer mean"], 3)
      for _, slice in ipairs({ 2, 1 }) do -- of the first iteration
        inputs[2][slice * ROWS] = 70 + slice
      end
      local ok, problem = pcall(exec.run, exec, compiled.feed(at, inputs), {})
      assert.is_false(ok)
      assert.matches("71", tostring(problem), 1, true)
      assert.is_true(compiled.same_bits(kept, exec:read(at["parameter up"])))
      assert.is_true(compiled.same_bits(means, exec:read(at["buffer mean"], 3)))
    end
  end)

  it("run one after the other where one sees what the other wrote", function()
    torch.set_num_threads(4)
    local list = { { "parameter", "table", torch.randn(7, WIDTH) * 3 } }
    local step, losses = compiled.step(function(ids)
      return F.embedding(ids, list[1][3], { max_norm = 1 }):square():sum()
    end, { torch.randint(0, 7, { ROWS }) }, list)
    step:complete({ loss = losses[1], replicas = 2, rules = {} })
    assert.equal(1, step:compile({}):stats().lanes)
  end)

  it("run one after the other where an operator has work for more threads", function()
    torch.set_num_threads(4)
    local w = { { "parameter", "w", torch.randn(256, 256) * 0.1 } }
    local step, losses = compiled.step(function(x)
      return torch.tanh(F.linear(x, w[1][3])):sum()
    end, { torch.randn(512, 256) }, w)
    step:complete({ loss = losses[1], replicas = 2, rules = {} })
    assert.equal(1, step:compile({}):stats().lanes)
  end)

  it("run one after the other if one thread was asked for", function()
    torch.set_num_threads(4)
    local list = parameters()
    local step = step_of(list, torch.randn(ROWS, 16), torch.randint(0, 7, { ROWS }),
      { replicas = 2 })
    assert.equal(1, step:compile({ threads = 1 }):stats().lanes)
  end)
end)

--- Marks of overlapping host I/O beyond PopTorch's own tests: containers, the order of
--- the checks, what the report and the counters say.
local nn = require("torch.nn")
local poptorch = require("poptorch")
local helper = require("spec.helper")
local models = require("spec.support.models")
local torch = require("torch")

local near, raises = helper.near, helper.raises
local Mode, Output = poptorch.OverlapMode, poptorch.OutputMode
local ALONG, FAR = Mode.OverlapAccumulationLoop, Mode.OverlapDeviceIterationLoop
local into, out_of = poptorch.set_overlap_for_input, poptorch.set_overlap_for_output

local function options(io_tiles, mode, di)
  local opts = poptorch.Options():setExecutionStrategy(poptorch.ShardedExecution())
    :deviceIterations(di or 1)
  opts.TensorLocations:numIOTiles(io_tiles)
  return mode and opts:outputMode(mode) or opts
end

local function refused(class, message, forward, opts)
  raises(class, message, function()
    poptorch.inferenceModel(models.of(forward), opts or options(32))(torch.ones(2))
  end)
end

describe("marked tensors", function()
  it("stand in lists and tables of them, also nested", function()
    local model = poptorch.inferenceModel(models.of(function(_, xs)
      xs = into(xs, FAR)
      return out_of({ sum = xs.a + xs.b[1], rest = { xs.b[2] * 2 } }, FAR)
    end), options(32, nil, 2))
    local y = model({ a = torch.tensor({ 1.0, 2 }), b = { torch.tensor({ 3.0, 4 }),
      torch.tensor({ 5.0, 6 }) } })
    near(y.sum, { 4, 6 })
    near(y.rest[1], { 10, 12 })
  end)

  it("are the tensors themselves on the host", function()
    local x = torch.tensor({ 1.0, 2.0 })
    near(into(x, FAR), x)
    near(out_of({ { x } }, ALONG)[1][1], x)
    near(into({ input_tensors = x, mode = FAR }), x)
  end)

  it("may be returned as they came, with every strategy but pipelines", function()
    local strategies = { poptorch.ShardedExecution(), poptorch.SerialPhasedExecution("0"),
      poptorch.ParallelPhasedExecution("0") }
    for _, strategy in ipairs(strategies) do
      local model = poptorch.inferenceModel(models.of(function(_, x)
        local _ <close> = poptorch.Block("0", { ipu_id = 0 })
        return out_of(into(x, FAR), FAR)
      end), options(32, nil, 2):setExecutionStrategy(strategy))
      near(model(torch.tensor({ 1.0, 2 })), { 1, 2 })
    end
  end)
end)

describe("marks are refused", function()
  it("on anything but tensors and with other modes", function()
    refused("Error", "only set overlap for tensors.*got int 3", function(_, x)
      return into({ x, 3 }, FAR)[1]
    end)
    refused("Error", "set_overlap_for_output: You may only", function(_, x)
      return out_of({ x, "x" }, FAR)
    end)
    refused("TypeError", "OverlapMode.NoOverlap", function(_, x)
      return into(x, "no_overlap")
    end)
  end)

  it("on an input that is read or returned beside, marked twice or in a body", function()
    refused("Error", "^poptorch.set_overlap_for_input must be the only op applied to an input",
      function(_, x)
        return into(x, FAR), x
      end)
    refused("Error", "must be the only op applied to an input", function(_, x)
      return into(x, FAR) + into(x, ALONG)
    end)
    refused("Error", "must be the only op", function(_, x)
      into(x, Mode.NoOverlap)
      return x + 1
    end)
    refused("Error", "not a tensor input", function(_, x)
      return into(into(x, FAR), FAR)
    end)
    refused("Error", "not a tensor input", function(_, x)
      return poptorch.for_loop(2, function(y)
        return { into(y, FAR) }
      end, { x })[1]
    end)
  end)

  it("on a tensor that is returned twice, in whatever table", function()
    refused("Error", "returned twice", function(_, x)
      local y = out_of(x + 1, FAR)
      return { y, { deep = y } }
    end)
    refused("Error", "returned twice", function(_, x)
      local y = x + 1
      return out_of(y, FAR), out_of(y, FAR)
    end)
  end)

  it("by place, then strategy, then I/O tiles, then output mode", function()
    local function both(_, x)
      local y = into(x, FAR) + 1
      return out_of(y, FAR) * 2
    end
    local function right(_, x)
      return out_of(into(x, FAR) + 1, FAR)
    end
    local pipelined = poptorch.Options():outputMode(Output.Final)
    refused("Error", "not a tensor output", both, pipelined)
    refused("Error", "PipelinedExecution", right, poptorch.Options():outputMode(Output.Final))
    refused("Error", "No IO tiles", right, poptorch.Options():outputMode(Output.Final)
      :setExecutionStrategy(poptorch.ShardedExecution()))
    refused("Error", "output mode.*OutputMode.Final", right, options(32, Output.Final))
    refused("Error", "output mode.*OutputMode.EveryN", right, options(32):outputMode(Output.EveryN,
      1))
    local model = poptorch.inferenceModel(models.of(right), options(32, Output.Sum, 2))
    near(model(torch.tensor({ 1.0, 2 })), { 5 })
  end)

  it("not where they ask for nothing", function()
    local model = poptorch.inferenceModel(models.of(function(_, x)
      return out_of(into(x, Mode.NoOverlap) + 1, Mode.NoOverlap)
    end))
    near(model(torch.ones(2)), { 2, 2 })
  end)
end)

describe("the report of overlapping host I/O", function()
  local function report(input, output, opts)
    local net = models.of(function(self, x)
      return out_of(self.fc(into(x, input)), output)
    end)
    net.fc = nn.Linear(256, 256)
    local model = poptorch.inferenceModel(net, opts)
    model:compile(torch.zeros(256, 256))
    return model:report()
  end

  it("names what hides nothing, and why", function()
    local r = report(ALONG, FAR, options(32, Output.Sum, 4))
    local text = table.concat(r.no_effect, "\n")
    assert.matches("set_overlap_for_input%(OverlapAccumulationLoop%): there is no accumulation",
      text)
    assert.matches("set_overlap_for_output%(OverlapDeviceIterationLoop%): OutputMode.Sum", text)
    r = report(FAR, FAR, options(32))
    assert.matches("a call has one micro%-batch", table.concat(r.no_effect, "\n"))
    r = report(FAR, FAR, options(32, nil, 4):enableSyntheticData(true))
    assert.matches("synthetic data", table.concat(r.no_effect, "\n"))
  end)

  it("names those alone that hide nothing", function()
    local r = report(ALONG, FAR, options(32, nil, 4))
    local text = table.concat(r.no_effect, "\n")
    assert.matches("set_overlap_for_input%(OverlapAccumulationLoop%): there is no", text)
    assert.not_matches("set_overlap_for_output%(", text)
    assert.is_true(r.memory[0].io > 0)
    r = report(FAR, ALONG, options(32, nil, 4))
    text = table.concat(r.no_effect, "\n")
    assert.matches("set_overlap_for_output%(OverlapAccumulationLoop%): there is no", text)
    assert.is_true(r.memory[0].io > 0)
    -- a call of one device iteration has as many micro-batches as it accumulates
    local net = models.of(function(self, x)
      return poptorch.identity_loss(self.fc(into(x, FAR)), "sum")
    end)
    net.fc = nn.Linear(2, 2)
    local opts = options(32, Output.All)
    opts.Training:gradientAccumulation(4)
    local model = poptorch.trainingModel(net, opts, torch.optim.SGD(net:parameters(), 0.1))
    model:compile(torch.zeros(4, 2))
    text = table.concat(model:report().no_effect, "\n")
    assert.not_matches("set_overlap_for_input%(", text)
    assert.is_true(model:report().memory[0].io > 0)
  end)

  it("counts fewer cycles, and the memory of I/O tiles", function()
    local plain = report(Mode.NoOverlap, Mode.NoOverlap, options(32, nil, 4))
    local r = report(FAR, FAR, options(32, nil, 4))
    assert.is_true(r.cycles < plain.cycles)
    assert.is_true(r.memory[0].io > 0 and plain.memory[0].io == 0)
    assert.not_matches("set_overlap", table.concat(plain.no_effect, "\n"))
  end)
end)

describe("performance counters", function()
  -- Seconds of the events of input and output, for training with accumulation.
  local function counters(mode)
    local net = models.of(function(self, x)
      local y = self.fc(into(x, mode))
      return out_of(poptorch.identity_loss(y ^ 2, "sum"), mode)
    end)
    net.fc = nn.Linear(256, 256)
    local opts = options(32, Output.All, 2)
    opts.Training:gradientAccumulation(3)
    local model = poptorch.trainingModel(net, opts, torch.optim.SGD(net:parameters(),
      { lr = 0.0 }))
    model(torch.zeros(6, 256))
    return model:getPerfCounters(), model:report()
  end

  it("have one event a micro-batch, of inputs before their turn begins", function()
    for _, mode in ipairs({ Mode.NoOverlap, ALONG, FAR }) do
      local c, r = counters(mode)
      for _, kind in ipairs({ "input", "input_complete", "output", "output_complete" }) do
        assert.equal(6, #c[kind][1])
        for n = 2, 6 do
          assert.is_true(c[kind][1][n] > c[kind][1][n - 1])
        end
        assert.is_true(c[kind][1][6] <= r.seconds * (1 + 1e-9))
      end
      for n = 1, 6 do
        assert.is_true(c.input_complete[1][n] <= c.output[1][n])
      end
      assert.equal(0, c.input[1][1])
      -- the second is there when the first is computed
      local second, first_out = c.input_complete[1][2], c.output[1][1]
      assert.equal(mode ~= Mode.NoOverlap, second < first_out)
    end
  end)
end)

--- PopTorch's tests/test_perf_counters.py, replicas too: the simulated machine has them.
describe("test_perf_counters", function()
  local poptorch = require("poptorch")
  local torch = require("torch")
  local nn = torch.nn
  local O = poptorch.OutputMode
  local MODES = { { O.Final, 1 }, { O.All, 1 }, { O.Sum, 1 }, { O.EveryN, 2 } }

  local Model = nn.Module:extend("Model")
  function Model.forward(_, x, y)
    return x:matmul(y)
  end

  local function check_sizes(model, inputs, outputs, steps, outsteps)
    local perf = model:getPerfCounters()
    for kind, want in pairs({ input = { inputs, steps }, input_complete = { inputs, steps },
      output = { outputs, outsteps or steps }, output_complete = { outputs, outsteps or steps } })
    do
      assert.equal(want[1], #perf[kind])
      for _, events in ipairs(perf[kind]) do
        assert.equal(want[2], #events)
      end
    end
  end

  local function check_latencies(model)
    for _, name in ipairs({ "getHostIpuLatency", "getComputeLatency", "getIpuHostLatency",
      "getLatency" }) do
      local least, most, mean = model[name](model)
      assert.is_true(least <= mean + 1e-15 and mean <= most + 1e-15, name)
    end
  end

  local function run(options, n, ...)
    local model = poptorch.inferenceModel(Model(), options)
    model(torch.randn(n, 100, 100), torch.randn(n, 100, 100))
    check_sizes(model, 2, 1, ...)
    check_latencies(model)
  end

  local function outsteps_of(mode, period, steps, accums, replicas)
    if mode == O.Final or mode == O.Sum then
      return replicas
    end
    return steps // period * accums * replicas
  end

  it("test_simple", function()
    run(nil, 1, 1)
  end)

  it("test_steps", function()
    run(poptorch.Options():deviceIterations(10), 10, 10)
  end)

  it("test_replicas", function()
    run(poptorch.Options():replicationFactor(4), 4, 4)
  end)

  it("test_inference", function()
    for _, mode in ipairs(MODES) do
      for _, steps in ipairs({ 2, 4 }) do
        for _, replicas in ipairs({ 1, 2 }) do
          local o = poptorch.Options():deviceIterations(steps):replicationFactor(replicas)
          o:outputMode(table.unpack(mode))
          run(o, 16, steps * replicas, outsteps_of(mode[1], mode[2], steps, 1, replicas))
        end
      end
    end
  end)

  it("test_training", function()
    local Net = nn.Module:extend("Net")
    function Net:init()
      self.linear, self.loss = nn.Linear(100, 100), nn.MSELoss()
    end
    function Net:forward(data, target)
      local out = self.linear(data)
      return out, self.loss(out, target)
    end
    for _, mode in ipairs(MODES) do
      for _, case in ipairs({ { 2, 1, 1 }, { 2, 2, 1 }, { 2, 1, 2 }, { 2, 2, 2 }, { 4, 1, 1 },
        { 4, 2, 1 }, { 4, 1, 2 }, { 4, 2, 2 } }) do
        local steps, accums, replicas = table.unpack(case)
        local o = poptorch.Options():deviceIterations(steps):replicationFactor(replicas)
        o:outputMode(table.unpack(mode))
        o.Training:gradientAccumulation(accums)
        local model = poptorch.trainingModel(Net(), o)
        model(torch.randn(16, 100), torch.randn(16, 100))
        check_sizes(model, 2, 2, steps * accums * replicas,
          outsteps_of(mode[1], mode[2], steps, accums, replicas))
        check_latencies(model)
      end
    end
  end)

  it("test_synthetic_data", function()
    local model = poptorch.inferenceModel(Model(),
      poptorch.Options():deviceIterations(16):enableSyntheticData(true))
    model(torch.randn(16, 100, 100), torch.randn(16, 100, 100))
    check_sizes(model, 2, 1, 0, 0)
    assert.same({ 0, 0, 0 }, { model:getLatency() })
  end)
end)

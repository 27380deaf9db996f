--- Systems whose throughput Graphcore published, in the configurations that it published:
--- `micro_batch` rows, `accumulation` of them an update, `replicas`, cuts, proportions of
--- memory. `rate` is in rows a second: sequences, packs of three sequences (two on average)
--- or pictures.
---
--- source: graphcore.ai performance results (of SDK 3.x), MLPerf Training result logs
--- (v1.1, v2.0); configurations as bert.lua and resnet.lua say
local BASE = { width = 768, layers = 12, heads = 12, vocabulary = 30522, serialised = 1,
  without_bias_correction = true, cuts = { 0, 4, 4, 4 }, proportion = 0.25, replicas = 4 }
local LARGE = { width = 1024, layers = 24, heads = 16, vocabulary = 30522, serialised = 2,
  cuts = { 3, 7, 7, 7 }, replicas = 4 }

-- Behind these blocks, and each layer of the last four's own.
local PICTURES = { "layer1.0", "layer1.1", "layer1.2", "layer2.0", "layer2.2", "layer2.3",
  "layer3.0", "layer3.2", "layer3.4", "layer3.5", "avgpool", "fc" }
for i = 0, 2 do
  for _, name in ipairs({ "conv1", "bn1", "conv2", "bn2", "conv3", "bn3" }) do
    PICTURES[#PICTURES + 1] = ("layer4.%d.%s"):format(i, name)
  end
  PICTURES[#PICTURES + 1] = ("layer4.%d"):format(i)
end
PICTURES[#PICTURES + 1] = "layer4.0.downsample.0"
PICTURES[#PICTURES + 1] = "layer4.0.downsample.1"

local MLPERF_PICTURES = { "layer1.0", "layer1.2", "layer2.0", "layer2.2", "layer3.0", "layer3.3" }

-- Of TensorFlow: gradients and momentum are of the weights' type.
local TF = { name = "ResNet-50", model = "resnet", checkpoints = MLPERF_PICTURES,
  half_moments = 1, replicas = 16 }

local function with(of, more)
  local out = {}
  for _, from in ipairs({ of, more }) do
    for key, value in pairs(from) do
      out[key] = value
    end
  end
  return out
end

return {
  with(BASE, { name = "BERT-Base, 128 tokens", system = "Bow Pod16", chip = 21, model = "bert",
    length = 128, masked = 20, micro_batch = 32, accumulation = 512, rate = 15911,
    from = "SDK 3.3, PyTorch" }),
  with(BASE, { name = "BERT-Base, 512 tokens", system = "Bow Pod16", chip = 21, model = "bert",
    length = 512, masked = 76, micro_batch = 8, accumulation = 512, serialised = 2, rate = 3656,
    from = "SDK 3.1, PopART" }),
  with(LARGE, { name = "BERT-Large, 128 tokens", system = "Bow Pod16", chip = 21, model = "bert",
    length = 128, masked = 20, micro_batch = 8, accumulation = 2048, rate = 5179,
    proportion = { 0.15, 0.25, 0.25, 0.25 }, from = "before SDK 2.5, PopART" }),
  with(LARGE, { name = "BERT-Large, 384 tokens", system = "Bow Pod16", chip = 21, model = "bert",
    vocabulary = 30400, serialised = 5, without_bias_correction = true, length = 384, masked = 56,
    micro_batch = 2, accumulation = 2048, rate = 1470, proportion = { 0.15, 0.4, 0.4, 0.4 },
    from = "before SDK 2.5, PopART" }),
  with(LARGE, { name = "BERT-Large, packs of 512", system = "POD16 (Mk2)", chip = 2,
    model = "bert", vocabulary = 30912, serialised = 4, without_bias_correction = true,
    packed = true, length = 512, masked = 78, micro_batch = 2, accumulation = 192,
    halves = { { 1, 7, 6 }, { 2, 6, 7 }, { 3, 7, 6 }, { 0, 4, 5 } }, half_moments = 1,
    proportion = 0.23, rate = 641, from = "MLPerf v1.1, PopART" }),
  with(LARGE, { name = "BERT-Large, packs of 512", system = "Bow Pod16", chip = 21,
    model = "bert", vocabulary = 30912, serialised = 4, without_bias_correction = true,
    packed = true, length = 512, masked = 78, micro_batch = 3, accumulation = 256, replicas = 2,
    halves = { { 1, 3, 3 }, { 2, 3, 3 }, { 3, 3, 3 }, { 4, 4, 3 }, { 5, 3, 4 }, { 6, 4, 3 },
      { 7, 3, 4 }, { 0, 1, 1 } }, half_moments = 2, attention_dropout = 0.1,
    state_on_chip = true, proportion = 1, rate = 1121, from = "MLPerf v2.0, PopART" }),
  { name = "ResNet-50", system = "Bow Pod16", chip = 21, model = "resnet", micro_batch = 18,
    accumulation = 57, replicas = 16, checkpoints = PICTURES, proportion = 0.16, rate = 37061,
    from = "SDK 3.0, PyTorch" },
  with(TF, { system = "POD16 (Mk2)", chip = 2, micro_batch = 20,
    accumulation = 10, proportion = 0.15,
    rate = 28640, from = "MLPerf v1.1, TensorFlow, with evaluations" }),
  with(TF, { system = "Bow Pod16", chip = 21, micro_batch = 22,
    accumulation = 10, proportion = 0.15,
    rate = 41320, from = "MLPerf v2.0, TensorFlow, with evaluations" }),
  with(LARGE, { name = "BERT-Large, 128 tokens", system = "Bow Pod64", chip = 21, model = "bert",
    length = 128, masked = 20, micro_batch = 8, accumulation = 512, replicas = 16, rate = 19353,
    proportion = { 0.14, 0.19, 0.19, 0.19 }, from = "before SDK 2.5, PopART" }),
  with(TF, { system = "Bow Pod64", chip = 21, micro_batch = 20,
    accumulation = 4, replicas = 64, proportion = 0.14,
    rate = 153205, from = "SDK 3.0, TensorFlow" }),
  with(TF, { system = "Bow Pod256", chip = 21, micro_batch = 20,
    accumulation = 2, replicas = 256, proportion = 0.14,
    rate = 456906, from = "SDK 3.0, TensorFlow" }),
}

-- BERT and GPT-2: entries, results, losses and generated texts as the package transformers
-- (5.23) has them, with weights by a formula (spec/sweep/text_models.py compares more).
local files = require("spec.support.files")
local formula = require("spec.support.formula")
local helper = require("spec.helper")
local lupine = require("lupine")
local models = require("lupine").models
local poptorch = require("poptorch")
local safetensors = require("lupine.safetensors")
local torch = require("torch")

local NEAR = { 1e-4, 1e-4 }

local BERT = { vocab_size = 40, hidden_size = 16, num_hidden_layers = 2, num_attention_heads = 2,
  intermediate_size = 24, max_position_embeddings = 12, hidden_dropout_prob = 0.0,
  attention_probs_dropout_prob = 0.0 }
local GPT2 = { vocab_size = 40, n_positions = 32, n_embd = 16, n_layer = 2, n_head = 2,
  eos_token_id = torch.none, pad_token_id = 0, resid_pdrop = 0.0, embd_pdrop = 0.0,
  attn_pdrop = 0.0 }

local ids = torch.tensor({ { 2, 7, 11, 5, 3 }, { 2, 9, 4, 3, 0 } })
local inputs = { attention_mask = torch.tensor({ { 1, 1, 1, 1, 1 }, { 1, 1, 1, 1, 0 } }),
  token_type_ids = torch.tensor({ { 0, 0, 0, 1, 1 }, { 0, 0, 1, 1, 1 } }) }

local function made(name, config)
  local model = models[name](config)
  formula.fill(model)
  return model:eval()
end

local function entries(model)
  local lines = {}
  for key, value in pairs(model:state_dict()) do
    lines[#lines + 1] = key .. " " .. table.concat(value:size(), "x") .. "\n"
  end
  return #lines, formula.fnv(table.concat(lines))
end

local function with(labels)
  local out = {}
  for _, from in ipairs({ inputs, labels }) do
    for key, value in pairs(from) do
      out[key] = value
    end
  end
  return out
end

-- class, entries, their hash, labels, results: {sum of absolute values, first values}
local RESULTS = {
  { "BertModel", 39, "e4f3918e2fd570de", {},
    { last_hidden_state = { 132.9398, -0.14856, 0.46349, 0.92715 },
      pooler_output = { 22.3933, 0.54763, -0.96814, -0.89872 } } },
  { "BertForMaskedLM", 44, "c447e22c963b36e3",
    { labels = torch.tensor({ { -100, 8, -100, 6, -100 }, { -100, -100, 4, -100, -100 } }) },
    { loss = { 3.74385, 3.74385 }, logits = { 371.3486, 1.15456, 0.0191, 0.19421 } } },
  { "BertForPreTraining", 48, "0136be0f5972fab1",
    { labels = ids, next_sentence_label = torch.tensor({ 0, 1 }) },
    { loss = { 5.54939, 5.54939 }, prediction_logits = { 440.6516, -0.58503, -2.47435 },
      seq_relationship_logits = { 1.6399, 0.58903, -0.07265 } } },
  { "BertForSequenceClassification", 41, "295dc83f667eeb69",
    { labels = torch.tensor({ 1, 0 }) },
    { loss = { 0.91266, 0.91266 }, logits = { 4.265, -1.75432, -0.2588 } } },
  { "BertForQuestionAnswering", 39, "6db5307af95460cb",
    { start_positions = torch.tensor({ 1, 2 }), end_positions = torch.tensor({ 3, 9 }) },
    { loss = { 1.62, 1.62 }, start_logits = { 7.9186, 0.61499, -0.72331 },
      end_logits = { 12.451, -2.06178, -1.10207 } } },
}

describe("BERT", function()
  for _, row in ipairs(RESULTS) do
    local name, count, hash, labels, wanted = table.unpack(row)
    it("has the entries and results of " .. name, function()
      local model = made(name, BERT)
      assert.same({ count, hash }, { entries(model) })
      local out = model(ids, with(labels))
      for key, want in pairs(wanted) do
        local got = out[key]:detach():flatten()
        helper.near(got:double():abs():sum():float(), want[1], NEAR)
        helper.near(got:narrow(0, 0, #want - 1), { table.unpack(want, 2) }, NEAR)
      end
    end)
  end

  it("gives values instead of a table, the loss first", function()
    local model = made("BertForQuestionAnswering", BERT)
    local labels = with(RESULTS[5][4])
    labels.return_dict = false
    local loss, first, last = model(ids, labels)
    assert.same({ 0, 2, 2 }, { loss:dim(), first:dim(), last:dim() })
    assert.equal(3, #model.bert(ids, { output_hidden_states = true }).hidden_states)
  end)

  it("may begin a block at an embedding or at the heads: modules are called", function()
    for name, config in pairs({ BertForMaskedLM = BERT, BertForPreTraining = BERT,
      BertForQuestionAnswering = BERT, GPT2LMHeadModel = GPT2 }) do
      local model, called = made(name, config), {}
      for path, m in model:named_modules() do
        m:register_forward_hook(function()
          called[path] = true
        end)
      end
      model(ids)
      for path, m in model:named_modules() do
        assert.is_true(called[path] or torch.nn.ModuleList:is(m), name .. " " .. path)
      end
    end
    -- PopTorch's test_bert_medium_result
    local model = made("BertForQuestionAnswering", BERT)
    local want = model(ids, inputs)
    poptorch.BeginBlock(model.bert.embeddings.position_embeddings, { ipu_id = 1 })
    local infers = poptorch.inferenceModel(model, poptorch.Options():deviceIterations(2))
    local got = infers(ids, inputs.attention_mask, inputs.token_type_ids)
    helper.near(got.start_logits, want.start_logits:detach(), NEAR)
    helper.near(got.end_logits, want.end_logits:detach(), NEAR)
    assert.equal(2, #infers:report().stages)
  end)

  it("trains on the device, computes compiled what it does eagerly", function()
    local model = made("BertForSequenceClassification", BERT)
    local want = model(ids, inputs).logits:detach()
    helper.near(poptorch.inferenceModel(model)(ids, inputs.attention_mask,
      inputs.token_type_ids).logits, want, { 1e-5, 1e-4 })
    helper.near(lupine.compile(model, { ids, inputs.attention_mask, inputs.token_type_ids })(ids,
      inputs.attention_mask, inputs.token_type_ids).logits, want, { 1e-5, 1e-4 })
    local trainer = poptorch.trainingModel(model, nil,
      torch.optim.SGD(model:parameters(), { lr = 0.05 }))
    local labels, first, last = torch.tensor({ 1, 0 }), nil, nil
    for _ = 1, 12 do
      last = trainer(ids, { labels = labels }).loss:item()
      first = first or last
    end
    assert.is_true(last < 0.5 * first)
  end)
end)

describe("GPT-2", function()
  it("has the entries, logits and loss of the original", function()
    local model = made("GPT2LMHeadModel", GPT2)
    assert.same({ 29, "8b6c3c5306eb43ce" }, { entries(model) })
    local out = model(ids, { labels = ids })
    helper.near(out.loss:detach(), 4.234004974, NEAR)
    helper.near(out.logits:detach():abs():sum(), 380.1105, NEAR)
    helper.near(out.logits["0, -1, :4"]:detach(), { 0.8638, -0.4254, 0.7583, 1.7228 }, NEAR)
    local full = formula.unfilled(models.GPT2LMHeadModel)
    assert.same({ 149, "1834afb8726b3f38" }, { entries(full) })
    local count = 0
    for _, p in ipairs(full:parameters()) do
      count = count + p:numel()
    end
    assert.equal(124439808, count)
  end)

  it("generates the texts of the original, with the cache and without", function()
    local model = made("GPT2LMHeadModel", GPT2)
    local ones = torch.ones_like(ids)
    local CASES = {
      { { max_new_tokens = 8 }, { { 2, 7, 11, 5, 3, 11, 5, 5, 23, 5, 8, 8, 5 },
        { 2, 9, 4, 3, 0, 23, 23, 8, 8, 8, 8, 8, 5 } } },
      { { max_length = 13, attention_mask = ones }, { { 2, 7, 11, 5, 3, 11, 5, 5, 23, 5, 8, 8, 5 },
        { 2, 9, 4, 3, 0, 23, 23, 8, 8, 8, 8, 8, 5 } } },
      { { max_new_tokens = 8, repetition_penalty = 1.5 },
        { { 2, 7, 11, 5, 3, 6, 5, 35, 19, 8, 11, 21, 36 },
          { 2, 9, 4, 3, 0, 23, 15, 20, 24, 21, 36, 1, 35 } } },
      { { max_new_tokens = 6, attention_mask = torch.tensor({ { 1, 1, 1, 1, 1 },
        { 0, 0, 1, 1, 1 } }) }, { { 2, 7, 11, 5, 3, 11, 5, 5, 23, 5, 8 },
          { 2, 9, 4, 3, 0, 20, 34, 24, 24, 9, 32 } } },
      { { max_new_tokens = 8, eos_token_id = 5 }, { { 2, 7, 11, 5, 3, 11, 5, 0, 0, 0, 0, 0, 0 },
        { 2, 9, 4, 3, 0, 23, 23, 8, 8, 8, 8, 8, 5 } } },
    }
    for _, case in ipairs(CASES) do
      for _, cached in ipairs({ true, false }) do
        case[1].use_cache = cached
        assert.same(case[2], model:generate(ids, case[1]):tolist())
      end
    end
    model.config = models.GPT2Config({ eos_token_id = { 5, 39 }, pad_token_id = 0 })
    assert.same(CASES[5][2], model:generate(ids, { max_new_tokens = 8 }):tolist())
  end)

  it("draws tokens as temperature, top_k and top_p say", function()
    local generation = require("lupine.models.generation")
    local logits = torch.tensor({ { 0.5, 0.25, 0.125, 0.0625, 0.0625 } }):log()
    local inf = math.huge
    assert.same({ { 0, 0, -inf, -inf, -inf } },
      generation.top_k(logits, 2):masked_fill(logits:gt(-1.5), 0):tolist())
    local function kept(p)
      return generation.top_p(logits, p):gt(-inf):sum():item()
    end
    assert.same({ 1, 1, 2, 3, 5 }, { kept(0), kept(0.5), kept(0.6), kept(0.8), kept(0.99) })
    helper.near(generation.repetition(torch.tensor({ { 2.0, -2, 3 } }),
      torch.tensor({ { 0, 1 } }), 2), { { 1, -4, 3 } })
    local model = made("GPT2LMHeadModel", GPT2)
    local function draw(seed, o)
      o.do_sample, o.max_new_tokens = true, 12
      o.generator = torch.Generator():manual_seed(seed)
      return model:generate(ids, o):tolist()
    end
    assert.same(draw(1, {}), draw(1, { use_cache = false }))
    assert.is_not.same(draw(1, {}), draw(2, {}))
    local greedy = model:generate(ids, { max_new_tokens = 12 }):tolist()
    assert.same(greedy, draw(3, { top_k = 1 }))
    assert.same(greedy, draw(3, { top_p = 0.0 }))
    assert.same(greedy, draw(3, { temperature = 1e-5 }))
  end)

  it("computes compiled what it does eagerly, with a cache as input", function()
    local model = made("GPT2LMHeadModel", GPT2)
    local out = model(ids)
    helper.near(poptorch.inferenceModel(model)(ids).logits, out.logits:detach(), { 1e-5, 1e-4 })
    local past = model(ids:narrow(1, 0, 3)).past_key_values
    local rest = ids:narrow(1, 3, 2)
    local want = out.logits:detach():narrow(1, 3, 2)
    helper.near(model(rest, past).logits:detach(), want, { 1e-5, 1e-4 })
    local flat = { rest, past[1][1], past[1][2], past[2][1], past[2][2] }
    local compiled = lupine.compile(function(x, k1, v1, k2, v2)
      return model(x, { { k1, v1 }, { k2, v2 } }).logits
    end, flat)
    helper.near(compiled(table.unpack(flat)), want, { 1e-5, 1e-4 })
  end)

  it("generates in eval mode, after which each module has its own again", function()
    local model = made("GPT2LMHeadModel", GPT2):train()
    model.transformer.wte:eval()
    model.transformer.drop.p = 0.9
    local want = model:generate(ids, { max_new_tokens = 4 })
    assert.equal(want:tobytes(), model:generate(ids, { max_new_tokens = 4 }):tobytes())
    assert.is_true(model.training and model.transformer.drop.training)
    assert.is_false(model.transformer.wte.training)
    model.forward = function()
      error("stop", 0)
    end
    assert.has_error(function()
      model:generate(ids)
    end, "stop")
    assert.is_true(model.training)
  end)

  it("refuses what it cannot do", function()
    local model = made("GPT2LMHeadModel", GPT2)
    helper.refuses("TypeError", "unknown option 'max_new_token'.*'max_new_tokens'", model.generate,
      model, ids, { max_new_token = 3 })
    helper.refuses("ValueError", "temperature", model.generate, model, ids, { temperature = 0 })
    helper.refuses("TypeError", "input_ids", model.generate, model, ids[0])
    helper.refuses("ValueError", "n_positions is 32", model, torch.zeros({ 1, 40 }):long())
    helper.refuses("TypeError", "unknown field 'n_layers'.*n_layer", models.GPT2Model,
      { n_layers = 3 })
    helper.refuses("ValueError", "no multiple of n_head", models.GPT2Model,
      { n_embd = 10, n_head = 3 })
    helper.refuses("NotImplementedError", "reorder_and_upcast_attn: expected false",
      models.GPT2Model, { reorder_and_upcast_attn = true })
    helper.refuses("ValueError", "unknown activation 'gelo'. Allowed: gelu", models.BertModel,
      { hidden_act = "gelo" })
    helper.refuses("NotImplementedError", "absolute", models.BertModel,
      { position_embedding_type = "relative_key" })
  end)
end)

-- The deviation of values, which are drawn around 0.
local function deviation(t)
  return t:detach():float():pow(2):mean():sqrt():item()
end

describe("starting values", function()
  it("are normal with the configuration's deviation; biases and padding are 0", function()
    torch.manual_seed(3)
    local bert = models.BertForPreTraining({ vocab_size = 400, hidden_size = 64,
      num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 128,
      initializer_range = 0.05, pad_token_id = 3, type_vocab_size = 1 })
    local gpt = models.GPT2LMHeadModel({ vocab_size = 400, n_positions = 64, n_embd = 64,
      n_layer = 2, n_head = 2, initializer_range = 0.05 })
    for _, model in ipairs({ bert, gpt }) do
      for name, p in model:named_parameters() do
        local norm = name:find("LayerNorm") or name:find("ln_")
        local want = norm and 1 or name:find("c_proj.weight") and 0.05 / 2 or 0.05
        if name:find("bias$") then
          assert.equal(0, deviation(p), name)
        elseif p:numel() > 1000 or norm then
          assert.near(want, deviation(p), want * 0.1, name)
        end
      end
    end
    local words = bert.bert.embeddings.word_embeddings.weight
    assert.equal(0, deviation(words[3]))
    assert.is_true(deviation(words[0]) > 0.02)
  end)
end)

describe("checkpoints", function()
  local folder

  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(os.execute("mkdir " .. folder))
  end)
  after_each(function()
    os.execute("rm -r " .. folder)
  end)

  local CONFIG = [[{"model_type": "bert", "vocab_size": 40, "hidden_size": 16,
    "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 12, "architectures": ["BertForPreTraining"],
    "id2label": {"0": "a", "1": "b", "2": "c"}, "transformers_version": "4.0"}]]

  local function write(state)
    safetensors.save_file(state, folder .. "/model.safetensors")
    files.write(folder .. "/config.json", CONFIG)
  end

  it("load into the models of other tasks", function()
    local source = made("BertForPreTraining", BERT)
    local state = source:state_dict()
    state["cls.predictions.decoder.weight"] = nil -- as they are written: tied ones once
    state["cls.predictions.decoder.bias"] = nil
    state["bert.embeddings.position_ids"] = torch.arange(12):unsqueeze(0)
    for _, kind in ipairs({ "weight", "bias" }) do -- as they were called first
      local key = "bert.embeddings.LayerNorm."
      state[key .. (kind == "weight" and "gamma" or "beta")] = state[key .. kind]
      state[key .. kind] = nil
    end
    write(state)
    local want = source.bert(ids).last_hidden_state
    helper.near(models.BertModel:from_pretrained(folder)(ids).last_hidden_state, want)
    helper.near(models.BertForMaskedLM:from_pretrained(folder)(ids).logits,
      source(ids).prediction_logits)
    local log = helper.logged(function()
      local task = models.BertForSequenceClassification:from_pretrained(folder)
      helper.near(task.bert(ids).last_hidden_state, want)
      assert.equal(3, task.classifier.out_features)
    end)
    assert.matches("no weights for classifier.weight, classifier.bias: they start at random", log)
    assert.is_nil(log:find("cls.", 1, true)) -- the heads of pre-training are not missed
    assert.same({}, models.BertForSequenceClassification(BERT):load_state_dict(state,
      { strict = false }).unexpected_keys)
    assert.equal(2, models.BertForSequenceClassification:from_pretrained(folder,
      { num_labels = 2 }).classifier.out_features)
  end)

  it("load with and without the prefix, and without tied weights", function()
    local source = made("GPT2LMHeadModel", GPT2)
    local bare = source.transformer:state_dict()
    bare["h.0.attn.bias"] = torch.ones(1, 1, 4, 4)
    bare["h.0.attn.masked_bias"] = torch.tensor(-1e4)
    local other = models.GPT2LMHeadModel(GPT2)
    assert.same({}, other:load_state_dict(bare).missing_keys)
    assert.is_true(torch.equal(other.lm_head.weight, source.transformer.wte.weight))
    local base = models.GPT2Model(GPT2)
    base:load_state_dict(source:state_dict())
    assert.is_true(torch.equal(base.h[2].mlp.c_fc.weight, source.transformer.h[2].mlp.c_fc.weight))
    bare["h.1.ln_1.weight"] = nil
    helper.raises("RuntimeError", "Missing key.*transformer.h.1.ln_1.weight", function()
      other:load_state_dict(bare)
    end)
  end)

  it("are told what is wrong with them", function()
    local from = models.BertModel.from_pretrained
    helper.refuses("OSError", "nothing is downloaded: name a folder", from, models.BertModel,
      "bert-base-uncased")
    local state = made("BertModel", BERT):state_dict()
    state["encoder.layer.1.output.dense.bias"] = nil
    write(state)
    helper.refuses("RuntimeError", "the file has no 'encoder.layer.1.output.dense.bias'", from,
      models.BertModel, folder)
    helper.refuses("ValueError", "model_type: expected 'gpt2', got string \"bert\"",
      models.GPT2Model.from_pretrained, models.GPT2Model, folder)
    for text, pattern in pairs({ ["["] = "JSON object", ["[1]"] = "JSON object",
      ['{"vocab_size": "x"}'] = "vocab_size: expected int",
      ['{"hidden_size": 0}'] = "int >= 1" }) do
      files.write(folder .. "/config.json", text)
      local ok, e = pcall(from, models.BertModel, folder)
      assert.is_false(ok)
      assert.matches(pattern, tostring(e))
    end
    files.write(folder .. "/config.json", CONFIG)
    os.remove(folder .. "/model.safetensors")
    files.write(folder .. "/model.safetensors.index.json", '{"weight_map": {"a": "../b"}}')
    helper.refuses("ValueError", "weight_map: expected names of files beside it", from,
      models.BertModel, folder)
  end)
end)

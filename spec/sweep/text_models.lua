-- One case of spec/sweep/text_models.py: the model of FOLDER against what the package
-- transformers said of it.
local models = require("lupine.models")
local safetensors = require("lupine.safetensors")
local torch = require("torch")

local folder, name = arg[1], arg[2]
local facts = safetensors.load_file(folder .. "/facts.safetensors")
local model = models[name]:from_pretrained(folder)

-- The facts whose names begin so.
local function part(prefix)
  local out = {}
  for key, value in pairs(facts) do
    if key:sub(1, #prefix) == prefix then
      out[key:sub(#prefix + 1)] = value
    end
  end
  return out
end

local worst, gradients, texts = 0, 0, 0
local function difference(a, b)
  assert(a.shape == b.shape, ("shapes %s and %s"):format(tostring(a.shape), tostring(b.shape)))
  return (a - b):abs():max():item() / math.max(b:abs():max():item(), 1e-3)
end

local keys = {}
for key in pairs(model:state_dict()) do
  keys[#keys + 1] = key
end
assert(facts["keys." .. table.concat(keys, "\n")], "other keys than\n" .. next(part("keys.")))

local inputs = part("in.")
local ids = inputs.input_ids
inputs.input_ids = nil
local out = model(ids, inputs)
for key, want in pairs(part("out.")) do
  worst = math.max(worst, difference(out[key]:detach(), want))
end
if out.loss then
  out.loss:backward()
  local want = part("grad.")
  for key, p in model:named_parameters() do
    if want[key] then
      gradients = math.max(gradients, difference(p.grad, want[key]))
    end
  end
end

local mask = inputs.attention_mask
local GENERATED = {
  plain = { max_new_tokens = 30 }, length = { max_length = 25 },
  penalty = { max_new_tokens = 30, repetition_penalty = 1.3 },
  ["end"] = { max_new_tokens = 30, eos_token_id = { 5, 7, 11, 13 }, pad_token_id = 3 },
  filled = { max_new_tokens = 20, attention_mask = mask:flip({ 1 }) },
}
for key, want in pairs(part("generate.")) do
  for _, cached in ipairs({ true, false }) do
    local o = GENERATED[key]
    o.use_cache = cached
    local got = model:generate(ids, o)
    assert(torch.equal(got, want), ("generate %s (cache %s): %s, wanted %s"):format(key,
      tostring(cached), tostring(got), tostring(want)))
    texts = texts + 1
  end
end
local ok = worst < 1e-4 and gradients < 1e-3
print(("%s %-30s %3d entries, results %.1e, gradients %.1e, %d texts"):format(
  ok and "same" or "DIFFERENT", name, #keys, worst, gradients, texts))
os.exit(ok)

-- One case of spec/sweep/vision_models.py: the model that FOLDER/case.json names, with the
-- weights of FOLDER/weights.safetensors, against what torchvision said of it.
package.path = "./?.lua;" .. package.path
local core = require("lupine.core")
local files = require("spec.support.files")
local models = require("torchvision").models
local safetensors = require("lupine.safetensors")
local torch = require("torch")

local TOLERANCE = 1e-4
local folder = arg[1]
local case = core.json_decode(files.read(folder .. "/case.json"))
local facts = safetensors.load_file(folder .. "/facts.safetensors")
local options = { weights = folder .. "/weights.safetensors" }
for key, value in pairs(case.kwargs) do
  options[key] = value
end
local model = models.get_model(case.name, options)

if case.double then
  model:double()
end

local i = 0
for key in pairs(model:state_dict()) do
  i = i + 1
  assert(key == case.keys[i], ("entry %d: %s, wanted %s"):format(i, key, tostring(case.keys[i])))
end
assert(i == #case.keys, "entries are missing")

-- The largest difference, as a part of the largest value; of values that are all much
-- smaller than others, of a part of theirs.
local function difference(a, b, least)
  local scale = math.max(b:abs():max():item(), least or 1e-8)
  return (a - b):abs():max():item() / scale
end

model:eval()
local worst = difference(torch.no_grad(function()
  return model(facts.x)
end), facts.y)
local gradients = 0
if facts.loss then
  for _, m in ipairs(model:modules()) do
    if m.p then
      m.p = 0.0
    end
  end
  model:train()
  local loss = torch.nn.functional.cross_entropy(model(facts.x), torch.tensor({ 1, 2 }))
  loss:backward()
  worst = math.max(worst, difference(loss:detach(), facts.loss))
  local largest = 0
  for _, g in model:named_parameters() do
    largest = math.max(largest, g.grad:abs():max():item())
  end
  for name, p in model:named_parameters() do
    gradients = math.max(gradients, difference(p.grad, facts["grad." .. name], 1e-3 * largest))
  end
  for name, b in model:named_buffers() do
    worst = math.max(worst, difference(b:float(), facts["buffer." .. name]:float()))
  end
end
local ok = worst < TOLERANCE and gradients < 10 * TOLERANCE
local size = 0
for _, p in ipairs(model:parameters()) do
  size = size + p:numel()
end
print(("%s %-22s %4d entries %11d parameters, results %.1e, gradients %.1e"):format(
  ok and "same" or "DIFFERENT", case.name, #case.keys, size, worst, gradients))
os.exit(ok)

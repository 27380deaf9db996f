-- How small gradients are, and whether they would survive in float16: those of
-- every weight are anchored, then counted by their powers of two. A print in
-- forward shows one activation and, as training goes back through it, its
-- gradient.
-- After PopTorch's tutorial of observing tensors.
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local BATCH = 8

local BasicLinearModel = nn.Module:extend("BasicLinearModel")

function BasicLinearModel:init()
  self.fc1 = nn.Linear(784, 320)
  self.fc2 = nn.Linear(320, 100)
  self.fc3 = nn.Linear(100, 10)
  self.loss = nn.CrossEntropyLoss()
end

function BasicLinearModel:forward(x, labels)
  x = self.fc1(x):relu()
  x = self.fc2(x):relu()
  x = self.fc3(x)
  -- what it gives must be used; the values and their gradients go to stderr
  x = poptorch.ipu_print_tensor(x, "logits", { summarise_threshold = 10, edge_items = 1,
    digits = 3 })
  return self.loss(x, labels)
end

torch.manual_seed(0)
local model = BasicLinearModel()
local opts = poptorch.Options()
local names = {}
for name in model:named_parameters() do
  names[#names + 1] = "Gradient___" .. name
  opts:anchorTensor(names[#names], names[#names])
end

local labels = torch.arange(BATCH) % 10
local pictures = torch.rand(BATCH, 784) + labels:unsqueeze(1) / 10
local trainer = poptorch.trainingModel(model, opts,
  poptorch.optim.SGD(model:parameters(), { lr = 0.01 }))
trainer:compile(pictures, labels)

local known = {}
for _, name in ipairs(trainer:getTensorNames()) do
  known[name] = true
end
for _, name in ipairs(names) do
  assert(known[name], name)
end

for _ = 1, 4 do
  trainer(pictures, labels)
end

-- The gradients of the last batch: what is 0 is left out.
local all = {}
for i, name in ipairs(names) do
  all[i] = trainer:getAnchoredTensor(name):flatten()
end
local gradient = torch.cat(all):abs()
local exponents = torch.log2(gradient[gradient:ne(0)]):floor()
local low, high = exponents:min():item() // 1 | 0, exponents:max():item() // 1 | 0
local counts = torch.histc(exponents, { bins = (high - low) // 4 + 1, min = low, max = high + 1 })
for i = 0, #counts - 1 do
  print(("2^%-4d %7d %s"):format(low + 4 * i, counts[i]:item() // 1 | 0,
    ("*"):rep((40 * counts[i]:item() / #exponents) // 1 | 0)))
end

-- 2^-24 is the least number of float16: what a loss scaling of 2^12 saves.
local function lost(scaling)
  return exponents:add(math.log(scaling, 2)):lt(-24):float():mean():item()
end
print(("lost in float16: %.4f %%, with a loss scaling of 4096: %.4f %%"):format(100 * lost(1),
  100 * lost(4096)))
assert(lost(4096) <= lost(1))
print(("%d gradients of %d tensors"):format(#gradient, #names))

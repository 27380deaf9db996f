--- The texts of an executable file as a fuzz target's input, and what the target
--- does with it: the file is loaded; if that goes well it runs once.
---
---     ==step==
---     step iterations 1 …
---     ==model==
---     {"map":[…
---
--- `build/lupine -e 'package.path = "./?.lua;" .. package.path
--- require("spec.fuzz.harness.executable_seeds")'` writes seeds to the corpus.
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

poptorch.setLogLevel("OFF")

local Net = nn.Module:extend("FuzzNet")

function Net:init()
  self.fc = nn.Linear(2, 2)
end

function Net:forward(x)
  local y = self.fc(x) + torch.tensor({ 0.5, 2.0 })
  return y, poptorch.identity_loss(y * y, "mean")
end

-- Tensors of every file, by the names that models of FuzzNet and Linear give.
local NAMES, TENSORS = {}, {}
local function tensor(name, ...)
  NAMES[#NAMES + 1], TENSORS[#TENSORS + 1] = name, torch.ones({ ... })
end
for _, prefix in ipairs({ "model.fc", "model" }) do
  tensor(prefix .. ".weight", 2, 2)
  tensor(prefix .. ".bias", 2)
end
for i = 1, 9 do
  tensor("constant/" .. i, 2)
end
tensor("optimizer.0.0.momentum_buffer", 2, 2)
tensor("optimizer.0.1.momentum_buffer", 2)

local path = os.tmpname()

local function texts_of(bytes)
  local texts, name = {}, nil
  for line in (bytes .. "\n"):gmatch("([^\n]*)\n") do
    local new = line:match("^==(%a+)==$")
    if new then
      name = new
      texts[name] = ""
    elseif name then
      texts[name] = texts[name] .. line .. "\n"
    end
  end
  return texts
end

-- Inputs of zeros; nil where a program may take long.
local function inputs_of(texts)
  local shapes = {}
  for shape in texts.step:gmatch("\nvar input [^\n]-: float32%[([%d, ]*)%]") do
    local sizes = {}
    for size in shape:gmatch("%d+") do
      sizes[#sizes + 1] = tonumber(size)
    end
    shapes[#shapes + 1] = torch.zeros(sizes)
  end
  return shapes
end

return function(bytes)
  local texts = texts_of(bytes)
  local small = not (texts.step or ""):gsub("0x%x+", ""):find("%d%d%d%d")
  texts.version = nil
  local wrote = pcall(core.write_executable, path, NAMES, TENSORS, texts)
  if not wrote or not small then
    return
  end
  local ok, model = pcall(poptorch.load, path)
  os.remove(path)
  if not ok then
    local e = model
    if not errors.Exception:is(e) or e.type == "internal_error"
      or not e.message:find(path, 1, true) then
      error("no error of a reader: " .. tostring(e), 0)
    end
    return
  end
  local run, e = pcall(function()
    return model(table.unpack(inputs_of(texts)))
  end)
  if not run and (not errors.Exception:is(e) or e.type == "internal_error") then
    error("no error of a run: " .. tostring(e), 0)
  end
  model:destroy()
end

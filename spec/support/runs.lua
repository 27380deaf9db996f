-- Small runs for specs: a folder with a model, data and a callback that sends its own
-- process a signal, and `lupine run` in it.
local core = require("lupine.core")
local files = require("spec.support.files")
local program = require("spec.support.program")
local records = require("lupine.run.records")

local M = {}

local PARTS = [[
local torch = require("torch")
local nn = torch.nn
local Net = nn.Module:extend("Net")
function Net:init(hidden)
  self.first, self.drop = nn.Linear(3, hidden), nn.Dropout(0.2)
  self.last = nn.Linear(hidden, 2)
end
function Net:forward(x)
  return self.last(self.drop(self.first(x):tanh()))
end
local function points(count, seed)
  local g = torch.Generator()
  g:manual_seed(seed)
  local x = torch.randn({ count, 3 }, { generator = g })
  return torch.utils.data.TensorDataset(x, x:sum(1):gt(0):long())
end
-- "TERM 5": at step 5; every process of the run that begins with this environment
local Signal = {}
Signal.__index = Signal
function Signal:on_step(trainer)
  local name, step = (os.getenv("SEND") or ""):match("(%u+) (%d+)")
  if name and trainer.step == tonumber(step) then
    -- system(3) would ignore SIGINT meanwhile
    io.popen(("kill -%s %d"):format(name, require("lupine.core").host.process().pid)):close()
  end
end
-- a square root of what gets negative
local Bad = nn.Module:extend("Bad")
function Bad:init(at)
  self.inner, self.count, self.at = nn.Linear(3, 2), 0, at
end
function Bad:forward(x)
  return self.inner(x)
end
return { Net = Net, points = points, Bad = Bad,
  Signal = function() return setmetatable({}, Signal) end }
]]

local RUN = [[
model: {class: "parts.lua:Net", args: {hidden: 4}}
loss: CrossEntropyLoss
data:
  train: {class: "parts.lua:points", args: {count: 60, seed: 1}}
  validation: {class: "parts.lua:points", args: {count: 20, seed: 2}}
  batch_size: 8
optimizer: {class: SGD, args: {lr: 0.1, momentum: 0.9}}
epochs: 3
callbacks: [{class: "parts.lua:Signal"}]
logging: {every: 1, progress: false}
]]

--- A new folder with run.yaml and what it names, which the caller removes.
---@return string
function M.project()
  local folder = files.folder(true)
  files.write(folder .. "/parts.lua", PARTS)
  files.write(folder .. "/run.yaml", RUN)
  return folder
end

local here = assert(io.popen("pwd -P")):read("l")
local host = program.host:find("^/") and program.host or here .. "/" .. program.host

--- Runs lupine in a folder, with the words as a shell has them.
---@param folder string
---@param words string "run run.yaml epochs=1"
---@param environment? string "SEND='TERM 5'"
---@return string out, string err, integer code
function M.lupine(folder, words, environment)
  return program.shell(("cd %s && %s %s %s"):format(program.quote(folder), environment or "",
    program.quote(host), words))
end

--- What a run says of itself.
---@param path string of its folder
---@return table
function M.facts(path)
  return core.json_decode(files.read(path .. "/run.json"), path)
end

--- Its rows, without what a clock says.
---@param path string
---@return table[]
function M.rows(path)
  local rows = records.read(path .. "/metrics.jsonl")
  for _, row in ipairs(rows) do
    row.time, row.samples_per_second, row.loader_share = nil, nil, nil
  end
  return rows
end

--- The bytes of its weights at the end.
---@param path string
---@return string
function M.weights(path)
  return files.read(path .. "/model.safetensors")
end

return M

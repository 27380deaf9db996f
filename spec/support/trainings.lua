--- Trainers with everything at once, for specs of what a run is and how it goes on.
local checkpoint = require("lupine.checkpoint")
local epochs = require("spec.support.epochs")
local program = require("spec.support.program")
local torch = require("torch")
local Trainer = require("lupine.trainer")
local nn = torch.nn

local M = {}

--- Points of which noise is drawn while they are read, and the class each lies in.
local Points = torch.utils.data.Dataset:extend("Points")
M.Points = Points

function Points:init(n)
  self.n = n
end

function Points:__getitem__(i)
  local angle = i * 2.4
  local x = torch.tensor({ math.cos(angle), math.sin(angle), (i % 7) / 7 })
  return x + 0.1 * torch.rand({ 3 }) + 0.01 * math.random(), torch.tensor(i % 3)
end

function Points:__len__()
  return self.n
end

function M.model()
  return nn.Sequential(nn.Linear(3, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3),
    nn.Linear(12, 3))
end

--- Notes all that a trainer tells, as texts with all bits.
function M.recorder()
  local function text(row)
    local parts = {}
    for _, key in ipairs(require("lupine.base.tables").keys(row)) do
      local value = row[key]
      if key ~= "samples_per_second" and key ~= "loader_share" then
        parts[#parts + 1] = ("%s=%s"):format(key, type(value) == "number" and ("%a"):format(value)
          or tostring(value))
      end
    end
    return table.concat(parts, " ")
  end
  local r = { name = "recorder", steps = {}, lines = {} }
  function r:on_step(_, row)
    self.steps[row.step] = text(row)
  end
  function r:on_validation(trainer, metrics)
    self.lines[#self.lines + 1] = ("%d: %s"):format(trainer.step, text(metrics))
  end
  function r:state_dict()
    return { lines = require("lupine.base.class").copy(self.lines) }
  end
  function r:load_state_dict(state)
    self.lines = state.lines
  end
  return r
end

--- A trainer of a mode; `other` options replace those here.
function M.make(mode, other, workers)
  local model = M.model()
  local optimizer = torch.optim.AdamW(model:parameters(), { lr = 0.02 })
  local recorder = M.recorder()
  local set = { model = model, optimizer = optimizer, loss = nn.CrossEntropyLoss(), mode = mode,
    train = torch.utils.data.DataLoader(Points(46), { batch_size = 4, shuffle = true,
      num_workers = workers or 0 }),
    validation = torch.utils.data.DataLoader(Points(20), { batch_size = 8 }),
    metrics = { "accuracy", "confusion" }, epochs = 4, progress = false, log_every = 3,
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.9), scheduler_every = "step",
    ema_decay = 0.9, swa_start = "2 epochs", early_stopping = { metric = "validation.loss",
      patience = 50 }, callbacks = { recorder } }
  if mode == "poptorch" then
    set.options = require("poptorch").Options():deviceIterations(2)
    set.options:outputMode(require("poptorch").OutputMode.All)
  else
    set.accumulation = 2
  end
  for name, value in pairs(other or {}) do
    set[name] = value ~= torch.none and value or nil
  end
  for name, of in pairs({ scheduler = optimizer, train = set.options or false,
    validation = false }) do
    if type(set[name]) == "function" then
      set[name] = set[name](of)
    end
  end
  return Trainer(set), recorder
end

--- What another process tells that goes on with a run, and what this one does.
function M.elsewhere(mode, step)
  local root = os.tmpname()
  os.remove(root)
  M.seed(7)
  local trainer, notes = M.make(mode)
  local on_step = notes.on_step
  function notes:on_step(t, row)
    on_step(self, t, row)
    if t.step == step then
      checkpoint.save(root, t:objects())
    end
  end
  trainer:fit()
  local here = {}
  for n = step + 1, trainer.step do
    here[#here + 1] = notes.steps[n] and ("%d %s"):format(n, notes.steps[n]) or n .. " nil"
  end
  here[#here + 1] = table.concat(notes.lines, "\n")
  here[#here + 1] = M.ending(trainer)
  trainer:close()
  local text, errors = program.run({ "spec/support/resumed_training.lua", mode, root })
  os.execute("rm -rf " .. root)
  return table.concat(here, "\n") .. "\n", text ~= "" and text or errors
end

local function add(out, path, value)
  if torch.is_tensor(value) then
    out[#out + 1] = path .. "=" .. epochs.text(value:detach():contiguous())
  elseif type(value) == "table" then
    for key, v in pairs(value) do
      add(out, path .. "." .. tostring(key), v)
    end
  else
    out[#out + 1] = path .. "=" .. tostring(value)
  end
end

--- All that a run has in the end, as one text.
function M.ending(trainer)
  local out = {}
  local states = require("lupine.checkpoint.objects").capture(trainer:objects(), "ending")
  states.loader = nil
  add(out, "", states)
  table.sort(out)
  return table.concat(out, "\n")
end

function M.seed(n)
  torch.manual_seed(n)
  math.randomseed(n)
end

--- What is not as in the run that was not interrupted, of runs that go on from
--- checkpoints behind some steps, made when `event` is told (on_step): a list of texts.
--- `workers` read batches of the first run, and of those that go on.
function M.faults(mode, stops, other, workers, event)
  workers = workers or { 0, 0 }
  other = other or {}
  local faults, made, root = {}, {}, os.tmpname()
  os.remove(root)
  M.seed(7)
  local whole, told = M.make(mode, other, workers[1])
  whole:fit()
  local ending = M.ending(whole)
  whole:close()
  local function compare(what, trainer, got, from)
    for _, step in ipairs(require("lupine.base.tables").keys(told.steps)) do
      local line = told.steps[step]
      if step > from and got.steps[step] ~= line then
        faults[#faults + 1] = ("%s: step %d: %s, not %s"):format(what, step, got.steps[step], line)
        break
      end
    end
    if table.concat(got.lines, "\n") ~= table.concat(told.lines, "\n") then
      faults[#faults + 1] = what .. ": validations"
    end
    local now = M.ending(trainer)
    for a, b in now:gmatch("([^\n=]+)=([^\n]*)") do
      if not ending:find(a .. "=" .. b, 1, true) then
        faults[#faults + 1] = ("%s: %s"):format(what, a)
      end
    end
    trainer:close()
  end
  M.seed(7)
  local saving, notes = M.make(mode, other, workers[1])
  local told_before = notes[event or "on_step"]
  notes[event or "on_step"] = function(self, trainer, ...)
    if told_before then
      told_before(self, trainer, ...)
    end
    if stops[trainer.step] then
      made[#made + 1] = trainer.step
      checkpoint.save(("%s/%d"):format(root, trainer.step), trainer:objects())
    end
  end
  saving:fit()
  compare("saving", saving, notes, 0)
  for _, step in ipairs(made) do
    M.seed(99)
    local rest, got = M.make(mode, other, workers[2])
    rest:resume(("%s/%d"):format(root, step))
    rest:fit()
    compare("after " .. step, rest, got, step)
  end
  os.execute("rm -rf " .. root)
  return faults
end

return M

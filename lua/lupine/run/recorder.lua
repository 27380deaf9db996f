--- The callback of a run that writes its rows: to metrics.jsonl, metrics.csv and event
--- files, and a line for people where an epoch or a validation ends. How many rows there
--- are is in every checkpoint, so that a run that goes on has each row once.
local class = require("lupine.base.class")
local core = require("lupine.core")
local events = require("lupine.run.events")
local records = require("lupine.run.records")
local tables = require("lupine.base.tables")

---@class lupine.run.Recorder
local Recorder = class.new("Recorder")

--- Writes nothing before it is told where.
---@param tensorboard boolean
function Recorder:init(tensorboard)
  self.name, self.tensorboard, self.count = "recorder", tensorboard, 0
end

--- Where it writes.
---@param folder string
---@param say fun(line: string) prints a line and keeps it in the log
function Recorder:place(folder, say)
  self.folder, self.say = folder, say
end

--- For checkpoints: how many rows there are, which the disk has before the checkpoint
--- that counts on them.
--- error: OSError
---@return {rows: integer}
function Recorder:state_dict()
  if self.records then
    self.records:sync()
  end
  return { rows = self.records and self.records.count or self.count }
end

--- Rows behind those of a checkpoint will be taken away.
---@param state {rows: integer}
function Recorder:load_state_dict(state)
  self.count = state.rows
end

--- Opens the files.
---@param trainer lupine.Trainer
function Recorder:on_start(trainer)
  self.records = records.Records(self.folder, self.count)
  if self.tensorboard then
    self.events = events.Events(self.folder, self.count > 0 and trainer.step or nil)
  end
end

--- Writes a row everywhere.
---@param row table<string, any>
function Recorder:write(row)
  row.time = core.host.time()
  self.records:write(row)
  if self.events then
    self.events:write(row)
  end
end

-- Takes a bar off the terminal's line, which it draws again.
local function clear_line()
  if core.terminal_columns() then
    io.stderr:write("\r\27[K")
    io.stderr:flush()
  end
end

-- "train.loss 0.3051", what is told of a number.
local function told(values)
  local parts = {}
  for _, name in ipairs(tables.keys(values)) do
    parts[#parts + 1] = ("%s %.5g"):format(name, values[name])
  end
  return table.concat(parts, "  ")
end

--- A row of training.
---@param _ lupine.Trainer
---@param row table<string, any>
function Recorder:on_log(_, row)
  self:write(class.copy(row))
end

--- A validation's numbers; results that are none, as a matrix of confusion, go to the log.
---@param trainer lupine.Trainer
---@param numbers table<string, number>
---@param others table<string, any>?
function Recorder:on_validation(trainer, numbers, others)
  self:write(tables.with({ step = trainer.step, epoch = trainer.epoch }, numbers))
  clear_line()
  self.say(("epoch %d  step %d  %s"):format(trainer.epoch, trainer.step, told(numbers)))
  for _, name in ipairs(tables.keys(others or {})) do
    self.say(("%s:\n%s"):format(name, tostring(others[name])))
  end
end

--- An epoch's own numbers.
---@param trainer lupine.Trainer
function Recorder:on_epoch_end(trainer)
  local row = {}
  for name, value in pairs(trainer.metrics) do
    row[name] = name:find("^train%.") and value or nil
  end
  if next(row) then
    self.say(("epoch %d  step %d  %s"):format(trainer.epoch, trainer.step, told(row)))
    self:write(tables.with({ step = trainer.step, epoch = trainer.epoch }, row))
  end
end

--- The end of writing.
function Recorder:close()
  for _, writer in pairs({ self.records, self.events }) do
    writer:close()
  end
  self.records, self.events = nil, nil
end

return Recorder

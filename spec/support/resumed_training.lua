-- Goes on with a run of trainings.lua from a checkpoint: MODE FOLDER.
local trainings = require("spec.support.trainings")
require("poptorch").setLogLevel("ERR")

trainings.seed(99)
local trainer, told = trainings.make(arg[1])
trainer:resume(arg[2])
local from = trainer.step
trainer:fit()
for step = from + 1, trainer.step do
  print(("%d %s"):format(step, told.steps[step]))
end
print(table.concat(told.lines, "\n"))
print(trainings.ending(trainer))

-- A training that saves a checkpoint after every step, for specs that kill it: FOLDER
-- STEPS KEEP [NAME]. It goes on from the latest checkpoint there and says after each step
-- what is saved. Around a save it asks for files that are not there, which a trace of its
-- system calls shows.
local checkpoint = require("lupine.checkpoint")
local core = require("lupine.core")
local crashes = require("spec.support.crashes")
local resumable = require("spec.support.resumable")

local r = crashes.training()
local manager = checkpoint.Manager(arg[1], { keep = math.tointeger(arg[3]) })
local values = manager:restore_latest(r.objects)
r.n = values and values.n or 0
resumable.train(r, r.n + math.tointeger(arg[2]), function(n)
  r.objects.n = n
  core.is_folder(crashes.BEGIN)
  manager:save(n, r.objects)
  core.is_folder(crashes.END)
  io.write(("saved %d\n"):format(n))
  io.flush()
end)

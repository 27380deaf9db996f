-- Goes on with a training of resumable.lua from a checkpoint: KIND FOLDER TOTAL WORKERS.
local resumable = require("spec.support.resumable")

local losses, ending = resumable.rest(arg[1], arg[2], math.tointeger(arg[3]),
  math.tointeger(arg[4]))
for n, loss in pairs(losses) do
  print(("%d: %s"):format(n, loss))
end
print("ending\n" .. ending)

-- Errors of the machine, and what a script does about each: the user guide's
-- listing on error handling around a training. The machine is simulated, so are
-- its faults: lupine.faults makes them happen.
-- After listing 4.6 of PopTorch's user guide.
local faults = require("lupine.faults")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

local Line = nn.Module:extend("Line")

function Line:init()
  self.fc = nn.Linear(2, 1)
end

function Line:forward(x, target)
  return nn.functional.mse_loss(self.fc(x), target)
end

-- Weights after 20 steps; a step that fails is done again.
local function train(recover)
  torch.manual_seed(0)
  local model = Line()
  local trainer = poptorch.trainingModel(model, nil,
    torch.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 }))
  for _ = 1, 20 do
    local x = torch.randn(8, 2)
    local target = x:sum(1, { keepdim = true })
    repeat
      local done = recover(pcall(trainer, x, target))
    until done
  end
  trainer:copyWeightsToHost()
  local weights = model.fc.weight:clone()
  trainer:destroy()
  return weights
end

-- What to do about an error. Resetting needs nothing here but another call, which
-- attaches to a device again where that is lost.
local function handle(ok, e)
  if ok then
    return true
  elseif poptorch.RecoverableError:is(e) then
    if e.recovery_action == "FULL_RESET" then
      print("the system is restarted")
    elseif e.recovery_action == "IPU_RESET" then
      print("the IPU is reset")
    elseif e.recovery_action == "PARTITION_RESET" then
      print("the partition is reset")
    else
      print("the links are reset")
    end
  elseif poptorch.UnrecoverableError:is(e) then
    print("the device is to be repaired, another one takes over: " .. e.message)
  elseif poptorch.Error:is(e) then
    print(("received '%s' from %s, %s"):format(e.message, e.type, e.location:match("^[^\n]+")))
  else
    error(e, 0)
  end
  return false
end

local undisturbed = train(function(ok, e)
  assert(ok, e)
  return ok
end)

for step, action in pairs({ [3] = "IPU_RESET", [6] = "LINK_RESET", [9] = "PARTITION_RESET",
  [12] = "FULL_RESET" }) do
  faults.inject({ kind = "recoverable", action = action, step = step })
end
faults.inject({ kind = "unrecoverable", step = 15 })
faults.inject({ kind = "application", step = 18, message = "an assertion failed" })

local recovered = train(handle)
print("the weights are the same: " .. tostring(torch.equal(undisturbed, recovered)))

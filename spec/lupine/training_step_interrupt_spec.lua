-- Ctrl-C while a compiled training step runs.
local program = require("spec.support.program")

local SCRIPT = [[
local torch, lupine = require("torch"), require("lupine")
local nn = torch.nn
io.stdout:setvbuf("line")
torch.manual_seed(1)
local model = nn.Sequential(nn.Linear(512, 512), nn.BatchNorm1d(512), nn.Linear(512, 512))
local optimizer = torch.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
local step = lupine.compile(model, { optimizer = optimizer, accumulation = CALLS,
  loss = function(out) return out:square():mean() end })
local x = torch.randn({ 4096, 512 })

local function all()
  local list = { model[2].running_mean }
  for _, p in ipairs(model:parameters()) do
    list[#list + 1], list[#list + 2] = p, optimizer.state[p].momentum_buffer
  end
  return list
end
local function copies()
  local list = all()
  for i, t in ipairs(list) do
    list[i] = t:detach():clone()
  end
  return list
end
local function same(a, b)
  for i = 1, #a do
    if not torch.equal(a[i], b[i]) then
      return false
    end
  end
  return true
end

for _ = 1, CALLS do step(x) end
print("running")
local before
local ok, e = pcall(function()
  while true do
    local now = copies()
    before = now
    step(x)
  end
end)
print(ok, torch.errors.KeyboardInterrupt:is(e))
local after, updates = copies(), step.updates
if CALLS == 1 then -- as before the call, or as behind it
  torch.no_grad(function()
    for i, t in ipairs(all()) do t:copy_(before[i]) end
  end)
  step(x)
  print(same(after, before) or same(after, copies()))
else -- the next group is a whole one
  for _ = 1, CALLS - step.gathered do step(x) end
  print(step.updates == updates + 1 and step.gathered == 0)
end
]]

describe("an interrupted training step", function()
  for _, calls in ipairs({ 1, 3 }) do
    it(("is not half done, %d calls an update"):format(calls), function()
      local out, err = program.interrupted((SCRIPT:gsub("CALLS", tostring(calls))))
      assert.equal("running\nfalse\ttrue\ntrue\n", out, err)
    end)
  end
end)

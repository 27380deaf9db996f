--- A module trained on the device, and its twin on the host.
local helper = require("spec.helper")
local assert = require("luassert")
local poptorch = require("poptorch")
local torch = require("torch")

local M = {}

--- What forward returned, as one list of tensors.
function M.flat(x, into)
  if torch.is_tensor(x) then
    into[#into + 1] = x:detach()
  elseif type(x) == "table" then
    for _, element in ipairs(x) do
      M.flat(element, into)
    end
  end
  return into
end

--- Lists of tensors are near.
function M.near(got, want, tol)
  assert.equal(#want, #got)
  for i = 1, #want do
    helper.near(got[i]:double():reshape(-1), want[i]:double():reshape(-1):tolist(), tol)
  end
end

--- Trains a twin of net on the host, `call` by call: t.micro micro-batches of t.rows
--- rows an update; net's executor on the device. Losses (the last result), then
--- parameters and buffers are the same. t: micro (1), rows, calls (3), options,
--- tol, optimizer(optim, net). Returns the executor and the twin.
function M.trains(net, t, data)
  local twin = net:deepcopy()
  local micro, tol = t.micro or 1, t.tol or { 1e-5, 1e-3 }
  local options = t.options or poptorch.Options()
  options.Training:gradientAccumulation(micro)
  options:outputMode(poptorch.OutputMode.All)
  local trainer = poptorch.trainingModel(net, options, t.optimizer(poptorch.optim, net))
  local optimizer = t.optimizer(torch.optim, twin)
  for call = 1, t.calls or 3 do
    local arguments, losses = data(call), {}
    optimizer:zero_grad()
    for m = 0, micro - 1 do
      local part = {}
      for i, x in ipairs(arguments) do
        part[i] = x:narrow(0, m * t.rows, t.rows)
      end
      local all = table.pack(twin(table.unpack(part)))
      local loss = all[all.n]
      ;(loss / micro):backward()
      losses[#losses + 1] = loss:item()
    end
    optimizer:step()
    local got = M.flat({ trainer(table.unpack(arguments)) }, {})
    helper.near(got[#got]:reshape(-1):double(), losses, tol)
  end
  trainer:copyWeightsToHost()
  local state = twin:state_dict()
  for name, value in pairs(net:state_dict()) do
    M.near({ value }, { state[name] }, tol)
  end
  return trainer, twin
end

return M

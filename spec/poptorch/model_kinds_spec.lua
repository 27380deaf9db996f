-- Models of ten kinds train compiled as they do eagerly, with each optimizer of
-- the device: losses, outputs and written buffers.
local poptorch = require("poptorch")
local torch = require("torch")
local models = require("spec.support.model_kinds")

local OPTIMIZERS = {
  SGD = { lr = 0.05, momentum = 0.9, weight_decay = 0.01, nesterov = true },
  Adam = { lr = 0.01 },
  AdamW = { lr = 0.01 },
  RMSprop = { lr = 0.003, momentum = 0.5, centered = true },
}
local STEPS = 4

local function options(kind)
  local out = {}
  for name, value in pairs(OPTIMIZERS[kind]) do
    out[name] = value
  end
  return out
end

-- A fresh model, its optimizer, and the data: the same whenever it is asked for.
local function start(cls, data, kind)
  torch.manual_seed(11)
  local model = cls()
  local optimizer = torch.optim[kind](model:parameters(), options(kind))
  return model, optimizer, table.pack(data())
end

-- Losses of some steps, the last outputs, the model.
local function eagerly(cls, data, kind)
  local model, optimizer, args = start(cls, data, kind)
  local losses, last = {}, nil
  for i = 1, STEPS do
    optimizer:zero_grad()
    local out, loss = model(table.unpack(args, 1, args.n))
    loss:backward()
    optimizer:step()
    losses[i], last = loss:item(), out
  end
  return losses, last:detach(), model
end

local function compiled(cls, data, kind)
  local model, optimizer, args = start(cls, data, kind)
  local program = poptorch.trainingModel(model, poptorch.Options(), optimizer)
  local losses, last = {}, nil
  for i = 1, STEPS do
    local out, loss = program(table.unpack(args, 1, args.n))
    losses[i], last = loss:item(), out
  end
  program:copyWeightsToHost()
  program:destroy()
  return losses, last, model
end

for name, model in pairs(models) do
  for kind in pairs(OPTIMIZERS) do
    it(("%s with %s trains compiled as eagerly"):format(name, kind), function()
      local want, want_out, eager = eagerly(model[1], model[2], kind)
      local got, got_out, net = compiled(model[1], model[2], kind)
      for i = 1, STEPS do
        assert.is_true(math.abs(got[i] - want[i]) <= 1e-5 * math.abs(want[i]),
          ("step %d: %.9g, eagerly %.9g"):format(i, got[i], want[i]))
      end
      assert.is_true(want[STEPS] < want[1])
      assert.is_true(torch.allclose(got_out, want_out, 1e-4, 1e-4))
      local state = net:state_dict()
      for buffer, value in eager:named_buffers() do
        -- means of what a bias moves that nothing else depends on: loosely
        assert.is_true(torch.allclose(state[buffer]:double(), value:double(), 1e-2, 1e-2), buffer)
      end
    end)
  end
end

--- Writes a file of every format of this version, which later versions have to read
--- (spec/expectations/releases_spec.lua):
---
---     build/lupine spec/expectations/releases/record.lua spec/expectations/releases/0.1.0
---
--- Run it when the version or a format changes; what is recorded is never written again.
local checkpoint = require("lupine.checkpoint")
local core = require("lupine.core")
local lupine = require("lupine")
local nn = require("torch.nn")
local poptorch = require("poptorch")
local torch = require("torch")

local folder = ...
core.make_folder(folder)

-- weight = {{0, 1}, {2, 3}, {4, 5}}, bias = {6, 7, 8}, less 0.5 each by one step of Adam
-- with gradients of 1
local net = nn.Linear(2, 3)
torch.no_grad(function()
  net.weight:copy_(torch.arange(6):reshape(3, 2))
  net.bias:copy_(torch.arange(3) + 6)
end)
local optimizer = torch.optim.Adam(net:named_parameters(), { lr = 0.5 })
net(torch.ones(1, 2)):sum():backward()
optimizer:step()

lupine.safetensors.save_file(net:state_dict(), folder .. "/weights.safetensors",
  { format = "pt" })
torch.save(net:state_dict(), folder .. "/weights.pt")
torch.save(optimizer:state_dict(), folder .. "/optimizer.pt")
checkpoint.save(folder .. "/checkpoint", { model = net, optimizer = optimizer, epoch = 3,
  random = checkpoint.random })
lupine.numpy.save(folder .. "/bias.npy", net.bias:detach())
lupine.numpy.savez(folder .. "/weights.npz", { weight = net.weight:detach() })
lupine.onnx.export(net, { torch.ones(1, 2) }, folder .. "/model.onnx")

local options = poptorch.Options():deviceIterations(2)
local model = poptorch.inferenceModel(net, options)
model(torch.ones(2, 2))
model:save(folder .. "/model.poptorch")

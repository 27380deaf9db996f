--- Writes a file that is larger than a small limit: FUNCTION PATH (file_spec.lua).
local torch = require("torch")

local name, path = ...
local x = torch.arange(30000):float()
if name == "torch.save" then
  torch.save({ a = x, b = "x" }, path)
elseif name == "numpy.save" then
  require("lupine.numpy").save(path, x)
elseif name == "numpy.savez" then
  require("lupine.numpy").savez(path, { a = x })
else
  torch.manual_seed(1)
  require("lupine.images").write_png(torch.randint(256, { 3, 100, 100 }):to(torch.uint8), path)
end

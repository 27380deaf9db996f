-- Runs a session whose inputs a library gives: build/lupine examples/step_io/numbers.lua
-- LIBRARY, where
--   cc -shared -fPIC -I include -o LIBRARY examples/step_io/numbers.c
local popart = require("popart")

local file = os.tmpname()
do
  local f <close> = assert(io.open(file, "wb"))
  f:write(string.pack("<ffffff", 1, 2, 3, 4, 5, 6))
end

local builder = popart.Builder()
local x = builder:addInputTensor(popart.TensorInfo("FLOAT", { 2 }), "x")
local y = builder.aiOnnx:mul({ x, x }, "y")
builder:addOutputTensor(y)

local session = popart.InferenceSession({ fnModel = builder:getModelProto(),
  dataFlow = popart.DataFlow(3, { [y] = popart.AnchorReturnType("ALL") }),
  deviceInfo = popart.DeviceManager():createCpuDevice() })
session:prepareDevice()

do
  local stepio <close> = popart.StepIO(arg[1], file)
  session:run(stepio) -- 1 + 4 + 9 + 16 + 25 + 36
  session:run(stepio) -- the same again
end
os.remove(file)

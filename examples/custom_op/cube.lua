-- A custom operator in an inference model (PopTorch's guide, 4.9): cube.c has to
-- be compiled first, the path of the library is the script's argument.
--
--     cc -O2 -shared -fPIC -I include -o libcube.so examples/custom_op/cube.c
--     build/lupine examples/custom_op/cube.lua ./libcube.so
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

torch.ops.load_library(arg[1] or "./libcube.so")

local BasicNetwork = nn.Module:extend("BasicNetwork")

function BasicNetwork:forward(x, bias)
  local out = poptorch.custom_op({ x, bias }, "Cube", "com.acme", 1,
    { example_outputs = { x, x } })
  return out[1], out[2]
end

local model = poptorch.inferenceModel(BasicNetwork())
local cubes_and_bias, cubes = model(torch.full({ 1, 8 }, 2.0), torch.full({ 1, 8 }, 4.0))
print(cubes_and_bias)
print(cubes)

-- Eager calls have the operator's gradient.
local x = torch.tensor({ 0.3, 2.7, 1.2, 5 }, { requires_grad = true })
local y = poptorch.custom_op({ x, torch.zeros(4) }, "Cube", "com.acme", 1, { x, x })[1]
;(y * 0.1):sum():backward()
print("gradient", x.grad)

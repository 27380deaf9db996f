-- PopTorch's test of printed tensors (tests/ipu_print_tensor_test.py), and
-- gradients.
local program = require("spec.support.program")

describe("ipu_print_tensor", function()
  -- The first three texts are those of the original.
  it("test_print_ipu_tensor", function()
    local _, err = program.run({ "-e", [[
      local torch, poptorch = require("torch"), require("poptorch")
      local function show(x, ...)
        local net, arguments = torch.nn.Module(), table.pack(...)
        function net:forward(v)
          return poptorch.ipu_print_tensor(v + 0, table.unpack(arguments, 1, arguments.n))
        end
        poptorch.inferenceModel(net)(x)
      end
      local x = torch.tensor({ { 1.4962566, 1.7682219 }, { 1.0884774, 1.1320305 } })
      show(x, "title", true, 1000, 3, 75, 8, "auto", " ", "{", "}")
      show(x, "title", true, 500, 2, 15, 8, "scientific", ",", "[", "]")
      show(x, "title", true, 1500, 1, 125, 8, "fixed", ";")
      show(torch.arange(8, { dtype = torch.int32 }):reshape(2, 2, 2), "cube")
      show(torch.arange(9, { dtype = torch.int32 }), "row", true, 8, 2)
      show(torch.arange(9, { dtype = torch.int32 }), "all", true, 0, 2)
      show(torch.tensor(1.5), "one")
    ]] })
    assert.equal([[
title: {
 {1.4962566 1.7682219}
 {1.0884774 1.1320305}
}
title: [
 [1.4962566e+00,
   1.7682219e+00]
 [1.0884774e+00,
   1.1320305e+00]
]
title: (
 (1.4962566;1.7682219)
 (1.0884774;1.1320305)
)
cube: (
 (
  (0, 1)
  (2, 3)
 )
 (
  (4, 5)
  (6, 7)
 )
)
row: (0, 1, ..., 7, 8)
all: (0, 1, 2, 3, 4, 5, 6, 7, 8)
one: 1.500
]], err)
  end)

  it("prints the value and, in training, the gradient, every time", function()
    local out, err = program.run({ "-e", [[
      local torch, poptorch = require("torch"), require("poptorch")
      local nn = torch.nn
      local Net = nn.Module:extend("Net")
      function Net:init()
        self.w = nn.Parameter(torch.ones(2))
      end
      function Net:forward(x)
        local y = poptorch.ipu_print_tensor(self.w * x, "product")
        return poptorch.identity_loss(y, "sum")
      end
      local net = Net()
      local model = poptorch.trainingModel(net, poptorch.Options():deviceIterations(2),
        poptorch.optim.SGD(net:parameters(), { lr = 0.5 }))
      print(model(torch.tensor({ 1.0, 2, 3, 4 })):item())
    ]] })
    assert.equal("1.5\n", out)
    assert.matches("product: %( *1[.0]*, *2[.0]*%).*product_gradient: %( *1[.0]*, *1[.0]*%)", err)
    assert.matches("product: %( *1.5[0]*, *0[.0]*%)", err)
  end)
end)

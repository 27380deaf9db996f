-- Lazy layers become the ordinary ones for their first input.
local helper = require("spec.helper")
local poptorch = require("poptorch")
local torch = require("torch")
local nn = torch.nn

it("lazy layers take their input features from the first input", function()
  local net = nn.Sequential(nn.LazyConv2d(4, 3, { padding = 1 }), nn.LazyBatchNorm2d(),
    nn.LazyConvTranspose2d(2, 2), nn.LazyInstanceNorm2d({ affine = true }), nn.Flatten(),
    nn.LazyLinear(5, { bias = false }))
  assert.is_nil(next(net[6]:state_dict()))
  assert.same({ 2, 5 }, { table.unpack(net(torch.randn({ 2, 3, 6, 6 })).shape) })
  assert.equal("Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))",
    tostring(net[1]))
  assert.equal("Linear(in_features=98, out_features=5, bias=False)", tostring(net[6]))
  assert.same({ 5, 98 }, { table.unpack(net[6].weight.shape) })
  assert.is_true(nn.BatchNorm2d:is(net[2]))
  for _, c in ipairs({ { nn.LazyConv1d(2, 1), { 4, 3, 5 } },
    { nn.LazyConv3d(2, 1), { 3, 2, 2, 2 } },
    { nn.LazyBatchNorm1d(), { 4, 3 } }, { nn.LazyBatchNorm1d(), { 4, 3, 5 } } }) do
    c[1](torch.randn(c[2]))
    assert.equal(3, c[1].in_channels or c[1].num_features)
  end
end)

it("lazy layers keep the mode, and are made on the host", function()
  local net = nn.LazyBatchNorm2d()
  net:eval()
  net(torch.randn({ 1, 2, 3, 3 }))
  assert.is_false(net.training)
  helper.raises("RuntimeError", "call the model once on the host", function()
    poptorch.inferenceModel(nn.LazyLinear(2))(torch.ones({ 1, 2 }))
  end)
end)

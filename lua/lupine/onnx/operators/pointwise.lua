--- Operators of ONNX on each element.
local torch = require("torch")
local F = require("torch.nn.functional")

return function(op)
  op("Add(A, B) -> (C)", { 7, 13, 14 }, function(_, a, b)
    return a + b
  end)
  op("Relu(X) -> (Y)", { 6, 13, 14 }, function(_, x)
    return torch.relu(x)
  end)
  op("LeakyRelu(X; alpha: float = 0.01) -> (Y)", { 6, 16 }, function(n, x)
    return F.leaky_relu(x, n.attr.alpha)
  end)
end

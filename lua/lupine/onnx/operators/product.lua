--- Products of matrices of ONNX.
local torch = require("torch")
local operands = require("lupine.onnx.operands")

local function matmul(n, a, b)
  operands.one_type(n, 2)
  for i = 1, 2 do
    n:check(n.inputs[i]:dim() > 0, "input '%s' is a scalar", operands.name(n, i))
  end
  local rows = b:size(b:dim() > 1 and -2 or 0)
  n:check(a:size(-1) == rows, "inputs 'A' of the shape %s and 'B' of the shape %s: %d columns "
    .. "and %d rows", operands.shown(a), operands.shown(b), a:size(-1), rows)
  return torch.matmul(a, b)
end

local function matrix(n, i, transposed)
  local t = n.inputs[i]
  n:check(t:dim() == 2, "input '%s' has the shape %s. Allowed: 2 dimensions",
    operands.name(n, i), operands.shown(t))
  return transposed and t:t() or t
end

-- x times a factor; integers take whole ones alone.
local function scaled(n, x, name)
  local factor = n.attr[name]
  if factor == 1 then
    return x
  end
  n:check(x.dtype.is_floating_point or factor % 1 == 0, "attribute '%s' is %g, and the inputs "
    .. "are %s", name, factor, tostring(x.dtype))
  return x * (x.dtype.is_floating_point and factor or math.tointeger(factor))
end

local function gemm(n, _, _, c)
  operands.one_type(n, 3)
  local a = matrix(n, 1, operands.flag(n, "transA"))
  local b = matrix(n, 2, operands.flag(n, "transB"))
  n:check(a:size(1) == b:size(0), "inputs 'A' and 'B': %d columns and %d rows (attributes "
    .. "'transA', 'transB')", a:size(1), b:size(0))
  if not c then
    return scaled(n, torch.mm(a, b), "alpha")
  end
  local rows, columns = a:size(0), b:size(1)
  n:check(c:dim() <= 2 and (c:dim() == 0 or c:size(-1) == 1 or c:size(-1) == columns)
    and (c:dim() < 2 or c:size(0) == 1 or c:size(0) == rows), "input 'C' of the shape %s does "
    .. "not broadcast to [%d, %d]", operands.shown(c), rows, columns)
  if a.dtype.is_floating_point then
    return torch.addmm(c, a, b, { beta = n.attr.beta, alpha = n.attr.alpha })
  end
  return scaled(n, torch.mm(a, b), "alpha") + scaled(n, c, "beta")
end

-- Before version 7 C broadcasts only if it is said.
local function old_gemm(n, a, b, c)
  local rows = a:size(n.attr.transA == 0 and 0 or 1)
  local columns = b:size(n.attr.transB == 0 and 1 or 0)
  n:check(operands.flag(n, "broadcast") or c:dim() == 2 and c:size(0) == rows
    and c:size(1) == columns, "input 'C' has the shape %s, the result [%d, %d]; attribute "
    .. "'broadcast' is 0", operands.shown(c), rows, columns)
  return gemm(n, a, b, c)
end

local function einsum(n, ...)
  operands.one_type(n, select("#", ...))
  return torch.einsum(n.attr.equation, { ... })
end

local function determinant(n)
  local x = operands.floating(n, 1)
  n:check(x:dim() >= 2 and x:size(-1) == x:size(-2), "input 'X' has the shape %s. Allowed: "
    .. "square matrices in the last two dimensions", operands.shown(x))
  return torch.det(x)
end

return function(op)
  op("MatMul(A, B) -> (Y)", { 1, 9, 13 }, matmul)
  op("Gemm(A, B, C; alpha: float = 1.0, beta: float = 1.0, broadcast: int = 0, transA: int = 0,"
    .. " transB: int = 0) -> (Y)", 6, old_gemm)
  op("Gemm(A, B, C; alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0)"
    .. " -> (Y)", { 7, 9 }, gemm)
  op("Gemm(A, B, C?; alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0)"
    .. " -> (Y)", { 11, 13 }, gemm)
  op("Einsum(Inputs...; equation: string!) -> (Output)", 12, einsum)
  op("Det(X) -> (Y)", 11, determinant)
end

--- Similarities and distances between rows.
local define = require("torch.nn.functional.define")
local errors = require("lupine.base.errors")

return function()
  local M = {}

  -- Each norm is bounded below by eps.
  define(M, "cosine_similarity(x1, x2, dim=1, eps=1e-8)", function(x1, x2, dim, eps)
    local function norm(x, keepdim)
      return x:norm(2, dim, { keepdim = keepdim }):clamp_min(eps)
    end
    local t = require("torch").promote_types(x1.dtype, x2.dtype)
    errors.check(t.is_floating_point, "RuntimeError",
      "cosine_similarity: the tensors have the types %s and %s; one must be a floating-point type",
      tostring(x1.dtype), tostring(x2.dtype))
    local a, b = table.unpack(require("torch").broadcast_tensors({ x1:to(t), x2:to(t) }))
    if t.itemsize < 4 then -- products of halves leave their range
      return (a / norm(a, true) * (b / norm(b, true))):sum(dim)
    end
    return (a * b):sum(dim) / norm(a, false) / norm(b, false)
  end)

  define(M, "pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False)",
    function(x1, x2, p, eps, keepdim)
      return (x1 - x2 + eps):norm(p, -1, { keepdim = keepdim })
    end)

  return M
end

--- Updates of PopART's optimizers by their formulas, on plain numbers: the state of one
--- element in a table, changed by a gradient after accumulation and reduction, without
--- the loss scale. Source: PopART C++ API, SGD, Adam, Adaptive.
local M = {}

--- o: lr wd mm dm vs nesterov; s: w v. A velocity of its own.
function M.separate(s, o, g)
  local x = g + o.wd * s.w
  s.v = o.mm * (s.v or 0) + (1 - o.dm) * o.vs * x
  local d = o.nesterov and o.vs * x + o.mm * s.v or s.v
  s.w = s.w - o.lr / o.vs * d * (o.clip or 1)
end

--- The velocity gathers gradients: what momentum and decay are counts one update later.
function M.combined(s, o, g)
  s.v = s.v or (1 - o.dm) * o.wd * o.vs * s.w
  s.v = s.v + (1 - o.dm) * o.vs * g
  local d = o.nesterov and o.vs * (g + o.wd * s.w) + o.mm * s.v or s.v
  s.w = s.w - o.lr / o.vs * d * (o.clip or 1)
  s.v = o.mm * s.v + (1 - o.dm) * o.wd * o.vs * s.w
end

--- Without momentum.
function M.plain(s, o, g)
  s.w = s.w - o.lr * (1 - o.dm) * (g + o.wd * s.w)
end

--- o: lr wd b1 b2 eps mwn, mode ("Adam" …), l2; s of all elements of a weight: w m v
--- (lists), t; g a list.
function M.adam(s, o, g)
  local n = #s.w
  s.m, s.v, s.t = s.m or {}, s.v or {}, (s.t or 0) + 1
  local bias = not o.mode:find("NoBias")
  local u, nw, nu = {}, 0, 0
  for i = 1, n do
    local x = g[i] + (o.l2 and o.wd * s.w[i] or 0)
    s.m[i] = o.b1 * (s.m[i] or 0) + (1 - o.b1) * x
    if o.mode == "AdaMax" then
      s.v[i] = math.max(o.b2 * (s.v[i] or 0), math.abs(x))
    else
      s.v[i] = o.b2 * (s.v[i] or 0) + (1 - o.b2) * x * x
    end
    local m = bias and s.m[i] / (1 - o.b1 ^ s.t) or s.m[i]
    local v = (bias and o.mode ~= "AdaMax") and s.v[i] / (1 - o.b2 ^ s.t) or s.v[i]
    u[i] = m / ((o.mode == "AdaMax" and v or math.sqrt(v)) + o.eps)
      + (o.l2 and 0 or o.wd * s.w[i])
    nw, nu = nw + s.w[i] ^ 2, nu + u[i] ^ 2
  end
  nw, nu = math.sqrt(nw), math.sqrt(nu)
  local ratio = 1
  if o.mode:find("Lamb") and nw > 0 and nu > 0 and o.mwn ~= 0 then
    ratio = math.min(nw, o.mwn) / nu
  end
  for i = 1, n do
    s.w[i] = s.w[i] - o.lr * ratio * u[i]
  end
end

--- o: lr wd alpha mm eps, mode, l2, tf; s: w v1 v2 v3.
function M.adaptive(s, o, g)
  local x = g + (o.l2 and o.wd * s.w or 0)
  local a = o.alpha
  s.v1, s.v2 = s.v1 or (o.tf and 1 or 0), s.v2 or 0
  s.v1 = o.mode == "AdaGrad" and s.v1 + x * x or a * s.v1 + (1 - a) * x * x
  local y
  if o.mode == "AdaDelta" then
    y = x * math.sqrt(s.v2 + o.eps) / math.sqrt(s.v1 + o.eps)
    s.v2 = a * s.v2 + (1 - a) * y * y
  else
    local square = s.v1
    if o.mode == "CenteredRMSProp" then
      s.v2 = a * s.v2 + (1 - a) * x
      square = square - s.v2 ^ 2
    end
    y = x / (o.tf and math.sqrt(square + o.eps) or math.sqrt(square) + o.eps)
  end
  local lr, wd = o.lr, o.l2 and 0 or o.wd
  if o.mm > 0 then
    s.v3 = o.mm * (s.v3 or 0) + (o.tf and o.lr * y or y)
    y, lr = s.v3, o.tf and 1 or lr
  end
  s.w = s.w - lr * (y + wd * s.w)
end

return M

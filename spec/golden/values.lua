--- Arguments, functions and comparisons of golden cases; see README.md.
local nn_functional = require("torch.nn.functional")
local read = require("spec.golden.read")
local torch = require("torch")

local null = read.null
local M = {}

-- ---- names ----------------------------------------------------------------
--- A thing under torch by its dotted name; nil if there is none.
function M.find(path)
  local at = torch
  local rest = path:match("^nn%.functional%.(.+)$")
  if rest then
    at, path = nn_functional, rest
  end
  for name in path:gmatch("[^.]+") do
    local ok, next_one = pcall(function() return at[name] end)
    if not ok or next_one == nil then
      return nil
    end
    at = next_one
  end
  return at
end

--- What is not there at all: the case is skipped and named.
function M.skip(what)
  error({ skipped = what }, 0)
end

local REFLECTED = {
  __rsub__ = function(x, y) return y - x end, __rpow__ = function(x, y) return y ^ x end,
  __radd__ = function(x, y) return y + x end, __rmul__ = function(x, y) return y * x end,
  __rtruediv__ = function(x, y) return y / x end, __rdiv__ = function(x, y) return y / x end,
  __rmod__ = function(x, y) return y % x end, __rfloordiv__ = function(x, y) return y // x end,
  __rand__ = function(x, y) return y & x end, __ror__ = function(x, y) return y | x end,
  __rxor__ = function(x, y) return y ~ x end, __rmatmul__ = function(x, y) return y:matmul(x) end,
  __getitem__ = function(x, i) return x[i] end,
}

local function method(x, name)
  local ok, fn = pcall(function() return x[name] end)
  return ok and fn or nil
end

--- The function that a case calls.
function M.callable(op, call)
  local name = op:match("^Tensor%.(.+)$")
  if call == "property" then
    return function(x) return x[name] end
  elseif op == "Tensor.__setitem__" then
    return function(x, i, v) x[i] = v end
  elseif name then
    local fn = REFLECTED[name] or method(torch.zeros({ 1 }), name) or M.skip(op)
    return function(x, ...)
      if not torch.is_tensor(x) then
        error(op .. " of what is no tensor", 0)
      end
      return fn(x, ...)
    end
  end
  return M.find(op) or M.skip(op)
end

-- ---- arguments ------------------------------------------------------------
local STEPS = {
  transpose = function(t, s) return t:transpose(s[2], s[3]) end,
  permute = function(t, s) return t:permute(s[2]) end,
  expand = function(t, s) return t:expand(s[2]) end,
  slice = function(t, s)
    local index = {}
    for d = 1, t:dim() do
      local bound = function(v) return v ~= null and v or nil end
      index[d] = d - 1 == s[2] % t:dim() and torch.slice(bound(s[3]), bound(s[4]), bound(s[5]) or 1)
        or torch.slice(nil, nil)
    end
    return t[index]
  end,
}

local FLOATS = { inf = math.huge, ["-inf"] = -math.huge, nan = 0 / 0 }
M.floats = FLOATS

--- An index of x[...]: lists inside it are positions, so tensors.
function M.index(a, load)
  if type(a) == "table" and a.list then
    return torch.tensor(M.argument(a, load, {}, "1"))
  elseif type(a) == "table" and a.tuple then
    local out = {}
    for i, e in ipairs(a.tuple) do
      out[i] = M.index(e, load)
    end
    return out
  end
  return M.argument(a, load, {}, "1")
end

local function is_list(v)
  return v[1] ~= nil or next(v) == nil
end

--- An argument as Lua has it. leaves[path] gets tensors that need a gradient.
function M.argument(a, load, leaves, path)
  if a == null then
    return torch.none
  elseif type(a) ~= "table" then
    return a
  elseif a.tensor then
    local t = load(a.tensor)
    for _, step in ipairs(a.view or {}) do
      t = STEPS[step[1]](t, step)
    end
    if a.requires_grad then
      t = t:detach():requires_grad_(true)
      leaves[path] = t
    end
    return t
  elseif a.float then
    return FLOATS[a.float]
  elseif a.dtype then
    return torch[a.dtype]
  elseif a.ellipsis then
    return torch.ellipsis
  elseif a.slice then
    local bound = function(v) return v ~= null and v or nil end
    return torch.slice(bound(a.slice[1]), bound(a.slice[2]), bound(a.slice[3]) or 1)
  elseif a.module then
    local cls = M.find(a.module) or M.skip(a.module)
    return cls(M.arguments(a.init_args or {}, a.init_kwargs or {}, load, {}))
  end
  local out = {}
  for i, e in ipairs(a.list or a.tuple or is_list(a) and a or error("an unknown argument")) do
    out[i] = M.argument(e, load, leaves, path .. "." .. i - 1)
  end
  return out
end

--- All arguments, the keywords as a last table, unpacked.
function M.arguments(args, kwargs, load, leaves)
  local out, n = {}, #args
  for i, a in ipairs(args) do
    out[i] = M.argument(a, load, leaves, tostring(i - 1))
  end
  if next(kwargs) ~= nil then
    n = n + 1
    out[n] = {}
    for key, a in pairs(kwargs) do
      out[n][key] = M.argument(a, load, leaves, key)
    end
  end
  return table.unpack(out, 1, n)
end

--- What a case of a function calls: fn(args) -> its packed results, and args,
--- the packed arguments. A call in place works on a copy, which is its result.
function M.call(c, load, leaves)
  local f = M.callable(c.op, c.call)
  local args = table.pack(M.arguments(c.args, c.kwargs or {}, load, leaves))
  if c.op == "Tensor.__getitem__" or c.op == "Tensor.__setitem__" then
    args[2] = M.index(c.args[2], load)
  end
  return function(a)
    if c.call ~= "inplace" then
      return table.pack(f(table.unpack(a, 1, a.n)))
    end
    local x = a[1]:clone()
    f(x, table.unpack(a, 2, a.n))
    return { n = 1, x }
  end, args
end

--- The packed argument at a PATH of one step.
function M.at(args, path)
  local at = math.tointeger(tonumber(path))
  local kw = type(args[args.n]) == "table" and args[args.n] or {}
  return at and args[at + 1] or kw[path]
end

-- ---- comparison -----------------------------------------------------------
local function shape_text(shape)
  return "[" .. table.concat(shape, ", ") .. "]"
end

local function dtype_name(t)
  return (tostring(t.dtype):gsub("^torch%.", ""))
end

local function flat(t)
  return t:detach():reshape({ -1 }):tolist()
end

local function close(a, e, rtol, atol)
  if a == e or (a ~= a and e ~= e) then
    return true, 0
  end
  local d = math.abs(a - e)
  return d <= atol + rtol * math.abs(e), d == d and d or math.huge
end

local function as_number(v)
  return type(v) == "boolean" and (v and 1 or 0) or v
end

--- Raises unless the tensor `a` is the tensor `e` within the tolerance; the
--- message has the worst element.
function M.near(a, e, rtol, atol, what)
  if not torch.is_tensor(a) then
    error(("%s: got %s, expected a tensor"):format(what, tostring(a)), 0)
  end
  if shape_text(a.shape) ~= shape_text(e.shape) or a.dtype ~= e.dtype then
    error(("%s: got %s %s, expected %s %s"):format(what, dtype_name(a), shape_text(a.shape),
      dtype_name(e), shape_text(e.shape)), 0)
  end
  local got, want, worst, at = flat(a), flat(e), -1, nil
  for i, v in ipairs(want) do
    local ok, d = close(as_number(got[i]), as_number(v), rtol, atol)
    if not ok and d > worst then
      worst, at = d, i
    end
  end
  if at then
    error(("%s: element %d is %s, expected %s"):format(what, at - 1, tostring(got[at]),
      tostring(want[at])), 0)
  end
end

--- Results in the order of PyTorch's: packed values, or one list.
function M.results(packed, want)
  if want.list and packed.n == 1 and type(packed[1]) == "table" then
    return packed[1]
  elseif want.list then
    return packed
  end
  return packed[1]
end

--- Raises unless `got` is as the OUT record says.
function M.check(got, want, c, load, what)
  if type(want) == "table" and want.list then
    if type(got) ~= "table" then
      error(("%s: got %s, expected %d results"):format(what, tostring(got), #want.list), 0)
    end
    local n = got.n or #got
    if n ~= #want.list then
      error(("%s: got %d results, expected %d"):format(what, n, #want.list), 0)
    end
    for i, w in ipairs(want.list) do
      M.check(got[i], w, c, load, what .. " " .. i - 1)
    end
  elseif type(want) == "table" and want.tensor then
    M.near(got, load(want.tensor), c.rtol or 0, c.atol or 0, what)
  elseif type(want) == "table" and want.shape then
    if shape_text(got.shape) ~= shape_text(want.shape) or dtype_name(got) ~= want.dtype then
      error(("%s: got %s %s, expected %s %s"):format(what, dtype_name(got), shape_text(got.shape),
        want.dtype, shape_text(want.shape)), 0)
    end
  else
    local w = want
    if type(want) == "table" then
      w = want.float and FLOATS[want.float] or want.dtype and torch[want.dtype]
    end
    local same = got == w or (want == null and (got == nil or got == torch.none))
    if not same and type(got) == "number" and type(w) == "number" then
      same = close(got, w, c.rtol or 0, c.atol or 0)
    end
    if not same then
      error(("%s: got %s, expected %s"):format(what, tostring(got), tostring(w)), 0)
    end
  end
end

--- The tensors in a result, depth first, appended to `out`.
local function leaves_of(v, out)
  if torch.is_tensor(v) then
    out[#out + 1] = v
  elseif type(v) == "table" then
    for i = 1, v.n or #v do
      if v[i] ~= nil and v[i] ~= torch.none then
        leaves_of(v[i], out)
      end
    end
  end
  return out
end
M.leaves_of = leaves_of

--- Differentiates the results by the cotangents and compares the gradients of
--- the leaves.
function M.check_gradients(results, leaves, c, load)
  local ys, seeds = {}, {}
  for i, y in ipairs(leaves_of({ results }, {})) do
    if c.cotangent[i] and c.cotangent[i] ~= null then
      ys[#ys + 1] = y
      seeds[#seeds + 1] = load(c.cotangent[i])
    end
  end
  torch.autograd.backward(ys, seeds)
  for path, key in pairs(c.grads or {}) do
    local leaf = leaves[path] or error("no argument at " .. path, 0)
    local g, want = leaf.grad, load(key)
    if g == nil and torch.equal(want, torch.zeros_like(want)) then
      g = want -- overwritten altogether: no gradient is a zero one
    end
    if not torch.is_tensor(g) then
      error(("gradient of %s: none"):format(path), 0)
    end
    M.near(g, want, c.grad_rtol, c.grad_atol, "gradient of " .. path)
  end
end

return M

--- What the specs share: tolerances per dtype, near(), raises(), logged(), places.
local M = {}

--- Absolute and relative tolerance of results in a dtype: a few units in the
--- last place for one operation, as in PyTorch's own comparison defaults.
M.tolerance = {
  float64 = { 1e-7, 1e-7 },
  float32 = { 1e-5, 1.3e-6 },
  float16 = { 1e-3, 1e-3 },
  bfloat16 = { 1e-2, 1.6e-2 },
}
M.exact = { 0, 0 }

local function dtype_name(x)
  return (tostring(x.dtype):gsub("^torch%.", ""))
end

-- First element that differs, as text; nil if none does.
local function difference(got, want, tol, at)
  if type(want) == "table" then
    if type(got) ~= "table" then
      return ("%s: got %s, want a list of %d"):format(at, tostring(got), #want)
    end
    if #got ~= #want then
      return ("%s: got %d elements, want %d"):format(at, #got, #want)
    end
    for i = 1, #want do
      local d = difference(got[i], want[i], tol, ("%s[%d]"):format(at, i - 1))
      if d then
        return d
      end
    end
    return nil
  end
  if type(got) ~= "number" or type(want) ~= "number" then
    return got ~= want and ("%s: got %s, want %s"):format(at, tostring(got), tostring(want)) or nil
  end
  local both_nan = got ~= got and want ~= want
  if both_nan or got == want then
    return nil
  end
  local close = math.abs(got - want) <= tol[1] + tol[2] * math.abs(want)
  if not close then -- also if either is NaN
    return ("%s: got %.9g, want %.9g"):format(at, got, want)
  end
  return nil
end

--- The tensor `t` has the shape and, within its dtype's tolerance (or the
--- given {absolute, relative}), the elements of the nested list, number or
--- tensor `want`.
function M.near(t, want, tol)
  if type(want) == "userdata" then
    want = want:tolist()
  end
  tol = tol or M.tolerance[dtype_name(t)] or M.exact
  local d = difference(t:tolist(), want, tol, "x")
  if d then
    error(d .. "\nin " .. tostring(t), 2)
  end
  return true
end

--- fn() raises an error of torch.errors[class] whose message matches
--- `pattern` (nil: any); returns the error.
function M.raises(class, pattern, fn)
  local errors = require("lupine.base.errors")
  local ok, e = pcall(fn)
  if ok then
    error("nothing was raised", 2)
  end
  local cls = errors[class] or error("torch.errors has no " .. class, 2)
  if not cls:is(e) then
    error(("raised %s, which is no %s"):format(tostring(e), class), 2)
  end
  if pattern and not e.message:find(pattern) then
    error(("message %q does not match %q"):format(e.message, pattern), 2)
  end
  return e
end

--- f(…) raises as in M.raises.
function M.refuses(class, pattern, f, ...)
  local arguments = table.pack(...)
  return M.raises(class, pattern, function()
    f(table.unpack(arguments, 1, arguments.n))
  end)
end

--- The names in a module's state_dict, in its order.
function M.state_keys(module)
  local out = {}
  for name in pairs(module:state_dict()) do
    out[#out + 1] = name
  end
  return out
end

--- owner[name] is `by(original, …)` until what is returned closes.
function M.replaced(owner, name, by)
  local original = owner[name]
  owner[name] = function(...)
    return by(original, ...)
  end
  return setmetatable({}, { __close = function()
    owner[name] = original
  end })
end

--- Thousands of Lua instructions that f takes: work, which no other process slows.
function M.work(f)
  local thousands = 0
  debug.sethook(function()
    thousands = thousands + 1
  end, "", 1000)
  f()
  debug.sethook()
  return thousands
end

--- The lines that f logs, as one text.
function M.logged(f)
  local core = require("lupine.core")
  local log, lines = core.host.log, {}
  core.host.log = function(_, line)
    lines[#lines + 1] = line
  end
  local ok, e = pcall(f)
  core.host.log = log
  assert(ok, e)
  return table.concat(lines, "\n")
end

return M

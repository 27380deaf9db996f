--- lupine.compile: a function of tensors as a compiled program.
---
---     local f = lupine.compile(function(x, w) return (x * w):sum() end, {x, w})
---     local y = f(x, w)
---
--- The function is traced once, for the shapes and types of the inputs given;
--- tensors it captures are constants with the values they have now. There is
--- no device and no options object: any dtype works.
local arguments = require("lupine.arguments")
local check = require("lupine.check")
local core = require("lupine.core")
local errors = require("torch.errors")

local function sizes(shape)
  local out = {}
  for i = 1, #shape do
    out[i] = shape[i]
  end
  return out
end

local function trace(fn, inputs, cotangents)
  local tr = core.trace()
  local stand_ins = {}
  for i, x in ipairs(inputs) do
    stand_ins[i] = tr:declare("input", "input_" .. i, nil, sizes(x.shape), x.dtype)
  end
  for i, c in ipairs(cotangents) do
    tr:declare("input", "cotangent_" .. i, nil, sizes(c.shape), c.dtype)
  end
  tr:start()
  local results = table.pack(pcall(fn, table.unpack(stand_ins, 1, #inputs)))
  tr:stop()
  if not results[1] then
    error(results[2], 0)
  end
  local tensors, spec = {}, { n = results.n - 1 }
  for i = 1, spec.n do
    spec[i] = arguments.flatten(results[i + 1], "result", tensors)
  end
  for i, t in ipairs(tensors) do
    tensors[i] = t.tensor
  end
  return (tr:step(tensors)), spec
end

local function index(step)
  local at = {}
  for i, v in ipairs(step:vars()) do
    at[v.role .. " " .. v.name] = at[v.role .. " " .. v.name] or i
  end
  return at
end

-- Asks for gradients of all outputs that have a cotangent.
local function differentiate(step, cotangents, wrt)
  local at = index(step)
  local outs, cots, ins = {}, {}, {}
  for i = 1, #cotangents do
    outs[i] = at["output output_" .. i]
    cots[i] = at["input cotangent_" .. i]
    errors.check(outs[i], "ValueError", "cotangents: %d given, the function returns %d tensors",
      #cotangents, i - 1)
  end
  for i, k in ipairs(wrt) do
    ins[i] = at["input input_" .. k]
    errors.check(ins[i], "ValueError", "wrt: there is no input %s", tostring(k))
  end
  return step:gradients(outs, cots, ins)
end

local OPTIONS = { cotangents = true, wrt = true, fuse = true, blocked = true, threads = true }

--- Compiles `fn` for inputs like these. With `cotangents` (a tensor for each
--- result) the program also computes gradients; the compiled function then
--- takes the cotangents as a last list and returns the list of gradients
--- after fn's results.
--- error: RuntimeError for what cannot be traced, or inputs of other shapes
---@param fn fun(...: torch.Tensor): ...
---@param inputs torch.Tensor[]
---@param opts? {cotangents: torch.Tensor[], wrt: integer[], fuse: boolean, blocked: boolean,
---  threads: integer} wrt: numbers of inputs, from 1 (default: all); fuse, blocked: chains of
---  pointwise operators as one pass, blocked layouts of images (default true)
---@return fun(...: torch.Tensor): ...
local function compile(fn, inputs, opts)
  errors.check(type(fn) == "function", "TypeError", "compile(fn): expected a function, got %s",
    check.describe(fn))
  errors.check(type(inputs) == "table", "TypeError",
    "compile(inputs): expected a list of tensors, got %s", check.describe(inputs))
  opts = opts or {}
  for key in pairs(opts) do
    errors.check(OPTIONS[key], "TypeError", "compile: unknown option '%s'", tostring(key))
  end
  local cotangents = opts.cotangents or {}
  local step, spec = trace(fn, inputs, cotangents)
  local wrt = opts.wrt
  if not wrt then
    wrt = {}
    for i = 1, #inputs do
      wrt[i] = i
    end
  end
  local first_grad = opts.cotangents and differentiate(step, cotangents, wrt)
  step:complete({})
  local at = index(step)
  local exec = step:compile({ fuse = opts.fuse, blocked = opts.blocked, threads = opts.threads })
  return function(...)
    local args, feed = table.pack(...), {}
    for i = 1, #inputs do
      feed[at["input input_" .. i]] = args[i]
    end
    local given = args[#inputs + 1] or {}
    for i = 1, #cotangents do
      feed[at["input cotangent_" .. i]] = given[i]
    end
    local got, n = exec:run(feed, {}), 0
    for i = 1, #inputs do -- an input that the function writes in place
      local written = at["output input_" .. i]
      if written then
        require("torch").no_grad(function()
          args[i]:copy_(got[written])
        end)
      end
    end
    local out = {}
    for i = 1, spec.n do
      out[i] = arguments.rebuild(spec[i], function()
        n = n + 1
        return got[at["output output_" .. n]]
      end)
    end
    if first_grad then
      local grads = {}
      for i = 1, #wrt do
        grads[i] = got[first_grad + i - 1]
      end
      out[spec.n + 1] = grads
    end
    return table.unpack(out, 1, spec.n + (first_grad and 1 or 0))
  end
end

return compile

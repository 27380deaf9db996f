--- Our side of single operators, in a process of its own, which operators.lua drives:
---     lupine spec/bench/operators/ours.lua THREADS
--- It obeys lines of its input, with an answer each:
---     pool SIZE FILE            reads the tensors (pool.lua)
---     make SIZE FILE            writes them instead
---     case GRADS EXPRESSION     what to time; GRADS: `-`, or names with commas between,
---                               for the gradients too. Answers `sum`, of magnitudes
---     time SECONDS              answers `ms`, of one evaluation, and what collecting
---                               garbage took of it
package.path = "./?.lua;" .. package.path

local core = require("lupine.core")
local pool = require("spec.bench.operators.pool")
local torch = require("torch")

local clock = os.getenv("CLOCK") == "cpu" and os.clock or core.host.clock
local CHUNK = 5e-4 -- seconds between two looks at the clock, at least
local WARM = 0.02 -- seconds before them: threads of the other side look for work some time
local tensors, run

local FORWARD = [[
return function(count)
  local result
  for _ = 1, count do
    result = EXPRESSION
  end
  return result
end]]

-- The gradient comes in as -3, -2 .. 3, again and again: with ones those of
-- normalisations are zero.
local BACKWARD = [[
local seed, wrt = nil, { NAMES }
return function(count)
  local result
  for _ = 1, count do
    local out = EXPRESSION
    seed = seed or (torch.arange(out:numel()) % 7 - 3):to(out.dtype):view_as(out)
    result = torch.autograd.grad(out, wrt, seed)
  end
  return result
end]]

local function compile(grads, expression)
  local env = setmetatable({ torch = torch, F = torch.nn.functional, select = select },
    { __index = tensors })
  local code = FORWARD
  if grads ~= "-" then
    for name in grads:gmatch("[^,]+") do
      env[name] = tensors[name]:detach():requires_grad_()
    end
    code = BACKWARD:gsub("NAMES", (grads:gsub("%%", "%%%%")))
  end
  local names = {}
  for word in expression:gmatch("%f[%w_.:\"][%a_][%w_]*") do
    names[word] = env[word] ~= nil or nil
  end
  -- Locals, as a script would have them.
  local head = ""
  for name in pairs(names) do
    head = head .. ("local %s = %s\n"):format(name, name)
  end
  code = head .. code:gsub("EXPRESSION", (expression:gsub("%%", "%%%%")))
  return assert(load(code, "=case", "t", env))()
end

local function magnitude(result)
  local sum = 0
  for _, t in ipairs(type(result) == "table" and result or { result }) do
    sum = sum + t:detach():double():abs():sum():item()
  end
  return sum
end

-- Seconds of a call, all that was done for it included: a mean, as collections are
-- seldom and long.
local function measure(seconds)
  local count, t, begin = 1, 0, core.host.clock()
  repeat -- how many calls a chunk has; the first ones wake threads and caches
    count = t > 0 and t < CHUNK and math.min(count * 8, math.ceil(CHUNK / t * count)) or count
    local start = clock()
    run(count)
    t = clock() - start
  until t >= CHUNK and core.host.clock() - begin >= WARM
  local calls, start = 0, clock()
  while true do
    run(count)
    calls = calls + count
    local took = clock() - start
    if took >= seconds then
      return took / calls
    end
  end
end

local function answer(line)
  local word, rest = line:match("^(%S+) (.*)$")
  if word == "pool" then
    local size, path = rest:match("^(%d+) (.*)$")
    tensors = pool.read(math.tointeger(tonumber(size)), path)
    return "read"
  elseif word == "make" then
    local size, path = rest:match("^(%d+) (.*)$")
    pool.write(math.tointeger(tonumber(size)), path)
    return "made"
  elseif word == "case" then
    run = compile(rest:match("^(%S+) (.*)$"))
    return ("sum %.9g"):format(magnitude(run(1)))
  end
  local ms = measure(tonumber(rest)) * 1e3
  return ("ms %.9g"):format(ms)
end

torch.set_num_threads(math.tointeger(tonumber(arg[1])))
print("ready")
io.stdout:flush()
for line in io.lines() do
  local ok, text = pcall(answer, line)
  print(ok and text or "failed " .. tostring(text):gsub("\n.*", ""))
  io.stdout:flush()
end

--- torch.Generator: a source of random numbers of its own, for samplers and
--- random_split. Without one they draw from the global state, so that
--- torch.manual_seed makes a whole script repeatable.
---
--- A state is (seed, calls since seeding), as that of the global generator;
--- a draw is a hash of both. Method: splitmix64 (Steele, Lea and Flood, 2014).
local check = require("lupine.check")
local class = require("lupine.class")
local core = require("lupine.core")
local errors = require("torch.errors")

---@class torch.Generator
local Generator = class.new("Generator")

-- splitmix64's step over 64-bit integers that wrap.
local function mix(x)
  x = x + 0x9e3779b97f4a7c15
  x = (x ~ x >> 30) * 0xbf58476d1ce4e5b9
  x = (x ~ x >> 27) * 0x94d049bb133111eb
  return x ~ x >> 31
end

function Generator:init(device)
  errors.check(device == nil or device == "cpu", "RuntimeError",
    "Generator: device: allowed is 'cpu', got %s", check.describe(device))
  self._seed, self._calls = 67280421310721, 0 -- PyTorch's default seed
end

---@param seed integer
---@return torch.Generator self
function Generator:manual_seed(seed)
  self._seed, self._calls = check.int(seed, "manual_seed: seed"), 0
  return self
end

--- Seeds with the time.
---@return integer seed
function Generator:seed()
  self:manual_seed(mix(os.time() ~ (core.host.clock() * 1e9) // 1 | 0) >> 1)
  return self._seed
end

---@return integer
function Generator:initial_seed()
  return self._seed
end

--- The state as a tensor of bytes.
function Generator:get_state()
  local torch = require("torch")
  return torch.frombuffer(string.pack("=i8i8", self._seed, self._calls), { dtype = torch.uint8 })
end

function Generator:set_state(new_state)
  local torch = require("torch")
  errors.check(torch.is_tensor(new_state) and new_state.dtype == torch.uint8
    and new_state:numel() == 16, "TypeError",
    "set_state: new_state: expected a tensor that get_state() gave, got %s",
    check.describe(new_state))
  self._seed, self._calls = string.unpack("=i8i8", new_state:tobytes())
  return self
end

--- A 64-bit integer that starts a stream: the next one of this generator.
---@return integer
function Generator:_draw()
  self._calls = self._calls + 1
  return mix(mix(self._seed) ~ self._calls)
end

--- The same of `generator`, or of the global state if it is nil.
---@param generator torch.Generator?
---@return integer
function Generator._draw_from(generator)
  if generator then
    return generator:_draw()
  end
  local source = Generator():set_state(core.get_rng_state())
  local value = source:_draw()
  core.set_rng_state(source:get_state())
  return value
end

--- A function that gives whole numbers 0 <= x < n, as a stream of `start`.
---@param start integer
---@return fun(n: integer): integer
function Generator._stream(start)
  local state = start
  return function(n)
    state = state + 0x9e3779b97f4a7c15
    local word = mix(state) >> 32 -- 32 bits; the bias is below n / 2^32
    return word * n >> 32
  end
end

--- The numbers 0 … n-1 in an order that `start` fixes (Fisher and Yates, in
--- Durstenfeld's form), as a list.
---@param n integer
---@param start integer
---@return integer[]
function Generator._permutation(n, start)
  local below = Generator._stream(start)
  local list = {}
  for i = 1, n do
    list[i] = i - 1
  end
  for i = n, 2, -1 do
    local j = below(i) + 1
    list[i], list[j] = list[j], list[i]
  end
  return list
end

return Generator

--- What draws indices: permutations and draws with replacement, from a
--- torch.Generator or, without one, from the global state, so that
--- torch.manual_seed makes a whole script repeatable; and streams of random numbers
--- beside the global one.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")

local M = {}

--- Checks an optional torch.Generator and returns it, nil for none.
---@param value any
---@param where string for messages
---@return torch.Generator?
function M.generator(value, where)
  if check.is_none(value) then
    return nil
  end
  local mt = type(value) == "userdata" and getmetatable(value)
  errors.check(mt and mt.__name == "torch.Generator", "TypeError",
    "%s: generator: expected torch.Generator, got %s", where, check.describe(value))
  return value
end

--- The numbers 0 … n-1 in random order, an int64 tensor.
---@param n integer
---@param generator torch.Generator?
---@return torch.Tensor int64 [n]
function M.permutation(n, generator)
  return require("torch").randperm(n, { generator = generator, dtype = require("torch").int64 })
end

--- `count` numbers of 0 … n-1, each drawn anew, an int64 tensor.
---@param n integer
---@param count integer
---@param generator torch.Generator?
---@return torch.Tensor int64 [count]
function M.draws(n, count, generator)
  local torch = require("torch")
  return torch.randint(0, n, { count }, { generator = generator, dtype = torch.int64 })
end

--- A seed for the random numbers of an epoch.
---@param generator torch.Generator?
---@return integer
function M.seed(generator)
  return M.draws(math.maxinteger, 1, generator):item()
end

-- ---- streams of their own ---------------------------------------------------

--- torch's and Lua's random numbers as they are now.
---@return {torch: torch.Tensor, lua: torch.Tensor}
function M.state()
  return { torch = core.get_rng_state(), lua = core.lua_random() }
end

--- They go on from there.
---@param state {torch: torch.Tensor, lua: torch.Tensor}
function M.set_state(state)
  core.set_rng_state(state.torch)
  core.lua_random(state.lua)
end

--- Both begin at a seed.
---@param seed integer
function M.seed_all(seed)
  core.manual_seed(seed)
  math.randomseed(seed)
end

local Kept = { __close = function(kept)
  if kept.stream then
    kept.stream.state = M.state()
  end
  M.set_state(kept.state)
end }

--- To be closed: the caller's random numbers go on then as if none had been drawn.
---@return table
function M.keep()
  return setmetatable({ state = M.state() }, Kept)
end

--- Random numbers of their own: what a function draws in `stream(fn, ...)` goes on
--- where the last one ended, and the caller's stay as they are.
---@param seed integer
---@return fun(fn: fun(...: any): ...): ...
function M.stream(seed)
  local stream = {}
  return function(fn, ...)
    local _ <close> = setmetatable({ state = M.state(), stream = stream }, Kept)
    if stream.state then
      M.set_state(stream.state)
    else
      M.seed_all(seed)
    end
    return fn(...)
  end
end

return M

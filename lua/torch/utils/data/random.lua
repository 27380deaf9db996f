--- What draws indices: permutations and draws with replacement, from a
--- torch.Generator or, without one, from the global state, so that
--- torch.manual_seed makes a whole script repeatable.
local check = require("lupine.base.check")
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

return M

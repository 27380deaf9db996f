--- Values by a formula, the same in any language: a hash of the element's number and of a
--- number of the tensor, in -1..1, and a model's weights made of it.
local torch = require("torch")

local M = {}

--- [n] float64 in -1..1.
---@param n integer
---@param i integer
---@return torch.Tensor
function M.hashed(n, i)
  local x = ((torch.arange(n) + 1) * 2654435761 + i * 40503) & 0xffffffff
  x = ((x ~ (x >> 15)) * 0x2c1b3c6d) & 0xffffffff
  x = x ~ (x >> 12)
  x = (x * 0x297a2d39) & 0xffffffff
  x = x ~ (x >> 15)
  return x:double() / 2 ^ 31 - 1
end

--- Fills a model: entry i of its state_dict by the hash of i, matrices scaled by their
--- fan in, variances and factors around 1.
---@param model torch.nn.Module
function M.fill(model)
  local i = -1
  for name, t in pairs(model:state_dict()) do
    i = i + 1
    if t.dtype == torch.float32 then
      local s = M.hashed(t:numel(), i):reshape(t.shape)
      if name:find("running_var$") then
        s = 1 + 0.3 * s
      elseif name:find("layer_scale", 1, true) then
        s = 0.5 + 0.1 * s
      elseif t:dim() >= 2 then
        s = s * math.sqrt(4.8 / (t:numel() // t:size(0)))
      else
        s = 0.1 * s + (name:find("weight$") and 1 or 0)
      end
      torch.no_grad(function()
        t:copy_(s)
      end)
    end
  end
end

--- Calls fn while no layer fills its parameters, for models of which only names and
--- shapes matter.
---@param fn function
---@return any
function M.unfilled(fn)
  local init = torch.nn.init
  local kept = {}
  for name, value in next, init do
    if name:find("_$") then
      kept[name] = value
      init[name] = function(t)
        return t
      end
    end
  end
  local result = table.pack(pcall(fn))
  for name, value in next, kept do
    init[name] = value
  end
  assert(table.unpack(result, 1, 2))
  return table.unpack(result, 2, result.n)
end

--- The 64-bit hash of Fowler, Noll and Vo (1a), in hexadecimal.
---@param text string
---@return string
function M.fnv(text)
  local h = 0xcbf29ce484222325
  for i = 1, #text do
    h = (h ~ text:byte(i)) * 0x100000001b3
  end
  return ("%016x"):format(h)
end

return M

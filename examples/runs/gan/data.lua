-- Points around eight places on a circle.
local torch = require("torch")

local M = { places = 8, deviation = 0.1 }

--- The places' middles, [8, 2].
---@return torch.Tensor
function M.middles()
  local angle = torch.arange(M.places):float() * (2 * math.pi / M.places)
  return torch.stack({ angle:cos(), angle:sin() }, 1) * 2
end

---@param count integer
---@param seed integer
---@return torch.utils.data.TensorDataset
function M.points(count, seed)
  local g = torch.Generator()
  g:manual_seed(seed)
  local place = torch.randint(0, M.places, { count }, { generator = g })
  local noise = torch.randn({ count, 2 }, { generator = g }) * M.deviation
  return torch.utils.data.TensorDataset(M.middles()[place] + noise)
end

return M

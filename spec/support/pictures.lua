--- Seeded pictures in the place of data sets that the ported tutorials
--- download: a square of each class's own place and brightness in noise.
local torch = require("torch")

local Pictures = torch.utils.data.Dataset:extend("Pictures")

--- Pictures(count, {channels = 1, size = 28, classes = 10, seed = 0,
--- transform = nil}): elements are a float32 tensor [channels, size, size] of
--- numbers from 0 to 1 and a label.
function Pictures:init(count, options)
  options = options or {}
  local classes, size = options.classes or 10, options.size or 28
  local generator = torch.Generator():manual_seed(options.seed or 0)
  self.transform = options.transform
  self.targets = torch.randint(0, classes, { count }, { generator = generator })
  self.data = torch.rand({ count, options.channels or 1, size, size }, { generator = generator })
    * 0.3
  local side = size // 4
  for i = 0, count - 1 do
    local class = self.targets[i]:item()
    local row, column = class // 4 * side, class % 4 * side
    self.data[{ i, torch.ellipsis, torch.slice(row, row + side),
      torch.slice(column, column + side) }]:add_(0.6)
  end
end

function Pictures:__len__()
  return #self.targets
end

function Pictures:__getitem__(i)
  local image = self.data[i]
  return self.transform and self.transform(image) or image, self.targets[i]:item()
end

return Pictures

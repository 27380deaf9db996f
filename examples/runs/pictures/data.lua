-- Pictures in folders: shapes/train/CLASS/0001.png and shapes/validation/CLASS/0001.png,
-- drawn when they are not there yet. With pictures of your own in such folders, of any
-- size, `folder` is all that is needed.
local torch = require("torch")
local torchvision = require("torchvision")
local transforms = torchvision.transforms

local M = {}

local SIZE = 32
local COUNTS = { train = 50, validation = 75 } -- of each class

-- Which points of a picture are inside the shape: u and v are coordinates in units of
-- its size, turned by its angle.
local SHAPES = {
  circle = function(u, v)
    return (u * u + v * v):lt(1)
  end,
  cross = function(u, v)
    local both = torch.maximum(u:abs(), v:abs())
    return both:lt(1):logical_and(torch.minimum(u:abs(), v:abs()):lt(0.3))
  end,
  square = function(u, v)
    return torch.maximum(u:abs(), v:abs()):lt(0.8)
  end,
  triangle = function(u, v)
    return v:lt(0.6):logical_and((u:abs() * 1.6 - v):lt(1))
  end,
}

local function uniform(g, from, to)
  return from + (to - from) * torch.rand({ 1 }, { generator = g }):item()
end

-- A shape of any place, size, angle and colour on a noisy ground.
local function draw(inside, g)
  local line = torch.arange(SIZE):float()
  local y, x = line:unsqueeze(1) - uniform(g, 11, 21), line:unsqueeze(0) - uniform(g, 11, 21)
  local size, angle = uniform(g, 6, 11), uniform(g, 0, 2 * math.pi)
  local u = (x * math.cos(angle) + y * math.sin(angle)) / size
  local v = (y * math.cos(angle) - x * math.sin(angle)) / size
  local colors = torch.rand({ 2, 3, 1, 1 }, { generator = g }) * 0.5
  local picture = torch.where(inside(u, v), colors[0] + 0.5, colors[1])
  picture = picture + 0.25 * torch.randn({ 3, SIZE, SIZE }, { generator = g })
  return (picture:clamp(0, 1) * 255):to(torch.uint8)
end

local function exists(path)
  local file = io.open(path)
  return file and file:close()
end

-- Into a folder of another name, so that ROOT has all pictures or is not there.
local function write(root)
  local unfinished = root .. ".part"
  local g = torch.Generator()
  for part, count in pairs(COUNTS) do
    for class, inside in pairs(SHAPES) do
      local folder = ("%s/%s/%s"):format(unfinished, part, class)
      assert(os.execute("mkdir -p '" .. folder .. "'"))
      g:manual_seed(#part * 1000 + class:byte(2))
      for i = 1, count do
        torchvision.io.write_png(draw(inside, g), ("%s/%04d.png"):format(folder, i))
      end
    end
  end
  assert(os.rename(unfinished, root))
end

-- What is done to each picture of training, anew in each epoch; a picture and its mirror
-- image, shifted, turned or in other colours, are of the same class.
local augmented = {
  transforms.RandomCrop(SIZE, { padding = 3, padding_mode = "edge" }),
  transforms.RandomHorizontalFlip(),
  transforms.RandomVerticalFlip(),
  transforms.ColorJitter(0.3, 0.3, 0.3, 0.2),
}
local plain = { transforms.ToTensor(), transforms.Normalize({ 0.5, 0.5, 0.5 }, { 0.3, 0.3, 0.3 }) }

--- The pictures of root/part as tensors [3, 32, 32] with their classes.
---@param root string
---@param part string "train" or "validation"
---@param augment? boolean
---@return torch.utils.data.Dataset
function M.folder(root, part, augment)
  if not exists(root) then
    write(root)
  end
  local steps = { transforms.Resize({ SIZE, SIZE }) } -- nothing to do for those drawn here
  for _, more in ipairs({ augment and augmented or {}, plain }) do
    table.move(more, 1, #more, #steps + 1, steps)
  end
  return torchvision.datasets.ImageFolder(root .. "/" .. part,
    { transform = transforms.Compose(steps) })
end

return M

--- Data sets that Debian packages.
local check = require("lupine.check")
local core = require("lupine.core")
local errors = require("torch.errors")

local M = {}

local FOLDER = "/usr/share/datasets/fashion-mnist"
local PACKAGE = "dataset-fashion-mnist"

--- Names of Fashion-MNIST's classes; class 0 is element 1.
M.FASHION_MNIST_CLASSES = { "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal",
  "Shirt", "Sneaker", "Bag", "Ankle boot" }

local function exists(path)
  local f = io.open(path, "rb")
  if f then
    f:close()
  end
  return f ~= nil
end

--- Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): pictures of 28 x 28 in ten
--- classes, 60,000 to train and 10,000 to test.
--- error: ValueError for damaged files
---@param train? boolean true unless given
---@param root? string folder of the four files; that of the Debian package
---@return torch.Tensor? images uint8 [n, 28, 28]; nil if the files are missing
---@return torch.Tensor|string labels int64 [n], or what to install
function M.FashionMNIST(train, root)
  train = train == nil or check.bool(train, "FashionMNIST: train")
  root = check.string(root or FOLDER, "FashionMNIST: root")
  local prefix = ("%s/%s"):format(root, train and "train" or "t10k")
  local paths = { prefix .. "-images-idx3-ubyte.gz", prefix .. "-labels-idx1-ubyte.gz" }
  for _, path in ipairs(paths) do
    if not exists(path) then
      return nil, ("Fashion-MNIST: %s is missing: install the Debian package %s"):format(path,
        PACKAGE)
    end
  end
  local torch = require("torch")
  local images, labels = core.read_idx(paths[1]), core.read_idx(paths[2])
  errors.check(images:dim() == 3 and labels:dim() == 1 and images:size(0) == labels:size(0)
    and images.dtype == torch.uint8 and labels.dtype == torch.uint8, "ValueError",
    "Fashion-MNIST: %s has images %s and labels %s, which do not fit together", root,
    tostring(images.shape), tostring(labels.shape))
  return images, labels:to(torch.int64)
end

return M

--- Data sets: those that Debian packages, and folders of images.
local check = require("lupine.base.check")
local core = require("lupine.core")
local errors = require("lupine.base.errors")
local exists = require("lupine.base.exists")

local M = {}

local FOLDER = "/usr/share/datasets/fashion-mnist"
local PACKAGE = "dataset-fashion-mnist"

--- Names of Fashion-MNIST's classes; class 0 is element 1.
M.FASHION_MNIST_CLASSES = { "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal",
  "Shirt", "Sneaker", "Bag", "Ankle boot" }

-- Paths of the pictures and the labels; nil and what to install if one is
-- missing.
local function fashion_files(train, root)
  local prefix = ("%s/%s"):format(root, train and "train" or "t10k")
  local paths = { prefix .. "-images-idx3-ubyte.gz", prefix .. "-labels-idx1-ubyte.gz" }
  for _, path in ipairs(paths) do
    if not exists(path) then
      return nil, ("Fashion-MNIST: %s is missing: install the Debian package %s"):format(path,
        PACKAGE)
    end
  end
  return paths
end

local function read_fashion(paths)
  local torch = require("torch")
  local images, labels = core.read_idx(paths[1]), core.read_idx(paths[2])
  errors.check(images:dim() == 3 and labels:dim() == 1 and images:size(0) == labels:size(0)
    and images.dtype == torch.uint8 and labels.dtype == torch.uint8, "ValueError",
    "Fashion-MNIST: %s and %s have images %s and labels %s, which do not fit together", paths[1],
    paths[2], tostring(images.shape), tostring(labels.shape))
  return images, labels:to(torch.int64)
end

local FashionMNIST

-- Made when first asked for: torch.utils.data loads datasets of its own.
local function fashion_mnist()
  if FashionMNIST then
    return FashionMNIST
  end
  FashionMNIST = require("torch.utils.data").Dataset:extend("FashionMNIST")

  function FashionMNIST:init(paths, train, transform, target_transform)
    self.train, self.transform, self.target_transform = train, transform, target_transform
    self.data, self.targets = read_fashion(paths)
    self.classes, self.class_to_idx = M.FASHION_MNIST_CLASSES, {}
    for i, name in ipairs(self.classes) do
      self.class_to_idx[name] = i - 1
    end
  end

  function FashionMNIST:__len__()
    return self.data:size(0)
  end

  function FashionMNIST:__getitem__(i)
    local x, y = self.data[i]:unsqueeze(0), self.targets[i]:item()
    if self.transform then
      x = self.transform(x)
    end
    if self.target_transform then
      y = self.target_transform(y)
    end
    return x, y
  end
  return FashionMNIST
end

-- torchvision's parameters.
local TORCHVISION = { "root", "train", "transform", "target_transform", "download" }

-- The data set that torchvision's class is. The Debian package is what there is
-- to download.
local function pairs_of_fashion(...)
  local a = check.arguments("FashionMNIST", TORCHVISION, nil, ...)
  local train = a[2] == nil or check.bool(a[2], "FashionMNIST: train")
  local root = check.string(a[1] or FOLDER, "FashionMNIST: root")
  for i = 3, 4 do
    if not check.is_none(a[i]) then
      check.callable(a[i], "FashionMNIST: " .. TORCHVISION[i])
    end
  end
  local paths, missing = fashion_files(train, root)
  if not paths and check.bool(a[5] or false, "FashionMNIST: download") then
    paths, missing = fashion_files(train, FOLDER)
  end
  if not paths then
    return nil, missing
  end
  local function given(x)
    return not check.is_none(x) and x or nil
  end
  return fashion_mnist()(paths, train, given(a[3]), given(a[4]))
end

--- Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): pictures of 28 x 28 in ten
--- classes, 60,000 to train and 10,000 to test. FashionMNIST(train, root) gives
--- two tensors. Called as torchvision's class, with a folder or keywords first
--- (root, train, transform, target_transform, download), it gives a data set of
--- pairs: a picture, uint8 [1, 28, 28] or what transform makes of it, and its
--- class; download takes the files of the Debian package where root has none.
--- error: ValueError for damaged files
---@param ... any train (true), root (that of the Debian package); or torchvision's
---@return torch.Tensor|torch.utils.data.Dataset|nil images uint8 [n, 28, 28], or the data
---        set; nil if the files are missing
---@return torch.Tensor|string|nil labels int64 [n], or what to install
function M.FashionMNIST(...)
  local train, root = ...
  if type(train) == "string" or check.is_keywords(train) or check.is_keywords(root) then
    return pairs_of_fashion(...)
  end
  check.most("FashionMNIST", 2, ...)
  train = train == nil or check.bool(train, "FashionMNIST: train")
  local paths, missing = fashion_files(train, check.string(root or FOLDER, "FashionMNIST: root"))
  if not paths then
    return nil, missing
  end
  return read_fashion(paths)
end

-- ---- text ------------------------------------------------------------------

--- The King James Bible (1611), 31,102 verses in 4.2 MB of text, one verse a
--- line ("In the beginning God created the heaven and the earth."). Of the
--- Debian packages bible-kjv and bible-kjv-text: the text is stored compressed,
--- the program `bible` prints it.
---@return string? text nil if the packages are missing
---@return string? what to install
function M.KingJamesBible()
  local pipe = io.popen("bible -f gen1:1-rev22:21 2>/dev/null")
  local text = pipe and pipe:read("a") or ""
  if pipe then
    pipe:close()
  end
  if #text == 0 then
    return nil, "King James Bible: the program bible is missing: install the Debian packages "
      .. "bible-kjv and bible-kjv-text"
  end
  return (text:gsub("%f[^\n\0]%S+ ", ""))
end

--- The characters of a text as numbers: their places, from 0, in the sorted
--- list of the characters that occur.
---@param text string
---@return torch.Tensor ids int64 [#text]
---@return string[] characters
function M.characters(text)
  local torch = require("torch")
  check.string(text, "characters: text")
  local bytes = torch.frombuffer(text, { dtype = torch.uint8 }):to(torch.int64)
  local characters, places = {}, {}
  for byte, count in ipairs(torch.bincount(bytes, { minlength = 256 }):tolist()) do
    places[byte] = #characters
    if count > 0 then
      characters[#characters + 1] = string.char(byte - 1)
    end
  end
  return torch.tensor(places):index_select(0, bytes), characters
end

-- ---- folders of images -------------------------------------------------------

local ENDINGS = { png = true, jpg = true, jpeg = true }

local function has_ending(name)
  return ENDINGS[(name:match("%.(%w+)$") or ""):lower()] ~= nil
end

-- The images below a folder, its own first, in order of their names.
local function walk(folder, out)
  local folders, files = core.list_folder(folder)
  table.sort(folders)
  table.sort(files)
  for _, name in ipairs(files) do
    if has_ending(name) then
      out[#out + 1] = folder .. "/" .. name
    end
  end
  for _, name in ipairs(folders) do
    walk(folder .. "/" .. name, out)
  end
  return out
end

local ImageFolder

-- Made when first asked for: torch.utils.data loads datasets of its own.
local function image_folder()
  if ImageFolder then
    return ImageFolder
  end
  local data = require("torch.utils.data")
  ImageFolder = data.Dataset:extend("ImageFolder")

  function ImageFolder:init(root, transform, target_transform)
    self.root, self.transform, self.target_transform = root, transform, target_transform
    self.classes, self.class_to_idx, self.samples, self.targets = {}, {}, {}, {}
    self.classes = core.list_folder(root)
    table.sort(self.classes)
    for i, name in ipairs(self.classes) do
      local before = #self.samples
      self.class_to_idx[name] = i - 1
      for _, path in ipairs(walk(root .. "/" .. name, {})) do
        self.samples[#self.samples + 1] = { path, i - 1 }
        self.targets[#self.samples] = i - 1
      end
      errors.check(#self.samples > before, "OSError",
        "ImageFolder: class '%s' has no images (.png, .jpg, .jpeg)", name)
    end
    errors.check(#self.classes > 0, "OSError", "ImageFolder: %s has no folders of classes", root)
  end

  function ImageFolder:__len__()
    return #self.samples
  end

  function ImageFolder:__getitem__(i)
    local sample = errors.check(self.samples[i + 1], "IndexError",
      "index %s of %d images", tostring(i), #self.samples)
    local x, y = core.read_image(sample[1], "rgb"), sample[2]
    x = self.transform and self.transform(x) or x
    return x, self.target_transform and self.target_transform(y) or y
  end
  return ImageFolder
end

--- A data set of PNG and JPEG images, one folder a class: root/CLASS/…/NAME.png
--- is a sample of CLASS. Classes count from 0 in order of their names. Fields
--- as torchvision's: classes, class_to_idx, samples, targets.
--- errors: OSError (no folder, a class without images); reading a sample that
--- is damaged raises ValueError
---@param root string
---@param ... any {transform = f, target_transform = f}
---@return torch.utils.data.Dataset samples: uint8 [3, h, w] (or what transform
---        makes of it), class
function M.ImageFolder(root, ...)
  local a = check.arguments("ImageFolder", { "root", "transform", "target_transform" }, nil, root,
    ...)
  return image_folder()(check.string(a[1], "ImageFolder: root"), a[2], a[3])
end

return require("lupine.base.namespace").close(M, "lupine.datasets")

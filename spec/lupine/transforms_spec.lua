-- Transforms of images: values by their definitions; random ones by what they
-- may give.
local files = require("spec.support.files")
local T = require("lupine.transforms")
local datasets = require("lupine.datasets")
local helper = require("spec.helper")
local images = require("lupine.images")
local torch = require("torch")

local raises = helper.raises

local function ramp(c, h, w)
  return torch.arange(c * h * w):reshape({ c, h, w }):to(torch.uint8)
end

describe("transforms", function()
  it("convert types by their ranges and normalise channels", function()
    local x = torch.tensor({ { { 0, 51, 255 } }, { { 0, 51, 255 } } }):to(torch.uint8)
    helper.near(T.ToTensor()(x), { { { 0.0, 0.2, 1.0 } }, { { 0.0, 0.2, 1.0 } } })
    assert.is_true(torch.equal(x, T.ConvertImageDtype(torch.uint8)(T.ToTensor()(x))))
    assert.same({ { { 0, 51 * 128, 255 * 128 } } },
      T.ConvertImageDtype(torch.int16)(x):narrow(0, 0, 1):tolist())
    local y = T.Normalize({ 0.5, 0.0 }, { 0.5, 2.0 })(T.ToTensor()(x))
    helper.near(y, { { { -1.0, -0.6, 1.0 } }, { { 0.0, 0.1, 0.5 } } })
    helper.raises("TypeError", "expected a floating tensor", function()
      T.Normalize({ 0.5 }, { 0.5 })(x)
    end)
  end)

  it("of one argument take it by name too", function()
    for name, argument in pairs({ ConvertImageDtype = { dtype = torch.float16 },
      CenterCrop = { size = 2 }, RandomHorizontalFlip = { p = 1 }, RandomVerticalFlip = { p = 1 },
      RandomGrayscale = { p = 1 }, Grayscale = { num_output_channels = 3 } }) do
      local x = torch.rand(3, 4, 4)
      local value = select(2, next(argument))
      assert.is_true(torch.equal(T[name](value)(x), T[name](argument)(x)), name)
      helper.raises("TypeError", name .. " has no parameter 'no'", function()
        T[name]({ no = 1 })
      end)
    end
    local twice = T.Lambda({ lambd = function(x) return 2 * x end })
    assert.equal(6, twice(torch.full({ 1, 1, 1 }, 3)):item())
    assert.equal(torch.float32, T.ConvertImageDtype()(ramp(1, 2, 2)).dtype)
  end)

  it("cut, pad and flip", function()
    local x = ramp(1, 3, 4)
    assert.same({ { { 1, 2 }, { 5, 6 } } }, T.CenterCrop(2)(x):tolist())
    -- half of an odd difference, halves to the even number
    assert.same({ { { 0, 1 } } }, T.CenterCrop({ 1, 2 })(ramp(1, 1, 3)):tolist())
    assert.same({ { { 2, 3 } } }, T.CenterCrop({ 1, 2 })(ramp(1, 1, 5)):tolist())
    assert.same({ { { 2 }, { 3 } } }, T.CenterCrop({ 2, 1 })(ramp(1, 7, 1)):tolist())
    assert.same({ { { 0, 0, 0, 0 }, { 0, 1, 2, 3 }, { 4, 5, 6, 7 }, { 8, 9, 10, 11 },
      { 0, 0, 0, 0 } } }, T.CenterCrop({ 5, 4 })(x):tolist())
    assert.same({ { { 7, 7, 7 }, { 7, 0, 7 }, { 7, 7, 7 } } },
      T.Pad(1, 7)(ramp(1, 1, 1)):tolist())
    assert.same({ 1, 4, 7 }, { table.unpack(T.Pad({ 1, 0, 2, 1 })(x).shape) })
    assert.same({ { { 3, 2, 1, 0 }, { 7, 6, 5, 4 }, { 11, 10, 9, 8 } } },
      T.RandomHorizontalFlip(1)(x):tolist())
    assert.same({ { { 8, 9, 10, 11 }, { 4, 5, 6, 7 }, { 0, 1, 2, 3 } } },
      T.RandomVerticalFlip(1.0)(x):tolist())
    assert.is_true(torch.equal(x, T.RandomVerticalFlip(0)(x)))
  end)

  it("resize with averaging, the smaller side or both, in batches too", function()
    local x = torch.tensor({ { { 0, 0, 100, 100 }, { 0, 0, 100, 100 } } }):to(torch.uint8)
    -- the triangle of reach 2 around 1.0 has weights 3, 3, 1 over 7
    assert.same({ { { 14, 86 } } }, T.Resize({ 1, 2 })(x):tolist())
    assert.same({ 1, 4, 8 }, { table.unpack(T.Resize(4)(x).shape) })
    local batch = T.Resize({ 5, 5 })(torch.rand({ 2, 3, 9, 4 }))
    assert.same({ 2, 3, 5, 5 }, { table.unpack(batch.shape) })
    assert.same({ { { 0, 0, 100, 100 } } }, T.Resize({ 1, 4 }, "nearest")(x):tolist())
  end)

  it("draw what they do at random from torch's numbers", function()
    local x = ramp(1, 5, 6)
    local seen = {}
    torch.manual_seed(1)
    for _ = 1, 100 do
      local y = T.RandomCrop({ 4, 5 })(x)
      assert.same({ 1, 4, 5 }, { table.unpack(y.shape) })
      local first = y[0][0][0]:item()
      assert.equal(first + 6 * 3 + 4, y[0][3][4]:item())
      seen[first] = true
    end
    assert.same({ [0] = true, [1] = true, [6] = true, [7] = true }, seen)
    local crop = T.RandomResizedCrop(3)
    torch.manual_seed(2)
    local a = crop(x)
    torch.manual_seed(2)
    assert.is_true(torch.equal(a, crop(x)))
    assert.same({ 1, 3, 3 }, { table.unpack(a.shape) })
    helper.raises("ValueError", "larger than the image's", function()
      T.RandomCrop(9)(x)
    end)
    assert.same({ 1, 9, 9 }, { table.unpack(T.RandomCrop({ size = 9, pad_if_needed = true })(x)
      .shape) })
  end)

  it("erase a rectangle of that area and ratio, height / width", function()
    local x = torch.ones({ 2, 40, 60 })
    for _, range in ipairs({ { 0.3, 0.4 }, { 2.5, 3 } }) do
      for _ = 1, 20 do
        local hole = T.RandomErasing({ p = 1.0, scale = { 0.1, 0.2 }, ratio = range,
          value = { -1, -2 } })(x):lt(0)
        assert.is_true(torch.equal(hole[0], hole[1]))
        local down = hole[0]:any(1):sum():item()
        local across = hole[0]:any(0):sum():item()
        assert.equal(down * across, hole[0]:sum():item())
        local area, ratio = down * across / 2400, down / across
        -- sides are rounded to whole pixels
        assert.is_true(area > 0.09 and area < 0.21, area)
        assert.is_true(ratio > range[1] * 0.9 and ratio < range[2] * 1.1, ratio)
      end
    end
    local whole = T.RandomErasing({ p = 1.0, scale = { 5, 6 } })
    assert.is_true(torch.equal(x, whole(x)))
    local y = x:clone()
    T.RandomErasing({ p = 1.0, scale = { 0.5, 0.5 }, value = "random", inplace = true })(y)
    local changed = y:ne(x):sum():item() / y:numel()
    assert.is_true(changed > 0.45 and changed < 0.55, changed)
  end)

  -- How many rows and columns of a square image lie in a crop.
  local function crop_size(side, options)
    local at = torch.arange(side):float()
    local x = torch.stack({ at:unsqueeze(1):expand(side, side), at:expand(side, side) })
    options.size, options.interpolation = { 4 * side, 4 * side }, "nearest"
    local y = T.RandomResizedCrop(options)(x)
    local function span(c)
      return math.tointeger(y[c]:max():item() - y[c]:min():item()) + 1
    end
    return span(0), span(1)
  end

  it("crop pieces of the area and ratio that were asked for", function()
    torch.manual_seed(4)
    -- a quarter of the area, as wide as high; a quarter, four times as wide
    assert.same({ 20, 20 }, { crop_size(40, { scale = { 0.25, 0.25 }, ratio = { 1, 1 } }) })
    assert.same({ 10, 40 }, { crop_size(40, { scale = { 0.25, 0.25 }, ratio = { 4, 4 } }) })
    local wide, high, small, large = 0, 0, 0, 0
    for _ = 1, 60 do
      local h, w = crop_size(40, { scale = { 0.05, 0.2 }, ratio = { 0.25, 4 } })
      local area, ratio = h * w / 1600, w / h
      -- sides are rounded: off by a half at most
      assert.is_true((h + 0.5) * (w + 0.5) / 1600 >= 0.05 and (h - 0.5) * (w - 0.5) / 1600 <= 0.2)
      assert.is_true((w + 0.5) / (h - 0.5) >= 0.25 and (w - 0.5) / (h + 0.5) <= 4)
      wide, high = wide + (ratio > 1.2 and 1 or 0), high + (ratio < 0.83 and 1 or 0)
      small, large = small + (area < 0.11 and 1 or 0), large + (area > 0.14 and 1 or 0)
    end
    -- log ratio is uniform over ±1.39, area over 0.05 … 0.2: expected 26, 26, 24, 24 of 60
    for _, n in ipairs({ wide, high, small, large }) do
      assert.is_true(n > 8 and n < 45)
    end
  end)

  it("follow one another and print", function()
    local all = T.Compose({ T.Grayscale(), T.ToTensor(), T.Lambda(function(x) return x * 2 end) })
    local x = torch.full({ 3, 1, 1 }, 255, { dtype = torch.uint8 })
    helper.near(all(x), { { { 2 * math.floor(255 * (0.2989 + 0.587 + 0.114)) / 255 } } })
    assert.equal("Compose(\n    RandomVerticalFlip(p=0.5)\n    Normalize(mean=[0.5], std=[0.5], "
      .. "inplace=False)\n)",
      tostring(T.Compose({ T.RandomVerticalFlip(), T.Normalize({ 0.5 }, { 0.5 }) })))
    helper.raises("TypeError", "expected a Tensor", function()
      T.ToTensor()(1)
    end)
  end)
end)

describe("a transform prints its arguments", function()
  for want, t in pairs({ -- as torchvision does
    ["Resize(size=32, interpolation=bilinear, antialias=True)"] = T.Resize(32),
    ["Resize(size=(32, 16), interpolation=nearest, antialias=False)"] =
      T.Resize({ 32, 16 }, "nearest", { antialias = false }),
    ["Pad(padding=2, fill=0, padding_mode=edge)"] = T.Pad(2, { padding_mode = "edge" }),
    ["Pad(padding=(1, 2), fill=0.5, padding_mode=constant)"] = T.Pad({ 1, 2 }, 0.5),
    ["Pad(padding=(1, 2, 3, 4), fill=0, padding_mode=reflect)"] =
      T.Pad({ 1, 2, 3, 4 }, 0, "reflect"),
    ["CenterCrop(size=(3, 3))"] = T.CenterCrop(3),
    ["RandomCrop(size=(32, 16), padding=None)"] = T.RandomCrop({ 32, 16 }),
    ["RandomCrop(size=(32, 32), padding=4)"] = T.RandomCrop(32, 4),
    ["RandomResizedCrop(size=(8, 8), scale=(0.08, 1.0), ratio=(0.75, 1.3333), "
      .. "interpolation=bilinear, antialias=True)"] = T.RandomResizedCrop(8),
    ["RandomErasing(p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=random, inplace=False)"] =
      T.RandomErasing({ value = "random" }),
    ["RandomErasing(p=1, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=(1, 2), inplace=False)"] =
      T.RandomErasing(1, { value = { 1, 2 } }),
    ["RandomAffine(degrees=[-10, 10], translate=(0.1, 0.2), scale=(0.5, 2.0))"] =
      T.RandomAffine(10, { 0.1, 0.2 }, { 0.5, 2.0 }),
  }) do
    it(want, function()
      assert.equal(want, tostring(t))
    end)
  end
end)

describe("ImageFolder", function()
  local root

  setup(function()
    root = files.unused()
    os.execute(("mkdir -p %s/cat/more %s/ant"):format(root, root))
    images.write_png(torch.full({ 1, 2, 2 }, 10, { dtype = torch.uint8 }), root .. "/cat/b.png")
    images.write_png(torch.full({ 3, 2, 2 }, 20, { dtype = torch.uint8 }),
      root .. "/cat/more/a.png")
    images.write_png(torch.full({ 1, 2, 2 }, 30, { dtype = torch.uint8 }), root .. "/ant/x.PNG")
    os.execute(("cp spec/io/images/color.jpg %s/ant/y.jpg; echo >%s/ant/notes.txt"):format(root,
      root))
  end)
  teardown(function()
    files.remove(root)
  end)

  it("gives images of classes by the names of their folders", function()
    local set = datasets.ImageFolder(root)
    assert.same({ "ant", "cat" }, set.classes)
    assert.same({ ant = 0, cat = 1 }, set.class_to_idx)
    assert.same({ 0, 0, 1, 1 }, set.targets)
    assert.equal(4, #set)
    local x, y = set:__getitem__(0)
    assert.same({ 3, 2, 2 }, { table.unpack(x.shape) })
    assert.equal(30, x[2][1][1]:item())
    assert.equal(0, y)
    assert.equal(20, (set:__getitem__(3))[0][0][0]:item())
  end)

  it("trains through a loader with workers and transforms", function()
    local set = datasets.ImageFolder(root, { transform = T.Compose({ T.Resize({ 4, 4 }),
      T.RandomHorizontalFlip(), T.ToTensor() }), target_transform = function(c) return c + 10 end })
    local loader = torch.utils.data.DataLoader(set, { batch_size = 4, num_workers = 2 })
    for x, y in loader do
      assert.same({ 4, 3, 4, 4 }, { table.unpack(x.shape) })
      assert.same({ 10, 10, 11, 11 }, y:tolist())
    end
  end)

  it("refuses folders without classes or images", function()
    helper.raises("OSError", "has no folders of classes", function()
      datasets.ImageFolder(root .. "/cat/more")
    end)
    helper.raises("OSError", "class 'more' has no images", function()
      os.execute(("mkdir -p %s/empty/more"):format(root))
      datasets.ImageFolder(root .. "/empty")
    end)
    helper.raises("OSError", "No such file", function()
      datasets.ImageFolder(root .. "/none")
    end)
  end)
end)

describe("a wrong argument of a transform", function()
  it("in place of one list is an error that shows the list", function()
    raises("TypeError", "Compose: expected one list of transforms", function()
      T.Compose(T.RandomHorizontalFlip(), T.RandomVerticalFlip())
    end)
    raises("TypeError", "Compose: element 2 of 3 is nil", function()
      T.Compose({ T.RandomHorizontalFlip(), nil, T.RandomVerticalFlip() })
    end)
  end)

  it("is named", function()
    raises("ValueError", "Normalize: .* has 2 values, the image 3 channels", function()
      require("lupine.transforms").Normalize({ 1, 2 }, { 1, 2 })(torch.ones(3, 2, 2))
    end)
  end)
end)

-- Fashion-MNIST as packaged by Debian: published counts and sizes.
local lupine = require("lupine")
local torch = require("torch")

describe("FashionMNIST", function()
  it("has ten classes of equal size, in 10,000 pictures to test", function()
    local images, labels = lupine.datasets.FashionMNIST(false)
    assert.same({ 10000, 28, 28 }, { table.unpack(images.shape) })
    assert.equal(torch.uint8, images.dtype)
    assert.equal(torch.int64, labels.dtype)
    for c = 0, 9 do
      assert.equal(1000, labels:eq(c):sum():item())
    end
    assert.equal(10, #lupine.datasets.FASHION_MNIST_CLASSES)
  end)

  it("has 60,000 pictures to train", function()
    local images, labels = lupine.datasets.FashionMNIST(true)
    assert.same({ 60000, 28, 28 }, { table.unpack(images.shape) })
    -- the mean grey level that users of the set normalise with
    assert.near(0.2860, images:to(torch.float32):mean():item() / 255, 1e-4)
    assert.equal(6000, labels:eq(9):sum():item())
  end)

  it("names the package when files are missing", function()
    local images, message = lupine.datasets.FashionMNIST(true, "/nowhere")
    assert.is_nil(images)
    assert.truthy(message:find("dataset%-fashion%-mnist"))
  end)
end)

describe("texts", function()
  it("the King James Bible has its verses, first and last", function()
    local text = lupine.datasets.KingJamesBible()
    local _, lines = text:gsub("\n", "")
    assert.equal(31102, lines)
    assert.equal(1, text:find("In the beginning God created the heaven and the earth.\n", 1, true))
    assert.truthy(text:find("The grace of our Lord Jesus Christ be with you all. Amen.\n$"))
  end)

  it("characters are numbered in order, and come back", function()
    local ids, characters = lupine.datasets.characters("banana b")
    assert.same({ " ", "a", "b", "n" }, characters)
    assert.same({ 2, 1, 3, 1, 3, 1, 0, 2 }, ids:tolist())
  end)
end)

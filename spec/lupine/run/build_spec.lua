-- Objects of run files: what a class's name leads to, and how its arguments reach it.
local build = require("lupine.run.build")
local files = require("spec.support.files")
local helper = require("spec.helper")
local torch = require("torch")

local PARTS = [[
local M = { Plain = require("torch").nn.Module:extend("Plain"), number = 3 }
function M.Plain:init(size, depth) self.size, self.depth = size, depth end
function M.told(first, second, ...) return { first, second, ... } end
function M.pair(first, second) return { first, second } end
function M.options(o) return o end
function M.behind(given, o) return { given, o } end
function M.nothing(path) return nil, "no file " .. path end
function M.three() return 1, nil, 3 end
function M.fails(x) require("lupine.base.errors").raise("ValueError", "x is %s", x) end
return M
]]

describe("an object of a run file", function()
  local folder

  setup(function()
    folder = files.folder(true)
    files.write(folder .. "/parts.lua", PARTS)
    files.write(folder .. "/one.lua", "return function(a) return { a = a } end")
    files.write(folder .. "/broken.lua", "return (")
  end)
  teardown(function()
    files.remove(folder)
  end)

  local function spec(name, args)
    return { class = (name:gsub("^(%w+%.lua)", folder .. "/%1")), args = args or {},
      at = "run.yaml:3" }
  end

  local function make(name, args, ...)
    return build.make(spec(name, args), "key", { "torch.nn", "torch.optim" }, ...)
  end

  local function refused(pattern, name, args, ...)
    helper.refuses("ConfigFileError", "run.yaml:3: key[%w.]*: " .. pattern, make, name, args, ...)
  end

  it("is a module's, the longest front of its name that is one, or a short name", function()
    assert.equal(torch.nn.Linear, build.find(spec("torch.nn.Linear"), "key"))
    assert.equal(torch.nn.init.zeros_, build.find(spec("torch.nn.init.zeros_"), "key"))
    assert.equal(torch.optim.lr_scheduler.StepLR,
      build.find(spec("torch.optim.lr_scheduler.StepLR"), "key"))
    assert.equal(torch.nn.Linear, build.find(spec("Linear"), "key", { "torch.nn" }))
    assert.equal(torch.optim.SGD, build.find(spec("SGD"), "key", { "torch.nn", "torch.optim" }))
    refused("torch.nn has no 'Linaer' %(nearest: 'Linear'%)", "torch.nn.Linaer")
    refused("there is no module 'nowhere'", "nowhere.Thing")
    refused("'Linaer' is in none of torch.nn, torch.optim %(nearest: 'Linear'%); a class of your "
      .. "own is MODULE.NAME or FILE.lua:NAME", "Linaer")
    refused("'torch.nn' is no class or function", "torch.nn")
  end)

  it("is what a program in a file returns, which runs once", function()
    assert.same({ a = 4 }, make("one.lua", { 4 }))
    assert.equal(make("parts.lua:told").x, nil)
    assert.equal(build.find(spec("parts.lua:Plain"), "key"),
      build.find(spec("parts.lua:Plain"), "key"))
    refused("the program .*parts.lua returns no class or function$", "parts.lua")
    refused("the program .*parts.lua returns no class or function 'number'", "parts.lua:number")
    refused("the program .*one.lua returns no class or function 'Net'", "one.lua:Net")
    refused(".*broken.lua:1:", "broken.lua")
    refused(".*cannot open .*none.lua", "none.lua")
  end)

  it("has its arguments in order or by name, behind those that are given", function()
    assert.same({ 1, 2, 3 }, make("parts.lua:told", { 1, 2, 3 }))
    assert.same({ 0, 1, 2 }, make("parts.lua:told", { 1, 2 }, 0))
    assert.same({ 1, 2 }, make("parts.lua:pair", { second = 2, first = 1 }))
    assert.same({ 0, 2 }, make("parts.lua:pair", { second = 2 }, 0))
    assert.same({ { second = 2 } }, make("parts.lua:told", { second = 2 })) -- has no names
    assert.same({}, make("parts.lua:told"))
    assert.same({ 7 }, make("parts.lua:told", {}, 7))
    local plain = make("parts.lua:Plain", { depth = 2 })
    assert.same({ nil, 2 }, { plain.size, plain.depth })
    assert.same({ 3, 5 }, { make("parts.lua:Plain", { 3, 5 }).size,
      make("parts.lua:Plain", { 3, 5 }).depth })
    refused(".*parts.lua:Plain has no parameter 'dept'; it has size, depth %(nearest: 'depth'%)",
      "parts.lua:Plain", { dept = 2 })
    refused("the argument 'first' of .*pair is given by lupine itself", "parts.lua:pair",
      { first = 2 }, 0)
    assert.equal(3, select("#", make("parts.lua:three")))
  end)

  it("has them as one table where that is the only parameter left", function()
    assert.same({ width = 3, o = nil }, make("parts.lua:options", { width = 3 }))
    assert.same({ 0, { width = 3 } }, make("parts.lua:behind", { width = 3 }, 0))
    assert.equal(3, make("parts.lua:options", { o = 3 }))
  end)

  it("takes what lupine's own classes take by name", function()
    local linear = make("Linear", { in_features = 3, out_features = 2, bias = false })
    assert.same({ 2, 3 }, { linear.weight:size(0), linear.weight:size(1) })
    assert.is_nil(linear.bias)
    local sgd = make("SGD", { lr = 0.5 }, linear:parameters())
    assert.equal(0.5, sgd.param_groups[1].lr)
    helper.refuses("TypeError", "^run.yaml:3: key: .*in_feature", make, "Linear",
      { in_feature = 3 })
  end)

  it("has objects among its arguments made first", function()
    local inner = make("parts.lua:told", { { { class = "torch.nn.ReLU" } },
      { deep = { class = "torch.nn.Linear", args = { 3, 2 } } } })
    assert.is_true(torch.nn.ReLU:is(inner[1][1]))
    assert.equal(2, inner[2].deep.out_features)
    assert.same({ class = 3 }, make("parts.lua:told", { { class = 3 } })[1])
    local other = { class = "a", args = 1 }
    assert.same(other, make("parts.lua:told", { other })[1])
    helper.refuses("ConfigFileError", "^run.yaml:3: key.args.1.inner: there is no "
      .. "module 'no'", make, "parts.lua:told", { { inner = { class = "no.where" } } })
  end)

  it("is refused where its class raises or gives nothing", function()
    helper.refuses("ValueError", "^run.yaml:3: key: x is 3$", make, "parts.lua:fails", { 3 })
    refused(".*nothing gave nothing: no file f", "parts.lua:nothing", { "f" })
  end)
end)

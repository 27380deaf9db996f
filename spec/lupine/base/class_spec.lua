local torch = require("torch")

local nn = torch.nn

describe("lupine.base.class", function()
  local class = require("lupine.base.class")
  local Animal = class("Animal")
  function Animal:setup()
    self.legs = 4
  end
  function Animal:init(name)
    self.name = name
  end
  function Animal:speak()
    return self.name .. " makes a noise"
  end

  it("makes instances through init and finds methods of the base", function()
    local Dog = Animal:extend("Dog")
    function Dog:speak()
      return Animal.speak(self) .. ": woof"
    end
    local d = Dog("Rex")
    assert.equal("Rex makes a noise: woof", d:speak())
    assert.equal("Dog", tostring(d))
    assert.equal("class Dog", tostring(Dog))
  end)

  it("runs setup although init does not call its base", function()
    local Bird = Animal:extend("Bird")
    function Bird:init()
      self.wings = 2
    end
    assert.equal(4, Bird().legs)
  end)

  it("tests membership along the bases, for any value", function()
    local Cat = Animal:extend("Cat")
    local Lion = Cat:extend("Lion")
    assert.is_true(Animal:is(Lion("a")))
    assert.is_true(Cat:is(Lion("a")))
    assert.is_false(Lion:is(Cat("a")))
    assert.is_true(Animal:is_base_of(Lion))
    for _, v in ipairs({ "Animal", 1, true, {}, print, Animal }) do
      assert.is_false(Animal:is(v))
    end
    assert.is_false(Animal:is(nil))
    assert.equal(Lion, class.of(Lion("a")))
    assert.is_nil(class.of({}))
  end)

  it("mixes a second base in, whose methods come first", function()
    local First, Second = class.new("First"), class.new("Second")
    function First.name() return "first" end
    function First.only() return "only" end
    function Second.name() return "second" end
    local Both = First:extend("Both")
    class.mix(Both, Second)
    local Below = Both:extend("Below")
    assert.same({ "second", "only" }, { Below().name(), Below().only() })
    for _, base in ipairs({ First, Second, Both }) do
      assert.is_true(base:is(Below()))
      assert.is_true(base:is_base_of(Below))
    end
    assert.is_false(Second:is(First()))
  end)

  it("hands metamethods and computed fields down", function()
    local Point = class("Point")
    function Point.__index(self, key)
      if key == "twice" then
        return 2 * rawget(self, "x")
      end
      return getmetatable(self)[key]
    end
    function Point:__call(y)
      return self.x + y
    end
    local Sub = Point:extend("Sub")
    function Sub:init(x)
      self.x = x
    end
    local p = Sub(3)
    assert.equal(6, p.twice)
    assert.equal(5, p(2))
    assert.is_nil(p.other)
  end)

  it("copies deeply, with cycles, and shares what is not its own", function()
    local a = Animal("x")
    local foreign = setmetatable({}, {})
    a.list = { 1, { 2 } }
    a.self, a.foreign, a.of = a, foreign, Animal
    local b = class.copy(a)
    assert.is_true(Animal:is(b))
    assert.equal(b, b.self)
    assert.are_not.equal(a.list[2], b.list[2])
    assert.equal(2, b.list[2][1])
    assert.equal(foreign, b.foreign)
    assert.equal(Animal, b.of)
  end)

  it("says how extend is called", function()
    assert.has_error(function()
      Animal.extend("Dog")
    end)
    assert.has_error(function()
      Animal:extend()
    end)
  end)
end)

describe("lupine.base.enum", function()
  local enum = require("lupine.base.enum")
  local errors = require("lupine.base.errors")
  local Color = enum("Color", { "Red", "Green", { "Blue", 7 } })

  it("has members of their own kind", function()
    assert.equal("Color.Green", tostring(Color.Green))
    assert.equal(1, Color.Green.value)
    assert.equal("Green", Color.Green.name)
    assert.equal(7, Color.Blue.value)
    assert.equal(Color.Blue, Color(7))
    assert.equal(Color.Blue, Color(Color.Blue))
    assert.is_true(Color:is(Color.Red))
    assert.is_false(Color:is(enum("Color", { "Red" }).Red))
    for _, v in ipairs({ "Red", 0, {}, Color }) do
      assert.is_false(Color:is(v))
    end
    assert.same({ Color.Red, Color.Green, Color.Blue }, Color:members())
  end)

  it("suggests names and can not be changed", function()
    local ok, e = pcall(function()
      return Color.Grene
    end)
    assert.is_false(ok)
    assert.is_true(errors.AttributeError:is(e))
    assert.matches("'Green'", e.message)
    assert.is_false(pcall(function()
      Color.Red = 1
    end))
    assert.is_false(pcall(function()
      Color.Red.value = 1
    end))
    assert.is_true(errors.ValueError:is(select(2, pcall(Color, 3))))
  end)
end)

describe("lupine.base.check", function()
  local check = require("lupine.base.check")
  local errors = require("lupine.base.errors")

  local function message(f, ...)
    local ok, e = pcall(f, ...)
    assert.is_false(ok)
    return e.message, e
  end

  it("names argument, given and allowed", function()
    assert.equal("f(n): expected int, got string \"2\"", (message(check.int, "2", "f(n)")))
    assert.equal("f(n): expected int in 1..3, got int 4",
      (message(check.int, 4, "f(n)", { min = 1, max = 3 })))
    assert.equal("f(n): expected int, got torch.none",
      (message(check.int, require("torch").none, "f(n)")))
    local _, e = message(check.bool, 1, "f(b)", { error = "AssertionError" })
    assert.is_true(errors.AssertionError:is(e))
    assert.equal(1, check.int(true, "f(n)"))
    assert.is_nil(check.string(nil, "f(s)", { nullable = true }))
  end)

  it("suggests the nearest names only", function()
    local known = { "device_iterations", "replication_factor", "log_dir" }
    assert.equal(" (nearest: 'device_iterations')", check.nearest("device_iteratoins", known))
    assert.equal(" (nearest: 'log_dir')", check.nearest("logdir", known))
    assert.equal("", check.nearest("something", known))
    assert.equal("", check.nearest(3, known))
  end)

  it("sorts positional and keyword arguments", function()
    local values, given = check.arguments("f", { "a", "b" }, nil, nil, { b = 2 })
    assert.equal(2, values[2])
    assert.is_true(given.a)
    values = check.arguments("f", { "a" }, { a = true }, { x = 1 })
    assert.same({ x = 1 }, values[1])
    assert.matches("at most 1", message(check.arguments, "f", { "a" }, nil, 1, 2))
    assert.matches("given twice", message(check.arguments, "f", { "a" }, nil, 1, { a = 1 }))
    assert.matches("nearest: 'alpha'", message(check.arguments, "f", { "alpha" }, nil,
      { alhpa = 1 }))
    values = check.arguments("f", { "a" }, nil, { 1, 2 })
    assert.same({ 1, 2 }, values[1])
  end)
end)

describe("Python's special methods", function()
  it("are refused in a class", function()
    local Net = nn.Module:extend("Net")
    assert.error_matches(function()
      function Net:__init__() end
    end, "Net.__init__ is never called: in Lua it is init")
    local Data = torch.utils.data.Dataset:extend("Data")
    assert.error_matches(function()
      function Data:__init__() end
    end, "in Lua it is init")
  end)
end)

describe("new", function()
  it("is told to be called on the class", function()
    assert.has_error(function() require("lupine.base.class").new("Point").new() end,
      "new is a method of the class: call the class itself, Name(...), or Name:new(...)")
  end)
end)

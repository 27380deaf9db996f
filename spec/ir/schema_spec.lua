-- The parsed forms against their own text and against the notation's rules.
local core = require("lupine.core")
local torch = require("torch")

local forms = core.form_list()

local function find(name, variant)
  for _, f in ipairs(forms) do
    if f.name == name and f.variant == (variant or "") then
      return f
    end
  end
end

describe("a parsed form", function()
  it("has its arguments with kinds, defaults and marks", function()
    local f = find("add")
    assert.equal("add", f.op)
    assert.same({ "self", "other", "alpha" },
      { f.arguments[1].name, f.arguments[2].name, f.arguments[3].name })
    assert.equal("Value", f.arguments[2].kind)
    assert.equal(1, f.arguments[3].default)
    assert.is_true(f.arguments[3].kw_only)
    assert.is_true(f["function"] and f.method and f.inplace and f.out)
    assert.equal(1, f.results)
  end)

  it("knows lists, optional arguments and several results", function()
    assert.equal(0, find("split").results)
    assert.equal("int[]", find("split", "sizes").arguments[2].kind)
    local slice = find("slice")
    assert.is_true(slice.arguments[3].optional)
    assert.equal(torch.none, slice.arguments[3].default)
    assert.equal(2, find("topk").results)
    assert.equal("Tensor[]", find("cat").arguments[1].kind)
  end)

  it("agrees with its text", function()
    for _, f in ipairs(forms) do
      local name, variant, args = f.text:match("^([%w_]+)%.?([%w_]*)(%b())")
      assert.equal(f.name, name)
      assert.equal(f.variant, variant)
      local at = 1
      for _, a in ipairs(f.arguments) do
        local from, to = args:find("%f[%w_]" .. a.name .. "%f[^%w_]", at)
        assert(from, f.text .. ": " .. a.name)
        at = to
        assert.equal(a.kw_only, (args:sub(1, from):find("*", 1, true)) ~= nil, f.text)
      end
      assert.equal(f.results == 0, f.text:find("-> Tensor[]", 1, true) ~= nil, f.text)
    end
  end)

  it("names a public function, a method or is internal", function()
    for _, f in ipairs(forms) do
      local public = f["function"] or f.method or f.inplace or f.nn or f.special or f.linalg
      assert(public ~= f.internal, f.text)
      if f["function"] then
        assert.equal("function", type(torch[f.name]))
      end
      if f.inplace then
        assert.equal("function", type(core.methods[f.name .. "_"]))
      end
    end
  end)

  it("variants of one name differ", function()
    local seen = {}
    for _, f in ipairs(forms) do
      local key = f.name .. "." .. f.variant .. f.op .. f.text
      assert.is_nil(seen[key], f.text)
      seen[key] = true
    end
  end)
end)

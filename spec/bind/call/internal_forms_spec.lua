-- Operators that only rules call, and the recording of functions, called from Lua
-- with operands that no rule gives: an error of ours, or a result.
local core = require("lupine.core")
local helper = require("spec.helper")
local torch = require("torch")

local internal = core.forms.internal

describe("internal operators", function()
  local float, long = torch.ones(2, 3), torch.ones(2, 3):long()
  local none = torch.ones(0):long()
  local LOUD = { print_tensor = true }

  it("take or refuse operands of any number and type", function()
    for _, args in ipairs({
      {}, { float }, { long }, { long, long }, { float, long }, { 1, 2 }, { "x" },
      { float, nil, float }, { long, long, long }, { true, false }, { none, none, none },
      { torch.tensor(1), torch.tensor(2) }, { float, torch.ones(3):int(), 2 },
      { { float, long } }, { float, float, float, float, float, float, float, float },
    }) do
      for name, call in pairs(internal) do
        local ok, e = LOUD[name], nil
        if not ok then
          ok, e = pcall(call, table.unpack(args, 1, 8))
        end
        assert(ok or type(e) == "table" and e.message, ("%s: %s"):format(name, tostring(e)))
      end
    end
  end)

  it("of gradients take no integers", function()
    for _, name in ipairs({ "sigmoid", "tanh", "silu", "gelu" }) do
      helper.refuses("NotImplementedError", "int64; it must be a floating", internal[name ..
        "_backward"], long, long)
    end
    helper.refuses("NotImplementedError", "bool; it must be a floating", internal.elu_backward,
      long:bool(), long:bool(), 1.0, 1.0, 1.0)
  end)

  it("take ranks of the type that ranks have", function()
    helper.refuses("TypeError", "int32; it must be int64", internal.lstsq_residuals, torch.ones(3),
      torch.ones(3):int(), 1)
    local full = internal.lstsq_residuals(torch.ones(3), torch.ones(3):long(), 1)
    assert.same({ 1, 1, 1 }, full:tolist())
    assert.same({}, internal.lstsq_residuals(torch.ones(3), torch.ones(3):long(), 2):tolist())
  end)
end)

describe("the recording of a function", function()
  local function rule()
    return {}
  end

  local function record(inputs, outputs, ...)
    return pcall(core.function_record, rule, inputs, outputs, ...)
  end

  it("takes lists of what it says", function()
    local x = torch.ones(3)
    assert.is_false(pcall(core.function_record))
    assert.is_false(pcall(core.function_record, 1, {}, {}, {}, {}, {}))
    for last = 1, 5 do
      assert.is_false(record(table.unpack({ { x }, { x * 1 }, {}, {}, {} }, 1, last - 1)))
    end
    assert.is_false(record({ x }, { 1 }, {}, {}, {}))
    assert.is_true(record({ x }, { x * 1 }, {}, {}, {}))
  end)

  it("takes inputs that are there as written, of the output's type", function()
    local x = torch.ones(3)
    for _, at in ipairs({ -1, 2, 1 << 40 }) do
      local ok, e = record({ x }, { x * 1 }, {}, {}, { at })
      assert.is_false(ok)
      assert.equal(("no input %d"):format(at), e.message)
    end
    local ok, e = record({ x }, { torch.ones(4) }, {}, {}, { 1 })
    assert.is_false(ok)
    assert.matches("are of several types", e.message)
  end)

  it("takes results that can have a gradient", function()
    local ok, e = record({ torch.ones(3) }, { torch.ones(3):long() }, {}, {}, {})
    assert.is_false(ok)
    assert.matches("int64, which has no gradient", e.message)
  end)
end)

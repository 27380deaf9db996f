-- Libraries of custom operators that are none, or wrong somewhere: each is refused
-- by name, and nothing of it stays.
local core = require("lupine.core")
local custom_ops = require("spec.support.custom_ops")
local helper = require("spec.helper")
local program = require("spec.support.program")
local torch = require("torch")

local HOSTILE = "spec/support/custom_ops/hostile.c"

local function with_library(options, f)
  local library, folder = custom_ops.compile(HOSTILE, options .. " -Wno-unused -Wno-overflow "
    .. "-Wno-error")
  local ok, e = pcall(f, library)
  custom_ops.remove(folder)
  assert(ok, e)
end

local function option(name, value)
  return program.quote(("-D%s=%s"):format(name, value))
end

-- {option, value, what the error says}
local LONG = ('"%s"'):format(("n"):rep(101))
local CASES = {
  { "ABI", "7", "compiled with version 7 of lupine/custom_op.h, this program has version 1" },
  { "OP_BYTES", "8", "its operators have 8 bytes, expected %d+: compile it again" },
  { "N_OPS", "0", "it has 0 operators. Allowed: 1 to 1024" },
  { "N_OPS", "0xffffffffu", "it has 4294967295 operators" },
  { "OPS", "NULL", "it has no list of 2 operators" },
  { "TABLE", "NULL", "lupine_custom_ops%(%) returned NULL" },
  { "SYMBOL", "other_table", "exports no lupine_custom_ops" },
  { "NAME", "NULL", "operator 1 has no name" },
  { "NAME", '""', "operator 1 has no name" },
  { "NAME", '"a b"', "operator 1 has no name" },
  { "NAME", LONG, "operator 1 has no name" },
  { "NAME", '"First"', "operator spec.hostile.First, version 1, is there twice" },
  { "DOMAIN", "NULL", "operator Second has no domain" },
  { "DOMAIN", '".x"', "operator Second has no domain" },
  { "VERSION", "0", "operator Second has the version 0" },
  { "VERSION", "-2147483647", "operator Second has the version %-2147483647" },
  { "N_IN", "17", "operator Second has 17 inputs. Allowed: 0 to 16" },
  { "N_IN", "-1", "operator Second has %-1 inputs" },
  { "N_OUT", "0", "operator Second has 0 outputs. Allowed: 1 to 8" },
  { "N_OUT", "2147483647", "operator Second has 2147483647 outputs" },
  { "N_ATTRS", "65", "operator Second has 65 attributes. Allowed: 0 to 64" },
  { "N_ATTRS", "-3", "operator Second has %-3 attributes" },
  { "ATTRS", "NULL", "operator Second has 2 attributes and no list of them" },
  { "ATTR", "NULL", "operator Second: attribute 1 has no name" },
  { "ATTR", '"9x"', "operator Second: attribute 1 has no name" },
  { "ATTR", '"nan"', "operator Second: attribute 1 has no name" },
  { "ATTR", '"alpha"', "operator Second has two attributes 'alpha'" },
  { "KIND", "0", "operator Second: attribute 'size' is of kind 0. Allowed: 1 to 6" },
  { "KIND", "7", "is of kind 7" },
  { "FALLBACK", '"three"', "the default of attribute 'size': line 1, column 1: expected a number" },
  { "FALLBACK", '"3.5"', "the default of attribute 'size': .*expected an int, got a float" },
  { "FALLBACK", '"3 4"', "the default of attribute 'size': line 1, column 3: expected the end" },
  { "FALLBACK", ('"%s"'):format(("1"):rep(5000)), "it is longer than 4096 bytes" },
  { "INFER", "NULL", "operator Second has no function `infer`" },
  { "RUN", "NULL", "operator Second has no function `run`" },
}

-- The same of a float attribute without a default of 32 bits.
local FLOATS = { { '"1e39"', "the default of attribute 'size': .*1e%+39 is too high for a float" },
  { '"-1e39"', "%-1e%+39 is too low for a float attribute, which has 32 bits" } }

local function loaded(domain)
  local n = 0
  for _, op in ipairs(core.custom_ops()) do
    n = n + (op.domain == domain and 1 or 0)
  end
  return n
end

describe("a library of custom operators", function()
  it("is refused where its table is wrong, by name", function()
    for _, case in ipairs(CASES) do
      with_library(option(case[1], case[2]), function(library)
        local e = helper.raises("RuntimeError", case[3], function()
          torch.ops.load_library(library)
        end)
        assert(e.message:find("libhostile.so", 1, true), e.message)
      end)
      assert.equal(0, loaded("spec.hostile"))
    end
  end)

  it("is refused where a float's default has more than 32 bits", function()
    for _, case in ipairs(FLOATS) do
      with_library(option("KIND", "LUPINE_FLOAT") .. " " .. option("FALLBACK", case[1]),
        function(library)
          helper.refuses("RuntimeError", case[2], torch.ops.load_library, library)
        end)
    end
  end)

  it("is taken when it is right, once", function()
    if loaded("spec.hostile") > 0 then
      return
    end
    with_library("", function(library)
      torch.ops.load_library(library)
      assert.equal(2, loaded("spec.hostile"))
      assert.is_true(torch.ops.loaded_libraries[library])
      torch.ops.load_library(library)
      assert.equal(2, loaded("spec.hostile"))
    end)
    -- another file with the same operators
    with_library("", function(library)
      helper.refuses("RuntimeError", "operator spec.hostile.First, version 1, is in libhostile.so "
        .. "already, which stays loaded", torch.ops.load_library, library)
    end)
    with_library(option("DOMAIN", '"spec.hostile2"'), function(library)
      helper.refuses("RuntimeError", "spec.hostile.First", torch.ops.load_library, library)
      assert.equal(0, loaded("spec.hostile2"))
    end)
  end)

  it("has to be a shared library that is there", function()
    helper.refuses("FileNotFoundError", "load_library: /none/libx.so: No such file",
      torch.ops.load_library, "/none/libx.so")
    helper.refuses("OSError", "load_library: ", torch.ops.load_library, HOSTILE)
    helper.refuses("OSError", "load_library: ", torch.ops.load_library, "spec")
    helper.refuses("TypeError", "torch.ops.load_library%(%): path", torch.ops.load_library, 3)
    helper.refuses("ValueError", "zero byte", torch.ops.load_library, "a\0b")
    helper.raises("AttributeError", "load_libary.*did you mean 'load_library'", function()
      return torch.ops.load_libary
    end)
  end)
end)

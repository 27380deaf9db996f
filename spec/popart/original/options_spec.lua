-- PopART's own tests of session options (options_test, deprecated_session_options).
local helper = require("spec.helper")
local logging = require("popart.logging")
local options = require("popart.options")

local function empty(t)
  return next(t) == nil
end

describe("options_test", function()
  local opts

  before_each(function()
    opts = options.SessionOptions()
  end)

  it("test_create_empty_options", function()
    assert.is_true(empty(opts.dotChecks) and empty(opts.engineOptions)
      and empty(opts.convolutionOptions) and empty(opts.reportOptions))
    assert.equal("", opts.logDir)
  end)

  it("test_set_dotchecks", function()
    opts.dotChecks = { "Final", "Fwd0" }
    assert.equal(2, #opts.dotChecks)
  end)

  it("test_set_enabledOutlining_flag", function()
    assert.is_true(opts.enableOutlining)
    opts.enableOutlining = false
    assert.is_false(opts.enableOutlining)
  end)

  it("test_set_engineOptions test_set_convolutionOptions test_set_reportOptions", function()
    local names = { "engineOptions", "convolutionOptions", "reportOptions" }
    for _, name in ipairs(names) do
      local one = options.SessionOptions()
      one[name] = { option = "value" }
      assert.equal("value", one[name].option)
      for _, other in ipairs(names) do
        assert.equal(other ~= name, empty(one[other]))
      end
    end
  end)

  it("test_set_bad_options", function()
    helper.raises("AttributeError", "foo", function()
      opts.foo = "bar"
    end)
  end)

  it("test_update_options", function()
    opts.engineOptions = { aaaaa = "a" }
    opts.engineOptions.bbbb = "b"
    assert.same({ aaaaa = "a", bbbb = "b" }, opts.engineOptions)
  end)

  it("test_numIOTiles_option", function()
    opts.numIOTiles = 42
    assert.equal(42, opts.numIOTiles)
  end)

  it("test_customTransformApplierSettings", function()
    local settings = opts.experimentalSettings
    assert.is_true(empty(settings.customTransformApplierSettings))
    settings.customTransformApplierSettings = { Fwd0 = { "Transform A", "Transform B" },
      Fwd1 = { "Transform C", "Transform D" } }
    assert.same({ "Transform C", "Transform D" }, settings.customTransformApplierSettings.Fwd1)
  end)

  it("test_createHostTransferableTensorWithOffset", function()
    opts.experimentalSettings.createHostTransferableTensorWithOffset = true
    assert.is_true(opts.experimentalSettings.createHostTransferableTensorWithOffset)
  end)

  it("test_updatableNamedBuffers_option", function()
    assert.is_true(empty(opts.updatableNamedBuffers))
    opts.updatableNamedBuffers = { "t1", "t2" }
    assert.same({ "t1", "t2" }, opts.updatableNamedBuffers)
  end)
end)

describe("deprecated_session_options", function()
  -- What is logged while opts[name] = value.
  local function assigned(opts, name, value)
    local stderr, out = io.stderr, {}
    logging.set_level("popart", "WARN")
    io.stderr = { -- luacheck: ignore 122
      write = function(_, ...)
        out[#out + 1] = table.concat({ ... })
      end, flush = function() end }
    opts[name] = value
    io.stderr = stderr -- luacheck: ignore 122
    logging.set_level("popart", "OFF")
    return table.concat(out)
  end

  it("test_deprecated_prefetchBufferingDepthMap_option", function()
    for _, map in ipairs({ {}, { some_tensor_id = 100 } }) do
      local opts = options.SessionOptions()
      assert.matches("prefetchBufferingDepthMap has been deprecated",
        assigned(opts, "prefetchBufferingDepthMap", map))
      assert.same(map, opts.bufferingDepthMap)
    end
  end)

  it("test_deprecated_defaultPrefetchBufferingDepth_option", function()
    for _, value in ipairs({ 111122, 100 }) do
      local opts = options.SessionOptions()
      assert.matches("defaultPrefetchBufferingDepth has been deprecated",
        assigned(opts, "defaultPrefetchBufferingDepth", value))
      assert.equal(value, opts.defaultBufferingDepth)
    end
  end)
end)

-- What PopART's users are told about errors that front ends share.
local advice = require("popart.advice")
local base = require("lupine.base.errors")
local errors = require("popart.errors")
local helper = require("spec.helper")
local poptorch = require("poptorch.advice")
local tables = require("lupine.base.tables")
local variants = require("lupine.plan.variants")

describe("the advice of popart", function()
  it("is there for each hint that poptorch's is for", function()
    assert.same(tables.keys(poptorch.ADVICE), tables.keys(advice.ADVICE))
    assert.same(tables.keys(poptorch.OPTIONS), tables.keys(advice.OPTIONS))
  end)

  it("spells the options of variants that have more rows, too", function()
    local list = { { hint = "micro_batch", detail = { accumulation = 2 } } }
    assert.same({ "SessionOptions.accumulationFactor = 2 for the same batch" },
      variants.spelled(list, advice.OPTIONS))
  end)

  it("stands behind the message, by PopART's names", function()
    local e = helper.raises("popart_exception", nil, function()
      errors.guard("popart_exception", base.fail, "device_iterations", "%d are too few", 2)
    end)
    assert.equal("2 are too few (DataFlow's batchesPerStep)", e.message)
    assert.is_nil(e.hint)
    e = helper.raises("popart_exception", nil, function()
      errors.guard("popart_exception", base.fail, "cache_folder", "no folder")
    end)
    assert.equal("SessionOptions.cachePath: no folder", e.message)
  end)
end)

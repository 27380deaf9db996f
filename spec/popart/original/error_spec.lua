-- PopART's own tests of its classes of errors (unittests/test_error).
local errors = require("popart.errors")
local helper = require("spec.helper")

-- Test -> the function that raises, the class, and a base of it.
local CASES = {
  { "test_popart_error", "_throw_popart_error", "popart_exception" },
  { "test_popart_internal_error", "_throw_popart_internal_error", "popart_internal_exception",
    "popart_exception" },
  { "test_popart_runtime_error", "_throw_popart_runtime_error", "popart_runtime_error",
    "popart_exception" },
  { "test_poplibs_error", "_throw_poplibs_error", "poplibs_exception" },
  { "test_poplar_error", "_throw_poplar_error", "poplar_exception" },
  { "test_poplar_runtime_error", "_throw_poplar_runtime_error", "poplar_runtime_error" },
  { "test_application_runtime_error", "_throw_application_runtime_error",
    "poplar_application_runtime_error", "poplar_runtime_error" },
  { "test_system_runtime_error", "_throw_system_runtime_error", "poplar_system_runtime_error",
    "poplar_runtime_error" },
  { "test_recoverable_runtime_error", "_throw_recoverable_runtime_error",
    "poplar_recoverable_runtime_error", "poplar_system_runtime_error" },
  { "test_unrecoverable_runtime_error", "_throw_unrecoverable_runtime_error",
    "poplar_unrecoverable_runtime_error", "poplar_system_runtime_error" },
  { "test_unknown_runtime_error", "_throw_unknown_runtime_error", "poplar_unknown_runtime_error",
    "poplar_system_runtime_error" },
}

describe("test_error", function()
  for _, case in ipairs(CASES) do
    it(case[1], function()
      local e = helper.refuses(case[3], nil, errors.throws[case[2]], "")
      if case[4] then
        helper.refuses(case[4], nil, errors.throws[case[2]], "")
      end
      if case[1] == "test_recoverable_runtime_error" then
        assert.equal(errors.RecoveryAction.IPU_RESET, e.recoveryAction)
      end
    end)
  end
end)

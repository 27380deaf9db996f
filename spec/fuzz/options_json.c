/* Fuzz target: POPTORCH_DEFAULT_OPTIONS, a JSON object of options. */
#include "spec/fuzz/harness/lua.h"

LP_FUZZ_LUA("local Options = require('poptorch').Options\n"
            "return function(bytes)\n"
            "  local options = Options()\n"
            "  harness.refused(options.from_json, options, bytes)\n"
            "end")

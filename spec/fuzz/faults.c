/* Fuzz target: the text of faults (LUPINE_FAULTS) is read or refused. */
#include "spec/fuzz/harness/lua.h"

LP_FUZZ_LUA("local faults = require('lupine.faults')\n"
            "return function(bytes)\n"
            "  harness.refused(faults.inject, bytes)\n"
            "  faults.clear()\n"
            "end")

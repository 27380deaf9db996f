/* Fuzz target: reports in files. What is one can be shown: its text, its trace
 * and its page are made. */
#include "spec/fuzz/harness/lua.h"

LP_FUZZ_LUA("local file = require('lupine.report.file')\n"
            "return function(bytes)\n"
            "  local r\n"
            "  harness.refused(function() r = file.parse(bytes, 'x') end)\n"
            "  if r then\n"
            "    require('lupine.report.trace').text(r)\n"
            "    tostring(r)\n"
            "  end\n"
            "end")

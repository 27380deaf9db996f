/* Fuzz target: options files (poptorch.conf). Nothing but options is set,
 * nothing runs: no global is made, no file but the given one opened. */
#include "spec/fuzz/harness/lua.h"

LP_FUZZ_LUA("local Options = require('poptorch').Options\n"
            "local g = {}\n"
            "for k, v in pairs(_G) do g[k] = v end\n"
            "return function(bytes)\n"
            "  local options = Options()\n"
            "  local open = io.open\n"
            "  harness.file(bytes)\n"
            "  harness.refused(options.loadFromFile, options, 'input')\n"
            "  io.open = open\n"
            "  for k, v in pairs(_G) do\n"
            "    assert(rawequal(g[k], v), k)\n"
            "  end\n"
            "end")

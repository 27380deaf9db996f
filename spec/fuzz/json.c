/* Fuzz target: JSON. What is read, written and read again is the same text. */
#include "spec/fuzz/harness/lua.h"

LP_FUZZ_LUA("local core = require('lupine.core')\n"
            "return function(bytes)\n"
            "  harness.refused(function()\n"
            "    local ok, value = pcall(core.json_decode, bytes)\n"
            "    if not ok then error(value, 0) end\n"
            "    local ok, text = pcall(core.json_encode, value)\n"
            "    if not ok then error(text, 0) end\n"
            "    local again = core.json_encode(core.json_decode(text))\n"
            "    if again ~= text then error('other text', 0) end\n"
            "  end)\n"
            "end")

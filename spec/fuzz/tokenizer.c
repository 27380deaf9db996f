/* Fuzz target: tokenizers (tokenizer.json). What loads encodes a text and a
 * pair and decodes them; ids are tokens', and the text of them is UTF-8. */
#include "spec/fuzz/harness/lua.h"

LP_FUZZ_LUA(
    "local Tokenizer = require('lupine.tokenizers').Tokenizer\n"
    "local function run(bytes)\n"
    "  local t = Tokenizer.from_str(bytes)\n"
    "  local one = t:encode('Ab \\u{e9}1 <x>, \\u{65e5}\\n')\n"
    "  local two = t:encode('a b', 'b a')\n"
    "  for _, e in ipairs({ one, two }) do\n"
    "    assert(#e.ids == #e.type_ids and #e.ids == #e.tokens, 'lengths')\n"
    "    local text = t:decode(e.ids)\n"
    "    if not utf8.len(text) then error('no UTF-8', 0) end\n"
    "  end\n"
    "end\n"
    "return function(bytes)\n"
    "  harness.refused(run, bytes)\n"
    "end")

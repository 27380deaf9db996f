/* Fuzz target: the manifest of a checkpoint, whose checksum is made right. What
 * it tells of the checkpoint is plain data. */
#include "spec/fuzz/harness/lua.h"

LP_FUZZ_LUA("local folder = require('lupine.checkpoint.folder')\n"
            "local describe = require('torch.serialization').describe\n"
            "return function(bytes)\n"
            "  local head = '{\"checksum\":\"0000000000000000'\n"
            "  local told\n"
            "  harness.refused(function()\n"
            "    local m = folder.parse(folder.sign(head .. bytes), 'x')\n"
            "    told = folder.told(m, 'x')\n"
            "  end)\n"
            "  if told then describe(told, 'x') end\n"
            "end")

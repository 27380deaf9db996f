/* Fuzz target: ONNX models, which are loaded and run (harness/onnx.lua). No
 * tensor may have more than a megabyte, and none but bytes that are a message
 * need to be kept. */
#include "spec/fuzz/harness/lua.h"

LP_FUZZ_LUA("local core = require('lupine.core')\n"
            "local onnx = dofile('spec/fuzz/harness/onnx.lua')\n"
            "local torch = require('torch')\n"
            "return function(bytes)\n"
            "  core.mem_most(1 << 20)\n"
            "  harness.refused(onnx.run, bytes)\n"
            "  if pcall(core.onnx_decode, bytes, 'ModelProto') then\n"
            "    assert(onnx.is_kept(bytes), 'another message')\n"
            "  end\n"
            "  torch.set_num_threads(1) -- forgets prepared kernels\n"
            "end")

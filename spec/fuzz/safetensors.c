/* Fuzz target: safetensors files. */
#include "src/io/safetensors.h"
#include "spec/fuzz/harness/file.h"
#include "spec/fuzz/harness/lua.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LpNamed named = {0};
    LpErr e = {0};
    LpStatus s = lp_safetensors_read(lp_fuzz_file(data, size), &named, &e);
    if (s != LP_OK && !e.msg[0])
        __builtin_trap();
    lp_named_fini(&named);
    return 0;
}

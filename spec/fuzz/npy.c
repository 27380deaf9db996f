/* Fuzz target: .npy files. */
#include "src/io/npy.h"
#include "spec/fuzz/harness/file.h"
#include "spec/fuzz/harness/lua.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LpTensor *t = NULL;
    LpErr e = {0};
    LpStatus s = lp_npy_read(lp_fuzz_file(data, size), &t, &e);
    if (s == LP_OK ? !t : !e.msg[0] || t)
        __builtin_trap();
    lp_tensor_release(t);
    return 0;
}

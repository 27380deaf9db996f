/* Fuzz target: the IDX reader must return for any bytes, without a fault of
 * memory, and say why when it gives no tensor. */
#include <stdio.h>

#include "spec/fuzz/harness/lua.h"
#include "src/io/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LpTensor *t = NULL;
    LpErr e = {0};
    /* fmemopen takes no empty buffer and only reads from this one. */
    FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "rb") : NULL;
    if (!f)
        return 0;
    LpStatus s = lp_idx_read_stream(f, "input", &t, &e);
    if ((s == LP_OK) != (t != NULL) || (s != LP_OK && !e.msg[0]))
        __builtin_trap();
    lp_tensor_release(t);
    fclose(f);
    return 0;
}

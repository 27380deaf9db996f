/* Fuzz target: the IDX reader must return for any bytes, without a fault of
 * memory. libFuzzer, where clang has it:
 *   clang -fsanitize=fuzzer,address -I. spec/fuzz/idx.c src/io/idx.c \
 *     src/tensor/[dst]*.c src/base/[bmsc]*.c -lz -lm -o fuzz_idx
 *   ./fuzz_idx -rss_limit_mb=512 NEW spec/fuzz/corpus/idx
 * The suite runs the corpus through spec/fuzz/replay.c. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "src/io/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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

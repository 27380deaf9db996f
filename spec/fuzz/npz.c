/* Fuzz target: .npz archives, and with them the .npy files inside. */
#include "spec/fuzz/harness/file.h"
#include "spec/fuzz/harness/lua.h"
#include "src/io/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = lp_fuzz_file(data, size);
    for (int each = 0; each < 2; each++) {
        LpNamed named = {0};
        LpErr e = {0};
        LpStatus s = lp_npz_read(path, each, &named, &e);
        if (s != LP_OK && !e.msg[0])
            __builtin_trap();
        size_t bad = 0;
        for (size_t i = 0; i < named.n; i++)
            bad += !named.items[i].t;
        if (bad != named.n_text)
            __builtin_trap();
        lp_named_fini(&named);
    }
    return 0;
}

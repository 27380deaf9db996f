/* Fuzz target: JPEG images. The first byte chooses the mode. */
#include "spec/fuzz/harness/file.h"
#include "spec/fuzz/harness/lua.h"
#include "src/io/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LpTensor *t = NULL;
    LpErr e = {0};
    if (size == 0)
        return 0;
    LpStatus s = lp_image_read(lp_fuzz_file(data + 1, size - 1),
                               (LpImageMode)(data[0] % 3), &t, &e);
    if (s == LP_OK ? !t : !e.msg[0] || t)
        __builtin_trap();
    lp_tensor_release(t);
    return 0;
}

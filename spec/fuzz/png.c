/* Fuzz target: PNG images. The first byte chooses the mode. Every chunk gets
 * the check sum that it ought to have, or few inputs would pass the first. */
#include <string.h>
#include <zlib.h>

#include "spec/fuzz/harness/file.h"
#include "spec/fuzz/harness/lua.h"
#include "src/io/image.h"

#define SIGNATURE 8
#define AROUND 12 /* length, type and check sum of a chunk */

static uint8_t image[1 << 20];

static void store(uint8_t *p, uint32_t n)
{
    for (int i = 3; i >= 0; i--, n >>= 8)
        p[i] = (uint8_t)n;
}

static void mend_sums(uint8_t *p, size_t size)
{
    size_t at = SIGNATURE;
    while (at + AROUND <= size) {
        size_t n = (size_t)p[at] << 24 | (size_t)p[at + 1] << 16 |
                   (size_t)p[at + 2] << 8 | p[at + 3];
        if (n > size - at - AROUND)
            return;
        store(p + at + 8 + n, (uint32_t)crc32(0, p + at + 4, (uInt)n + 4));
        at += AROUND + n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LpTensor *t = NULL;
    LpErr e = {0};
    if (size == 0 || size > sizeof image)
        return 0;
    memcpy(image, data + 1, size - 1);
    mend_sums(image, size - 1);
    LpStatus s = lp_image_read(lp_fuzz_file(image, size - 1),
                               (LpImageMode)(data[0] % 3), &t, &e);
    if (s == LP_OK ? !t : !e.msg[0] || t)
        __builtin_trap();
    lp_tensor_release(t);
    return 0;
}

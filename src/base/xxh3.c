/* Short inputs are mixed whole, by length; longer ones in stripes of 64 bytes
 * over eight accumulators, which are scrambled after every block of 16. */
#include "src/base/xxh3.h"

#include <string.h>

#define SECRET 192
#define STRIPE LP_XXH3_STRIPE
#define STEP 8 /* bytes of the secret from stripe to stripe */
#define BLOCK LP_XXH3_BLOCK
_Static_assert(BLOCK == STRIPE * ((SECRET - STRIPE) / STEP), "a block");

static const uint8_t secret[SECRET] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c,
    0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb,
    0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e,
    0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
    0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb,
    0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97,
    0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7,
    0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
    0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83,
    0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26,
    0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc,
    0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
    0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

static const uint64_t P1 = 0x9e3779b185ebca87u, P2 = 0xc2b2ae3d27d4eb4fu,
                      P3 = 0x165667b19e3779f9u, P4 = 0x85ebca77c2b2ae63u,
                      P5 = 0x27d4eb2f165667c5u;
static const uint64_t Q1 = 0x9e3779b1u, Q2 = 0x85ebca77u, Q3 = 0xc2b2ae3du;

/* ---- pieces -------------------------------------------------------------- */
static uint64_t read64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static uint64_t read32(const uint8_t *p)
{
    return p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 |
           (uint64_t)p[3] << 24;
}

static uint64_t rotate(uint64_t v, int n)
{
    return v << n | v >> (64 - n);
}

static uint64_t fold(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 Wide;
    Wide p = (Wide)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t avalanche(uint64_t h)
{
    h = (h ^ h >> 37) * 0x165667919e3779f9u;
    return h ^ h >> 32;
}

static uint64_t mix(const uint8_t *p, const uint8_t *s)
{
    return fold(read64(p) ^ read64(s), read64(p + 8) ^ read64(s + 8));
}

/* ---- short inputs -------------------------------------------------------- */
static uint64_t finish(uint64_t h)
{
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

static uint64_t up_to_3(const uint8_t *p, size_t n)
{
    uint64_t v = (uint64_t)p[0] << 16 | (uint64_t)p[n >> 1] << 24 | p[n - 1] |
                 (uint64_t)n << 8;
    return finish(v ^ read32(secret) ^ read32(secret + 4));
}

static uint64_t up_to_8(const uint8_t *p, size_t n)
{
    uint64_t h = read32(p + n - 4) + (read32(p) << 32);
    h ^= read64(secret + 8) ^ read64(secret + 16);
    h ^= rotate(h, 49) ^ rotate(h, 24);
    h *= 0x9fb21c651e98df25u;
    h = (h ^ ((h >> 35) + n)) * 0x9fb21c651e98df25u;
    return h ^ h >> 28;
}

static uint64_t up_to_16(const uint8_t *p, size_t n)
{
    uint64_t a = read64(p) ^ read64(secret + 24) ^ read64(secret + 32);
    uint64_t b = read64(p + n - 8) ^ read64(secret + 40) ^ read64(secret + 48);
    return avalanche(n + __builtin_bswap64(a) + b + fold(a, b));
}

static uint64_t up_to_128(const uint8_t *p, size_t n)
{
    uint64_t h = n * P1;
    for (size_t i = (n - 1) / 32 + 1; i-- > 0;) {
        h += mix(p + 16 * i, secret + 32 * i);
        h += mix(p + n - 16 * (i + 1), secret + 32 * i + 16);
    }
    return avalanche(h);
}

static uint64_t up_to_240(const uint8_t *p, size_t n)
{
    uint64_t h = n * P1;
    for (size_t i = 0; i < 8; i++)
        h += mix(p + 16 * i, secret + 16 * i);
    h = avalanche(h);
    for (size_t i = 8; i < n / 16; i++)
        h += mix(p + 16 * i, secret + 16 * (i - 8) + 3);
    return avalanche(h + mix(p + n - 16, secret + 136 - 17));
}

/* ---- long inputs --------------------------------------------------------- */
static void add_stripe(uint64_t acc[8], const uint8_t *p, const uint8_t *s)
{
    for (int i = 0; i < 8; i++) {
        uint64_t v = read64(p + 8 * i), key = v ^ read64(s + 8 * i);
        acc[i ^ 1] += v;
        acc[i] += (key & 0xffffffffu) * (key >> 32);
    }
}

static void add_stripes(uint64_t acc[8], const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_stripe(acc, p + i * STRIPE, secret + i * STEP);
}

static void scramble(uint64_t acc[8])
{
    for (int i = 0; i < 8; i++) {
        uint64_t a = acc[i] ^ acc[i] >> 47;
        acc[i] = (a ^ read64(secret + SECRET - STRIPE + 8 * i)) * Q1;
    }
}

static void add_block(uint64_t acc[8], const uint8_t *p)
{
    add_stripes(acc, p, BLOCK / STRIPE);
    scramble(acc);
}

static const uint64_t start[8] = {Q3, P1, P2, P3, P4, Q2, P5, Q1};

/* `n` bytes in all, of which 1 to BLOCK come now, behind a stripe of others. */
static uint64_t end_long(const uint64_t blocks[8], const uint8_t *p,
                         size_t rest, size_t n)
{
    uint64_t acc[8], h = n * P1;
    memcpy(acc, blocks, sizeof acc);
    add_stripes(acc, p, (rest - 1) / STRIPE);
    add_stripe(acc, p + rest - STRIPE, secret + SECRET - STRIPE - 7);
    for (int i = 0; i < 8; i += 2)
        h += fold(acc[i] ^ read64(secret + 11 + 8 * i),
                  acc[i + 1] ^ read64(secret + 19 + 8 * i));
    return avalanche(h);
}

static uint64_t longer(const uint8_t *p, size_t n)
{
    uint64_t acc[8];
    size_t blocks = (n - 1) / BLOCK;
    memcpy(acc, start, sizeof acc);
    for (size_t i = 0; i < blocks; i++)
        add_block(acc, p + i * BLOCK);
    return end_long(acc, p + blocks * BLOCK, n - blocks * BLOCK, n);
}

uint64_t lp_xxh3(const void *data, size_t n)
{
    const uint8_t *p = data;
    if (n > 240)
        return longer(p, n);
    if (n > 128)
        return up_to_240(p, n);
    if (n > 16)
        return up_to_128(p, n);
    if (n > 8)
        return up_to_16(p, n);
    if (n > 3)
        return up_to_8(p, n);
    if (n > 0)
        return up_to_3(p, n);
    return finish(read64(secret + 56) ^ read64(secret + 64));
}

/* ---- in pieces ----------------------------------------------------------- */
void lp_xxh3_begin(LpXxh3 *x)
{
    *x = (LpXxh3){0};
    memcpy(x->acc, start, sizeof x->acc);
}

/* A block is added when something comes after it: the end is another matter. */
void lp_xxh3_add(LpXxh3 *x, const void *p, size_t n)
{
    const uint8_t *from = p;
    x->n += n;
    while (n > 0) {
        if (x->fill == BLOCK) {
            add_block(x->acc, x->bytes + STRIPE);
            memcpy(x->bytes, x->bytes + BLOCK, STRIPE);
            x->fill = 0;
        }
        size_t k = n < BLOCK - x->fill ? n : BLOCK - x->fill;
        memcpy(x->bytes + STRIPE + x->fill, from, k);
        x->fill += k;
        from += k;
        n -= k;
    }
}

uint64_t lp_xxh3_end(const LpXxh3 *x)
{
    if (x->n <= BLOCK)
        return lp_xxh3(x->bytes + STRIPE, x->n);
    return end_long(x->acc, x->bytes + STRIPE, x->fill, x->n);
}

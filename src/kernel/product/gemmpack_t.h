/* Packing of halves (LpGemmPack) for one of their types; included by
 * simd_gemm.c, which sets H(name), ONE(x), which widens one, and where there is
 * AVX2 alone EIGHT(p), which widens eight. */
#ifdef EIGHT
/* The first n of eight, then zeros. */
INLINE __m256 H(some)(const uint16_t *p, int64_t n)
{
    if (n >= 8)
        return EIGHT(p);
    uint16_t some[8] = {0};
    for (int64_t i = 0; i < n; i++)
        some[i] = p[i];
    return EIGHT(some);
}
#endif

static void H(panel)(const uint16_t *b, int64_t rs, int64_t cs, int64_t k,
                     int64_t cols, float *panel)
{
    const int64_t width = LP_GEMM_WIDTH;
    int64_t q = 0;
#ifdef EIGHT
    if (cs == 1)
        for (; q < k; q++) {
            const uint16_t *from = b + q * rs;
            __builtin_prefetch(from + 16 * rs);
            for (int64_t j = 0; j < width; j += 8)
                _mm256_storeu_ps(panel + q * width + j,
                                 H(some)(from + j, cols - j));
        }
    if (rs == 1)
        for (; q + 8 <= k; q += 8)
            for (int64_t j = 0; j < width; j += 8) {
                __m256 x[8];
#pragma GCC unroll 8
                for (int64_t i = 0; i < 8; i++)
                    x[i] = j + i < cols ? EIGHT(b + (j + i) * cs + q)
                                        : _mm256_setzero_ps();
                turn_eight(x);
#pragma GCC unroll 8
                for (int64_t i = 0; i < 8; i++)
                    _mm256_storeu_ps(panel + (q + i) * width + j, x[i]);
            }
#endif
    for (; q < k; q++)
        for (int64_t j = 0; j < width; j++)
            panel[q * width + j] = j < cols ? ONE(b[q * rs + j * cs]) : 0;
}

static void H(rows)(const uint16_t *a, int64_t rs, int64_t cs, int64_t k,
                    int64_t rows, float *packed)
{
    int64_t q = 0;
#ifdef EIGHT
    /* eight at a time; those after the rows are written over */
    if (rs == 1 && rows >= 4 && rows <= 8 && cs >= 8)
        for (; q + 2 <= k; q++)
            _mm256_storeu_ps(packed + q * rows, EIGHT(a + q * cs));
#endif
    for (; q < k; q++)
        for (int64_t i = 0; i < rows; i++)
            packed[q * rows + i] = ONE(a[q * cs + i * rs]);
}

static const LpGemmPack H(pack) = {.panel = H(panel), .rows = H(rows)};

/* The loops of gemmloops.h for one element type T; included by simd_gemm.c,
 * which sets MR and NV (a tile is MR rows by NV vectors), VSET and VFMA. */
typedef T F(V) __attribute__((vector_size(VBYTES), aligned(sizeof(T))));
#define VL ((int64_t)(VBYTES / sizeof(T)))
#define WIDTH (NV * VL)
#define LINE ((int64_t)(64 / sizeof(T)))

/* c[rows, cols] = t or += t, in memory as [rows][WIDTH]. */
static void F(put)(const LpGemmTile *x, const T *t, T *c)
{
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->cols; j++) {
            T *d = c + i * x->c_rs + j * x->c_cs;
            *d = x->add ? *d + t[i * WIDTH + j] : t[i * WIDTH + j];
        }
}

INLINE void F(tile_of)(const LpGemmTile *x, const T *left, const T *panel, T *c,
                       const int rows)
{
    F(V) s[MR][NV];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < NV; v++)
            s[i][v] = (F(V)){0};
    /* three rows to a pointer: they are reached by scaled indices */
    const T *p[(MR + 2) / 3];
#pragma GCC unroll 16
    for (int i = 0; i < (rows + 2) / 3; i++)
        p[i] = left + 3 * i * x->l_rs;
    const int64_t rs = x->l_rs, cs = x->l_cs, n = x->k;
    const bool across = x->c_cs == 1;
    const int64_t lines = across ? rows : x->cols;
    const int64_t step = across ? x->c_rs : x->c_cs;
    int64_t line = 0;
#define STEP                                                                   \
    {                                                                          \
        const F(V) *b = (const void *)panel;                                   \
        F(V) b0 = b[0], b1 = b[1];                                             \
        panel += WIDTH;                                                        \
        _Pragma("GCC unroll 16") for (int i = 0; i < rows; i++)                \
        {                                                                      \
            F(V) a = VSET(p[i / 3][i % 3 * rs]);                               \
            s[i][0] = VFMA(a, b0, s[i][0]);                                    \
            s[i][1] = VFMA(a, b1, s[i][1]);                                    \
        }                                                                      \
        _Pragma("GCC unroll 16") for (int i = 0; i < (rows + 2) / 3; i++)      \
            p[i] += cs;                                                        \
    }
    int64_t k = 0;
    for (; k + LINE <= n; k += LINE) {
        for (int i = 0; i < 4 && line < lines; i++, line++) {
            __builtin_prefetch(c + line * step, 1);
            __builtin_prefetch(c + line * step + LINE, 1);
        }
        const T *ahead = (const T *)x->ahead + k;
        for (int64_t i = 0; i < x->n_ahead; i++)
            __builtin_prefetch(ahead + i * rs, 0, 2);
#pragma GCC unroll 1
        for (int u = 0; u < LINE; u++)
            STEP
    }
    for (; k < n; k++)
        STEP
#undef STEP
            if (across && x->cols == WIDTH)
        {
#pragma GCC unroll 16
            for (int i = 0; i < rows; i++)
                for (int v = 0; v < NV; v++) {
                    F(V) *d = (void *)(c + i * x->c_rs + v * VL);
                    *d = x->add ? *d + s[i][v] : s[i][v];
                }
            return;
        }
    _Alignas(64) T t[16 * WIDTH];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < NV; v++)
            *(F(V) *)(void *)(t + i * WIDTH + v * VL) = s[i][v];
    if (!PUT_TURNED(x, t, c))
        F(put)(x, t, c);
}

static void F(tile)(const LpGemmTile *x, const T *left, const T *panel, T *c)
{
#define OF(n)                                                                  \
    case n:                                                                    \
        F(tile_of)(x, left, panel, c, n);                                      \
        break;
    switch (x->rows) {
        OF(1)
        OF(2)
        OF(3)
        OF(4)
        OF(5)
        OF(6)
#if MR > 6
        OF(7)
        OF(8)
        OF(9)
        OF(10)
        OF(11)
        OF(12)
#endif
#if MR > 12
        OF(13)
        OF(14)
#endif
    }
#undef OF
}

static void F(pack_panel)(const T *b, int64_t rs, int64_t cs, int64_t k,
                          int64_t cols, T *panel)
{
    if (PACK_TURNED(b, rs, cs, k, cols, panel))
        return;
    for (int64_t q = 0; q < k; q++, b += rs, panel += WIDTH) {
        if (cs == 1 && cols == WIDTH) {
            memcpy(panel, b, WIDTH * sizeof(T));
            continue;
        }
        for (int64_t j = 0; j < cols; j++)
            panel[j] = b[j * cs];
        for (int64_t j = cols; j < WIDTH; j++)
            panel[j] = 0;
    }
}

static void F(pack_rows)(const T *a, int64_t rs, int64_t cs, int64_t k,
                         int64_t rows, T *packed)
{
    if (!PACK_ROWS(a, rs, cs, k, rows, packed))
        for (int64_t q = 0; q < k; q++)
            for (int64_t i = 0; i < rows; i++)
                packed[q * rows + i] = a[q * cs + i * rs];
}

#define LOOPS                                                                  \
    {                                                                          \
        .rows = MR, .width = WIDTH, .tile = F(tile),                           \
        .pack_panel = F(pack_panel), .pack_rows = F(pack_rows)                 \
    }
static const F(Loops) F(loops) = LOOPS;
#undef LOOPS
#undef VL
#undef WIDTH
#undef LINE

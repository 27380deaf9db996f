/* gridloops.h for one element type; included by simd_grid.c with
 *   T      the type,      F(name)  the name of a function for it,
 *   FLOOR, ROUND (to even), ABS: of it.
 * A tap outside has no place (at < 0) and weighs nothing, or NaN if nothing is
 * known of where it is: what stands elsewhere has no part in it. No include
 * guard: it is included once per type.
 *
 * source: the formulas of the PyTorch documentation of grid_sample; Keys 1981,
 * cubic convolution with a = -0.75 */
enum { F(BLOCK) = LP_GRID_BLOCK };

typedef struct F(Tap) {
    int32_t at[LP_GRID_BLOCK]; /* along the axis */
    T weight[LP_GRID_BLOCK], slope[LP_GRID_BLOCK];
} F(Tap);
typedef struct F(Corner) {
    int32_t at[LP_GRID_BLOCK]; /* in the plane */
    T weight[LP_GRID_BLOCK], slope[LP_GRID_AXES][LP_GRID_BLOCK];
} F(Corner);
typedef struct F(Plan) {
    F(Tap) tap[LP_GRID_AXES][LP_GRID_TAPS];
    F(Corner) corner[];
} F(Plan);

static size_t F(bytes)(const LpGrid *g)
{
    return sizeof(F(Plan)) + (size_t)g->corners * sizeof(F(Corner));
}

/* ---- taps of an axis ----------------------------------------------------- */
/* One axis; padding and align as constants where it is inlined. */
typedef struct F(Axis) {
    T size, low, span; /* low, span: of what reflects */
    int padding;
    bool align;
} F(Axis);

/* Into 0 … size - 1; *slope: of that. */
static inline __attribute__((always_inline)) T F(padded)(const F(Axis) * a, T u,
                                                         T *slope)
{
    *slope = 1;
    if (a->padding == LP_GRID_ZEROS)
        return u;
    if (a->padding == LP_GRID_REFLECTION) {
        T v = ABS(u - a->low), flips = FLOOR(v / a->span);
        T extra = v - flips * a->span, s = u < a->low ? -1 : 1;
        bool odd = flips - 2 * FLOOR(flips / 2) != 0;
        u = (odd ? a->span - extra : extra) + a->low;
        *slope = odd ? -s : s;
        if (a->span == 0)
            u = 0;
    }
    T top = a->size - 1;
    *slope = u > 0 && u < top ? *slope : 0;
    u = u > 0 ? u : 0; /* NaN becomes 0 */
    return u < top ? u : top;
}

static inline __attribute__((always_inline)) void
F(put)(F(Tap) * t, int i, T at, T size, T weight, T slope, T beyond)
{
    bool inside = at >= 0 && at <= size - 1;
    T safe = inside ? at : 0;
    int32_t whole = (int32_t)safe;
    t->at[i] = inside ? whole : -1;
    t->weight[i] = inside ? weight : beyond;
    t->slope[i] = inside ? slope : 0;
}

#define CUBIC_A ((T)-0.75)
static inline T F(near)(T x)
{
    return ((CUBIC_A + 2) * x - (CUBIC_A + 3)) * x * x + 1;
}
static inline T F(near_slope)(T x)
{
    return (3 * (CUBIC_A + 2) * x - 2 * (CUBIC_A + 3)) * x;
}
static inline T F(far)(T x)
{
    return ((CUBIC_A * x - 5 * CUBIC_A) * x + 8 * CUBIC_A) * x - 4 * CUBIC_A;
}
static inline T F(far_slope)(T x)
{
    return (3 * CUBIC_A * x - 10 * CUBIC_A) * x + 8 * CUBIC_A;
}

static inline __attribute__((always_inline)) void F(axis)(const F(Axis) * a,
                                                          int mode, int axes,
                                                          const T *grid, int m,
                                                          F(Tap) * tap)
{
    T size = a->size, d, unused;
    T by = a->align ? (size - 1) / 2 : size / 2;
#pragma GCC ivdep
    for (int i = 0; i < m; i++) {
        T x = grid[i * axes] + 1;
        T u = a->align ? x * by : (x * size - 1) / 2;
        if (mode == LP_GRID_BICUBIC) {
            T low = FLOOR(u), t = u - low;
            F(put)
            (&tap[0], i, F(padded)(a, low - 1, &unused), size, F(far)(t + 1),
             by * F(far_slope)(t + 1), t - t);
            F(put)
            (&tap[1], i, F(padded)(a, low, &unused), size, F(near)(t),
             by * F(near_slope)(t), t - t);
            F(put)
            (&tap[2], i, F(padded)(a, low + 1, &unused), size, F(near)(1 - t),
             -by * F(near_slope)(1 - t), t - t);
            F(put)
            (&tap[3], i, F(padded)(a, low + 2, &unused), size, F(far)(2 - t),
             -by * F(far_slope)(2 - t), t - t);
            continue;
        }
        u = F(padded)(a, u, &d);
        if (mode == LP_GRID_NEAREST) {
            F(put)(&tap[0], i, ROUND(u), size, 1, 0, 0);
            continue;
        }
        T low = FLOOR(u), t = u - low;
        F(put)(&tap[0], i, low, size, 1 - t, -d * by, u - u);
        F(put)(&tap[1], i, low + 1, size, t, d * by, u - u);
    }
}

/* The loops of each mode and padding on their own, without tests in them. */
static void F(taps)(const LpGrid *g, int axis, const T *grid, int m,
                    F(Tap) * tap)
{
    F(Axis)
    a = {.size = (T)g->size[axis],
         .low = g->align ? 0 : (T)-0.5,
         .span = (T)(g->align ? g->size[axis] - 1 : g->size[axis]),
         .align = g->align};
#define MODES(PADDING)                                                         \
    case PADDING:                                                              \
        a.padding = PADDING;                                                   \
        if (g->mode == LP_GRID_BILINEAR)                                       \
            F(axis)(&a, LP_GRID_BILINEAR, g->axes, grid, m, tap);              \
        else if (g->mode == LP_GRID_NEAREST)                                   \
            F(axis)(&a, LP_GRID_NEAREST, g->axes, grid, m, tap);               \
        else                                                                   \
            F(axis)(&a, LP_GRID_BICUBIC, g->axes, grid, m, tap);               \
        break;
    switch (g->padding) {
        MODES(LP_GRID_ZEROS)
        MODES(LP_GRID_BORDER)
        MODES(LP_GRID_REFLECTION)
    }
#undef MODES
}

/* ---- corners ------------------------------------------------------------- */
static void F(plan)(const LpGrid *g, const T *grid, int m, bool slopes,
                    void *work)
{
    F(Plan) *q = work;
    for (int a = 0; a < g->axes; a++)
        F(taps)(g, a, grid + a, m, q->tap[a]);
    for (int c = 0; c < g->corners; c++) {
        F(Corner) *k = &q->corner[c];
        const F(Tap) *x = &q->tap[0][c % g->taps];
        const F(Tap) *y = &q->tap[1][c / g->taps % g->taps];
        int32_t down = (int32_t)g->step[1], deep = (int32_t)g->step[2];
        if (g->axes == 2) {
#pragma GCC ivdep
            for (int i = 0; i < m; i++) {
                int32_t at = x->at[i] + y->at[i] * down;
                k->at[i] = (x->at[i] | y->at[i]) < 0 ? -1 : at;
                k->weight[i] = x->weight[i] * y->weight[i];
            }
#pragma GCC ivdep
            for (int i = 0; slopes && i < m; i++) {
                k->slope[0][i] = x->slope[i] * y->weight[i];
                k->slope[1][i] = x->weight[i] * y->slope[i];
            }
            continue;
        }
        const F(Tap) *z = &q->tap[2][c / (g->taps * g->taps)];
#pragma GCC ivdep
        for (int i = 0; i < m; i++) {
            int32_t at = x->at[i] + y->at[i] * down + z->at[i] * deep;
            k->at[i] = (x->at[i] | y->at[i] | z->at[i]) < 0 ? -1 : at;
            k->weight[i] = x->weight[i] * y->weight[i] * z->weight[i];
        }
#pragma GCC ivdep
        for (int i = 0; slopes && i < m; i++) {
            k->slope[0][i] = x->slope[i] * y->weight[i] * z->weight[i];
            k->slope[1][i] = x->weight[i] * y->slope[i] * z->weight[i];
            k->slope[2][i] = x->weight[i] * y->weight[i] * z->slope[i];
        }
    }
}

/* ---- planes -------------------------------------------------------------- */
/* Element `at` of a plane. Outside it is 0, or without `holes` what stands
 * first in the plane: a finite number, which weighs nothing. */
static inline __attribute__((always_inline)) T F(value)(const T *x, int32_t at,
                                                        bool holes)
{
    T v = x[at & ~(at >> 31)];
    return holes && at < 0 ? 0 : v;
}

/* y (+)= corners from .. from + count - 1. */
static inline __attribute__((always_inline)) void F(some)(const F(Corner) * k,
                                                          int count, bool first,
                                                          bool holes, int m,
                                                          const T *x, T *y)
{
#pragma GCC ivdep
    for (int i = 0; i < m; i++) {
        T sum = first ? 0 : y[i];
#pragma GCC unroll 4
        for (int c = 0; c < count; c++)
            sum += F(value)(x, k[c].at[i], holes) * k[c].weight[i];
        y[i] = sum;
    }
}

static inline __attribute__((always_inline)) void
F(all)(const F(Corner) * k, int corners, bool holes, int m, const T *x, T *y)
{
    if (corners == 1) {
        F(some)(k, 1, true, holes, m, x, y);
        return;
    }
    F(some)(k, 4, true, holes, m, x, y);
    for (int c = 4; c < corners; c += 4)
        F(some)(k + c, 4, false, holes, m, x, y);
}

static void F(sample)(const LpGrid *g, int m, const void *work, const T *x,
                      T *y)
{
    const F(Corner) *k = ((const F(Plan) *)work)->corner;
    if (isfinite(*x))
        F(all)(k, g->corners, false, m, x, y);
    else
        F(all)(k, g->corners, true, m, x, y);
}

static void F(scatter)(const LpGrid *g, int m, const void *work, const T *dy,
                       T *dx)
{
    const F(Corner) *k = ((const F(Plan) *)work)->corner;
    for (int c = 0; c < g->corners; c++)
        for (int i = 0; i < m; i++)
            if (k[c].at[i] >= 0)
                dx[k[c].at[i]] += dy[i] * k[c].weight[i];
}

static inline __attribute__((always_inline)) void
F(along)(const LpGrid *g, int axes, bool holes, int m, const F(Corner) * k,
         const T *x, const T *dy, T *sum)
{
    for (int c = 0; c < g->corners; c++)
#pragma GCC ivdep
        for (int i = 0; i < m; i++) {
            T v = F(value)(x, k[c].at[i], holes) * dy[i];
#pragma GCC unroll 3
            for (int a = 0; a < axes; a++)
                sum[a * F(BLOCK) + i] += v * k[c].slope[a][i];
        }
}

static void F(slopes)(const LpGrid *g, int m, const void *work, const T *x,
                      const T *dy, T *sum)
{
    const F(Corner) *k = ((const F(Plan) *)work)->corner;
    if (g->mode == LP_GRID_NEAREST)
        return;
    bool holes = !isfinite(*x);
    if (g->axes == 2 && !holes)
        F(along)(g, 2, false, m, k, x, dy, sum);
    else if (g->axes == 2)
        F(along)(g, 2, true, m, k, x, dy, sum);
    else
        F(along)(g, 3, holes, m, k, x, dy, sum);
}

/* The loops of nnloops.h for one element type; included by simd_nn.c with
 *   T        the type,        F(name)  the name of a function for it,
 *   EXP(x)   its exponential, LOG(x)   its logarithm,
 *   EXP_BELOW(x)  the exponential of x <= 0.
 * No include guard: it is included once per type. */

static T F(row_max)(const T *x, int64_t n)
{
    T m = x[0];
#pragma omp simd reduction(max : m)
    for (int64_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

/* y = exp(x - m), unless y is NULL; returns the sum. m of an all -inf row is
 * -inf: NaN, as in PyTorch. */
static inline T F(exp_part)(const T *x, int64_t n, T m, T *y)
{
    T s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) {
        T v = EXP_BELOW(x[i] - m);
        if (y)
            y[i] = v;
        s += v;
    }
    return s;
}

/* The rest of a row is the end of its last vector, which comes first: y may be
 * x. */
static inline T F(exp_row)(const T *x, int64_t n, T m, T *y)
{
    enum { WIDE = VBYTES / sizeof(T) };
    int64_t whole = n / WIDE * WIDE;
    T v[WIDE], s = 0;
    if (whole == n || n < WIDE)
        return F(exp_part)(x, n, m, y);
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < WIDE; i++) {
        v[i] = EXP_BELOW(x[n - WIDE + i] - m);
        s += i < whole + WIDE - n ? 0 : v[i];
    }
    s += F(exp_part)(x, whole, m, y);
    if (y)
        memcpy(y + n - WIDE, v, sizeof v);
    return s;
}

static void F(softmax)(const T *x, int64_t n, T *y)
{
    T s = F(exp_row)(x, n, F(row_max)(x, n), y);
    T r = 1 / s;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] *= r;
}

static void F(log_softmax)(const T *x, int64_t n, T *y)
{
    T m = F(row_max)(x, n);
    T l = LOG(F(exp_row)(x, n, m, NULL));
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] - m - l;
}

static void F(softmax_back)(const T *dy, const T *y, int64_t n, T *dx)
{
    T s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
        s += dy[i] * y[i];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = y[i] * (dy[i] - s);
}

static T F(sum)(const T *x, int64_t n)
{
    T s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
        s += x[i];
    return s;
}

static void F(log_softmax_back)(const T *dy, const T *y, int64_t n, T *dx)
{
    T s = F(sum)(dy, n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] - EXP(y[i]) * s;
}

#define COLS 64
static void F(softmax_cols)(const T *x, int64_t n, int64_t stride,
                            int64_t inner, bool is_log, T *y)
{
    T m[COLS], s[COLS];
    for (int64_t c = 0; c < inner; c++) {
        m[c] = x[c];
        s[c] = 0;
    }
    for (int64_t i = 1; i < n; i++)
#pragma omp simd
        for (int64_t c = 0; c < inner; c++)
            m[c] = x[i * stride + c] > m[c] ? x[i * stride + c] : m[c];
    for (int64_t i = 0; i < n; i++)
#pragma omp simd
        for (int64_t c = 0; c < inner; c++) {
            T v = EXP_BELOW(x[i * stride + c] - m[c]);
            y[i * stride + c] = v;
            s[c] += v;
        }
    for (int64_t c = 0; c < inner; c++)
        s[c] = is_log ? LOG(s[c]) : 1 / s[c];
    for (int64_t i = 0; i < n; i++)
#pragma omp simd
        for (int64_t c = 0; c < inner; c++)
            y[i * stride + c] = is_log ? x[i * stride + c] - m[c] - s[c]
                                       : y[i * stride + c] * s[c];
}

static void F(softmax_cols_back)(const T *dy, const T *y, int64_t n,
                                 int64_t stride, int64_t inner, bool is_log,
                                 T *dx)
{
    T s[COLS];
    for (int64_t c = 0; c < inner; c++)
        s[c] = 0;
    for (int64_t i = 0; i < n; i++)
#pragma omp simd
        for (int64_t c = 0; c < inner; c++)
            s[c] += is_log ? dy[i * stride + c]
                           : dy[i * stride + c] * y[i * stride + c];
    for (int64_t i = 0; i < n; i++)
#pragma omp simd
        for (int64_t c = 0; c < inner; c++) {
            T g = dy[i * stride + c], v = y[i * stride + c];
            dx[i * stride + c] = is_log ? g - EXP(v) * s[c] : v * (g - s[c]);
        }
}
#undef COLS

static T F(sum_diff2)(const T *x, int64_t n, T mean)
{
    T s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
        s += (x[i] - mean) * (x[i] - mean);
    return s;
}

/* s += sum dy, sx += sum dy (x - mean) */
static void F(dot2)(const T *dy, const T *x, int64_t n, T mean, T *s, T *sx)
{
    T a = 0, b = 0;
#pragma omp simd reduction(+ : a, b)
    for (int64_t i = 0; i < n; i++) {
        a += dy[i];
        b += dy[i] * (x[i] - mean);
    }
    *s += a;
    *sx += b;
}

static void F(norm_row)(const T *x, int64_t n, T mean, T rstd, const T *w,
                        const T *b, T *y)
{
    if (w && b) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + b[i];
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * rstd;
    for (int64_t i = 0; w && i < n; i++)
        y[i] *= w[i];
    for (int64_t i = 0; b && i < n; i++)
        y[i] += b[i];
}

/* y = (x - mean) scale + shift: for data far from 0 */
static void F(center)(const T *x, int64_t n, T mean, T scale, T shift, T *y)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * scale + shift;
}

/* dx = dy a + (x - mean) b + c */
static void F(center2)(const T *dy, const T *x, int64_t n, T mean, T a, T b,
                       T c, T *dx)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] * a + (x[i] - mean) * b + c;
}

static void F(norm_back_sums)(const T *dy, const T *x, const T *w, int64_t n,
                              T mean, T rstd, T *s, T *sx)
{
    T a = 0, b = 0;
    if (w) {
#pragma omp simd reduction(+ : a, b)
        for (int64_t i = 0; i < n; i++) {
            T g = dy[i] * w[i];
            a += g;
            b += g * (x[i] - mean);
        }
    } else {
        F(dot2)(dy, x, n, mean, &a, &b);
    }
    *s = a;
    *sx = b * rstd;
}

/* dw += dy xhat, db += dy over one row */
static void F(norm_back_params)(const T *dy, const T *x, int64_t n, T mean,
                                T rstd, T *dw, T *db)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dw[i] += dy[i] * (x[i] - mean) * rstd;
        db[i] += dy[i];
    }
}

/* dx = rstd (dy w - s - xhat sx) */
static void F(norm_back_row)(const T *dy, const T *x, const T *w, int64_t n,
                             T mean, T rstd, T s, T sx, T *dx)
{
    T t = sx * rstd;
    if (w) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dx[i] = rstd * (dy[i] * w[i] - s - (x[i] - mean) * t);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dx[i] = rstd * (dy[i] - s - (x[i] - mean) * t);
    }
}

static inline void F(max_step)(const T *x, int64_t stride, int64_t n,
                               int32_t pos, int32_t pos_step, T *best,
                               int32_t *index)
{
    if (stride == 1) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            T v = x[i], b = best[i];
            bool take = (v > b) | (v != v);
            best[i] = take ? v : b;
            index[i] = take ? pos + (int32_t)i * pos_step : index[i];
        }
    } else if (stride == 2) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            T v = x[2 * i], b = best[i];
            bool take = (v > b) | (v != v);
            best[i] = take ? v : b;
            index[i] = take ? pos + (int32_t)i * pos_step : index[i];
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            T v = x[i * stride];
            if (v > best[i] || v != v) {
                best[i] = v;
                index[i] = pos + (int32_t)i * pos_step;
            }
        }
    }
}

/* The first two places of windows whose step is two: nothing was seen yet. */
static inline void F(max_pair)(const T *x, int64_t n, int32_t pos, T *best,
                               int32_t *index)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        T a = x[2 * i], b = x[2 * i + 1];
        bool second = (b > a) | (b != b);
        best[i] = second ? b : a;
        index[i] = pos + 2 * (int32_t)i + (second ? 1 : 0);
    }
}

static inline void F(add_step)(const T *x, int64_t stride, int64_t n, T *acc)
{
    if (stride == 1) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            acc[i] += x[i];
    } else if (stride == 2) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            acc[i] += x[2 * i];
    } else {
        for (int64_t i = 0; i < n; i++)
            acc[i] += x[i * stride];
    }
}

/* Outputs [*lo, *hi) of axis `a` whose place `k` of the window lies in the
 * input; *from is the input position of output *lo. */
static inline void F(pool_range)(const LpPoolGeom *g, int a, int64_t k,
                                 int64_t *lo, int64_t *hi, int64_t *from)
{
    int64_t off = k * g->dilation[a] - g->pad[a], s = g->stride[a];
    int64_t last = g->in[a] - 1 - off;
    *lo = off < 0 ? (s - 1 - off) / s : 0;
    *hi = last < 0 ? 0 : last / s + 1;
    if (*hi > g->out[a])
        *hi = g->out[a];
    *from = *lo * s + off;
}

/* First place of output o's window that lies in the input. */
static inline int64_t F(pool_first)(const LpPoolGeom *g, int a, int64_t o)
{
    int64_t p = o * g->stride[a] - g->pad[a], d = g->dilation[a];
    return p < 0 ? p + (d - 1 - p) / d * d : p;
}

/* Where the row of the input begins that place k of the first two axes of
 * output (d, h)'s window is; -1: outside. */
static inline int64_t F(pool_row)(const LpPoolGeom *g, int64_t d, int64_t h,
                                  int64_t k)
{
    int64_t a =
        d * g->stride[0] - g->pad[0] + k / g->kernel[1] * g->dilation[0];
    int64_t b =
        h * g->stride[1] - g->pad[1] + k % g->kernel[1] * g->dilation[1];
    bool in = a >= 0 && a < g->in[0] && b >= 0 && b < g->in[1];
    return in ? (a * g->in[1] + b) * g->in[2] : -1;
}

/* Outputs w0 … w1 - 1 of a row, whose first ones are at `best` and `index`, by
 * all places but the first `seen`. */
static inline void F(max_rows)(const LpPoolGeom *g, const T *x, int64_t d,
                               int64_t h, int64_t w0, int64_t w1, int64_t seen,
                               T *best, int32_t *index)
{
    int64_t lo, hi, from, s = g->stride[2];
    for (int64_t k = 0; k < g->kernel[0] * g->kernel[1]; k++) {
        int64_t row = F(pool_row)(g, d, h, k);
        for (int64_t kw = k == 0 ? seen : 0; kw < g->kernel[2] && row >= 0;
             kw++) {
            F(pool_range)(g, 2, kw, &lo, &hi, &from);
            from += lo < w0 ? (w0 - lo) * s : 0;
            lo = lo < w0 ? w0 : lo;
            hi = hi < w1 ? hi : w1;
            if (lo < hi)
                F(max_step)
            (x + row + from, s, hi - lo, (int32_t)(row + from), (int32_t)s,
             best + lo - w0, index + lo - w0);
        }
    }
}

/* Outputs w0 … w0 + n - 1 of a row before anything was seen: the first place
 * of each window, of the input's row that begins at `row`. */
static inline void F(max_start)(const LpPoolGeom *g, int64_t row, int64_t w0,
                                int64_t n, T *best, int32_t *index)
{
    int32_t s = (int32_t)g->stride[2], from = (int32_t)(row - g->pad[2]);
#pragma omp simd
    for (int64_t w = 0; w < n; w++) {
        best[w] = -(T)INFINITY;
        index[w] = from + (int32_t)(w0 + w) * s;
    }
    for (int64_t w = 0; w < n && (w0 + w) * s < g->pad[2]; w++)
        index[w] = (int32_t)(row + F(pool_first)(g, 2, w0 + w));
}

/* A strip of outputs at a time, which stays in the first cache. */
#define STRIP 512
static void F(max_plane)(const LpPoolGeom *g, const T *x, T *y, int64_t *index)
{
    int32_t at[STRIP];
    int64_t n = g->out[2];
    bool pairs = g->stride[2] == 2 && g->dilation[2] == 1 && g->kernel[2] > 1 &&
                 g->pad[0] + g->pad[1] + g->pad[2] == 0 && 2 * n <= g->in[2];
    for (int64_t d = 0; d < g->out[0]; d++)
        for (int64_t h = 0; h < g->out[1]; h++, y += n, index += n) {
            int64_t row =
                (F(pool_first)(g, 0, d) * g->in[1] + F(pool_first)(g, 1, h)) *
                g->in[2];
            for (int64_t w0 = 0; w0 < n; w0 += STRIP) {
                int64_t m = n - w0 < STRIP ? n - w0 : STRIP;
                int64_t first = row + 2 * w0, seen = pairs ? 2 : 0;
                if (pairs)
                    F(max_pair)(x + first, m, (int32_t)first, y + w0, at);
                else
                    F(max_start)(g, row, w0, m, y + w0, at);
                F(max_rows)(g, x, d, h, w0, w0 + m, seen, y + w0, at);
#pragma omp simd
                for (int64_t w = 0; w < m; w++)
                    index[w0 + w] = at[w];
            }
        }
}
#undef STRIP

/* Elements of output o's window that count in the divisor. */
static inline int64_t F(pool_count)(const LpPoolGeom *g, int a, int64_t o)
{
    int64_t from = o * g->stride[a] - g->pad[a], to = from + g->kernel[a];
    int64_t end = g->in[a] + (g->include_pad ? g->pad[a] : 0);
    if (!g->include_pad && from < 0)
        from = 0;
    return (to < end ? to : end) - from;
}

static void F(avg_plane)(const LpPoolGeom *g, const T *x, T *y)
{
    int64_t n = g->out[2], lo, hi, from;
    for (int64_t d = 0; d < g->out[0]; d++)
        for (int64_t h = 0; h < g->out[1]; h++, y += n) {
            for (int64_t w = 0; w < n; w++)
                y[w] = 0;
            for (int64_t k = 0; k < g->kernel[0] * g->kernel[1]; k++) {
                int64_t row = F(pool_row)(g, d, h, k);
                for (int64_t kw = 0; kw < g->kernel[2] && row >= 0; kw++) {
                    F(pool_range)(g, 2, kw, &lo, &hi, &from);
                    if (lo < hi)
                        F(add_step)
                    (x + row + from, g->stride[2], hi - lo, y + lo);
                }
            }
            int64_t dh = F(pool_count)(g, 0, d) * F(pool_count)(g, 1, h);
            for (int64_t w = 0; w < n; w++)
                y[w] /=
                    (T)(g->divisor ? g->divisor : dh * F(pool_count)(g, 2, w));
        }
}

/* The part of axis `a` that output o's window has; returns what it counts. */
static inline int64_t F(pool_span)(const LpPoolGeom *g, int a, int64_t o,
                                   int64_t *first, int64_t *last)
{
    if (g->adaptive) {
        *first = o * g->in[a] / g->out[a];
        *last = ((o + 1) * g->in[a] + g->out[a] - 1) / g->out[a];
        return *last - *first;
    }
    int64_t from = o * g->stride[a] - g->pad[a], to = from + g->kernel[a];
    *first = from < 0 ? 0 : from;
    *last = to < g->in[a] ? to : g->in[a];
    return F(pool_count)(g, a, o);
}

/* The rows of the windows of outputs (d, h, …): `count` of them count. */
typedef struct F(Rows) {
    int64_t d0, d1, h0, h1, count;
} F(Rows);

static inline F(Rows) F(rows_of)(const LpPoolGeom *g, int64_t d, int64_t h)
{
    F(Rows) r;
    r.count = F(pool_span)(g, 0, d, &r.d0, &r.d1);
    r.count *= F(pool_span)(g, 1, h, &r.h0, &r.h1);
    return r;
}

/* The rows add up, then what each window has of the sum. */
static void F(avg_rows)(const LpPoolGeom *g, const T *x, T *y, T *row)
{
    int64_t n = g->in[2], first, last;
    for (int64_t o = 0; o < g->out[0] * g->out[1]; o++, y += g->out[2]) {
        F(Rows) r = F(rows_of)(g, o / g->out[1], o % g->out[1]);
        memset(row, 0, (size_t)n * sizeof *row);
        for (int64_t d = r.d0; d < r.d1; d++)
            for (int64_t h = r.h0; h < r.h1; h++)
                F(add_step)(x + (d * g->in[1] + h) * n, 1, n, row);
        for (int64_t w = 0; w < g->out[2]; w++) {
            int64_t count = r.count * F(pool_span)(g, 2, w, &first, &last);
            y[w] = (last > first ? F(sum)(row + first, last - first) : 0) /
                   (T)(g->divisor ? g->divisor : count);
        }
    }
}

/* dx += the gradient of avg_plane or avg_rows */
static void F(avg_rows_back)(const LpPoolGeom *g, const T *dy, T *dx, T *row)
{
    int64_t n = g->in[2], first, last;
    for (int64_t o = 0; o < g->out[0] * g->out[1]; o++, dy += g->out[2]) {
        F(Rows) r = F(rows_of)(g, o / g->out[1], o % g->out[1]);
        memset(row, 0, (size_t)n * sizeof *row);
        for (int64_t w = 0; w < g->out[2]; w++) {
            int64_t count = r.count * F(pool_span)(g, 2, w, &first, &last);
            T v = dy[w] / (T)(g->divisor ? g->divisor : count);
            for (int64_t i = first; i < last; i++)
                row[i] += v;
        }
        for (int64_t d = r.d0; d < r.d1; d++)
            for (int64_t h = r.h0; h < r.h1; h++)
                F(add_step)(row, 1, n, dx + (d * g->in[1] + h) * n);
    }
}

#define LOOPS                                                                  \
    {                                                                          \
        .softmax = F(softmax), .log_softmax = F(log_softmax),                  \
        .softmax_back = F(softmax_back),                                       \
        .log_softmax_back = F(log_softmax_back),                               \
        .softmax_cols = F(softmax_cols),                                       \
        .softmax_cols_back = F(softmax_cols_back), .sum = F(sum),              \
        .sum_diff2 = F(sum_diff2), .dot2 = F(dot2), .norm_row = F(norm_row),   \
        .center = F(center), .center2 = F(center2),                            \
        .norm_back_sums = F(norm_back_sums),                                   \
        .norm_back_params = F(norm_back_params),                               \
        .norm_back_row = F(norm_back_row), .max_plane = F(max_plane),          \
        .avg_plane = F(avg_plane), .avg_rows = F(avg_rows),                    \
        .avg_rows_back = F(avg_rows_back)                                      \
    }
static const F(Loops) F(loops) = LOOPS;
#undef LOOPS

/* The loops of rnnloops.h for one element type T; F(name) is the name of a
 * function for it. No include guard: simd_rnn.c includes it once per type. */

#define SIGMOID(x) F(sigmoid)(x)
#define TANH(x) F(tanh)(x)
#define EACH _Pragma("GCC ivdep") for (int64_t j = 0; j < n; j++)

static inline const T *F(input)(const LpRnnForward *f, int64_t r)
{
    return (const T *)f->input + (f->at ? f->at[r] : r) * f->stride;
}

static void F(lstm_forward)(const LpRnnForward *f)
{
    const int64_t n = f->hidden;
    const T *b = f->bias;
    for (int64_t r = 0; r < f->rows; r++) {
        const T *s = (const T *)f->share + r * 4 * n;
        const T *cp = (const T *)f->c_prev + r * n;
        const T *x = F(input)(f, r);
        T *g = (T *)f->gates + r * 4 * n;
        T *c = (T *)f->c + r * n, *h = (T *)f->h + r * n;
        EACH
        {
            T i = SIGMOID(x[j] + s[j] + b[j]);
            T k = SIGMOID(x[n + j] + s[n + j] + b[n + j]);
            T u = TANH(x[2 * n + j] + s[2 * n + j] + b[2 * n + j]);
            T o = SIGMOID(x[3 * n + j] + s[3 * n + j] + b[3 * n + j]);
            T v = k * cp[j] + i * u;
            g[j] = i;
            g[n + j] = k;
            g[2 * n + j] = u;
            g[3 * n + j] = o;
            c[j] = v;
            h[j] = o * TANH(v);
        }
    }
}

static void F(gru_forward)(const LpRnnForward *f)
{
    const int64_t n = f->hidden;
    const T *b = f->bias;
    for (int64_t r = 0; r < f->rows; r++) {
        const T *s = (const T *)f->share + r * 3 * n;
        const T *hp = (const T *)f->h_prev + r * n;
        const T *x = F(input)(f, r);
        T *g = (T *)f->gates + r * 4 * n, *h = (T *)f->h + r * n;
        EACH
        {
            T u = SIGMOID(x[j] + s[j] + b[j]);
            T z = SIGMOID(x[n + j] + s[n + j] + b[n + j]);
            T m = s[2 * n + j] + b[3 * n + j];
            T v = TANH(x[2 * n + j] + b[2 * n + j] + u * m);
            g[j] = u;
            g[n + j] = z;
            g[2 * n + j] = v;
            g[3 * n + j] = m;
            h[j] = (1 - z) * v + z * hp[j];
        }
    }
}

#define PLAIN_FORWARD(name, value)                                             \
    static void F(name)(const LpRnnForward *f)                                 \
    {                                                                          \
        const int64_t n = f->hidden;                                           \
        const T *b = f->bias;                                                  \
        for (int64_t r = 0; r < f->rows; r++) {                                \
            const T *s = (const T *)f->share + r * n, *x = F(input)(f, r);     \
            T *h = (T *)f->gates + r * n;                                      \
            EACH                                                               \
            {                                                                  \
                T v = x[j] + s[j] + b[j];                                      \
                h[j] = value;                                                  \
            }                                                                  \
        }                                                                      \
    }
PLAIN_FORWARD(tanh_forward, TANH(v))
PLAIN_FORWARD(relu_forward, v < 0 ? 0 : v) /* a NaN stays */

static void F(lstm_backward)(const LpRnnBackward *p)
{
    const int64_t n = p->hidden;
    for (int64_t r = 0; r < p->rows; r++) {
        const T *dy = (const T *)p->dy + r * n;
        const T *carry = (const T *)p->carry + r * n;
        const T *g = (const T *)p->gates + r * 4 * n;
        const T *c = (const T *)p->c + r * n;
        const T *cp = (const T *)p->c_prev + r * n;
        T *dc = (T *)p->direct + r * n, *d = (T *)p->dx + r * 4 * n;
        EACH
        {
            T i = g[j], k = g[n + j], u = g[2 * n + j], o = g[3 * n + j];
            T t = TANH(c[j]), dh = dy[j] + carry[j];
            T dv = dc[j] + dh * o * (1 - t * t);
            d[j] = dv * u * i * (1 - i);
            d[n + j] = dv * cp[j] * k * (1 - k);
            d[2 * n + j] = dv * i * (1 - u * u);
            d[3 * n + j] = dh * t * o * (1 - o);
            dc[j] = dv * k;
        }
    }
}

static void F(gru_backward)(const LpRnnBackward *p)
{
    const int64_t n = p->hidden;
    for (int64_t r = 0; r < p->rows; r++) {
        const T *dy = (const T *)p->dy + r * n;
        const T *carry = (const T *)p->carry + r * n;
        const T *g = (const T *)p->gates + r * 4 * n;
        const T *hp = (const T *)p->h_prev + r * n;
        T *direct = (T *)p->direct + r * n;
        T *dx = (T *)p->dx + r * 3 * n, *dh = (T *)p->dh + r * 3 * n;
        EACH
        {
            T u = g[j], z = g[n + j], v = g[2 * n + j], m = g[3 * n + j];
            T d = dy[j] + carry[j] + direct[j];
            T dn = d * (1 - z) * (1 - v * v);
            T dr = dn * m * u * (1 - u);
            T dz = d * (hp[j] - v) * z * (1 - z);
            dx[j] = dr;
            dx[n + j] = dz;
            dx[2 * n + j] = dn;
            dh[j] = dr;
            dh[n + j] = dz;
            dh[2 * n + j] = dn * u;
            direct[j] = d * z;
        }
    }
}

#define PLAIN_BACKWARD(name, value)                                            \
    static void F(name)(const LpRnnBackward *p)                                \
    {                                                                          \
        const int64_t n = p->rows * p->hidden;                                 \
        const T *dy = p->dy, *carry = p->carry, *h = p->gates;                 \
        T *dx = p->dx;                                                         \
        EACH                                                                   \
        {                                                                      \
            T d = dy[j] + carry[j];                                            \
            dx[j] = value;                                                     \
        }                                                                      \
    }
PLAIN_BACKWARD(tanh_backward, d *(1 - h[j] * h[j]))
PLAIN_BACKWARD(relu_backward, h[j] > 0 ? d : 0)

static void F(output)(int64_t rows, int64_t n, const void *gates, const void *c,
                      void *h)
{
    for (int64_t r = 0; r < rows; r++) {
        const T *o = (const T *)gates + r * 4 * n + 3 * n;
        const T *v = (const T *)c + r * n;
        T *y = (T *)h + r * n;
        EACH y[j] = o[j] * TANH(v[j]);
    }
}

static void F(add)(int64_t n, const void *x, const void *y, void *z)
{
    const T *a = x, *b = y;
    T *c = z;
    EACH c[j] = a[j] + b[j];
}

static void F(scatter)(int64_t rows, int64_t cols, int64_t first, int64_t last,
                       const void *x, const int64_t *at, void *sum)
{
    const int64_t n = last - first;
    for (int64_t r = 0; r < rows; r++) {
        const T *row = (const T *)x + r * cols + first;
        T *to = (T *)sum + at[r] * cols + first;
        EACH to[j] += row[j];
    }
}

/* A block of rows is summed by itself: sums of many rows lose less. */
static void F(columns)(int64_t rows, int64_t cols, int64_t first, int64_t last,
                       const void *x, void *sum)
{
    enum { WIDE = 128, HIGH = 32 };
    T *out = sum;
    for (int64_t at = first; at < last; at += WIDE) {
        const int64_t n = last - at < WIDE ? last - at : WIDE;
        T all[WIDE] = {0};
        for (int64_t r = 0; r < rows; r += HIGH) {
            T part[WIDE] = {0};
            for (int64_t k = r; k < rows && k < r + HIGH; k++) {
                const T *row = (const T *)x + k * cols + at;
                EACH part[j] += row[j];
            }
            EACH all[j] += part[j];
        }
        EACH out[at + j] = all[j];
    }
}

#undef SIGMOID
#undef TANH
#undef EACH
#undef PLAIN_FORWARD
#undef PLAIN_BACKWARD

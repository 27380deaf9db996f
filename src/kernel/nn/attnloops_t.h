/* The loops of attnloops.h for one element type T; F(name) is the name of a
 * function for it. No include guard: simd_attention.c includes it once per
 * type.
 *
 * Blocks have BQ queries, two vectors. "Transposed" matrices are keys (or
 * sizes) x BQ without gaps. */

#define VL ((int64_t)(VBYTES / sizeof(T)))
#define BQ (2 * VL)

INLINE F(V) F(load)(const T *p)
{
    F(V) v;
    memcpy(&v, p, sizeof v);
    return v;
}

INLINE void F(store)(T *p, F(V) v)
{
    memcpy(p, &v, sizeof v);
}

INLINE F(V) F(all)(T x)
{
    return x - (F(V)){0};
}

/* e^x of x <= 0 */
INLINE F(V) F(vexp)(F(V) x)
{
    F(V) low = F(all)(LOWEST), magic = F(all)(MAGIC);
    F(V) v = VMAX(low, x); /* a NaN stays */
    F(V) t = VFMA(v, F(all)((T)1.44269504088896340736), magic), k = t - magic;
    F(V) r = VFMA(k, F(all)((T)-LN2_HIGH), v);
    r = VFMA(k, F(all)((T)-LN2_LOW), r);
    F(V) p = F(all)((T)series[13 - TERMS]);
#pragma GCC unroll 13
    for (int i = 14 - TERMS; i < 13; i++)
        p = VFMA(p, r, F(all)((T)series[i]));
    p = VFMA(p, r, F(all)(1));
    F(I) n = ((F(I))t - (F(I))magic + BIAS) << MANTISSA;
    p *= (F(V))n;
    return (F(V))(~(F(I))(x <= low) & (F(I))p);
}

/* c [mr, nv vectors] = a b (or c + a b), a's element (r, k) at r ars + k acs;
 * each row times its factor, unless there are none. */
INLINE void F(tile)(const int mr, const int nv, int64_t depth, const T *a,
                    int64_t ars, int64_t acs, const T *b, int64_t brs, T *c,
                    int64_t crs, bool add, const T *factor)
{
    F(V) s[MR][2];
#pragma GCC unroll 12
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++)
            s[r][j] = add ? F(load)(c + r * crs + j * VL) : F(all)(0);
    for (int64_t k = 0; k < depth; k++, a += acs, b += brs) {
        F(V) b0 = F(load)(b), b1 = nv > 1 ? F(load)(b + VL) : b0;
#pragma GCC unroll 12
        for (int r = 0; r < mr; r++) {
            F(V) x = F(all)(a[r * ars]);
            s[r][0] = VFMA(x, b0, s[r][0]);
            if (nv > 1)
                s[r][1] = VFMA(x, b1, s[r][1]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++)
            F(store)
    (c + r * crs + j * VL, factor ? s[r][j] * F(all)(factor[r]) : s[r][j]);
}

/* The same for any number of rows. */
INLINE void F(tiles)(int64_t m, const int nv, int64_t depth, const T *a,
                     int64_t ars, int64_t acs, const T *b, int64_t brs, T *c,
                     int64_t crs, bool add, const T *f)
{
    int64_t i = 0;
    for (; i + MR <= m; i += MR)
        F(tile)
    (MR, nv, depth, a + i * ars, ars, acs, b, brs, c + i * crs, crs, add,
     f ? f + i : f);
    for (; i + 4 <= m; i += 4)
        F(tile)
    (4, nv, depth, a + i * ars, ars, acs, b, brs, c + i * crs, crs, add,
     f ? f + i : f);
    for (; i < m; i++)
        F(tile)
    (1, nv, depth, a + i * ars, ars, acs, b, brs, c + i * crs, crs, add,
     f ? f + i : f);
}

/* c [m, BQ] = a b: transposed scores of m keys. */
static void F(scores)(int64_t m, int64_t depth, const LpAttnRows *a, const T *b,
                      T *c)
{
    F(tiles)(m, 2, depth, a->at, a->step, 1, b, BQ, c, BQ, false, NULL);
}

/* c [m, n] = a^T b, a [depth, BQ] transposed; n is a multiple of VL. */
static void F(queries)(int64_t m, int64_t n, int64_t depth, const T *a,
                       const LpAttnRows *b, T *c, int64_t crs, const T *f)
{
    const T *y = b->at;
    int64_t j = 0;
    for (; j + BQ <= n; j += BQ)
        F(tiles)(m, 2, depth, a, 1, BQ, y + j, b->step, c + j, crs, false, f);
    for (; j < n; j += VL)
        F(tiles)(m, 1, depth, a, 1, BQ, y + j, b->step, c + j, crs, false, f);
}

/* c [m, n] += a b, a [m, BQ] transposed of which `depth` queries count. */
static void F(keys)(int64_t m, int64_t n, int64_t depth, const T *a, const T *b,
                    int64_t brs, const LpAttnRows *c)
{
    T *y = c->at;
    int64_t j = 0;
    for (; j + BQ <= n; j += BQ)
        F(tiles)(m, 2, depth, a, BQ, 1, b + j, brs, y + j, c->step, true, NULL);
    for (; j < n; j += VL)
        F(tiles)(m, 1, depth, a, BQ, 1, b + j, brs, y + j, c->step, true, NULL);
}

/* VL x VL elements, by exchanging ever larger blocks of lanes. */
INLINE void F(transpose)(F(V) x[VL])
{
#pragma GCC unroll 4
    for (int64_t s = 1; s < VL; s *= 2) {
        F(I) low, high;
#pragma GCC unroll 16
        for (int64_t l = 0; l < VL; l++) {
            low[l] = (LANE)(l & s ? l - s + VL : l);
            high[l] = (LANE)(l & s ? l + VL : l + s);
        }
#pragma GCC unroll 16
        for (int64_t i = 0; i < VL; i++)
            if (!(i & s)) {
                F(V) a = x[i], b = x[i + s];
                x[i] = __builtin_shuffle(a, b, low);
                x[i + s] = __builtin_shuffle(a, b, high);
            }
    }
}

/* to [cols, BQ] = scale x^T of rows <= BQ rows; zeros beyond them. */
static void F(turn)(int64_t rows, int64_t cols, const T *x, int64_t step,
                    T scale, T *to)
{
    int64_t whole = rows == BQ ? cols / VL * VL : 0;
    for (int64_t c = 0; c < whole; c += VL)
        for (int64_t r = 0; r < BQ; r += VL) {
            F(V) t[VL];
#pragma GCC unroll 16
            for (int64_t i = 0; i < VL; i++)
                t[i] = F(load)(x + (r + i) * step + c) * F(all)(scale);
            F(transpose)(t);
#pragma GCC unroll 16
            for (int64_t i = 0; i < VL; i++)
                F(store)(to + (c + i) * BQ + r, t[i]);
        }
    for (int64_t c = whole; c < cols; c++)
        for (int64_t r = 0; r < BQ; r++)
            to[c * BQ + r] = r < rows ? x[r * step + c] * scale : 0;
}

/* Adds the mask; hides from lane r the keys after `first` + r. */
static void F(hide)(const LpAttnHead *h, int64_t first, int64_t rows,
                    int64_t seen, T *p)
{
    const T *m = h->mask;
    for (int64_t j = 0; m && j < seen; j++)
        for (int64_t r = 0; r < rows; r++)
            p[j * BQ + r] += m[(first + r) * h->mask_q + j * h->mask_k];
    for (int64_t j = first + 1; h->causal && j < seen; j++)
        for (int64_t r = 0; r < BQ && first + r < j; r++)
            p[j * BQ + r] = -(T)INFINITY;
}

/* p = e^(p - its highest), and 1 / its sums, of each lane. A query from which a
 * mask hides all keys has weights of 0, as PyTorch has it. */
static void F(weights)(int64_t n, T *p, T *inverse)
{
    F(V) least = F(all)((T)(sizeof(T) == 4 ? FLT_MIN : DBL_MIN));
    for (int64_t c = 0; c < BQ; c += VL) {
        F(V) high = F(all)((T)(sizeof(T) == 4 ? -FLT_MAX : -DBL_MAX));
        F(V) sum = F(all)(0), even = sum;
        for (int64_t j = 0; j < n; j++)
            high = VMAX(F(load)(p + j * BQ + c), high);
        int64_t j = 0;
        for (; j + 2 <= n; j += 2) {
            F(V) a = F(vexp)(F(load)(p + j * BQ + c) - high);
            F(V) b = F(vexp)(F(load)(p + (j + 1) * BQ + c) - high);
            F(store)(p + j * BQ + c, a);
            F(store)(p + (j + 1) * BQ + c, b);
            even += a;
            sum += b;
        }
        for (; j < n; j++) {
            F(V) a = F(vexp)(F(load)(p + j * BQ + c) - high);
            F(store)(p + j * BQ + c, a);
            even += a;
        }
        F(V) all = sum + even;
        F(store)(inverse + c, 1 / VMAX(least, all)); /* a NaN stays */
    }
}

/* p becomes the probabilities, ds (of them) the gradient of the scores. */
static void F(slopes)(int64_t n, T scale, const T *inverse, T *p, T *ds)
{
    for (int64_t c = 0; c < BQ; c += VL) {
        F(V) sum = F(all)(0), in = F(load)(inverse + c);
        for (int64_t j = 0; j < n; j++)
            sum = VFMA(F(load)(p + j * BQ + c), F(load)(ds + j * BQ + c), sum);
        sum *= in;
        for (int64_t j = 0; j < n; j++) {
            F(V) y = F(load)(p + j * BQ + c) * in;
            F(V) x = F(load)(ds + j * BQ + c);
            F(store)(p + j * BQ + c, y);
            F(store)(ds + j * BQ + c, y * (x - sum) * F(all)(scale));
        }
    }
}

/* ---- scratch -------------------------------------------------------------*/
INLINE int64_t F(whole)(int64_t n)
{
    return (n + VL - 1) / VL * VL;
}

/* Takes n elements, aligned. */
static T *F(take)(T **at, int64_t n)
{
    T *p = *at;
    *at += (n * (int64_t)sizeof(T) + 63) / 64 * 64 / (int64_t)sizeof(T);
    return p;
}

/* Rows of a size that vectors divide: the matrix itself, or padded rows in
 * scratch, which get its elements or (a result's) none. */
static LpAttnRows F(padded)(const LpAttnRows *m, int64_t n, int64_t size,
                            bool read, T **at)
{
    int64_t wide = F(whole)(size);
    if (wide == size)
        return *m;
    T *p = F(take)(at, n * wide);
    memset(p, 0, (size_t)(n * wide) * sizeof *p);
    for (int64_t r = 0; read && r < n; r++)
        memcpy(p + r * wide, (T *)m->at + r * m->step,
               (size_t)size * sizeof *p);
    return (LpAttnRows){p, wide};
}

static void F(unpad)(const LpAttnRows *from, const LpAttnRows *m, int64_t n,
                     int64_t size)
{
    for (int64_t r = 0; from->at != m->at && r < n; r++)
        memcpy((T *)m->at + r * m->step, (T *)from->at + r * from->step,
               (size_t)size * sizeof(T));
}

static size_t F(work)(const LpAttnHead *h, bool back)
{
    int64_t e = F(whole)(h->e), v = F(whole)(h->v);
    int64_t n = BQ * (2 * h->n_k + e + v + 1);
    if (e != h->e && back)
        n += 2 * (h->n_q + h->n_k) * e;
    if (v != h->v)
        n += (h->n_q + h->n_k) * v;
    return (size_t)n * sizeof(T) + 64 * 16;
}

/* ---- one query -----------------------------------------------------------*/
/* Keys and values are read once, from STREAMS places at a time: memory gives
 * more so. */
INLINE T F(lanes_sum)(F(V) v)
{
    T sum = 0;
    for (int64_t i = 0; i < VL; i++)
        sum += v[i];
    return sum;
}

/* p = the products of n rows of k, `part` apart, with q, whose size vectors
 * divide. */
INLINE void F(dots)(const int n, int64_t part, int64_t size,
                    const LpAttnRows *k, int64_t first, const T *q, T *p)
{
    F(V) s[STREAMS] = {{0}};
    const T *a = (const T *)k->at + first * k->step;
    for (int64_t j = 0; j < size; j += VL)
#pragma GCC unroll 4
        for (int r = 0; r < n; r++)
            s[r] =
                VFMA(F(load)(a + r * part * k->step + j), F(load)(q + j), s[r]);
    for (int r = 0; r < n; r++)
        p[first + r * part] = F(lanes_sum)(s[r]);
}

/* y [nv vectors] = factor p b, of the same columns of n rows of b. */
INLINE void F(mix)(const int nv, int64_t n, const T *p, const T *b,
                   int64_t step, T factor, T *y)
{
    F(V) s[MIX] = {{0}};
    int64_t part = n / STREAMS;
    for (int64_t i = 0; i < part; i++)
#pragma GCC unroll 4
        for (int r = 0; r < STREAMS; r++)
#pragma GCC unroll 8
            for (int c = 0; c < nv; c++)
                s[c] = VFMA(F(all)(p[i + r * part]),
                            F(load)(b + (i + r * part) * step + c * VL), s[c]);
    for (int64_t i = STREAMS * part; i < n; i++)
#pragma GCC unroll 8
        for (int c = 0; c < nv; c++)
            s[c] = VFMA(F(all)(p[i]), F(load)(b + i * step + c * VL), s[c]);
    for (int c = 0; c < nv; c++)
        F(store)(y + c * VL, s[c] * F(all)(factor));
}

/* p = e^(p - its highest) of n scores; 1 / their sum, as `weights` has it. */
static T F(weigh)(int64_t n, T *p)
{
    F(V) high = F(all)((T)(sizeof(T) == 4 ? -FLT_MAX : -DBL_MAX)), sum = {0};
    for (int64_t j = n; j < F(whole)(n); j++)
        p[j] = -(T)INFINITY;
    for (int64_t j = 0; j < n; j += VL)
        high = VMAX(F(load)(p + j), high);
    T top = high[0];
    for (int64_t i = 1; i < VL; i++)
        top = high[i] > top || high[i] != high[i] ? high[i] : top;
    for (int64_t j = 0; j < n; j += VL) {
        F(V) x = F(vexp)(F(load)(p + j) - top);
        F(store)(p + j, x);
        sum += x;
    }
    T all = F(lanes_sum)(sum), least = (T)(sizeof(T) == 4 ? FLT_MIN : DBL_MIN);
    return 1 / (all < least ? least : all); /* a NaN stays */
}

static void F(one)(const LpAttnHead *h, int64_t seen, T *p, T *q, T *y)
{
    const T *from = h->q.at, *m = h->mask, *val = h->val.at;
    int64_t part = seen / STREAMS, c = 0;
    for (int64_t j = 0; j < h->e; j++)
        q[j] = from[j] * (T)h->scale;
    for (int64_t i = 0; i < part; i++)
        F(dots)(STREAMS, part, h->e, &h->k, i, q, p);
    for (int64_t i = STREAMS * part; i < seen; i++)
        F(dots)(1, 0, h->e, &h->k, i, q, p);
    for (int64_t j = 0; m && j < seen; j++)
        p[j] += m[j * h->mask_k];
    T factor = seen > 0 ? F(weigh)(seen, p) : 1;
    for (; c + MIX * VL <= h->v; c += MIX * VL)
        F(mix)(MIX, seen, p, val + c, h->val.step, factor, y + c);
    for (; c < h->v; c += VL)
        F(mix)(1, seen, p, val + c, h->val.step, factor, y + c);
}

/* ---- one head ------------------------------------------------------------*/
/* Keys that some of `rows` queries from `first` on see. */
static int64_t F(seen)(const LpAttnHead *h, int64_t first, int64_t rows)
{
    int64_t n = first + rows;
    return h->causal && n < h->n_k ? n : h->n_k;
}

static void F(block)(const LpAttnHead *h, int64_t first, int64_t rows,
                     int64_t seen, T *turned, T *p, T *inverse)
{
    F(turn)
    (rows, h->e, (const T *)h->q.at + first * h->q.step, h->q.step, (T)h->scale,
     turned);
    F(scores)(seen, h->e, &h->k, turned, p);
    if (h->mask || h->causal)
        F(hide)(h, first, rows, seen, p);
    F(weights)(seen, p, inverse);
}

static void F(forward)(const LpAttnHead *h, void *work)
{
    T *at = work, *p = F(take)(&at, h->n_k * BQ);
    T *turned = F(take)(&at, h->e * BQ), *inverse = F(take)(&at, BQ);
    if (h->n_q == 1 && h->e % VL == 0 && h->v % VL == 0) {
        F(one)(h, F(seen)(h, 0, 1), p, turned, h->out.at);
        return;
    }
    LpAttnRows val = F(padded)(&h->val, h->n_k, h->v, true, &at);
    LpAttnRows out = F(padded)(&h->out, h->n_q, h->v, false, &at);
    for (int64_t i = 0; i < h->n_q; i += BQ) {
        int64_t rows = h->n_q - i < BQ ? h->n_q - i : BQ;
        int64_t seen = F(seen)(h, i, rows);
        F(block)(h, i, rows, seen, turned, p, inverse);
        F(queries)
        (rows, F(whole)(h->v), seen, p, &val, (T *)out.at + i * out.step,
         out.step, seen > 0 ? inverse : NULL);
    }
    F(unpad)(&out, &h->out, h->n_q, h->v);
}

static void F(clear)(const LpAttnRows *m, int64_t n, int64_t size)
{
    for (int64_t r = 0; r < n; r++)
        memset((T *)m->at + r * m->step, 0, (size_t)size * sizeof(T));
}

static void F(backward)(const LpAttnHead *h, void *work)
{
    int64_t e = F(whole)(h->e), v = F(whole)(h->v);
    T *at = work, *p = F(take)(&at, h->n_k * BQ);
    T *ds = F(take)(&at, h->n_k * BQ), *inverse = F(take)(&at, BQ);
    T *turned = F(take)(&at, (e > v ? e : v) * BQ);
    LpAttnRows go = F(padded)(&h->out, h->n_q, h->v, true, &at);
    LpAttnRows q = F(padded)(&h->q, h->n_q, h->e, true, &at);
    LpAttnRows k = F(padded)(&h->k, h->n_k, h->e, true, &at);
    LpAttnRows dq = F(padded)(&h->dq, h->n_q, h->e, false, &at);
    LpAttnRows dk = F(padded)(&h->dk, h->n_k, h->e, false, &at);
    LpAttnRows dval = F(padded)(&h->dval, h->n_k, h->v, false, &at);
    F(clear)(&dk, h->n_k, e);
    F(clear)(&dval, h->n_k, v);
    for (int64_t i = 0; i < h->n_q; i += BQ) {
        int64_t rows = h->n_q - i < BQ ? h->n_q - i : BQ;
        int64_t seen = F(seen)(h, i, rows);
        const T *g = (const T *)go.at + i * go.step;
        F(block)(h, i, rows, seen, turned, p, inverse);
        F(turn)(rows, h->v, g, go.step, 1, turned);
        F(scores)(seen, h->v, &h->val, turned, ds);
        F(slopes)(seen, (T)h->scale, inverse, p, ds);
        F(queries)
        (rows, e, seen, ds, &k, (T *)dq.at + i * dq.step, dq.step, NULL);
        F(keys)(seen, e, rows, ds, (const T *)q.at + i * q.step, q.step, &dk);
        F(keys)(seen, v, rows, p, g, go.step, &dval);
    }
    F(unpad)(&dq, &h->dq, h->n_q, h->e);
    F(unpad)(&dk, &h->dk, h->n_k, h->e);
    F(unpad)(&dval, &h->dval, h->n_k, h->v);
}

#undef VL
#undef BQ

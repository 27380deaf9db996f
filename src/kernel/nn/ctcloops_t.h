/* ctcloops.h for one element type; included by simd_ctc.c with
 *   T        the type,        F(name)  the name of a function for it,
 *   EXP(x)   its exponential, LOG(x)   its logarithm,
 *   TINY     the logarithm of what is nothing beside 1, though not subnormal.
 * Values are logarithms; that of 0 is -inf. Places are WIDE at a time, the last
 * ones made up by such that are never reached. No include guard: it is included
 * once per type. */
#define NEVER (-(T)INFINITY)
#define LEAST ((T)-1e30) /* what is lower is NEVER */

/* e^x of x <= 0 */
static inline T F(part)(T x)
{
    return EXP(x < (T)TINY ? (T)TINY : x);
}

/* log(e^a + e^b + e^c) */
static inline T F(add)(T a, T b, T c)
{
    T m = a > b ? a : b;
    m = m > c ? m : c;
    m = m > LEAST ? m : LEAST;
    T sum = F(part)(a - m) + F(part)(b - m) + F(part)(c - m);
    T v = m + LOG(sum), none = sum != sum ? sum : NEVER;
    return m == LEAST ? none : v;
}

/* y[s]: from places s, s + d and s + 2 d of x, which is readable two places
 * beyond either end; the last is a way if skip[s] is 0, else NEVER. */
static void F(ways)(int64_t n, const T *x, int64_t d, const T *skip, T *y)
{
#pragma omp simd
    for (int64_t s = 0; s < n; s++)
        y[s] = F(add)(x[s], x[s + d], x[s + 2 * d] + skip[s]);
}

/* y[s] = x[s] + row[label[s]], less the largest of them, which is returned. */
static T F(emit)(int64_t n, const T *x, const T *row, const int32_t *label,
                 T *y)
{
    T m = NEVER;
#pragma omp simd reduction(max : m)
    for (int64_t s = 0; s < n; s++) {
        T v = x[s] + row[label[s]];
        y[s] = v;
        m = v > m ? v : m;
    }
    if (m == NEVER)
        return 0;
#pragma omp simd
    for (int64_t s = 0; s < n; s++)
        y[s] -= m;
    return m;
}

/* n places between two that are never reached, on either side. */
static T *F(padded)(T *at, int64_t n)
{
    at[0] = at[1] = at[n + 2] = at[n + 3] = NEVER;
    return at + 2;
}

/* Where the label two places before is another one. */
static void F(skips)(const LpCtcSample *x, int64_t n, T *skip)
{
    for (int64_t s = 0; s < n; s++)
        skip[s] = s > 1 && s % 2 == 1 && s < x->places &&
                          x->label[s] != x->label[s - 2]
                      ? 0
                      : NEVER;
}

static double F(forward)(const LpCtcSample *x, const T *logp, T *alpha, T *work)
{
    int64_t n = lp_ctc_wide(x->places);
    double dropped = 0;
    T *skip = work, *now = skip + n, *before = F(padded)(now + n, n);
    F(skips)(x, n, skip);
    for (int64_t s = 0; s < n; s++)
        now[s] = s < 2 && s < x->places ? 0 : NEVER;
    for (int64_t t = 0; t < x->steps; t++, alpha += x->row) {
        if (t > 0)
            F(ways)(n, before, -1, skip, now);
        dropped +=
            (double)F(emit)(n, now, logp + t * x->stride, x->label, before);
        /* what follows the last place is not one */
        for (int64_t s = x->places; s < n; s++)
            before[s] = NEVER;
        memcpy(alpha, before, (size_t)x->places * sizeof *alpha);
    }
    if (x->steps == 0)
        return x->places == 1 ? 0 : (double)INFINITY;
    const T *end = before + x->places;
    T label = x->places > 1 ? end[-2] : NEVER;
    return -(dropped + (double)F(add)(end[-1], label, NEVER));
}

/* w[s] = e^(a[s] + b[s]) but for a common factor; returns their sum, 0 if no
 * place is reached. */
static T F(shares)(int64_t n, const T *a, const T *b, T *w)
{
    T m = LEAST, sum = 0;
#pragma omp simd reduction(max : m)
    for (int64_t s = 0; s < n; s++) {
        T v = a[s] + b[s];
        m = v > m ? v : m;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t s = 0; s < n; s++) {
        T v = F(part)(a[s] + b[s] - m);
        w[s] = v;
        sum += v;
    }
    return m == LEAST && sum == sum ? 0 : sum;
}

/* sum[c]: what the places of class c have of w */
static void F(of_classes)(const LpCtcSample *x, const T *w, T *sum)
{
    T blanks = 0;
    memset(sum, 0, (size_t)x->classes * sizeof *sum);
    for (int64_t s = 0; s < x->places; s += 2)
        blanks += w[s];
    for (int64_t s = 1; s < x->places; s += 2)
        sum[x->label[s]] += w[s];
    sum[x->blank] += blanks;
}

/* What follows the last step, and the steps that may skip going backwards. */
static void F(begin_back)(const LpCtcSample *x, int64_t n, T *skip, T *b, T *a)
{
    int64_t end = x->places;
    F(skips)(x, n, skip);
    for (int64_t s = 0; s < n; s++) {
        skip[s] = s + 2 < n ? skip[s + 2] : NEVER;
        b[s] = s >= end - 2 && s < end ? 0 : NEVER;
        a[s] = NEVER;
    }
}

/* The last step of a sample whose last label is the blank. */
static void F(last_blank)(const LpCtcSample *x, int64_t t, T *w)
{
    int64_t end = x->places;
    if (t == x->steps - 1 && end > 1 && x->label[end - 2] == x->blank)
        w[end - 1] = 0;
}

static bool F(backward)(const LpCtcSample *x, const T *logp, const T *alpha,
                        T g, T *dlogp, T *work)
{
    int64_t n = lp_ctc_wide(x->places), last = x->steps - 1;
    T *skip = work, *after = F(padded)(skip + n, n), *b = after + n + 2;
    T *w = b + n, *a = w + n, *sum = a + n;
    F(begin_back)(x, n, skip, b, a);
    for (int64_t t = last; t >= 0; t--) {
        const T *row = logp + t * x->stride;
        T *d = dlogp + t * x->stride;
        memcpy(a, alpha + t * x->row, (size_t)x->places * sizeof *a);
        T all = F(shares)(n, a, b, w), unit = 1 / all;
        if (t == last && all == 0)
            return false;
        F(last_blank)(x, t, w);
        F(of_classes)(x, w, sum);
#pragma omp simd
        for (int64_t c = 0; c < x->classes; c++)
            d[c] = g * (EXP(row[c]) - sum[c] * unit);
        F(emit)(n, b, row, x->label, after);
        F(ways)(n, after, 1, skip, b);
    }
    return true;
}

/* ---- along a direction --------------------------------------------------- */
/* As ways, with derivatives: those of places by their parts of the sum. */
static void F(ways_along)(int64_t n, const T *x, const T *dx, int64_t d,
                          const T *skip, T *y, T *dy)
{
    F(ways)(n, x, d, skip, y);
#pragma omp simd
    for (int64_t s = 0; s < n; s++) {
        T m = y[s] > LEAST ? y[s] : LEAST;
        dy[s] = F(part)(x[s] - m) * dx[s] + F(part)(x[s + d] - m) * dx[s + d] +
                F(part)(x[s + 2 * d] + skip[s] - m) * dx[s + 2 * d];
    }
}

/* dx[s] += v[label[s]] */
static void F(emit_along)(const LpCtcSample *x, const T *v, T *dx)
{
    for (int64_t s = 0; s < x->places; s++)
        dx[s] += v[x->label[s]];
}

/* The derivatives of all rows of alpha, `n` apart. */
static void F(alpha_along)(const LpCtcSample *x, const T *alpha, const T *v,
                           const T *skip, T *before, T *dbefore, T *y,
                           T *dalpha)
{
    int64_t n = lp_ctc_wide(x->places);
    size_t bytes = (size_t)n * sizeof *y;
    for (int64_t s = 0; s < n; s++)
        before[s] = NEVER;
    memset(dbefore - 2, 0, bytes + 4 * sizeof *y);
    memset(dalpha, 0, bytes);
    for (int64_t t = 0; t < x->steps; t++, dalpha += n, alpha += x->row) {
        if (t > 0)
            F(ways_along)(n, before, dbefore, -1, skip, y, dalpha);
        F(emit_along)(x, v + t * x->stride, dalpha);
        memcpy(before, alpha, (size_t)x->places * sizeof *y);
        memcpy(dbefore, dalpha, bytes);
    }
}

static bool F(along)(const LpCtcSample *x, const T *logp, const T *alpha,
                     const T *v, T g, T *out, T *work)
{
    int64_t n = lp_ctc_wide(x->places), last = x->steps - 1;
    T *skip = work, *after = F(padded)(skip + n, n), *b = after + n + 2;
    T *w = b + n, *a = w + n, *db = a + n, *dafter = db + n + 2;
    T *sum = dafter + n + 2, *da = sum + (x->classes + 15) / 16 * 16;
    F(skips)(x, n, skip);
    F(alpha_along)(x, alpha, v, skip, after, dafter, a, da);
    F(begin_back)(x, n, skip, b, a);
    memset(db, 0, (size_t)n * sizeof *db);
    for (int64_t t = last; t >= 0; t--) {
        const T *row = logp + t * x->stride, *r = v + t * x->stride;
        T *d = out + t * x->stride, mean = 0;
        memcpy(a, alpha + t * x->row, (size_t)x->places * sizeof *a);
        T all = F(shares)(n, a, b, w);
        if (t == last && all == 0)
            return false;
        for (int64_t s = 0; s < n; s++)
            mean += w[s] / all * (da[t * n + s] + db[s]);
        for (int64_t s = 0; s < n; s++)
            w[s] = w[s] / all * (da[t * n + s] + db[s] - mean);
        F(last_blank)(x, t, w);
        F(of_classes)(x, w, sum);
        for (int64_t c = 0; c < x->classes; c++)
            d[c] = g * (EXP(row[c]) * r[c] - sum[c]);
        F(emit)(n, b, row, x->label, after);
        memcpy(dafter, db, (size_t)n * sizeof *db);
        F(emit_along)(x, r, dafter);
        F(ways_along)(n, after, dafter, 1, skip, b, db);
    }
    return true;
}
#undef NEVER
#undef LEAST

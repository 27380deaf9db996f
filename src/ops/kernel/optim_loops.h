/* Bodies of simd_optim.c for type T; included once a type. Memory of results
 * may be that of operands, element on element. */
#define EACH _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
#define IN(k) ((const T *)in[k])
#define OUT(k) ((T *)out[k])
#define NUMBER(k) ((T)c[k])
/* Without decay an infinite parameter must not come in: 0 inf is NaN. */
#define DECAYED(x, wd, p) ((wd) != 0 ? (x) + (wd) * (p) : (x))

/* g = s g + wd p;  b = first ? g : mu b + d g;  p -= lr (nesterov ? g + mu b
 * : b). c: lr, mu, d, wd, s. */
static void NAME(sgd)(int64_t n, const void *const *in, void *const *out,
                      const double *c, unsigned flags)
{
    const T *p = IN(0), *g = IN(1), *b = IN(2);
    T *po = OUT(0), *bo = OUT(1);
    const T lr = NUMBER(0), wd = NUMBER(3), s = NUMBER(4);
    bool first = flags & LP_OPTIM_FIRST, nesterov = flags & LP_OPTIM_NESTEROV;
    const T mu = NUMBER(1), keep = first ? 0 : mu, d = first ? 1 : NUMBER(2);
    if (!(flags & LP_OPTIM_STATE)) {
        EACH po[i] = p[i] - lr * DECAYED(s * g[i], wd, p[i]);
        return;
    }
    EACH
    {
        T x = DECAYED(s * g[i], wd, p[i]);
        T y = (first ? 0 : keep * b[i]) + d * x;
        bo[i] = y;
        po[i] = p[i] - lr * (nesterov ? x + mu * y : y);
    }
}

/* v = mu v + d vs (s g + wd p);  p -= lr / vs v, or with Nesterov lr (s g + wd
 * p + mu v / vs). c: lr, mu, d, wd, s, vs. */
static void NAME(popart_sgd)(int64_t n, const void *const *in, void *const *out,
                             const double *c, unsigned flags)
{
    const T *p = IN(0), *g = IN(1), *v = IN(2);
    T *po = OUT(0), *vo = OUT(1);
    const T lr = NUMBER(0), mu = NUMBER(1), d = NUMBER(2), wd = NUMBER(3);
    const T s = NUMBER(4), vs = NUMBER(5);
    const T step = (T)(c[0] / c[5]), back = (T)(c[1] / c[5]), in_v = d * vs;
    bool nesterov = flags & LP_OPTIM_NESTEROV;
    if (!(flags & LP_OPTIM_STATE)) {
        EACH po[i] = p[i] - lr * d * DECAYED(s * g[i], wd, p[i]);
        return;
    }
    EACH
    {
        T x = DECAYED(s * g[i], wd, p[i]);
        T y = mu * v[i] + in_v * x;
        vo[i] = y;
        po[i] = p[i] - (nesterov ? lr * (x + back * y) : step * y);
    }
}

/* The velocity has the micro-batches' gradients in it already. p -= step v;
 * then v = keep v + decay p. c: step = lr / (vs rf), keep = mu / rf, decay =
 * d wd vs. */
static void NAME(popart_combined)(int64_t n, const void *const *in,
                                  void *const *out, const double *c,
                                  unsigned flags)
{
    const T *p = IN(0), *v = IN(1);
    T *po = OUT(0), *vo = OUT(1);
    const T step = NUMBER(0), keep = NUMBER(1), decay = NUMBER(2);
    (void)flags;
    EACH
    {
        T x = p[i] - step * v[i];
        vo[i] = DECAYED(keep * v[i], decay, x);
        po[i] = x;
    }
}

/* m += (g - m) w1;  v = b2 v + w2 g g;  p = (1 - lr wd) p - lr / bc1 m /
 * (sqrt(v) / sqrt(bc2) + eps), the larger of all v so far with amsgrad. c:
 * lr / bc1, w1, b2, w2, eps, wd, 1 - lr wd, s, 1 / sqrt(bc2). */
static void NAME(adam)(int64_t n, const void *const *in, void *const *out,
                       const double *c, unsigned flags)
{
    const T *p = IN(0), *g = IN(1), *m = IN(2), *v = IN(3), *top = IN(4);
    T *po = OUT(0), *mo = OUT(1), *vo = OUT(2), *to = OUT(3);
    const T lr = NUMBER(0), w1 = NUMBER(1), b2 = NUMBER(2), w2 = NUMBER(3);
    const T eps = NUMBER(4), s = NUMBER(7), root = NUMBER(8);
    bool decoupled = flags & LP_OPTIM_DECOUPLED;
    const T wd = decoupled ? 0 : NUMBER(5), keep = decoupled ? NUMBER(6) : 1;
    if (flags & LP_OPTIM_STATE) {
        EACH
        {
            T x = DECAYED(s * g[i], wd, p[i]), a = m[i] + w1 * (x - m[i]);
            T q = b2 * v[i] + w2 * x * x, t = top[i] > q ? top[i] : q;
            mo[i] = a;
            vo[i] = q;
            to[i] = t;
            po[i] = keep * p[i] - lr * (a / (SQRT(t) * root + eps));
        }
        return;
    }
    EACH
    {
        T x = DECAYED(s * g[i], wd, p[i]), a = m[i] + w1 * (x - m[i]);
        T q = b2 * v[i] + w2 * x * x;
        mo[i] = a;
        vo[i] = q;
        po[i] = keep * p[i] - lr * (a / (SQRT(q) * root + eps));
    }
}

/* q = a q + w x x;  centered: h += w (x - h), q - h h instead of q;  y = x /
 * (sqrt(q) + eps), or x / sqrt(q + eps);  b = mu b + y;  p -= lr b. The TF
 * variant has lr inside the buffer. c: lr, a, w, eps, wd, mu, s. */
static void NAME(rmsprop)(int64_t n, const void *const *in, void *const *out,
                          const double *c, unsigned flags)
{
    const T *p = IN(0), *g = IN(1), *q = IN(2), *h = IN(3), *b = IN(4);
    T *po = OUT(0), *qo = OUT(1), *ho = OUT(2), *bo = OUT(3);
    const T lr = NUMBER(0), a = NUMBER(1), w = NUMBER(2), eps = NUMBER(3);
    const T wd = NUMBER(4), mu = NUMBER(5), s = NUMBER(6);
    bool centered = flags & LP_OPTIM_CENTERED, tf = flags & LP_OPTIM_TF;
    bool momentum = flags & LP_OPTIM_MOMENTUM;
    const T in_b = tf ? lr : 1, from_b = tf ? 1 : lr;
    for (int64_t i = 0; i < n; i++) {
        T x = DECAYED(s * g[i], wd, p[i]), r = a * q[i] + w * x * x;
        qo[i] = r;
        if (centered) {
            T y = h[i] + w * (x - h[i]);
            ho[i] = y;
            r -= y * y;
        }
        T y = in_b * (x / (tf ? SQRT(r + eps) : SQRT(r) + eps));
        if (momentum) {
            y = mu * b[i] + y;
            bo[i] = y;
        }
        po[i] = p[i] - from_b * y;
    }
}

/* The direction alone, to out 3: m and v as adam, then m / bc1 / (sqrt(v) /
 * sqrt(bc2) + eps) + wd p. c as adam's, with 1 / bc1 in the place of lr / bc1
 * and wd in [5]. */
static void NAME(lamb)(int64_t n, const void *const *in, void *const *out,
                       const double *c, unsigned flags)
{
    const T *p = IN(0), *g = IN(1), *m = IN(2), *v = IN(3);
    T *mo = OUT(1), *vo = OUT(2), *x = OUT(3);
    const T up = NUMBER(0), w1 = NUMBER(1), b2 = NUMBER(2), w2 = NUMBER(3);
    const T eps = NUMBER(4), wd = NUMBER(5), s = NUMBER(7), root = NUMBER(8);
    (void)flags;
    EACH
    {
        T y = s * g[i], a = m[i] + w1 * (y - m[i]);
        T q = b2 * v[i] + w2 * y * y;
        mo[i] = a;
        vo[i] = q;
        x[i] = up * a / (SQRT(q) * root + eps) + wd * p[i];
    }
}

#undef EACH
#undef IN
#undef OUT
#undef NUMBER
#undef DECAYED

/* Bodies of simd_optim.c for type T; included once a type. Memory of results
 * may be that of operands, element on element. */
#define EACH _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)
#define IN(k) ((const T *)in[k])
#define OUT(k) ((T *)out[k])
#define NUMBER(name) ((T)c->name)
/* Without decay an infinite parameter must not come in: 0 inf is NaN. */
#define DECAYED(x, wd, p) ((wd) != 0 ? (x) + (wd) * (p) : (x))

/* g = s g + wd p;  b = first ? g : mu b + d g;  p -= lr (nesterov ? g + mu b
 * : b). */
static void NAME(sgd)(int64_t n, const void *const *in, void *const *out,
                      const LpOptimNumbers *c)
{
    const T *p = IN(0), *g = IN(1), *b = IN(2);
    T *po = OUT(0), *bo = OUT(1);
    const T lr = NUMBER(lr), wd = NUMBER(weight_decay), s = NUMBER(grad_scale);
    bool first = c->step == 1, nesterov = c->nesterov;
    const T mu = NUMBER(momentum), keep = first ? 0 : mu;
    const T d = first ? 1 : (T)(1 - c->dampening);
    if (!b) {
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
 * p + mu v / vs). */
static void NAME(popart_sgd)(int64_t n, const void *const *in, void *const *out,
                             const LpOptimNumbers *c)
{
    const T *p = IN(0), *g = IN(1), *v = IN(2);
    T *po = OUT(0), *vo = OUT(1);
    const T lr = NUMBER(lr), mu = NUMBER(momentum), d = (T)(1 - c->dampening);
    const T wd = NUMBER(weight_decay), s = NUMBER(grad_scale);
    const T step = (T)(c->lr / c->velocity_scaling);
    const T back = (T)(c->momentum / c->velocity_scaling);
    const T in_v = d * NUMBER(velocity_scaling);
    bool nesterov = c->nesterov;
    if (!v) {
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

/* v += d vs s g;  p -= lr / vs v, or with Nesterov as above;  v = mu v + d wd
 * vs p. */
static void NAME(popart_sgd_combined)(int64_t n, const void *const *in,
                                      void *const *out, const LpOptimNumbers *c)
{
    const T *p = IN(0), *g = IN(1), *v = IN(2);
    T *po = OUT(0), *vo = OUT(1);
    const double d = (1 - c->dampening) * c->velocity_scaling;
    const T in_v = (T)(d * c->grad_scale), decay = (T)(d * c->weight_decay);
    const T step = (T)(c->lr / c->velocity_scaling), lr = NUMBER(lr);
    const T back = (T)(c->momentum / c->velocity_scaling),
            mu = NUMBER(momentum);
    const T wd = NUMBER(weight_decay), s = NUMBER(grad_scale);
    bool nesterov = c->nesterov;
    EACH
    {
        T y = v[i] + in_v * g[i];
        T x =
            nesterov ? lr * (DECAYED(s * g[i], wd, p[i]) + back * y) : step * y;
        x = p[i] - x;
        vo[i] = DECAYED(mu * y, decay, x);
        po[i] = x;
    }
}

/* m += (g - m) w1;  v = b2 v + w2 g g;  p = (1 - lr wd) p - lr / bc1 m /
 * (sqrt(v) / sqrt(bc2) + eps), the larger of all v so far with amsgrad. */
static void NAME(adam)(int64_t n, const void *const *in, void *const *out,
                       const LpOptimNumbers *c)
{
    const T *p = IN(0), *g = IN(1), *m = IN(2), *v = IN(3), *top = IN(4);
    T *po = OUT(0), *mo = OUT(1), *vo = OUT(2), *to = OUT(3);
    const T lr = NUMBER(rate), w1 = (T)(1 - c->beta1), b2 = NUMBER(beta2);
    const T w2 = (T)(1 - c->beta2), eps = NUMBER(eps), s = NUMBER(grad_scale);
    const T wd = c->decoupled ? 0 : NUMBER(weight_decay);
    const T keep = c->decoupled ? NUMBER(keep) : 1, root = NUMBER(root);
    if (top) {
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

/* m, v as adam;  p = (1 - lr wd) p - (of_grad g + of_moment m) / (sqrt(v) /
 * sqrt(bc2) + eps). */
static void NAME(nadam)(int64_t n, const void *const *in, void *const *out,
                        const LpOptimNumbers *c)
{
    const T *p = IN(0), *g = IN(1), *m = IN(2), *v = IN(3);
    T *po = OUT(0), *mo = OUT(1), *vo = OUT(2);
    const T w1 = (T)(1 - c->beta1), b2 = NUMBER(beta2), root = NUMBER(root);
    const T w2 = (T)(1 - c->beta2), eps = NUMBER(eps), s = NUMBER(grad_scale);
    const T wd = c->decoupled ? 0 : NUMBER(weight_decay);
    const T keep = c->decoupled ? NUMBER(keep) : 1;
    const T of_grad = NUMBER(of_grad), of_moment = NUMBER(of_moment);
    EACH
    {
        T x = DECAYED(s * g[i], wd, p[i]), a = m[i] + w1 * (x - m[i]);
        T q = b2 * v[i] + w2 * x * x;
        mo[i] = a;
        vo[i] = q;
        po[i] = keep * p[i] -
                (of_grad * x + of_moment * a) / (SQRT(q) * root + eps);
    }
}

/* m as adam;  v = the larger of b2 v and |g|;  p = (1 - lr wd) p - lr / bc1 m
 * / (v + eps). */
static void NAME(adamax)(int64_t n, const void *const *in, void *const *out,
                         const LpOptimNumbers *c)
{
    const T *p = IN(0), *g = IN(1), *m = IN(2), *v = IN(3);
    T *po = OUT(0), *mo = OUT(1), *vo = OUT(2);
    const T lr = NUMBER(rate), w1 = (T)(1 - c->beta1), b2 = NUMBER(beta2);
    const T eps = NUMBER(eps), s = NUMBER(grad_scale);
    const T wd = c->decoupled ? 0 : NUMBER(weight_decay);
    const T keep = c->decoupled ? NUMBER(keep) : 1;
    EACH
    {
        T x = DECAYED(s * g[i], wd, p[i]), a = m[i] + w1 * (x - m[i]);
        T size = x < 0 ? -x : x, q = b2 * v[i];
        q = q > size ? q : size;
        mo[i] = a;
        vo[i] = q;
        po[i] = keep * p[i] - lr * (a / (q + eps));
    }
}

/* q = a q + w x x;  centered: h += w (x - h), q - h h instead of q;  y = x /
 * (sqrt(q) + eps), or x / sqrt(q + eps);  b = mu b + y;  p -= lr b. The TF
 * variant has lr inside the buffer; decoupled decay is beside it. */
static void NAME(rmsprop)(int64_t n, const void *const *in, void *const *out,
                          const LpOptimNumbers *c)
{
    const T *p = IN(0), *g = IN(1), *q = IN(2), *h = IN(3), *b = IN(4);
    T *po = OUT(0), *qo = OUT(1), *ho = OUT(2), *bo = OUT(3);
    const T lr = NUMBER(lr), a = NUMBER(alpha), w = (T)(1 - c->alpha);
    const T eps = NUMBER(eps), mu = NUMBER(momentum), s = NUMBER(grad_scale);
    const T wd = c->decoupled ? 0 : NUMBER(weight_decay);
    const T apart = c->decoupled ? NUMBER(weight_decay) : 0;
    bool centered = h, momentum = b, tf = c->tf_variant && b;
    const T in_b = tf ? lr : 1, from_b = tf ? 1 : lr;
    bool in_root = c->tf_variant;
    for (int64_t i = 0; i < n; i++) {
        T x = DECAYED(s * g[i], wd, p[i]), r = a * q[i] + w * x * x;
        qo[i] = r;
        if (centered) {
            T y = h[i] + w * (x - h[i]);
            ho[i] = y;
            r -= y * y;
        }
        T y = in_b * (x / (in_root ? SQRT(r + eps) : SQRT(r) + eps));
        if (momentum) {
            y = mu * b[i] + y;
            bo[i] = y;
        }
        po[i] = p[i] - from_b * DECAYED(y, apart, p[i]);
    }
}

/* q += x x;  y = x / (sqrt(q) + eps);  b = mu b + y;  p -= lr b. */
static void NAME(adagrad)(int64_t n, const void *const *in, void *const *out,
                          const LpOptimNumbers *c)
{
    const T *p = IN(0), *g = IN(1), *q = IN(2), *b = IN(3);
    T *po = OUT(0), *qo = OUT(1), *bo = OUT(2);
    const T lr = NUMBER(lr), eps = NUMBER(eps), mu = NUMBER(momentum);
    const T s = NUMBER(grad_scale);
    const T wd = c->decoupled ? 0 : NUMBER(weight_decay);
    const T apart = c->decoupled ? NUMBER(weight_decay) : 0;
    bool momentum = b;
    for (int64_t i = 0; i < n; i++) {
        T x = DECAYED(s * g[i], wd, p[i]), r = q[i] + x * x;
        qo[i] = r;
        T y = x / (SQRT(r) + eps);
        if (momentum) {
            y = mu * b[i] + y;
            bo[i] = y;
        }
        po[i] = p[i] - lr * DECAYED(y, apart, p[i]);
    }
}

/* q = a q + w x x;  y = x sqrt(h + eps) / sqrt(q + eps);  h = a h + w y y;  b =
 * mu b + y;  p -= lr b. */
static void NAME(adadelta)(int64_t n, const void *const *in, void *const *out,
                           const LpOptimNumbers *c)
{
    const T *p = IN(0), *g = IN(1), *q = IN(2), *h = IN(3), *b = IN(4);
    T *po = OUT(0), *qo = OUT(1), *ho = OUT(2), *bo = OUT(3);
    const T lr = NUMBER(lr), a = NUMBER(alpha), w = (T)(1 - c->alpha);
    const T eps = NUMBER(eps), mu = NUMBER(momentum), s = NUMBER(grad_scale);
    const T wd = c->decoupled ? 0 : NUMBER(weight_decay);
    const T apart = c->decoupled ? NUMBER(weight_decay) : 0;
    bool momentum = b;
    for (int64_t i = 0; i < n; i++) {
        T x = DECAYED(s * g[i], wd, p[i]), r = a * q[i] + w * x * x;
        T y = x * (SQRT(h[i] + eps) / SQRT(r + eps));
        qo[i] = r;
        ho[i] = a * h[i] + w * y * y;
        if (momentum) {
            y = mu * b[i] + y;
            bo[i] = y;
        }
        po[i] = p[i] - lr * DECAYED(y, apart, p[i]);
    }
}

/* The direction alone, to out 3: m and v as adam, then m / bc1 / (sqrt(v) /
 * sqrt(bc2) + eps) + wd p, or wd p in g. */
static void NAME(lamb)(int64_t n, const void *const *in, void *const *out,
                       const LpOptimNumbers *c)
{
    const T *p = IN(0), *g = IN(1), *m = IN(2), *v = IN(3);
    T *mo = OUT(1), *vo = OUT(2), *x = OUT(3);
    const T up = NUMBER(rate), w1 = (T)(1 - c->beta1), b2 = NUMBER(beta2);
    const T w2 = (T)(1 - c->beta2), eps = NUMBER(eps), s = NUMBER(grad_scale);
    const T wd = c->decoupled ? 0 : NUMBER(weight_decay), root = NUMBER(root);
    const T apart = c->decoupled ? NUMBER(weight_decay) : 0;
    EACH
    {
        T y = DECAYED(s * g[i], wd, p[i]), a = m[i] + w1 * (y - m[i]);
        T q = b2 * v[i] + w2 * y * y;
        mo[i] = a;
        vo[i] = q;
        x[i] = up * a / (SQRT(q) * root + eps) + apart * p[i];
    }
}

#undef EACH
#undef IN
#undef OUT
#undef NUMBER
#undef DECAYED

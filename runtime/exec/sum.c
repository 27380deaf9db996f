/* Two types have a loop of their own; any other goes through scalars. */
#include "runtime/exec/sum.h"

#include "src/base/hash.h"
#include "src/kernel/loops/loops.h"
#include "src/kernel/rounding.h"

static void sum_f32(float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] += b[i];
}

static void sum_f64(double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] += b[i];
}

static void sum_any(LpDtype t, char *a, const char *b, int64_t n)
{
    size_t size = lp_dtype_size(t);
    for (int64_t i = 0; i < n; i++, a += size, b += size) {
        LpScalar x = lp_scalar_load(t, a), y = lp_scalar_load(t, b);
        LpScalar s = lp_is_float(t) ? lp_float(x.f + y.f) : lp_int(x.i + y.i);
        lp_scalar_store(s, t, a);
    }
}

static void sum_at_random(LpDtype t, char *a, const char *b, int64_t n,
                          const LpRandom *r)
{
    enum { BLOCK = 512 };
    float x[BLOCK], y[BLOCK];
    LpConvert load = lp_convert_loop(t, LP_F32);
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        load(m, x, 4, a + 2 * i, 2);
        load(m, y, 4, b + 2 * i, 2);
        sum_f32(x, y, m);
        lp_store_at_random(r, t, (uint64_t)i, m, x, (void *)(a + 2 * i));
    }
}

uint64_t lp_sum_site(const LpStep *s, size_t var)
{
    const LpVariable *v = &s->var[var];
    if (!s->numerics.stochastic || !lp_is_half(v->type.dtype))
        return 0;
    return lp_mix64(lp_hash_str(LP_HASH_START, v->name));
}

void lp_sum_buffers(LpDtype t, void *const *buf, int64_t count, int64_t step,
                    int64_t n, const LpSumRounding *how)
{
    for (int64_t r = 1; r < count; r++) {
        void *next = buf[r * step];
        if (how && how->site) {
            LpRandom stream =
                lp_rounding_stream(&how->rc, how->site, (int)(how->first + r));
            sum_at_random(t, buf[0], next, n, &stream);
        } else if (t == LP_F32) {
            sum_f32(buf[0], next, n);
        } else if (t == LP_F64) {
            sum_f64(buf[0], next, n);
        } else {
            sum_any(t, buf[0], next, n);
        }
    }
}

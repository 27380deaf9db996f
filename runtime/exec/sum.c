/* Two types have a loop of their own; any other goes through scalars. */
#include "runtime/exec/sum.h"

#include "src/base/half.h"

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

void lp_sum_buffers(LpDtype t, void *const *buf, int64_t count, int64_t step,
                    int64_t n)
{
    for (int64_t r = 1; r < count; r++) {
        if (t == LP_F32)
            sum_f32(buf[0], buf[r * step], n);
        else if (t == LP_F64)
            sum_f64(buf[0], buf[r * step], n);
        else
            sum_any(t, buf[0], buf[r * step], n);
    }
}

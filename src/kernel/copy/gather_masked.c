/* Masked places, windows, one-hot rows. */
#include "src/kernel/copy/hooks.h"

#include <string.h>

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/state.h"

typedef struct Parts {
    LpDesc in[3], out;
    int64_t n; /* elements of the mask, or of the index */
    int dim;
    int64_t size, step;
    bool exact;
} Parts;

static LpStatus parts(const LpKernelReq *r, LpKernelRun run, LpKernel *k,
                      LpErr *e)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Parts), run, k, e));
    Parts *p = k->state;
    for (int i = 0; i < r->n_in && i < 3; i++)
        p->in[i] = r->in[i];
    p->out = r->out[0];
    return LP_OK;
}

static size_t bytes_of(const LpDesc *d)
{
    return ((size_t)lp_desc_numel(d) * lp_dtype_size(d->dtype) + 7) & ~7u;
}

/* A contiguous copy at *to, which moves on to the next place of 8 bytes. */
static char *copy_in(const LpDesc *d, const void *p, char **to)
{
    LpDesc flat = lp_desc_plain(d, d->dtype);
    char *at = *to;
    lp_copy_strided(d, p, &flat, at);
    *to += bytes_of(d);
    return at;
}

/* ---- masks --------------------------------------------------------------- */
/* Masked places of `self` get `src`'s elements in order, or the other way.
 * Whether an element is masked cannot be foreseen: it is moved in any case, and
 * chosen by bits, or written over by the next. */
#define MASKED(T)                                                              \
    static void unpack_##T(void *self, const char *mask, const void *src,      \
                           int64_t n, int64_t places)                          \
    {                                                                          \
        T *to = self;                                                          \
        const T *s = src;                                                      \
        for (int64_t i = 0, at = 0; i < n && at < places; i++) {               \
            const T set = mask[i] != 0, bits = (T)(0 - set);                   \
            to[i] = (T)((s[at] & bits) | (to[i] & ~bits));                     \
            at += mask[i] != 0;                                                \
        }                                                                      \
    }                                                                          \
    static int64_t pack_##T(const void *self, const char *mask, void *dst,     \
                            int64_t n, int64_t room)                           \
    {                                                                          \
        const T *from = self;                                                  \
        T *to = dst;                                                           \
        int64_t used = 0;                                                      \
        for (int64_t i = 0; i < n && used < room; i++) {                       \
            to[used] = from[i];                                                \
            used += mask[i] != 0;                                              \
        }                                                                      \
        return used;                                                           \
    }
MASKED(uint8_t)
MASKED(uint16_t)
MASKED(uint32_t)
MASKED(uint64_t)

typedef struct Masked {
    void (*unpack)(void *self, const char *mask, const void *src, int64_t n,
                   int64_t places);
    int64_t (*pack)(const void *self, const char *mask, void *dst, int64_t n,
                    int64_t room);
} Masked;

static Masked masked(size_t bytes)
{
    static const Masked by_size[] = {[1] = {unpack_uint8_t, pack_uint8_t},
                                     [2] = {unpack_uint16_t, pack_uint16_t},
                                     [4] = {unpack_uint32_t, pack_uint32_t},
                                     [8] = {unpack_uint64_t, pack_uint64_t}};
    return by_size[bytes];
}

/* work: self, mask, source */
LP_KERNEL_RUN(run_unpack)
{
    const Parts *p = k->state;
    char *next = work, *self = copy_in(&p->in[0], in[0], &next);
    const char *mask = copy_in(&p->in[1], in[1], &next);
    const char *src = copy_in(&p->in[2], in[2], &next);
    size_t bytes = lp_dtype_size(p->out.dtype);
    int64_t have = lp_desc_numel(&p->in[2]), places = 0;
    for (int64_t i = 0; i < p->n; i++)
        places += mask[i] != 0;
    LP_FAIL_IF(p->exact && places != have, e, LP_E_RUNTIME,
               "shape mismatch: the mask has places for %lld elements, the "
               "values have %lld",
               (long long)places, (long long)have);
    LP_FAIL_IF(places > have, e, LP_E_RUNTIME,
               "masked_scatter: expected self to have at most as many masked "
               "places as the source has elements (%lld)",
               (long long)have);
    masked(bytes).unpack(self, mask, src, p->n, places);
    LpDesc flat = lp_desc_plain(&p->in[0], p->in[0].dtype);
    lp_copy_strided(&flat, self, &p->out, out[0]);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_masked_unpack_prepare)
{
    LP_TRY(parts(r, run_unpack, k, e));
    Parts *p = k->state;
    p->n = lp_desc_numel(&r->in[1]);
    p->exact = r->attr[LP_MASKED_EXACT].i != 0;
    k->work_bytes =
        bytes_of(&r->in[0]) + bytes_of(&r->in[1]) + bytes_of(&r->in[2]);
    return LP_OK;
}

/* work: self, mask, result */
LP_KERNEL_RUN(run_pack)
{
    const Parts *p = k->state;
    char *next = work;
    const char *self = copy_in(&p->in[0], in[0], &next);
    const char *mask = copy_in(&p->in[1], in[1], &next);
    size_t bytes = lp_dtype_size(p->out.dtype);
    int64_t room = lp_desc_numel(&p->out);
    int64_t used = masked(bytes).pack(self, mask, next, p->n, room);
    memset(next + (size_t)used * bytes, 0, (size_t)(room - used) * bytes);
    LpDesc flat = lp_desc_plain(&p->out, p->out.dtype);
    lp_copy_strided(&flat, next, &p->out, out[0]);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_masked_pack_prepare)
{
    LP_TRY(parts(r, run_pack, k, e));
    Parts *p = k->state;
    p->n = lp_desc_numel(&r->in[1]);
    k->work_bytes =
        bytes_of(&r->in[0]) + bytes_of(&r->in[1]) + bytes_of(&r->out[0]);
    return LP_OK;
}

/* ---- windows ------------------------------------------------------------- */
static int64_t read_start(const LpDesc *d, const void *p, int64_t n)
{
    int64_t s = lp_scalar_i(lp_scalar_load(d->dtype, p)) % n;
    return s < 0 ? s + n : s;
}

/* Moves positions [0, count) of the window, which begins at `start` of `big`
 * (n elements along dim) and goes on at 0, between it and `small`. */
static void move_window(const Parts *p, const LpDesc *big, char *b,
                        const LpDesc *small, char *s, int64_t start, bool out)
{
    int64_t n = big->shape[p->dim], count = small->shape[p->dim];
    int64_t bb = big->strides[p->dim] * (int64_t)lp_dtype_size(big->dtype);
    int64_t sb = small->strides[p->dim] * (int64_t)lp_dtype_size(small->dtype);
    for (int64_t i = 0; i < count;) { /* a run up to the end of big */
        int64_t at = (start + i * p->step) % n;
        int64_t run = (n - 1 - at) / p->step + 1;
        LpDesc x = *big, y = *small;
        run = run < count - i ? run : count - i;
        x.shape[p->dim] = y.shape[p->dim] = run;
        x.strides[p->dim] *= p->step;
        if (out)
            lp_copy_strided(&x, b + at * bb, &y, s + i * sb);
        else
            lp_copy_strided(&y, s + i * sb, &x, b + at * bb);
        i += run;
    }
}

LP_KERNEL_RUN(run_slice)
{
    const Parts *p = k->state;
    int64_t start = read_start(&p->in[1], in[1], p->in[0].shape[p->dim]);
    if (lp_desc_numel(&p->in[0]) > 0)
        move_window(p, &p->in[0], in[0], &p->out, out[0], start, true);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_dynamic_slice_prepare)
{
    LP_TRY(parts(r, run_slice, k, e));
    Parts *p = k->state;
    p->dim = (int)r->attr[LP_DYNAMIC_DIM].i;
    p->step = r->attr[LP_DYNAMIC_STEP].i;
    return LP_OK;
}

LP_KERNEL_RUN(run_window)
{
    const Parts *p = k->state;
    int64_t start = read_start(&p->in[2], in[2], p->in[0].shape[p->dim]);
    if (in[0] != out[0])
        lp_copy_strided(&p->in[0], in[0], &p->out, out[0]);
    if (lp_desc_numel(&p->in[0]) > 0)
        move_window(p, &p->out, out[0], &p->in[1], in[1], start, false);
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_dynamic_update_prepare)
{
    LP_TRY(parts(r, run_window, k, e));
    Parts *p = k->state;
    p->dim = (int)r->attr[LP_DYNAMIC_DIM].i;
    p->step = 1;
    return LP_OK;
}

/* ---- one_hot ------------------------------------------------------------- */
/* work: the classes */
LP_KERNEL_RUN(run_one_hot)
{
    const Parts *p = k->state;
    int last = p->out.ndim - 1;
    int64_t classes = p->out.shape[last], *c = work;
    int64_t bytes = (int64_t)lp_dtype_size(p->out.dtype);
    LpDesc flat = lp_desc_plain(&p->in[0], LP_I64);
    lp_copy_strided(&p->in[0], in[0], &flat, c);
    lp_fill_strided(&p->out, out[0], lp_int(0));
    for (int64_t i = 0; i < p->n; i++) {
        int64_t at = 0, rest = i;
        LP_FAIL_IF(c[i] < 0 || c[i] >= classes, e, LP_E_RUNTIME,
                   "Class values must be non-negative and smaller than "
                   "num_classes (%lld), got %lld at position %lld",
                   (long long)classes, (long long)c[i], (long long)i);
        for (int d = last - 1; d >= 0; d--) {
            at += rest % p->out.shape[d] * p->out.strides[d];
            rest /= p->out.shape[d];
        }
        at += c[i] * p->out.strides[last];
        lp_scalar_store(lp_int(1), p->out.dtype, (char *)out[0] + at * bytes);
    }
    return LP_OK;
}

LP_KERNEL_PREPARE(lp_one_hot_prepare)
{
    LP_TRY(parts(r, run_one_hot, k, e));
    Parts *p = k->state;
    p->n = lp_desc_numel(&r->in[0]);
    k->work_bytes = (size_t)p->n * sizeof(int64_t);
    return LP_OK;
}

LP_KERNEL_MEASURE(lp_one_hot_measure)
{
    LpDesc flat = lp_desc_plain(&r->in[0], LP_I64);
    int64_t n = lp_desc_numel(&flat), most = -1;
    LP_FAIL_IF(n == 0, e, LP_E_RUNTIME,
               "Can not infer total number of classes from empty tensor.");
    int64_t *c = lp_alloc((size_t)n * sizeof *c);
    LP_FAIL_IF(!c, e, LP_E_MEMORY, "no memory for one_hot");
    lp_copy_strided(&r->in[0], in[0], &flat, c);
    for (int64_t i = 0; i < n; i++)
        most = c[i] > most ? c[i] : most;
    lp_free(c);
    LP_FAIL_IF(!lp_add_i64(most, 1, &out[0].shape[out[0].ndim - 1]), e,
               LP_E_OVERFLOW,
               "one_hot: a class of %lld needs more classes than an int64 "
               "counts",
               (long long)most);
    return LP_OK;
}

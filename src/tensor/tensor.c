/* Making, sharing and releasing storages and tensors; touching a storage
 * before it is read or written. */
#include "src/tensor/tensor.h"

#include <string.h>
#include <time.h>

#include "src/base/checked.h"
#include "src/base/mem.h"

uint32_t lp_storage_era;

static int64_t live_bytes, peak_bytes;
static int64_t high_bytes; /* most alive since lp_storage_trim */

/* Freed tensors and small storages, kept for reuse: eager code makes and drops
 * them at every operation, and the collector drops them by the thousand. A
 * small storage is one block: its structure, then its bytes, which storages of
 * foreign memory never have in that place. Under AddressSanitizer nothing is
 * kept, so that it sees every use after free. */
#ifdef __SANITIZE_ADDRESS__
enum { KEEP = 0 };
#else
enum { KEEP = 4096 };
#endif
enum { SMALL = 64, MEDIUM = 512 }; /* bytes of data */
enum {
    TRIM = 32 << 20, /* bytes that are worth giving back */
    LARGE = 1 << 20, /* a storage whose end may be the occasion */
    PAUSE = 10,      /* seconds between two occasions */
};

typedef struct Pool {
    struct Kept {
        struct Kept *next;
    } * first;
    int n, most;
} Pool;
static Pool tensors = {.most = KEEP}, smalls = {.most = KEEP},
            mediums = {.most = KEEP / 4};

static void *pool_take(Pool *p)
{
    struct Kept *k = p->first;
    if (!k)
        return NULL;
    p->first = k->next;
    p->n--;
    lp_mem_kept--;
    return k;
}

static void pool_give(Pool *p, void *block)
{
    if (p->n == p->most) {
        lp_free(block);
        return;
    }
    struct Kept *k = block;
    k->next = p->first;
    p->first = k;
    p->n++;
    lp_mem_kept++;
}

/* Freed blocks of larger storages wait on shelves, one for all blocks of one
 * size, of which the last is the first to be taken: the caches still hold it,
 * its pages are had, and large ones were asked for. A size that meets another
 * on its shelf clears that; when all are full of what nobody asks for, they are
 * cleared. */
enum { SHELVES = 64, DEPTH = 16 }; /* a power of two; blocks of a shelf */
enum { WAITING = 32 << 20 };       /* bytes on all shelves */

typedef struct Shelf {
    size_t bytes;
    int n;
    void *block[DEPTH];
} Shelf;
static Shelf shelves[SHELVES];
static size_t waiting;

static Shelf *shelf_of(size_t bytes)
{
    return &shelves[bytes * UINT64_C(0x9e3779b97f4a7c15) >> 58];
}

static void shelf_clear(Shelf *s)
{
    while (s->n > 0) {
        lp_free(s->block[--s->n]);
        waiting -= s->bytes;
        lp_mem_kept--;
    }
}

static void shelves_clear(void)
{
    for (int i = 0; i < SHELVES; i++)
        shelf_clear(&shelves[i]);
}

static void *block_take(size_t bytes)
{
    Shelf *s = shelf_of(bytes);
    if (s->n == 0 || s->bytes != bytes)
        return lp_alloc_aligned(bytes);
    waiting -= bytes;
    lp_mem_kept--;
    return s->block[--s->n];
}

static void block_give(void *p, size_t bytes)
{
    Shelf *s = shelf_of(bytes);
    bool same = s->bytes == bytes;
    if (!KEEP || bytes > WAITING / 2 || (same && s->n == DEPTH)) {
        lp_free(p);
        return;
    }
    if (!same)
        shelf_clear(s);
    if (waiting + bytes > WAITING)
        shelves_clear();
    s->bytes = bytes;
    s->block[s->n++] = p;
    waiting += bytes;
    lp_mem_kept++;
}

void (*lp_tensor_meta_free)(LpTensor *t);

/* ---- storage ------------------------------------------------------------ */
static void count_bytes(size_t bytes)
{
    live_bytes += (int64_t)bytes;
    if (live_bytes > peak_bytes)
        peak_bytes = live_bytes;
    if (live_bytes > high_bytes)
        high_bytes = live_bytes;
}

/* malloc keeps what blocks of up to 32 MB leave when they are freed. */
void lp_storage_trim(void)
{
    if (high_bytes - live_bytes < TRIM)
        return;
    shelves_clear();
    lp_trim();
    high_bytes = live_bytes;
}

/* The same by itself when nearly half is free, but seldom: eager training
 * fills and empties the heap in every step and wants its pages back. */
static void trim_seldom(void)
{
    static time_t last = -PAUSE;
    struct timespec now;
    if (live_bytes / 11 > high_bytes / 20 || high_bytes - live_bytes < TRIM)
        return;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (now.tv_sec - last < PAUSE)
        return;
    last = now.tv_sec;
    lp_storage_trim();
}

static LpStatus storage_make(void *data, size_t bytes, uint32_t flags,
                             LpStorage **out, LpErr *e)
{
    LpStorage *st = lp_calloc(1, sizeof *st);
    LP_FAIL_IF(!st, e, LP_E_MEMORY, "out of memory");
    st->refs = 1;
    st->flags = flags;
    st->era = lp_storage_era;
    st->bytes = bytes;
    st->data = data;
    count_bytes(bytes);
    *out = st;
    return LP_OK;
}

_Static_assert(sizeof(LpStorage) <= 64, "the bytes follow after 64");

static void *small_bytes(LpStorage *st)
{
    return (char *)st + 64;
}

static bool is_small(LpStorage *st)
{
    return st->data == small_bytes(st);
}

static Pool *pool_of(size_t bytes)
{
    return bytes <= SMALL ? &smalls : &mediums;
}

static LpStatus small_new(size_t bytes, LpStorage **out, LpErr *e)
{
    Pool *p = pool_of(bytes);
    LpStorage *st = pool_take(p);
    if (!st)
        st = lp_alloc_aligned(64 + (p == &smalls ? SMALL : MEDIUM));
    LP_FAIL_IF(!st, e, LP_E_MEMORY,
               "out of memory: tried to allocate %zu bytes", bytes);
    *st = (LpStorage){.refs = 1,
                      .era = lp_storage_era,
                      .bytes = bytes,
                      .data = small_bytes(st)};
    count_bytes(bytes);
    *out = st;
    return LP_OK;
}

LpStatus lp_storage_new(size_t bytes, LpStorage **out, LpErr *e)
{
    if (bytes <= MEDIUM && KEEP)
        return small_new(bytes, out, e);
    void *data = block_take(bytes);
    if (!data) /* for another try, after a collection */
        shelves_clear();
    LP_FAIL_IF(!data, e, LP_E_MEMORY,
               "out of memory: tried to allocate %zu bytes", bytes);
    LpStatus s = storage_make(data, bytes, 0, out, e);
    if (s != LP_OK)
        lp_free(data);
    return s;
}

LpStatus lp_storage_wrap(void *data, size_t bytes,
                         void (*release)(void *ctx, void *data), void *ctx,
                         LpStorage **out, LpErr *e)
{
    LP_TRY(storage_make(data, bytes, 0, out, e));
    (*out)->release = release;
    (*out)->release_ctx = ctx;
    return LP_OK;
}

void lp_storage_release(LpStorage *st)
{
    if (!st || --st->refs > 0)
        return;
    size_t bytes = st->bytes;
    live_bytes -= (int64_t)bytes;
    if (is_small(st)) {
        pool_give(pool_of(st->bytes), st);
        return;
    }
    if (st->release)
        st->release(st->release_ctx, st->data);
    else if (st->data)
        block_give(st->data, bytes);
    lp_free(st);
    if (bytes >= LARGE)
        trim_seldom();
}

int64_t lp_storage_live_bytes(void)
{
    return live_bytes;
}

int64_t lp_storage_peak_bytes(void)
{
    return peak_bytes;
}

/* ---- views -------------------------------------------------------------- */
void lp_view_step_release(LpViewStep *s)
{
    while (s && --s->refs == 0) {
        LpViewStep *parent = s->parent;
        if (s->release_call)
            s->release_call(s->call);
        lp_free(s);
        s = parent;
    }
}

/* ---- tensors ------------------------------------------------------------ */
LpStatus lp_tensor_over(LpStorage *st, const LpType *type,
                        const int64_t *strides, int64_t offset, LpTensor **out,
                        LpErr *e)
{
    LpTensor *t = pool_take(&tensors);
    if (!t)
        t = lp_alloc(sizeof *t);
    LP_FAIL_IF(!t, e, LP_E_MEMORY, "out of memory");
    t->refs = 1;
    t->dtype = type->dtype;
    t->ndim = type->ndim;
    t->requires_grad = false;
    t->is_param = false;
    t->offset = offset;
    size_t n = (size_t)type->ndim * sizeof *t->shape;
    memcpy(t->shape, type->shape, n);
    if (strides)
        memcpy(t->strides, strides, n);
    else
        lp_contiguous_strides(type, t->strides);
    st->refs++;
    t->st = st;
    t->base = NULL;
    t->view = NULL;
    t->meta = NULL;
    *out = t;
    return LP_OK;
}

/* Takes over the storage that was made with status `s`. */
static LpStatus tensor_take(LpStatus s, LpStorage *st, const LpType *type,
                            LpTensor **out, LpErr *e)
{
    if (s == LP_OK)
        s = lp_tensor_over(st, type, NULL, 0, out, e);
    lp_storage_release(st);
    return s;
}

LpStatus lp_tensor_new(const LpType *type, LpTensor **out, LpErr *e)
{
    LpStorage *st = NULL;
    LP_TRY(lp_shape_check(type, e));
    LpStatus s = lp_storage_new((size_t)lp_type_bytes(type), &st, e);
    return tensor_take(s, st, type, out, e);
}

LpStatus lp_tensor_empty(const LpType *type, uint32_t flags, LpTensor **out,
                         LpErr *e)
{
    LpStorage *st = NULL;
    LP_TRY(lp_shape_check(type, e));
    LpStatus s = storage_make(NULL, 0, flags, &st, e);
    return tensor_take(s, st, type, out, e);
}

LpTensor *lp_tensor_retain(LpTensor *t)
{
    t->refs++;
    return t;
}

void lp_tensor_release(LpTensor *t)
{
    if (!t || --t->refs > 0)
        return;
    if (t->meta)
        lp_tensor_meta_free(t);
    lp_storage_release(t->st);
    lp_view_step_release(t->view);
    lp_tensor_release(t->base);
    pool_give(&tensors, t);
}

LpType lp_tensor_type(const LpTensor *t)
{
    LpType ty = {.dtype = t->dtype, .ndim = t->ndim};
    memcpy(ty.shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
    return ty;
}

int64_t lp_tensor_numel(const LpTensor *t)
{
    return lp_elements(t->shape, t->ndim);
}

bool lp_tensor_contiguous(const LpTensor *t)
{
    return lp_is_dense(t->shape, t->strides, t->ndim);
}

LpStatus lp_tensor_touch(const LpTensor *t, bool will_write, LpErr *e)
{
    uint32_t f = t->st->flags;
    if (f == 0)
        return LP_OK;
    LP_FAIL_IF(f & LP_ST_TRACED, e, LP_E_UNTRACED,
               "a traced tensor has no value: it stands for a value of the "
               "compiled program; what depends on it cannot be read while "
               "tracing. Return it from forward and call item() on the result, "
               "or decide by it with torch.where or lupine.control.branch");
    LP_FAIL_IF(f & LP_ST_META, e, LP_E_RUNTIME,
               "a tensor on device 'meta' has no value");
    if (f & LP_ST_HOOKED)
        return t->st->hook.pull(t->st->hook.ctx, t->st, will_write, e);
    return LP_OK;
}

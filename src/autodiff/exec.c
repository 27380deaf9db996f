/* The eager path below autograd: shape rule, allocation-free preparation,
 * kernel. Prepared kernels of operators that are dear to prepare are kept in a
 * bounded cache keyed by operator, attributes, descriptors and width. */
#include <omp.h>
#include <pthread.h>
#include <string.h>

#include "src/autodiff/meta.h"
#include "src/base/cpu.h"
#include "src/base/hash.h"
#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/base/process.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/loops/reduce_kernel.h"
#include "src/kernel/nn/nn.h"
#include "src/kernel/state.h"
#include "src/ops/ops.h"
#include "src/ops/width.h"

/* ---- kernel cache ------------------------------------------------------- */
#define SLOTS 256 /* a power of two */
#define WAYS 4

typedef struct Entry {
    LpKernel k;
    uint64_t hash, used;
    void *key; /* owned copy of the request's bytes */
    size_t n_key;
} Entry;

static Entry *slots[SLOTS];
static uint64_t tick;

static void entry_free(Entry *x)
{
    if (!x)
        return;
    lp_kernel_fini(&x->k);
    lp_free(x->key);
    lp_free(x);
}

/* Also after fork: a worker has kernels of its own width. */
static void cache_clear(void)
{
    for (int i = 0; i < SLOTS; i++) {
        entry_free(slots[i]);
        slots[i] = NULL;
    }
}

/* ---- scratch ------------------------------------------------------------ */
static LpArena scratch;
static int depth;
static void *work;
static size_t work_cap;

LpArena *lp_scratch_enter(void)
{
    depth++;
    return &scratch;
}

void lp_scratch_leave(void)
{
    if (--depth == 0)
        lp_arena_reset(&scratch);
}

static LpStatus need_work(size_t n, LpErr *e)
{
    if (n <= work_cap)
        return LP_OK;
    lp_free(work);
    work_cap = 0;
    work = lp_alloc_aligned(n);
    LP_FAIL_IF(!work, e, LP_E_MEMORY,
               "out of memory: scratch of %zu bytes for an operator", n);
    work_cap = n;
    return LP_OK;
}

/* ---- threads, seeds ----------------------------------------------------- */
#define DETERMINISTIC_WIDTH 4
static int threads;
static bool deterministic, task;
static int pieces = LP_SPLIT_ALL;
static uint64_t seed = 0x6c7570696e65u, n_sites;

int lp_num_threads(void)
{
    if (threads == 0)
        threads = lp_cpu_threads();
    return threads;
}

static void *wait_for(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* How many threads there can be besides this one, up to n - 1, as the library
 * makes them, which ends the process if one cannot be made. */
static int can_start(int n)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *t = lp_alloc((size_t)n * sizeof *t);
    int k = 0;
    pthread_mutex_lock(&gate);
    while (t && k < n - 1 && pthread_create(&t[k], NULL, wait_for, &gate) == 0)
        k++;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < k; i++)
        pthread_join(t[i], NULL);
    lp_free(t);
    return k;
}

LpStatus lp_set_num_threads(int n, LpErr *e)
{
    LP_FAIL_IF(n < 1, e, LP_E_RUNTIME,
               "set_num_threads expects a positive integer, got %d", n);
    LP_FAIL_IF(lp_in_worker() && n > 1, e, LP_E_RUNTIME,
               "set_num_threads: a worker process has 1 thread, got %d", n);
    int more = n > lp_cpu_threads() ? can_start(n) : n - 1;
    LP_FAIL_IF(more < n - 1, e, LP_E_MEMORY,
               "set_num_threads: this process cannot start %d threads: there "
               "is memory, or a limit of the system, for %d",
               n, more + 1);
    threads = n;
    cache_clear();
    return LP_OK;
}

void lp_enter_worker(void)
{
    cache_clear();
    omp_set_num_threads(1);
    threads = 1;
    lp_mark_worker();
}

LpStatus lp_set_deterministic(bool on, LpErr *e)
{
    int limit = omp_get_thread_limit();
    LP_FAIL_IF(on && limit < DETERMINISTIC_WIDTH, e, LP_E_RUNTIME,
               "use_deterministic_algorithms: OMP_THREAD_LIMIT is %d, but "
               "deterministic algorithms need %d or more: the bits of some "
               "results depend on the number of threads",
               limit, DETERMINISTIC_WIDTH);
    if (on != deterministic)
        cache_clear();
    deterministic = on;
    return LP_OK;
}

bool lp_deterministic(void)
{
    return deterministic;
}

void lp_set_product_split(int n)
{
    if (n != pieces)
        cache_clear();
    pieces = n;
}

int lp_product_split(void)
{
    return pieces;
}

bool lp_set_task(bool on)
{
    bool before = task;
    task = on;
    return before;
}

int lp_kernel_width(void)
{
    if (!deterministic)
        return lp_num_threads();
    return lp_in_worker() || task ? 1 : DETERMINISTIC_WIDTH;
}

void lp_manual_seed(uint64_t s)
{
    seed = s;
    n_sites = 0;
}

uint64_t lp_initial_seed(void)
{
    return seed;
}

void lp_rng_get(uint64_t state[2])
{
    state[0] = seed;
    state[1] = n_sites;
}

void lp_rng_set(const uint64_t state[2])
{
    seed = state[0];
    n_sites = state[1];
}

uint64_t lp_next_site(void)
{
    return n_sites++;
}

/* ---- prepared kernels --------------------------------------------------- */
static void put_bytes(unsigned char *buf, size_t *n, const void *p, size_t len)
{
    if (buf)
        memcpy(buf + *n, p, len);
    *n += len;
}

static void put_desc(unsigned char *buf, size_t *n, const LpDesc *d)
{
    int64_t head[3] = {d->dtype, d->ndim, d->is_imm};
    put_bytes(buf, n, head, sizeof head);
    if (d->is_imm)
        put_bytes(buf, n, &d->imm.i, sizeof d->imm.i);
    if (d->dtype == LP_DT_NONE)
        return;
    put_bytes(buf, n, d->shape, (size_t)d->ndim * sizeof *d->shape);
    put_bytes(buf, n, d->strides, (size_t)d->ndim * sizeof *d->strides);
}

static void put_attr(unsigned char *buf, size_t *n, const LpAttr *a)
{
    int64_t head[2] = {a->kind, a->n};
    put_bytes(buf, n, head, sizeof head);
    switch (a->kind) {
    case LP_ATTR_NONE:
        break;
    case LP_ATTR_INTS:
        put_bytes(buf, n, a->v, (size_t)a->n * sizeof *a->v);
        break;
    case LP_ATTR_STR:
        put_bytes(buf, n, a->str, strlen(a->str) + 1);
        break;
    case LP_ATTR_SCALAR:
        put_bytes(buf, n, &a->s.kind, sizeof a->s.kind);
        put_bytes(buf, n, &a->s.i, sizeof a->s.i);
        break;
    case LP_ATTR_INT:
    case LP_ATTR_FLOAT:
    case LP_ATTR_BOOL:
    case LP_ATTR_DTYPE:
    case LP_ATTR_GRAPH: /* by address: a key keeps no body */
        put_bytes(buf, n, &a->i, sizeof a->i);
        break;
    }
}

/* The request as bytes; with buf NULL only their number. */
static size_t key_bytes(const LpKernelReq *r, unsigned char *buf)
{
    size_t n = 0;
    int64_t head[4] = {r->op->id, r->n_in, r->n_out, r->threads};
    put_bytes(buf, &n, head, sizeof head);
    put_bytes(buf, &n, &r->site, sizeof r->site);
    for (int i = 0; i < r->op->n_attr; i++)
        put_attr(buf, &n, &r->attr[i]);
    for (int i = 0; i < r->n_in; i++)
        put_desc(buf, &n, &r->in[i]);
    for (int i = 0; i < r->n_out; i++)
        put_desc(buf, &n, &r->out[i]);
    return n;
}

static LpStatus cached(const LpKernelReq *r, LpArena *a, const LpKernel **k,
                       LpErr *e)
{
    size_t n = key_bytes(r, NULL);
    unsigned char *key = lp_arena_alloc(a, n);
    LP_FAIL_IF(!key, e, LP_E_MEMORY, "out of memory");
    key_bytes(r, key);
    uint64_t h = lp_hash_bytes(LP_HASH_START, key, n);
    int victim = 0;
    uint64_t oldest = UINT64_MAX;
    for (int w = 0; w < WAYS; w++) {
        int at = (int)((h + (uint64_t)w) & (SLOTS - 1));
        Entry *x = slots[at];
        if (x && x->hash == h && x->n_key == n && !memcmp(x->key, key, n)) {
            x->used = ++tick;
            *k = &x->k;
            return LP_OK;
        }
        uint64_t used = x ? x->used : 0;
        if (used < oldest) {
            oldest = used;
            victim = at;
        }
    }
    Entry *x = lp_calloc(1, sizeof *x);
    void *copy = lp_alloc(n);
    if (!x || !copy) {
        lp_free(x);
        lp_free(copy);
        return lp_fail(e, LP_E_MEMORY, "out of memory");
    }
    x->k.threads = r->threads;
    LpStatus s = r->op->prepare(r, &x->k, e);
    if (s != LP_OK) {
        lp_free(x);
        lp_free(copy);
        return s;
    }
    memcpy(copy, key, n);
    x->key = copy;
    x->n_key = n;
    x->hash = h;
    x->used = ++tick;
    entry_free(slots[victim]);
    slots[victim] = x;
    *k = &x->k;
    return LP_OK;
}

/* ---- calls -------------------------------------------------------------- */
LpStatus lp_call_infer(LpCall *c, const LpOp *op, const LpArg *in, int n_in,
                       const LpAttr *attr, LpArena *arena, LpErr *e)
{
    LpScalar num[LP_MAX_IN];
    c->op = op;
    c->n_in = n_in;
    c->in = c->in_buf;
    c->out = c->out_buf;
    c->n_out = op->n_results;
    c->needs_copy = false;
    if (n_in > LP_MAX_IN)
        c->in = lp_arena_alloc(arena, (size_t)n_in * sizeof *c->in);
    if (op->n_results == 0)
        c->out = lp_arena_alloc(arena, LP_MAX_LIST * sizeof *c->out);
    LP_FAIL_IF(!c->in || !c->out, e, LP_E_MEMORY, "out of memory");
    for (int i = 0; i < n_in; i++) {
        LpType *t = &c->in[i];
        if (in[i].t) {
            const LpTensor *x = in[i].t;
            t->dtype = x->dtype;
            t->ndim = x->ndim;
            t->wrapped = false;
            memcpy(t->shape, x->shape, (size_t)x->ndim * sizeof *t->shape);
        } else if (in[i].is_num) {
            *t = *lp_number_type(in[i].num.kind);
            if (i < LP_MAX_IN)
                num[i] = in[i].num;
        } else {
            *t = (LpType){.dtype = LP_DT_NONE};
        }
    }
    if (op->n_attr)
        memcpy(c->attr, attr, op->n_attr * sizeof *attr);
    if (!op->infer)
        return LP_OK; /* a composite of fixed arity */
    LpInfer x = {.op = op,
                 .n_in = n_in,
                 .n_out = c->n_out,
                 .in = c->in,
                 .num = num,
                 .attr = c->attr,
                 .out = c->out,
                 .arena = arena,
                 .err = e};
    if ((op->flags & LP_OPF_VIEW) && in[0].t) {
        x.in_strides = in[0].t->strides;
        x.in_offset = in[0].t->offset;
        x.strides = c->strides;
        x.offset = &c->offset;
        x.needs_copy = &c->needs_copy;
    }
    /* What is no view is checked where it is allocated. */
    LP_TRY(op->flags & LP_OPF_VIEW ? lp_op_infer(&x) : op->infer(&x));
    c->n_out = x.n_out;
    return LP_OK;
}

void lp_desc_of_tensor(LpDesc *d, const LpTensor *t)
{
    size_t n = (size_t)t->ndim * sizeof *t->shape;
    d->dtype = t->dtype;
    d->ndim = t->ndim;
    d->is_imm = false;
    d->block = 0;
    d->layout = NULL;
    memcpy(d->shape, t->shape, n);
    memcpy(d->strides, t->strides, n);
}

static void fill_arg(LpDesc *d, const LpArg *a, const LpType *type, void **p)
{
    *p = NULL;
    if (a->t) {
        lp_desc_of_tensor(d, a->t);
        *p = lp_tensor_data(a->t);
        return;
    }
    d->dtype = type->dtype;
    d->ndim = 0;
    d->is_imm = a->is_num;
    d->block = 0;
    d->layout = NULL;
    if (a->is_num)
        d->imm = a->num;
}

LpStatus lp_call_measure(LpCall *c, const LpArg *in, LpErr *e)
{
    LpDesc ins[LP_MAX_IN];
    void *ptr[LP_MAX_IN];
    LP_FAIL_IF(c->n_in > LP_MAX_IN, e, LP_E_INTERNAL,
               "%s: too many operands of a dynamic operator", c->op->name);
    for (int i = 0; i < c->n_in; i++)
        fill_arg(&ins[i], &in[i], &c->in[i], &ptr[i]);
    LpKernelReq req = {.op = c->op,
                       .attr = c->attr,
                       .n_in = c->n_in,
                       .n_out = c->n_out,
                       .in = ins,
                       .threads = lp_num_threads()};
    lp_kernels_may_stop = true;
    LpStatus s = c->op->measure(&req, ptr, c->out, e);
    if (s == LP_OK && lp_kernel_stops())
        s = lp_fail(e, LP_E_INTERRUPT, "interrupted");
    lp_kernels_may_stop = false;
    LP_TRY(s);
    for (int i = 0; i < c->n_out; i++)
        LP_TRY(lp_shape_check(&c->out[i], e));
    return LP_OK;
}

static LpStatus run_prepared(const LpKernel *k, void *const *in,
                             void *const *out, bool may_stop, LpErr *e)
{
    LpRunCtx rc = {.seed = seed};
    LpStatus s = k->work_bytes ? need_work(k->work_bytes, e) : LP_OK;
    lp_kernels_may_stop = may_stop;
    if (s == LP_OK)
        s = k->run(k, in, out, work, &rc, e);
    if (s == LP_OK && lp_kernel_stops())
        s = lp_fail(e, LP_E_INTERRUPT, "interrupted");
    lp_kernels_may_stop = false;
    return s;
}

static LpStatus prepare_reduced(const LpFusedReq *r, LpKernelReq *sum,
                                LpKernel *k, LpErr *e)
{
    LpKernel apart = {.work_bytes = 0};
    if (sum->op == &op_identity_loss)
        return lp_identity_loss_of_chain(
            r, sum->attr[LP_IDENTITY_LOSS_REDUCTION].str, k, e);
    sum->threads = apart.threads = lp_width_of(sum, r->threads);
    LP_TRY(sum->op->prepare(sum, &apart, e));
    LpStatus s = lp_reduce_of_chain(&apart, r, k, e);
    lp_kernel_fini(&apart);
    return s;
}

LpStatus lp_call_fused(LpFusedReq *r, LpKernelReq *sum, void *const *in,
                       void *const *out, LpErr *e)
{
    LpKernel k = {.work_bytes = 0};
    r->threads = lp_kernel_width();
    LP_TRY(sum ? prepare_reduced(r, sum, &k, e) : lp_fused_prepare(r, &k, e));
    LpStatus s = run_prepared(&k, in, out, true, e);
    lp_kernel_fini(&k);
    return s;
}

LpStatus lp_call_run(const LpCall *c, const LpArg *in, LpTensor *const *out,
                     uint64_t site, bool may_stop, LpErr *e)
{
    LpDesc di[LP_MAX_IN], dn[LP_MAX_OUT], *ins = di;
    void *pi[LP_MAX_IN], *po[LP_MAX_OUT], **ptr = pi;
    if (c->n_in > LP_MAX_IN) {
        ins = lp_arena_alloc(&scratch, (size_t)c->n_in * sizeof *ins);
        ptr = lp_arena_alloc(&scratch, (size_t)c->n_in * sizeof *ptr);
        LP_FAIL_IF(!ins || !ptr, e, LP_E_MEMORY, "out of memory");
    }
    LP_FAIL_IF(!c->op->prepare, e, LP_E_INTERNAL, "operator %s has no kernel",
               c->op->name);
    for (int i = 0; i < c->n_in; i++)
        fill_arg(&ins[i], &in[i], &c->in[i], &ptr[i]);
    for (int i = 0; i < c->n_out; i++) {
        lp_desc_of_tensor(&dn[i], out[i]);
        po[i] = lp_tensor_data(out[i]);
    }
    LpKernelReq req = {.op = c->op,
                       .attr = c->attr,
                       .n_in = c->n_in,
                       .n_out = c->n_out,
                       .in = ins,
                       .out = dn,
                       .site = site,
                       .split = pieces};
    req.threads = lp_width_of(&req, lp_kernel_width());
    LpKernel local;
    const LpKernel *k = &local;
    if (c->op->flags & LP_OPF_CACHED) {
        LP_TRY(cached(&req, &scratch, &k, e));
    } else {
        local.fini = NULL;
        local.state = NULL;
        local.work_bytes = 0;
        local.threads = req.threads;
        LP_TRY(c->op->prepare(&req, &local, e));
    }
    LpStatus s = run_prepared(k, ptr, po, may_stop, e);
    if (k == &local)
        lp_kernel_fini(&local);
    return s;
}

LpStatus lp_copy_tensor(LpTensor *dst, LpTensor *src, LpErr *e)
{
    LpDesc d, s;
    LpTensor *apart = NULL;
    if (src->st == dst->st &&
        (src->offset != dst->offset || !lp_tensor_contiguous(src) ||
         !lp_tensor_contiguous(dst))) {
        LpType type = lp_tensor_type(src);
        LP_TRY(lp_tensor_new(&type, &apart, e));
        LP_TRY(lp_copy_tensor(apart, src, e));
        src = apart;
    }
    lp_desc_of_tensor(&s, src);
    lp_desc_of_tensor(&d, dst);
    lp_copy_strided(&s, lp_tensor_data(src), &d, lp_tensor_data(dst));
    lp_tensor_release(apart);
    return LP_OK;
}

/* See fused.h. The plan is a list of small instructions over block buffers:
 * a node reads its operands from memory (dense, right type), from a buffer
 * filled by a gather, or from the buffer of an earlier node; it writes its
 * result to memory if that is dense and of the loop's type, else to a buffer.
 * Buffers are given out like registers, by last use. */
#include "src/kernel/loops/fused.h"

#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/loops/pointwise_plan.h"
#include "src/kernel/plain.h"
#include "src/kernel/rounding.h"
#include "src/kernel/state.h"

enum {
    CACHE = 48 * 1024, /* bytes of buffers a thread should stay within */
    MOST = 1024,       /* elements of a block */
    LEAST = 128,
    N_BUF = LP_FUSED_MAX_NODE + LP_FUSED_MAX_EXT,
    LONG_ROW = 256,   /* elements from which blocks stay within rows */
    WORK_MIN = 32768, /* elements that pay for waking a thread */
};

typedef struct Ext {
    uint8_t size;
    bool linear, constant;
    int64_t stride[LP_MAX_DIMS]; /* bytes */
} Ext;

typedef enum { SRC_MEM, SRC_GATHER, SRC_BUF, SRC_CONST } Src;

typedef struct Arg {
    Src src;
    int16_t at;  /* MEM, GATHER: external; BUF: node; CONST: constant */
    int16_t buf; /* GATHER: buffer; CONST with no splat: buffer */
    LpConvert load;
    uint8_t size;  /* in the loop's type */
    int8_t narrow; /* GATHER: LpDtype that it is rounded to, or -1 */
    bool as_is;    /* neither converted nor rounded */
} Arg;

typedef struct Node {
    LpLoop loop; /* NULL: identity */
    LpNum p[LP_PW_MAX_PARAM];
    Arg arg[LP_PW_MAX_IN];
    int8_t n_in;
    int8_t out; /* result, or -1 */
    int8_t to;  /* result whose memory it writes, or -1: the buffer */
    bool splat_ok;
    LpDtype held;    /* type in the buffer */
    LpDtype stored;  /* type of the value */
    LpConvert store; /* held -> stored, if it stores */
    LpConvert load;  /* stored -> held */
    bool stores;     /* to `out`, whose memory is not what it writes */
    bool exact;      /* what is held is a value of the type stored */
    bool read;       /* by a node of the chain */
    int16_t buf;     /* what it writes if `to` is -1 */
    uint64_t site;   /* as LpFusedNode's */
} Node;

typedef struct Plan {
    int n_node, n_ext, n_out, ndim, n_buf, n_const;
    bool rows; /* blocks stay within rows: something broadcast is read */
    int64_t plane, lanes; /* places and channels of images in blocks; or 0 */
    int64_t n, block;
    int64_t size[LP_MAX_DIMS]; /* collapsed index space, outermost first */
    uint8_t out_size[LP_FUSED_MAX_OUT];
    Ext ext[LP_FUSED_MAX_EXT];
    LpPwOne constant[LP_FUSED_MAX_NODE * LP_PW_MAX_IN];
    Node node[LP_FUSED_MAX_NODE];
} Plan;

bool lp_fusable(const LpOp *op)
{
    return lp_pointwise_of(op) != NULL && !(op->flags & LP_OPF_RANDOM);
}

/* ---- running ------------------------------------------------------------- */
typedef struct Run {
    const Plan *p;
    const char *const *in;
    char *const *out;
    char *buf;
    const LpRunCtx *rc;
    int64_t origin; /* the element that out[] points to */
} Run;

static char *buffer(const Run *r, int i)
{
    return r->buf + (size_t)i * (size_t)r->p->block * 8;
}

/* Where element `at` of a strided external is; ix: its index. */
static int64_t place(const Plan *p, const Ext *x, int64_t at, int64_t *ix)
{
    int64_t off = 0;
    for (int d = p->ndim - 1; d >= 0; d--) {
        ix[d] = at % p->size[d];
        at /= p->size[d];
        off += ix[d] * x->stride[d];
    }
    return off;
}

/* Of `rows` rows of n bytes at `to` the first is there: so then are all. */
static void repeat(char *to, size_t n, int64_t rows)
{
    size_t all = n * (size_t)rows;
    for (size_t have = n; have < all; have *= 2)
        memcpy(to + have, to, have < all - have ? have : all - have);
}

/* n elements of a strided external from element `at` on. Rows that are one and
 * the same, as a block of channels at all places of an image, are read once. */
static void gather(const Plan *p, const Ext *x, const char *base, int64_t at,
                   int64_t n, LpConvert load, char *dst, int size)
{
    int64_t ix[LP_MAX_DIMS], off = place(p, x, at, ix);
    int last = p->ndim - 1;
    while (n > 0) {
        int64_t m = p->size[last] - ix[last];
        m = m < n ? m : n;
        load(m, dst, size, base + off, x->stride[last]);
        off += m * x->stride[last];
        ix[last] += m;
        if (last > 0 && x->stride[last - 1] == 0 && m == p->size[last]) {
            int64_t rows = lp_min(p->size[last - 1] - ix[last - 1], n / m);
            repeat(dst, (size_t)(m * size), rows);
            ix[last - 1] += rows - 1;
            m *= rows;
        }
        dst += m * size;
        n -= m;
        for (int d = last; d > 0 && ix[d] == p->size[d]; d--) {
            off += x->stride[d - 1] - p->size[d] * x->stride[d];
            ix[d] = 0;
            ix[d - 1]++;
        }
    }
}

static const void *fetch(const Run *r, const Arg *a, int64_t at, int64_t n,
                         bool splat_ok, const void *const *result,
                         unsigned *splat, int i)
{
    const Plan *p = r->p;
    const Ext *x =
        a->src == SRC_MEM || a->src == SRC_GATHER ? &p->ext[a->at] : NULL;
    switch (a->src) {
    case SRC_BUF:
        return result[a->at];
    case SRC_MEM:
        return r->in[a->at] + at * x->size;
    case SRC_CONST:
        if (splat_ok) {
            *splat |= 1u << i;
            return &p->constant[a->at];
        }
        a->load(n, buffer(r, a->buf), a->size, &p->constant[a->at], 0);
        return buffer(r, a->buf);
    case SRC_GATHER:
        break;
    }
    char *buf = buffer(r, a->buf);
    const char *from = r->in[a->at];
    int64_t ix[LP_MAX_DIMS], step = p->rows ? x->stride[p->ndim - 1] : -1;
    if (p->rows && !x->constant && !x->linear)
        from += place(p, x, at, ix);
    if (x->constant || step == 0) {
        a->load(splat_ok ? 1 : n, buf, a->size, from, 0);
        if (splat_ok)
            *splat |= 1u << i;
    } else if (x->linear) {
        a->load(n, buf, a->size, from + at * x->size, x->size);
    } else if (p->rows && step == x->size && a->as_is) {
        return from;
    } else {
        gather(p, x, r->in[a->at], at, n, a->load, buf, a->size);
    }
    if (a->narrow >= 0)
        lp_pointwise_round(*splat >> i & 1 ? 1 : n, buf, buf,
                           lp_plain_type((LpDtype)a->narrow),
                           (LpDtype)a->narrow);
    return buf;
}

static char *memory(const Run *r, int result, int64_t at)
{
    return r->out[result] + (at - r->origin) * r->p->out_size[result];
}

/* lp_round_at_random of images in blocks, whose channels are numbered one after
 * the other. */
static void round_planes(const Plan *p, const LpRandom *stream, LpDtype to,
                         int64_t at, int64_t n, float *x)
{
    float turned[MOST];
    for (int64_t m; n > 0; n -= m, at += m, x += m) {
        int64_t block = at / p->lanes / p->plane;
        int64_t from = at / p->lanes % p->plane;
        int64_t places = lp_min(p->plane - from, n / p->lanes);
        m = places * p->lanes;
        lp_round_planes_at_random(
            stream, to, (uint64_t)(block * p->lanes * p->plane + from),
            p->plane, p->lanes, places, x, turned);
    }
}

/* n elements from `at` on, at y, are rounded at random, in `mem`, too, if that
 * is not NULL. */
static void keep_at_random(const Run *r, const Node *d, int64_t at, int64_t n,
                           char *y, char *mem)
{
    LpRandom stream = lp_rounding_stream(r->rc, d->site, 0);
    if (r->p->lanes) {
        round_planes(r->p, &stream, d->stored, at, n, (float *)y);
        if (mem)
            d->store(n, mem, (int64_t)lp_dtype_size(d->stored), y,
                     (int64_t)lp_dtype_size(d->held));
        return;
    }
    if (!mem) {
        lp_round_at_random(&stream, d->stored, (uint64_t)at, n, (float *)y);
        return;
    }
    lp_store_at_random(&stream, d->stored, (uint64_t)at, n, (float *)y,
                       (uint16_t *)mem);
    if (d->read)
        d->load(n, y, (int64_t)lp_dtype_size(d->held), mem,
                (int64_t)lp_dtype_size(d->stored));
}

/* n elements from `at` on, at x, become values of the type stored at y, which
 * may be x, and go to memory if they are to be there, too. */
static void keep(const Run *r, const Node *d, int64_t at, int64_t n,
                 const char *x, char *y)
{
    int64_t size = (int64_t)lp_dtype_size(d->held);
    int64_t step = (int64_t)lp_dtype_size(d->stored);
    char *mem = d->stores ? memory(r, d->out, at) : NULL;
    if (x != y && (d->exact || d->site) && (d->read || !mem || d->site))
        memmove(y, x, (size_t)(n * size));
    if (d->site) {
        keep_at_random(r, d, at, n, y, mem);
        return;
    }
    if (mem)
        d->store(n, mem, step, x, size);
    if (d->exact)
        return;
    if (!mem)
        lp_pointwise_round(n, x, y, d->held, d->stored);
    else if (d->read)
        d->load(n, y, size, mem, step);
}

static void run_block(const Run *r, int64_t at, int64_t n)
{
    const Plan *p = r->p;
    const void *result[LP_FUSED_MAX_NODE];
    for (int k = 0; k < p->n_node; k++) {
        const Node *d = &p->node[k];
        const void *x[LP_PW_MAX_IN];
        unsigned splat = 0;
        for (int i = 0; i < d->n_in; i++)
            x[i] = fetch(r, &d->arg[i], at, n, d->splat_ok, result, &splat, i);
        char *y = d->to >= 0 ? memory(r, d->to, at) : buffer(r, d->buf);
        if (d->loop)
            d->loop(n, y, x, splat, d->p);
        keep(r, d, at, n, d->loop ? y : x[0], y);
        result[k] = y;
    }
}

static void run_part(const Run *r, int64_t from, int64_t to)
{
    const Plan *p = r->p;
    int64_t row = p->size[p->ndim - 1];
    while (from < to) {
        int64_t n = p->rows ? row - from % row : to - from;
        n = n < to - from ? n : to - from;
        n = n < p->block ? n : p->block;
        run_block(r, from, n);
        from += n;
    }
}

size_t lp_fused_work(const LpKernel *k)
{
    return k->work_bytes / (size_t)k->threads;
}

void lp_fused_part(const LpKernel *k, void *const *in, void *const *out,
                   void *work, const LpRunCtx *rc, int64_t from, int64_t to)
{
    Run r = {.p = k->state,
             .in = (const char *const *)in,
             .out = (char *const *)out,
             .buf = work,
             .rc = rc};
    run_part(&r, from, to);
}

void lp_fused_values(const LpKernel *k, void *const *in, void *out, void *work,
                     const LpRunCtx *rc, int64_t from, int64_t to)
{
    Run r = {.p = k->state,
             .in = (const char *const *)in,
             .out = (char *const[]){out},
             .buf = work,
             .rc = rc,
             .origin = from};
    run_part(&r, from, to);
}

LP_KERNEL_RUN(run)
{
    const Plan *p = k->state;
    size_t each = lp_fused_work(k);
    if (k->threads == 1) {
        lp_fused_part(k, in, out, work, rc, 0, p->n);
        return LP_OK;
    }
#pragma omp parallel for num_threads(k->threads) schedule(static, 1)
    for (int t = 0; t < k->threads; t++)
        lp_fused_part(k, in, out, (char *)work + (size_t)t * each, rc,
                      lp_pw_part(p->n, t, k->threads),
                      lp_pw_part(p->n, t + 1, k->threads));
    return LP_OK;
}

/* ---- preparing ----------------------------------------------------------- */
static void set_geometry(const LpFusedReq *r, Plan *p)
{
    const LpDesc *o = &r->out[0];
    int order[LP_MAX_DIMS], n = lp_pw_sort_dims(o, order);
    p->ndim = 0;
    for (int k = 0; k < n; k++) {
        int64_t size = o->shape[order[k]];
        int at = p->ndim;
        bool merges = at > 0;
        for (int i = 0; i < r->n_ext; i++) {
            int64_t s = lp_pw_stride(&r->ext[i], o, order[k],
                                     (int)lp_dtype_size(r->ext[i].dtype));
            p->ext[i].stride[at] = s;
            merges = merges && p->ext[i].stride[at - 1] == s * size;
        }
        if (merges) {
            p->size[at - 1] *= size;
            for (int i = 0; i < r->n_ext; i++)
                p->ext[i].stride[at - 1] = p->ext[i].stride[at];
        } else {
            p->size[p->ndim++] = size;
        }
    }
    if (p->ndim == 0) {
        p->ndim = 1;
        p->size[0] = 1;
        for (int i = 0; i < r->n_ext; i++)
            p->ext[i].stride[0] = 0;
    }
    for (int i = 0; i < r->n_ext; i++) {
        Ext *x = &p->ext[i];
        x->size = (uint8_t)lp_dtype_size(r->ext[i].dtype);
        x->constant = true;
        x->linear = true;
        int64_t want = x->size;
        for (int d = p->ndim - 1; d >= 0; d--) {
            x->constant = x->constant && x->stride[d] == 0;
            x->linear = x->linear && (x->stride[d] == want || p->size[d] == 1);
            want *= p->size[d];
        }
        p->rows = p->rows || (!x->constant && !x->linear);
    }
    p->rows = p->rows && p->size[p->ndim - 1] >= LONG_ROW;
}

/* The node as the pointwise driver resolves it; one that rounds at random is
 * held in float32 until then. */
static void resolve(const LpFusedReq *r, const LpFusedNode *f, LpPwNode *pw,
                    LpDtype types[LP_PW_MAX_IN])
{
    LpDesc in[LP_PW_MAX_IN] = {{0}};
    LpDesc out = {.dtype = f->site ? LP_F32 : f->dtype};
    for (int i = 0; i < f->n_in; i++) {
        const LpFusedArg *a = &f->in[i];
        if (a->from == LP_FUSED_IMM) {
            in[i] = (LpDesc){.is_imm = true, .imm = a->imm};
        } else if (a->from == LP_FUSED_EXT) {
            in[i].dtype = r->ext[a->at].dtype;
            in[i].ndim = r->ext[a->at].ndim;
        } else {
            in[i].dtype = r->node[a->at].dtype;
            in[i].ndim = (int8_t)r->node[a->at].ndim;
        }
        types[i] = in[i].dtype;
    }
    LpKernelReq q = {.op = f->op,
                     .attr = f->attr,
                     .n_in = f->n_in,
                     .n_out = 1,
                     .in = in,
                     .out = &out};
    lp_pointwise_resolve(&q, pw);
    bool narrows = lp_pointwise_of(f->op)->policy == LP_PW_CAST &&
                   lp_is_half(out.dtype) && !in[0].is_imm &&
                   lp_plain_type(in[0].dtype) == LP_F32;
    if (narrows) /* in float32 until then, as what others make */
        pw->in[0] = pw->out = LP_F32;
}

typedef struct Regs {
    int busy_until[N_BUF]; /* node number, -1: free */
    int n;
} Regs;

static int take_buf(Regs *g, int now, int until)
{
    int i = 0;
    while (i < g->n && g->busy_until[i] >= now)
        i++;
    if (i == g->n)
        g->n++;
    g->busy_until[i] = until;
    return i;
}

static int last_use(const LpFusedReq *r, int node)
{
    int last = node;
    for (int k = node + 1; k < r->n_node; k++)
        for (int i = 0; i < r->node[k].n_in; i++)
            if (r->node[k].in[i].from == LP_FUSED_NODE &&
                r->node[k].in[i].at == node)
                last = k;
    return last;
}

static void plan_arg(const LpFusedReq *r, Plan *p, Regs *g, int k, int i,
                     const LpPwNode *pw, const LpDtype *types)
{
    Node *d = &p->node[k];
    Arg *a = &d->arg[i];
    const LpFusedArg *f = &r->node[k].in[(int)pw->operand[i]];
    LpDtype want = pw->in[i], have = types[(int)pw->operand[i]];
    a->size = (uint8_t)lp_dtype_size(want);
    a->at = (int16_t)f->at;
    if (f->from == LP_FUSED_IMM) {
        a->src = SRC_CONST;
        a->at = (int16_t)p->n_const++;
        lp_pointwise_number(pw, f->imm, want, &p->constant[a->at]);
        a->load = lp_convert_loop(want, want);
        if (!pw->splat_ok)
            a->buf = (int16_t)take_buf(g, k, k);
        return;
    }
    if (f->from == LP_FUSED_NODE) {
        a->src = SRC_BUF; /* held types agree: see chain_ok */
        return;
    }
    const Ext *x = &p->ext[f->at];
    a->load = lp_convert_loop(have, want);
    a->narrow = (int8_t)(pw->narrows >> i & 1 ? (int)pw->narrow : -1);
    a->as_is = have == want && a->narrow < 0;
    a->src = x->linear && !x->constant && a->as_is ? SRC_MEM : SRC_GATHER;
    if (a->src == SRC_GATHER)
        a->buf = (int16_t)take_buf(g, k, k);
}

/* A node that reads another wants it in the type in which it is held. */
static bool chain_ok(const LpFusedReq *r, const Plan *p, int k,
                     const LpPwNode *pw)
{
    for (int i = 0; i < pw->n_in; i++) {
        const LpFusedArg *f = &r->node[k].in[(int)pw->operand[i]];
        if (f->from == LP_FUSED_NODE && p->node[f->at].held != pw->in[i])
            return false;
        if (f->from == LP_FUSED_EXT &&
            !lp_convert_loop(r->ext[f->at].dtype, pw->in[i]))
            return false;
    }
    return !pw->divides;
}

/* Its result is one of its operands' values, which all are of its type. */
static bool is_exact(const LpFusedNode *f, const LpDtype types[LP_PW_MAX_IN])
{
    bool exact = f->op->flags & LP_OPF_EXACT && !f->site;
    for (int i = 0; i < f->n_in; i++)
        exact &= f->in[i].from != LP_FUSED_IMM && types[i] == f->dtype;
    return exact;
}

/* Node k, which is its operand at most rounded: does it lie where that does,
 * which it is the last to read? The one before it then writes what memory k
 * writes. */
static bool takes_over(const LpFusedReq *r, Plan *p, Regs *g, int k)
{
    const LpFusedArg *f = &r->node[k].in[0];
    Node *d = &p->node[k], *before = d - 1;
    if (f->from != LP_FUSED_NODE || f->at != k - 1 || last_use(r, k - 1) != k ||
        before->to >= 0)
        return false;
    before->to = d->to;
    d->buf = before->buf;
    if (d->to < 0)
        g->busy_until[d->buf] = last_use(r, k);
    return true;
}

static LpStatus plan_node(const LpFusedReq *r, Plan *p, Regs *g, int k,
                          LpErr *e)
{
    const LpFusedNode *f = &r->node[k];
    LpPwNode pw;
    LpDtype types[LP_PW_MAX_IN];
    Node *d = &p->node[k];
    resolve(r, f, &pw, types);
    LP_FAIL_IF(!chain_ok(r, p, k, &pw), e, LP_E_NOT_IMPLEMENTED,
               "%s cannot be part of a fused chain here", f->op->name);
    d->loop = pw.loop;
    memcpy(d->p, pw.p, sizeof d->p);
    d->n_in = pw.n_in;
    d->out = (int8_t)f->out;
    d->splat_ok = pw.splat_ok;
    d->held = pw.out;
    d->stored = f->dtype;
    d->site = f->site;
    for (int i = 0; i < pw.n_in; i++)
        plan_arg(r, p, g, k, i, &pw, types);
    d->to = (int8_t)(f->out >= 0 && d->held == d->stored ? f->out : -1);
    d->stores = f->out >= 0 && d->to < 0;
    d->exact = d->held == d->stored || is_exact(f, types);
    bool over = !d->loop && takes_over(r, p, g, k);
    if (!over && d->to < 0)
        d->buf = (int16_t)take_buf(g, k, last_use(r, k));
    d->read = last_use(r, k) > k;
    d->load = lp_convert_loop(d->stored, d->held);
    if (d->stores)
        d->store = lp_convert_loop(d->held, d->stored);
    return LP_OK;
}

LpStatus lp_fused_prepare(const LpFusedReq *r, LpKernel *k, LpErr *e)
{
    LP_TRY(lp_kernel_state("a fused chain", sizeof(Plan), run, k, e));
    Plan *p = k->state;
    Regs g = {.n = 0};
    p->n_node = r->n_node;
    p->n_ext = r->n_ext;
    p->n_out = r->n_out;
    p->n = lp_elements(r->out[0].shape, r->out[0].ndim);
    for (int i = 0; i < r->n_out; i++)
        p->out_size[i] = (uint8_t)lp_dtype_size(r->out[i].dtype);
    set_geometry(r, p);
    if (r->blocks) {
        p->plane = r->out[0].shape[2] * r->out[0].shape[3];
        p->lanes = r->out[0].shape[4];
    }
    LpStatus s = LP_OK;
    for (int i = 0; i < r->n_node && s == LP_OK; i++)
        s = plan_node(r, p, &g, i, e);
    if (s != LP_OK) {
        k->fini(k);
        return s;
    }
    p->n_buf = g.n;
    p->block = g.n ? CACHE / (g.n * 8) / 64 * 64 : MOST;
    p->block = p->block > MOST ? MOST : p->block < LEAST ? LEAST : p->block;
    k->threads = p->n >= WORK_MIN && r->threads > 1 ? r->threads : 1;
    k->work_bytes = (size_t)k->threads * (size_t)g.n * (size_t)p->block * 8;
    return LP_OK;
}

/* Sums, means and maxima of rows by index, a bag of them each, and the adjoint
 * of sums and means. Bags are split over threads; the adjoint's additions are
 * split by columns, so each element is summed in the order of the indices
 * whatever the width. Half types are computed in float32. */
#include <string.h>

#include "src/base/checked.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/bagloops.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/hooks.h"
#include "src/kernel/state.h"

#define PARALLEL (1 << 16) /* elements */

enum { DENSE, INDEX, OFFSETS, FACTORS }; /* operands */

typedef struct Bags {
    LpDesc in[4], out[2]; /* LP_DT_NONE: there is none */
    LpDtype type;         /* computed in */
    LpBags bags;          /* but for the pointers */
    bool last;
    int threads;
} Bags;

static const LpBagLoops *loops(void)
{
    return LP_SIMD_PICK(lp_bags);
}

/* ---- the run ------------------------------------------------------------- */
static bool as_it_lies(const LpDesc *d, LpDtype t)
{
    return d->dtype == t && lp_desc_contiguous(d);
}

/* Operand i in type t, in order: as it lies, or a copy at *work. */
static const void *plain(const Bags *s, int i, const void *p, LpDtype t,
                         char **work)
{
    const LpDesc *d = &s->in[i];
    if (as_it_lies(d, t))
        return p;
    LpDesc to = lp_desc_plain(d, t);
    void *copy = *work;
    *work += (size_t)lp_desc_numel(d) * sizeof(double);
    lp_copy_strided(d, p, &to, copy);
    return copy;
}

static LpStatus check(const LpBags *r, LpErr *e)
{
    for (int64_t j = 0; j < r->n; j++)
        LP_FAIL_IF(r->index[j] < 0 || r->index[j] >= r->rows, e, LP_E_INDEX,
                   "embedding_bag: index %lld is out of bounds for a weight of "
                   "%lld rows (at position %lld; indices count from 0)",
                   (long long)r->index[j], (long long)r->rows, (long long)j);
    for (int64_t b = 0; b < r->bags; b++)
        LP_FAIL_IF(r->begin[b] > r->begin[b + 1] || r->begin[b] < 0 ||
                       r->begin[b + 1] > r->n,
                   e, LP_E_RUNTIME,
                   "embedding_bag: offsets have to ascend from 0 to at most "
                   "the number of indices, %lld; there is %lld before %lld",
                   (long long)r->n, (long long)r->begin[b],
                   (long long)r->begin[b + 1]);
    return LP_OK;
}

typedef void (*BagsFn)(const LpBags *s, int64_t from, int64_t to);

/* Threads take `all` bags or columns in parts of `least` at least. */
static void split(const Bags *s, const LpBags *r, BagsFn fn, int64_t all,
                  int64_t least)
{
    int threads = r->n * r->width < PARALLEL ? 1 : s->threads;
    int64_t part = (all + threads - 1) / threads;
    part = part < least ? least : part;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        int64_t from = t * part, to = lp_min(all, from + part);
        if (from < to)
            fn(r, from, to);
    }
}

/* work: where bags begin, copies of operands, those of results */
static LpStatus run_bags(const Bags *s, void *const *in, void *const *out,
                         void *work, BagsFn fn, bool by_column, LpErr *e)
{
    int64_t *begin = work;
    LpBags r = s->bags;
    char *rest = (char *)(begin + r.bags + 2);
    r.begin = begin;
    r.index = plain(s, INDEX, in[INDEX], LP_I64, &rest);
    const int64_t *offsets = plain(s, OFFSETS, in[OFFSETS], LP_I64, &rest);
    for (int64_t b = 0; b < r.bags + s->last; b++)
        begin[b] = offsets[b];
    if (!s->last)
        begin[r.bags] = r.n;
    LP_TRY(check(&r, e));
    r.from = plain(s, DENSE, in[DENSE], s->type, &rest);
    if (s->in[FACTORS].dtype != LP_DT_NONE)
        r.factor = plain(s, FACTORS, in[FACTORS], s->type, &rest);
    bool lies = as_it_lies(&s->out[0], s->type);
    bool places = s->out[1].dtype != LP_DT_NONE;
    bool kept = places && as_it_lies(&s->out[1], LP_I64);
    r.to = lies ? out[0] : rest;
    rest += lies ? 0 : (size_t)lp_desc_numel(&s->out[0]) * sizeof(double);
    r.place = kept ? out[1] : (int64_t *)(void *)rest;
    split(s, &r, fn, by_column ? r.width : r.bags, by_column ? 16 : 1);
    LpDesc from = lp_desc_plain(&s->out[0], s->type);
    if (!lies)
        lp_copy_strided(&from, r.to, &s->out[0], out[0]);
    from.dtype = LP_I64;
    if (places && !kept)
        lp_copy_strided(&from, r.place, &s->out[1], out[1]);
    return LP_OK;
}

#define RUN(id, by_column)                                                     \
    LP_KERNEL_RUN(run_##id)                                                    \
    {                                                                          \
        const Bags *s = k->state;                                              \
        const LpBagLoops *l = loops();                                         \
        return run_bags(s, in, out, work,                                      \
                        s->type == LP_F64 ? l->f64.id : l->f32.id, by_column,  \
                        e);                                                    \
    }
RUN(sum, false)
RUN(max, false)
RUN(add, true)

static LpStatus prepare(const LpKernelReq *r, LpKernelRun run, int64_t rows,
                        LpKernel *k, LpErr *e)
{
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Bags), run, k, e));
    Bags *s = k->state;
    size_t copies = 0;
    s->in[FACTORS].dtype = s->out[1].dtype = LP_DT_NONE;
    bool max = run == run_max;
    memcpy(s->in, r->in, (size_t)r->n_in * sizeof *s->in);
    memcpy(s->out, r->out, (max ? 2 : 1) * sizeof *s->out);
    s->type = r->in[DENSE].dtype == LP_F64 ? LP_F64 : LP_F32;
    s->last = r->attr[LP_BAG_INCLUDE_LAST_OFFSET].i != 0;
    s->bags.mean = !max && r->attr[LP_BAG_MEAN].i != 0;
    s->bags.padding = r->attr[LP_BAG_PADDING_IDX].kind == LP_ATTR_NONE
                          ? -1
                          : r->attr[LP_BAG_PADDING_IDX].i;
    s->bags.n = lp_desc_numel(&r->in[INDEX]);
    s->bags.bags = r->in[OFFSETS].shape[0] - s->last;
    s->bags.rows = rows;
    s->bags.width = r->in[DENSE].shape[1];
    s->threads = r->threads;
    for (int i = 0; i < r->n_in; i++)
        if (r->in[i].dtype != LP_DT_NONE &&
            !as_it_lies(&r->in[i],
                        i == INDEX || i == OFFSETS ? LP_I64 : s->type))
            copies += (size_t)lp_desc_numel(&r->in[i]);
    for (int i = 0; i < 2 && s->out[i].dtype != LP_DT_NONE; i++)
        if (!as_it_lies(&s->out[i], i == 0 ? s->type : LP_I64))
            copies += (size_t)lp_desc_numel(&s->out[0]) * (size_t)(1 + i);
    k->work_bytes = ((size_t)s->bags.bags + 2 + copies) * sizeof(int64_t);
    return LP_OK;
}

LP_PREPARE_AS(lp_bag_sum_prepare,
              prepare(r, run_sum, r->in[DENSE].shape[0], k, e))
LP_PREPARE_AS(lp_bag_max_prepare,
              prepare(r, run_max, r->in[DENSE].shape[0], k, e))
LP_PREPARE_AS(lp_bag_backward_prepare,
              prepare(r, run_add, r->attr[LP_BAG_NUM_WEIGHTS].i, k, e))

/* What waits is told from the graph: slices and selections, and what they are
 * reshaped to, by the node that made them, sorted and laid side by side with
 * zeros in the gaps; products by their operands, which are joined along the
 * depth. */
#include "src/autodiff/pending_grads.h"

#include <stdlib.h>

#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/ops/rules.h"

typedef struct Piece {
    int64_t start, end;
    LpVal v;
    bool select; /* v lacks the dimension */
} Piece;

/* The node that makes `v` if it is `op` outside all regions. */
static const LpGraphNode *made_by(const LpGraph *g, LpVal v, int op)
{
    const LpGraphNode *n = lp_graph_maker(g, v);
    return n && !n->region && n->op->id == op && !lp_is_imm(n->in[0]) ? n
                                                                      : NULL;
}

/* The node that makes the slice that d is, perhaps reshaped; or NULL. */
static const LpGraphNode *slice_of(const LpGraph *g, LpVal d)
{
    const LpGraphNode *shaped = made_by(g, d, LP_OP_reshape);
    LpVal v = shaped ? shaped->in[0] : d;
    const LpGraphNode *slice = made_by(g, v, LP_OP_slice_backward);
    if (slice && slice->attr[LP_SLICE_BACK_STEP].i == 1)
        return slice;
    return made_by(g, v, LP_OP_select_backward);
}

/* What a transposition reads. */
static LpVal transposed(const LpGraph *g, LpVal v)
{
    const LpGraphNode *n = made_by(g, v, LP_OP_permute);
    return n && n->attr[LP_PERMUTE_DIMS].n == 2 &&
                   n->attr[LP_PERMUTE_DIMS].v[0] == 1
               ? n->in[0]
               : LP_NOVAL;
}

/* The product that `d` is, or that it is the transpose of. */
static const LpGraphNode *product(const LpGraph *g, LpVal d, bool *turned)
{
    LpVal t = transposed(g, d);
    *turned = t != LP_NOVAL;
    return made_by(g, *turned ? t : d, LP_OP_mm);
}

/* Does a sum move more memory than joining the operands: three times the
 * result against two times them? */
static bool pays(const LpGraph *g, const LpGraphNode *mm)
{
    const LpType *a = lp_graph_type(g, mm->in[0]);
    const LpType *b = lp_graph_type(g, mm->in[1]);
    double m = (double)a->shape[0], k = (double)a->shape[1];
    double n = (double)b->shape[1];
    return 3 * m * n > 2 * k * (m + n);
}

static LpPendingKind kind_of(const LpGraph *g, LpVal d)
{
    bool turned;
    if (slice_of(g, d))
        return LP_PENDING_SLICES;
    const LpGraphNode *mm = product(g, d, &turned);
    return mm && transposed(g, mm->in[0]) != LP_NOVAL && pays(g, mm)
               ? LP_PENDING_PRODUCTS
               : LP_PENDING_NONE;
}

bool lp_pending_fit(const LpPendingGrads *p, const LpGraph *g, LpVal d)
{
    LpPendingKind kind = kind_of(g, d);
    if (kind == LP_PENDING_NONE || (p->n && kind != p->kind))
        return false;
    if (p->n == 0 || kind == LP_PENDING_SLICES)
        return true;
    bool a, b;
    const LpGraphNode *x = product(g, d, &a), *y = product(g, p->v[0], &b);
    return a == b && lp_origin_same_location(&g->origin[x->origin],
                                             &g->origin[y->origin]);
}

LpStatus lp_pending_add(LpPendingGrads *p, const LpGraph *g, LpVal d, LpErr *e)
{
    LP_FAIL_IF(!LP_GROW(p->v, p->cap, p->n), e, LP_E_MEMORY, "out of memory");
    p->kind = kind_of(g, d);
    p->v[p->n++] = d;
    return LP_OK;
}

void lp_pending_fini(LpPendingGrads *p)
{
    lp_free(p->v);
    *p = (LpPendingGrads){0};
}

static int by_start(const void *x, const void *y)
{
    const Piece *a = x, *b = y;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

static Piece read_piece(const LpGraphNode *n)
{
    bool select = n->op->id == LP_OP_select_backward;
    int64_t start =
        n->attr[select ? LP_SELECT_BACK_INDEX : LP_SLICE_BACK_START].i;
    return (Piece){.start = start,
                   .end = select ? start + 1 : n->attr[LP_SLICE_BACK_END].i,
                   .v = n->in[0],
                   .select = select};
}

/* Reads the pieces, sorts them; how many there are, or -1 unless they are of
 * one dimension of one shape and none overlaps another. Empty ones add nothing:
 * they are left out, since they may lie anywhere, within others too. */
static int lay_out(const LpPendingGrads *p, const LpGraph *g, Piece *piece)
{
    int k = 0;
    const LpGraphNode *first = slice_of(g, p->v[0]);
    for (size_t i = 0; i < p->n; i++) {
        const LpGraphNode *n = slice_of(g, p->v[i]);
        if (n->attr[LP_SLICE_BACK_DIM].i != first->attr[LP_SLICE_BACK_DIM].i ||
            !lp_shape_eq(lp_graph_type(g, n->out),
                         lp_graph_type(g, first->out)))
            return -1;
        piece[k] = read_piece(n);
        if (piece[k].start < piece[k].end)
            k++;
    }
    qsort(piece, (size_t)k, sizeof *piece, by_start);
    for (int i = 1; i < k; i++)
        if (piece[i].start < piece[i - 1].end)
            return -1;
    return k;
}

/* The pieces in their order with zeros between, in list[]; how many. */
static int list_parts(LpBuilder *b, const Piece *piece, int n,
                      const LpType *whole, int dim, LpVal *list)
{
    int k = 0;
    int64_t at = 0;
    for (int i = 0; i <= n && !lp_failed(b); i++) {
        LpType gap = *whole;
        int64_t start = i < n ? piece[i].start : whole->shape[dim];
        gap.shape[dim] = start - at;
        if (start > at)
            list[k++] = lp_full(b, &gap, lp_float(0));
        if (i == n)
            break;
        list[k++] =
            piece[i].select ? lp_unsqueeze(b, piece[i].v, dim) : piece[i].v;
        at = piece[i].end;
    }
    return k;
}

static LpVal add(LpBuilder *b, LpVal sum, LpVal d)
{
    if (lp_failed(b))
        return LP_NOVAL;
    return sum == LP_NOVAL ? d : lp_add(b, sum, d);
}

/* Of n pieces laid out; of none, the first given, which is all zeros. */
static LpVal join_slices(const LpPendingGrads *p, const LpGraph *g,
                         LpBuilder *b, const Piece *piece, int n, LpVal *list)
{
    if (n == 0)
        return p->v[0];
    const LpGraphNode *first = slice_of(g, p->v[0]);
    LpType whole = *lp_graph_type(g, first->out);
    LpType all = *lp_graph_type(g, p->v[0]);
    int dim = (int)first->attr[LP_SLICE_BACK_DIM].i;
    int k = list_parts(b, piece, n, &whole, dim, list);
    LpVal joined = lp_failed(b) ? LP_NOVAL : lp_cat(b, list, k, dim);
    return lp_failed(b) || lp_shape_eq(&all, &whole)
               ? joined
               : lp_reshape(b, joined, all.shape, all.ndim);
}

static LpVal join_products(const LpPendingGrads *p, const LpGraph *g,
                           LpBuilder *b, LpVal *list)
{
    bool turned;
    for (size_t i = 0; i < p->n; i++)
        list[i] = transposed(g, product(g, p->v[i], &turned)->in[0]);
    LpVal left = lp_cat(b, list, (int)p->n, 0);
    for (size_t i = 0; i < p->n; i++)
        list[i] = product(g, p->v[i], &turned)->in[1];
    if (lp_failed(b))
        return LP_NOVAL;
    LpVal right = lp_cat(b, list, (int)p->n, 0);
    if (lp_failed(b))
        return LP_NOVAL;
    LpVal sum = lp_op2(b, LP_OP_mm, lp_transpose(b, left, 0, 1), right);
    return turned && !lp_failed(b) ? lp_transpose(b, sum, 0, 1) : sum;
}

LpVal lp_pending_sum(LpPendingGrads *p, LpVal sum, const LpGraph *g,
                     LpBuilder *b)
{
    Piece *piece = lp_alloc(p->n * sizeof *piece);
    LpVal *list = lp_alloc((2 * p->n + 1) * sizeof *list);
    int n;
    if (!piece || !list)
        lp_fail(b->err, LP_E_MEMORY, "out of memory");
    else if (p->n > 1 && p->kind == LP_PENDING_PRODUCTS)
        sum = add(b, sum, join_products(p, g, b, list));
    else if (p->n > 1 && (n = lay_out(p, g, piece)) >= 0)
        sum = add(b, sum, join_slices(p, g, b, piece, n, list));
    else
        for (size_t i = 0; i < p->n; i++)
            sum = add(b, sum, p->v[i]);
    lp_free(piece);
    lp_free(list);
    p->n = 0;
    return lp_failed(b) ? LP_NOVAL : sum;
}

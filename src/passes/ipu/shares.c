/* What operators have for themselves: a proportion of a tile's memory
 * (set_available_memory), and what the settings of a multi-convolution give
 * its convolutions; in the bodies of loops and branches as in the micro graph.
 *
 * The convolutions of one multi-convolution are those with its number
 * (src/passes/multi_conv.h). Its gradients to the inputs run as one as well,
 * and those to the weights.
 *
 * In parallel every convolution has tiles of its own, and the longest is what
 * they take together. Each gets RESERVED tiles at least, else as few as keep it
 * within a limit: what the longest would take with all that the others leave,
 * and BACK_OFF of that for each of the others (the words of PopLibs' options of
 * multi-convolutions; how it goes on is not said). As long as there are not
 * enough tiles the limit grows by a tenth. */
#include "src/passes/ipu/ipu.h"

#include <stdlib.h>
#include <string.h>

#include "src/kernel/attrs.h"
#include "src/ops/ops.h"
#include "src/passes/multi_conv.h"

/* ---- available memory ---------------------------------------------------- */
/* A marker means the product, convolution or look-up that made its operand, or
 * the nearest within two nodes (PopTorch, set_available_memory). */
static void find_markers(const LpGraph *g, LpShare *share)
{
    for (LpNodeId n = 0; n < g->n_node; n++) {
        if (g->node[n].op->id != LP_OP_set_available_memory)
            continue;
        LpVal v = g->node[n].in[0];
        for (int up = 0; up <= 2 && lp_is_value(v); up++) {
            LpNodeId m = g->value[v].node;
            if (m == LP_NO_NODE)
                break;
            if (g->node[m].op->flags & LP_OPF_PLANNED) {
                share[m].proportion =
                    g->node[n].attr[LP_SET_AVAILABLE_MEMORY_PROPORTION].f;
                break;
            }
            v = g->node[m].n_in ? g->node[m].in[0] : LP_NOVAL;
        }
    }
}

/* ---- settings of a multi-convolution ------------------------------------- */
static LpStatus settle(const LpMultiConv *s, uint32_t k, LpShare *share,
                       LpErr *e)
{
    const char *proportion = lp_multi_conv_element(s->proportions, k);
    const char *partials = lp_multi_conv_element(s->partials, k);
    share->dithers = *lp_multi_conv_element(s->dithering, k) == '1';
    if (*proportion)
        share->proportion = strtod(proportion, NULL);
    if (*partials)
        share->partials = strncmp(partials, "half", 4) == 0 ? LP_F16 : LP_F32;
    LP_FAIL_IF(
        *proportion && !(share->proportion >= 0 && share->proportion <= 1), e,
        LP_E_VALUE, "multi_conv: expected proportions in [0, 1], got %g",
        share->proportion);
    return LP_OK;
}

/* ---- groups -------------------------------------------------------------- */
/* The convolutions of one kind of one multi-convolution on one stage. */
typedef struct Group {
    LpIpuPlan *p;
    const LpGraph *g;
    const int *stage; /* of the nodes of g; NULL: of a body, which has one */
    LpShare *share;   /* likewise */
    LpMultiConv s;
    LpNodeId *node;
    uint32_t n;
} Group;

static long number_of(const LpGraph *g, LpNodeId n)
{
    return lp_node_multi_conv(lp_origin_of(g, n), &g->node[n]);
}

static bool same_group(const Group *x, LpNodeId a, LpNodeId b)
{
    const LpGraph *g = x->g;
    return number_of(g, a) == number_of(g, b) &&
           g->node[a].op->product == g->node[b].op->product &&
           lp_origin_of(g, a)->backward == lp_origin_of(g, b)->backward &&
           (!x->stage || x->stage[a] == x->stage[b]);
}

/* Which convolution of its scope, from 0, each member of the group is. */
static void number(const Group *x, uint32_t *nr)
{
    for (uint32_t i = 0; i < x->n; i++)
        nr[i] = lp_multi_conv_index(x->g, x->node[i], i);
}

static LpStatus independent(const Group *x)
{
    const LpGraph *g = x->g;
    for (uint32_t i = 0; i + 1 < x->n; i++) {
        bool *from = lp_ipu_scratch(x->p, g->n_value, sizeof *from);
        LP_TRY(x->p->err->code);
        from[g->node[x->node[i]].out] = true;
        for (LpNodeId n = x->node[i] + 1; n <= x->node[x->n - 1]; n++) {
            bool reads = false;
            const LpGraphNode *d = &g->node[n];
            for (uint32_t k = 0; k < d->n_in; k++)
                reads |= lp_is_value(d->in[k]) && from[d->in[k]];
            for (uint32_t k = 0; k < d->n_out; k++)
                from[d->out + k] = reads;
            LP_FAIL_IF(reads && same_group(x, n, x->node[i]), x->p->err,
                       LP_E_POPTORCH,
                       "MultiConv: the convolution at %s:%d needs the result "
                       "of the one at %s:%d; those of a scope must not depend "
                       "on each other",
                       lp_origin_of(g, n)->file, (int)lp_origin_of(g, n)->line,
                       lp_origin_of(g, x->node[i])->file,
                       (int)lp_origin_of(g, x->node[i])->line);
        }
    }
    return LP_OK;
}

/* ---- tiles --------------------------------------------------------------- */
static LpStatus cycles(const Group *x, uint32_t i, int tiles, int64_t *cyc)
{
    LpCost c;
    LpShare s = x->share[x->node[i]];
    s.tiles = tiles;
    LP_TRY(lp_ipu_node_cost(x->p, x->g, x->node[i], &s, LP_PASS_NONE, &c));
    *cyc = lp_cost_cyc(&c);
    return LP_OK;
}

/* As few tiles of at most `most` as keep member i within the limit. */
static LpStatus fewest(const Group *x, uint32_t i, int least, int most,
                       double limit, int *tiles)
{
    int64_t cyc;
    while (least < most) {
        int half = least + (most - least) / 2;
        LP_TRY(cycles(x, i, half, &cyc));
        if ((double)cyc <= limit)
            most = half;
        else
            least = half + 1;
    }
    *tiles = most;
    return LP_OK;
}

/* Tiles with which no member takes longer than the limit; their sum. */
static LpStatus within(const Group *x, double limit, int least, int *sum)
{
    *sum = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        int *tiles = &x->share[x->node[i]].tiles;
        LP_TRY(fewest(x, i, least, lp_ipu_tiles(x->p), limit, tiles));
        *sum += *tiles;
    }
    return LP_OK;
}

/* The one that takes longest gets the tiles that are left; the others run
 * beside it. */
static LpStatus longest(Group *x, int left)
{
    int64_t cyc, most = -1;
    uint32_t slow = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        LpShare *s = &x->share[x->node[i]];
        LP_TRY(cycles(x, i, s->tiles, &cyc));
        s->beside = true;
        if (cyc > most) {
            most = cyc;
            slow = i;
        }
    }
    x->share[x->node[slow]].tiles += left;
    x->share[x->node[slow]].beside = false;
    return LP_OK;
}

static LpStatus share_out(Group *x)
{
    int all = lp_ipu_tiles(x->p), n = (int)x->n, sum;
    int least = x->s.reserved < all / n ? (int)x->s.reserved : all / n;
    int64_t cyc, quickest = 0;
    least = least > 1 ? least : 1;
    for (uint32_t i = 0; i < x->n; i++) {
        LP_TRY(cycles(x, i, all - least * (n - 1), &cyc));
        quickest = cyc > quickest ? cyc : quickest;
    }
    double limit = (double)quickest * (1 + x->s.back_off * (n - 1));
    LP_TRY(within(x, limit, least, &sum));
    while (sum > all) {
        limit *= 1.1;
        LP_TRY(within(x, limit, least, &sum));
    }
    return longest(x, all - sum);
}

/* ---- all of them --------------------------------------------------------- */
static LpStatus group_of(Group *x, LpNodeId first, bool *done)
{
    uint32_t *nr = lp_ipu_scratch(x->p, x->g->n_node, sizeof *nr);
    LP_TRY(x->p->err->code);
    x->n = 0;
    for (LpNodeId n = first; n < x->g->n_node; n++)
        if (same_group(x, first, n)) {
            done[n] = true;
            x->node[x->n++] = n;
        }
    /* what was set last is what holds; backward nodes are in opposite order */
    const LpOrigin *o = lp_origin_of(x->g, first);
    if (!o->backward)
        o = lp_origin_of(x->g, x->node[x->n - 1]);
    LP_TRY(lp_multi_conv_read(o->multi_conv, &x->s, x->p->err));
    number(x, nr);
    for (uint32_t i = 0; i < x->n; i++)
        LP_TRY(settle(&x->s, nr[i], &x->share[x->node[i]], x->p->err));
    LP_TRY(independent(x));
    bool fits = x->n > 1 && x->n <= (uint32_t)lp_ipu_tiles(x->p);
    return x->s.parallel && fits ? share_out(x) : LP_OK;
}

static LpStatus multi_convs(Group *x)
{
    size_t n = x->g->n_node;
    bool *done = lp_ipu_scratch(x->p, n, sizeof *done);
    x->node = lp_ipu_scratch(x->p, n, sizeof *x->node);
    LP_TRY(x->p->err->code);
    for (LpNodeId i = 0; i < n; i++)
        if (!done[i] && number_of(x->g, i) >= 0)
            LP_TRY(group_of(x, i, done));
    return LP_OK;
}

/* What products and convolutions that are alone have for themselves. */
static LpStatus alone(const Group *x)
{
    for (LpNodeId n = 0; n < x->g->n_node; n++) {
        const char *text = lp_origin_of(x->g, n)->multi_conv;
        LpMultiConv s;
        if (!*text || x->g->node[n].op->product == LP_PRODUCT_NONE)
            continue;
        LP_TRY(lp_multi_conv_read(text, &s, x->p->err));
        if (lp_multi_conv_alone(&s, &x->g->node[n]))
            LP_TRY(settle(&s, 0, &x->share[n], x->p->err));
    }
    return LP_OK;
}

/* Everything that the nodes' texts say. */
static LpStatus settings_of(Group *x)
{
    bool any = false;
    find_markers(x->g, x->share);
    for (size_t i = 1; i < x->g->n_origin && !any; i++)
        any = *x->g->origin[i].multi_conv != '\0';
    if (!any)
        return LP_OK;
    LP_TRY(alone(x));
    return multi_convs(x);
}

static LpShare of_ipu(double proportion)
{
    return (LpShare){.proportion = proportion, .partials = LP_DT_NONE};
}

LpShare *lp_ipu_body_shares(LpIpuPlan *p, const LpGraph *body,
                            double proportion)
{
    Group x = {.p = p, .g = body};
    x.share = lp_ipu_scratch(p, body->n_node, sizeof *x.share);
    if (p->err->code != LP_OK)
        return NULL;
    for (LpNodeId n = 0; n < body->n_node; n++)
        x.share[n] = of_ipu(proportion);
    return settings_of(&x) == LP_OK ? x.share : NULL;
}

LpStatus lp_ipu_shares(LpIpuPlan *p)
{
    Group x = {.p = p, .g = p->step->micro, .stage = p->node_stage};
    x.share = p->share = lp_ipu_space(p, x.g->n_node, sizeof *p->share);
    LP_TRY(p->err->code);
    for (LpNodeId n = 0; n < x.g->n_node; n++)
        x.share[n] = of_ipu(p->o.proportion[p->stage[x.stage[n]].ipu]);
    return settings_of(&x);
}

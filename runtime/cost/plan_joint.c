/* Plans of the three passes of a fully connected layer that share one split:
 * each weight is used by one tile in all passes, so that weights are never
 * sent and their gradient is made where they lie. Columns and input channels
 * change places in the gradient of the input, input and output channels in
 * the gradient of the weights; the batch is not split. Source: PL
 * poplin/ConvModel (addBwdEstimates, addWuEstimates) and poplin/ConvPlan
 * (createPlan): the layer takes them where they cost less than three plans of
 * their own. */
#include "runtime/cost/plan.h"

typedef struct Joint {
    const LpCostCtx *x;
    Conv pass[3]; /* forward, gradient of the input, of the weights */
    LpPlan *best; /* of the three */
    int64_t cost;
    bool fits;
} Joint;

static void try_split(Joint *q, int64_t groups, int64_t in, int64_t cols)
{
    LpSplit s[3] = {{groups, 1, 1, cols, in, 1, 1, 1, 1},
                    {groups, 1, 1, in, cols, 1, 1, 1, 1},
                    {groups, 1, 1, cols, 1, in, 1, 1, 1}};
    LpPlan p[3];
    int64_t cost = 0;
    bool fits = true;
    for (int i = 0; i < 3; i++) {
        plan_eval(q->x, &q->pass[i], &s[i], NULL, &p[i]);
        cost += plan_weighed(&p[i]);
        fits = fits && p[i].fits;
    }
    if (!fits || (q->fits && cost >= q->cost))
        return;
    q->fits = true;
    q->cost = cost;
    for (int i = 0; i < 3; i++)
        q->best[i] = p[i];
}

static void search(Joint *q, int64_t grain)
{
    int64_t tiles = ctx_tiles(q->x), most = lp_min(q->pass[0].groups, tiles);
    int64_t in = div_up(q->pass[0].in, grain);
    int64_t cols = div_up(q->pass[0].cols, grain);
    for (int64_t g = div_up(most, 2); g <= most;
         g = next_split(q->pass[0].groups, g))
        for (int64_t i = 1; i <= lp_min(in, tiles / g); i = next_split(in, i))
            for (int64_t j = 1; j <= lp_min(cols, tiles / g / i);
                 j = next_split(cols, j))
                try_split(q, g, i, j);
}

static Conv pass_of(Conv c, LpConvPass pass, int64_t cols, int64_t in,
                    int64_t out)
{
    c.pass = pass;
    c.cols = c.in_cols = cols;
    c.in = in;
    c.out = out;
    return c;
}

/* The methods of the passes: the gradient of the weights has the unit where
 * its results are of groups, and an outer product where the batch is one. */
static void set_methods(Joint *q, LpConvMethod method, int64_t batch)
{
    for (int i = 0; i < 3; i++) {
        Conv *c = &q->pass[i];
        c->method = method;
        if (i != LP_PASS_WU - LP_PASS_FWD || method == LP_CONV_AMP)
            continue;
        c->method = batch == 1 ? LP_CONV_OUTER : LP_CONV_AMP;
        if (batch == 1)
            c->partials = c->out_type;
    }
}

static void try_groups(Joint *q, Conv c, LpConvMethod method)
{
    int64_t k = c.in, n = c.cols, b = c.out;
    bool amp = method == LP_CONV_AMP;
    c.col_grain = c.in_group;
    q->pass[0] = pass_of(c, LP_PASS_FWD, n, k, b);
    q->pass[1] = pass_of(c, LP_PASS_BWD, k, n, b);
    q->pass[2] = pass_of(c, LP_PASS_WU, n, b, k);
    set_methods(q, method, b);
    Conv *wu = &q->pass[2];
    int full = q->x->chip->amp[amp_mode(c.type, c.partials)].in_group;
    wu->in_group = amp ? c.out_group : full;
    wu->out_group = amp || b == 1 ? c.in_group : plan_most_group(q->x, &c);
    if (wu->method == LP_CONV_AMP && b <= full && wu->in_group == full)
        wu->partials = c.out_type; /* one group of inputs is a whole sum */
    search(q, c.in_group);
}

/* c: the forward pass, its columns the outputs, its output channels the
 * batch. */
bool plan_joint(const LpCostCtx *x, Conv c, LpPlan best[3], int64_t *cost)
{
    const LpAmp *a = &x->chip->amp[amp_mode(c.type, c.partials)];
    Joint q = {.x = x, .best = best};
    c.joint = true;
    for (c.in_group = a->in_group; c.in_group >= 8; c.in_group /= 2)
        for (c.out_group = plan_most_group(x, &c);
             c.out_group >= plan_least_group(x, &c); c.out_group /= 2)
            if (c.in_group % lp_min(a->units, c.out_group) == 0)
                try_groups(&q, c, LP_CONV_AMP);
    c.out_group = 1;
    for (c.in_group = a->units; c.in_group <= 8 * a->units;
         c.in_group += a->units)
        try_groups(&q, c, LP_CONV_HMAC);
    *cost = q.cost;
    return q.fits;
}

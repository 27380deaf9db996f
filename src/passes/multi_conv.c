/* See multi_conv.h. */
#include "src/passes/multi_conv.h"

#include <stdlib.h>
#include <string.h>

#include "src/passes/pass.h"

/* ---- settings ------------------------------------------------------------ */
static const char *after_blank(const char *s)
{
    s = strchr(s, ' ');
    return s ? s + 1 : "";
}

static bool begins(const char *s, const char *word)
{
    return strncmp(s, word, strlen(word)) == 0;
}

LpStatus lp_multi_conv_read(const char *text, LpMultiConv *s, LpErr *e)
{
    const char *plan = after_blank(text), *reserved = after_blank(plan);
    const char *back_off = after_blank(reserved);
    s->parallel = begins(plan, "parallel ");
    s->alone = begins(plan, "alone ");
    s->convolutions = begins(plan, "convolutions ");
    s->reserved = strtol(reserved, NULL, 10);
    s->back_off = strtod(back_off, NULL);
    s->proportions = after_blank(back_off);
    s->partials = after_blank(s->proportions);
    s->dithering = after_blank(s->partials);
    bool fine =
        s->parallel || s->alone || s->convolutions || begins(plan, "serial ");
    LP_FAIL_IF(!fine || s->reserved < 0 ||
                   !(s->back_off >= 0 && s->back_off <= 1) || !s->partials[0],
               e, LP_E_VALUE,
               "multi_conv: expected \"NUMBER "
               "parallel|serial|alone|convolutions RESERVED_TILES BACK_OFF "
               "PROPORTIONS PARTIALS DITHERING\", got \"%s\"",
               text);
    return LP_OK;
}

bool lp_multi_conv_alone(const LpMultiConv *s, const LpGraphNode *n)
{
    return s->alone || (s->convolutions && n->op->product >= LP_PRODUCT_CONV);
}

const char *lp_multi_conv_element(const char *list, uint32_t k)
{
    size_t n = strcspn(list, " ");
    const char *at = list;
    if (n == 1 && *list == '-')
        return "";
    for (const char *comma; k > 0; k--, at = comma + 1) {
        comma = memchr(at, ',', n - (size_t)(at - list));
        if (!comma)
            return at == list ? at : "";
    }
    return at;
}

/* ---- members ------------------------------------------------------------- */
static long number_of(const LpGraph *g, LpNodeId n)
{
    return lp_node_multi_conv(&g->origin[g->node[n].origin], &g->node[n]);
}

static bool is_backward(const LpGraph *g, LpNodeId n)
{
    return g->origin[g->node[n].origin].backward;
}

/* Does the gradient node b belong to the convolution f? The gradient to the
 * input reads its weights, the one to the weights its input. */
static bool is_gradient_of(const LpGraph *g, LpNodeId b, LpNodeId f)
{
    bool of_input = g->node[b].op->product == LP_PRODUCT_CONV_INPUT;
    return g->node[b].in[1] == g->node[f].in[of_input ? 1 : 0] &&
           lp_type_eq(lp_graph_type(g, g->node[b].in[0]),
                      lp_graph_type(g, g->node[f].out));
}

uint32_t lp_multi_conv_index(const LpGraph *g, LpNodeId own, uint32_t otherwise)
{
    bool backward = is_backward(g, own);
    uint32_t k = 0, found = otherwise;
    for (LpNodeId f = 0; f < own; f++) {
        if (number_of(g, f) != number_of(g, own) || is_backward(g, f))
            continue;
        if (backward && is_gradient_of(g, own, f))
            found = k;
        k++;
    }
    return backward ? found : k;
}

/* ---- partials ------------------------------------------------------------ */
/* What was set last in a multi-convolution's scope is what holds. */
static const char *text_of(const LpGraph *g, LpNodeId id)
{
    const char *text = g->origin[g->node[id].origin].multi_conv;
    long own = number_of(g, id);
    for (LpNodeId f = 0; f < g->n_node && own >= 0; f++)
        if (number_of(g, f) == own && !is_backward(g, f))
            text = g->origin[g->node[f].origin].multi_conv;
    return text;
}

static LpStatus decide(LpGraph *g, LpNodeId id, bool half, LpErr *e)
{
    LpGraphNode *n = &g->node[id];
    const char *text = text_of(g, id), *own = "";
    LpMultiConv s;
    if (!lp_node_sums_halves(g, n))
        return LP_OK;
    n->half_partials = half;
    if (!*text || !n->op->product)
        return LP_OK;
    LP_TRY(lp_multi_conv_read(text, &s, e));
    if (lp_multi_conv_alone(&s, n))
        own = lp_multi_conv_element(s.partials, 0);
    else if (number_of(g, id) >= 0)
        own = lp_multi_conv_element(s.partials, lp_multi_conv_index(g, id, 0));
    if (*own)
        n->half_partials = begins(own, "half");
    return LP_OK;
}

static LpStatus set(LpGraph **g, void *half, LpErr *e)
{
    for (LpNodeId id = 0; *g && id < (*g)->n_node; id++)
        LP_TRY(decide(*g, id, *(const bool *)half, e));
    return *g ? lp_in_bodies(*g, set, half, e) : LP_OK;
}

LpStatus lp_set_partials(LpGraph *g, bool half, LpErr *e)
{
    return set(&g, &half, e);
}

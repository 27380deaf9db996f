/* Parts are appended to arrays and never move in number; strings are interned;
 * what nodes point to lies in the arena. */
#include "src/ir/graph.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/hash.h"
#include "src/base/random.h"

LpGraph *lp_graph_new(void)
{
    static const LpType none = {.dtype = LP_DT_NONE};
    LpGraph *g = lp_calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->refs = 1;
    if (LP_GROW(g->value, g->cap_value, 0) &&
        LP_GROW(g->origin, g->cap_origin, 0) &&
        LP_GROW(g->region, g->cap_region, 0)) {
        g->value[0] = (LpValue){.type = &none, .node = LP_NO_NODE};
        g->origin[0] = (LpOrigin){0};
        g->region[0] = (LpRegion){0};
        g->n_value = g->n_origin = g->n_region = 1;
        return g;
    }
    lp_graph_free(g);
    return NULL;
}

static void keep_bodies(const LpAttr *attr, int n)
{
    for (int i = 0; i < n; i++)
        if (attr[i].kind == LP_ATTR_GRAPH)
            ((LpGraph *)(uintptr_t)attr[i].graph)->refs++;
}

static void drop_bodies(const LpAttr *attr, int n)
{
    for (int i = 0; i < n; i++)
        if (attr[i].kind == LP_ATTR_GRAPH)
            lp_graph_free(attr[i].graph);
}

void lp_graph_free(const LpGraph *counted)
{
    LpGraph *g = (LpGraph *)(uintptr_t)counted;
    if (!g || --g->refs > 0)
        return;
    for (size_t i = 0; i < g->n_node; i++)
        drop_bodies(g->node[i].attr, g->node[i].op->n_attr);
    for (size_t i = 1; i < g->n_region; i++)
        drop_bodies(g->region[i].attr, g->region[i].op->n_attr);
    lp_arena_fini(&g->arena);
    lp_free(g->node);
    lp_free(g->value);
    lp_free(g->imm);
    lp_free(g->origin);
    lp_free(g->region);
    lp_free(g->input);
    lp_free(g->output);
    lp_free(g->str);
    lp_map_fini(&g->str_at);
    lp_free(g);
}

static LpVal no_memory(LpErr *e)
{
    lp_no_memory(e);
    return LP_NOVAL;
}

/* ---- strings ------------------------------------------------------------ */
const char *lp_graph_intern(LpGraph *g, const char *s, LpErr *e)
{
    uint64_t h = lp_hash_str(LP_HASH_START, s);
    for (const uint32_t *at = lp_map_first(&g->str_at, h); at;
         at = lp_map_next(&g->str_at, at))
        if (strcmp(g->str[*at], s) == 0)
            return g->str[*at];
    const char *own = lp_arena_strdup(&g->arena, s);
    if (!own || !LP_GROW(g->str, g->cap_str, g->n_str) ||
        !lp_map_add(&g->str_at, h, (uint32_t)g->n_str)) {
        no_memory(e);
        return NULL;
    }
    return g->str[g->n_str++] = own;
}

/* ---- parts -------------------------------------------------------------- */
static LpVal add_value(LpGraph *g, const LpType *type, LpNodeId node,
                       uint32_t nr, LpErr *e)
{
    if (!LP_GROW(g->value, g->cap_value, g->n_value))
        return no_memory(e);
    LpType *t = lp_arena_memdup(&g->arena, type, sizeof *type);
    if (!t)
        return no_memory(e);
    t->wrapped = false;
    g->value[g->n_value] = (LpValue){.type = t, .node = node, .nr = nr};
    return (LpVal)g->n_value++;
}

LpVal lp_graph_input(LpGraph *g, const LpType *type, const char *name, LpErr *e)
{
    if (!LP_GROW(g->input, g->cap_input, g->n_input))
        return no_memory(e);
    LpVal v = add_value(g, type, LP_NO_NODE, (uint32_t)g->n_input, e);
    if (v == LP_NOVAL)
        return v;
    g->input[g->n_input++] = v;
    g->value[v].name = name ? lp_graph_intern(g, name, e) : NULL;
    return v;
}

bool lp_graph_output(LpGraph *g, LpVal v, LpErr *e)
{
    if (!LP_GROW(g->output, g->cap_output, g->n_output)) {
        no_memory(e);
        return false;
    }
    g->output[g->n_output++] = v;
    return true;
}

LpVal lp_graph_imm(LpGraph *g, LpScalar s, LpErr *e)
{
    if (!LP_GROW(g->imm, g->cap_imm, g->n_imm))
        return no_memory(e);
    g->imm[g->n_imm] = s;
    return (LpVal)g->n_imm++ | LP_VAL_IMM;
}

LpOriginId lp_graph_origin(LpGraph *g, const LpOrigin *o, LpErr *e)
{
    LpOrigin c = *o;
    c.block = lp_graph_intern(g, o->block ? o->block : "", e);
    c.scope = lp_graph_intern(g, o->scope ? o->scope : "", e);
    c.file = lp_graph_intern(g, o->file ? o->file : "", e);
    c.multi_conv = lp_graph_intern(g, o->multi_conv ? o->multi_conv : "", e);
    c.outline = lp_graph_intern(g, o->outline ? o->outline : "", e);
    if (!c.block || !c.scope || !c.file || !c.multi_conv || !c.outline)
        return 0;
    size_t back = g->n_origin > 16 ? g->n_origin - 16 : 1;
    for (size_t i = g->n_origin; i-- > back;)
        if (g->origin[i].entered == c.entered &&
            lp_origin_same(&g->origin[i], &c))
            return (LpOriginId)i;
    if (!LP_GROW(g->origin, g->cap_origin, g->n_origin))
        return no_memory(e);
    g->origin[g->n_origin] = c;
    return (LpOriginId)g->n_origin++;
}

static const LpAttr *copy_attr(LpGraph *g, const LpAttr *attr, int n)
{
    LpAttr *a = lp_arena_memdup(&g->arena, attr, (size_t)n * sizeof *a);
    for (int i = 0; a && i < n; i++) {
        if (a[i].kind == LP_ATTR_INTS) {
            a[i].v = lp_arena_memdup(&g->arena, a[i].v,
                                     (size_t)a[i].n * sizeof *a[i].v);
            if (!a[i].v)
                return NULL;
        } else if (a[i].kind == LP_ATTR_STR) {
            a[i].str = lp_graph_intern(g, a[i].str, NULL);
            if (!a[i].str)
                return NULL;
        }
    }
    return a;
}

uint32_t lp_graph_region(LpGraph *g, const LpRegion *r, LpErr *e)
{
    LpRegion c = *r;
    if (!LP_GROW(g->region, g->cap_region, g->n_region))
        return no_memory(e);
    c.attr = copy_attr(g, r->attr, r->op->n_attr);
    c.in = lp_arena_memdup(&g->arena, r->in, c.n_in * sizeof *c.in);
    c.out = lp_arena_memdup(&g->arena, r->out, c.n_out * sizeof *c.out);
    if (!c.attr || !c.in || !c.out)
        return no_memory(e);
    keep_bodies(c.attr, c.op->n_attr);
    g->region[g->n_region] = c;
    return (uint32_t)g->n_region++;
}

LpVal lp_graph_add(LpGraph *g, const LpGraphNode *like, const LpType *out,
                   LpErr *e)
{
    LpGraphNode n = *like;
    if (!LP_GROW(g->node, g->cap_node, g->n_node))
        return no_memory(e);
    n.attr = copy_attr(g, like->attr, like->op->n_attr);
    n.in = lp_arena_memdup(&g->arena, like->in, n.n_in * sizeof *n.in);
    if (!n.attr || !n.in)
        return no_memory(e);
    LpNodeId id = (LpNodeId)g->n_node;
    n.out = (LpVal)g->n_value;
    for (uint32_t i = 0; i < n.n_out; i++)
        if (add_value(g, &out[i], id, i, e) == LP_NOVAL) {
            g->n_value = n.out;
            return LP_NOVAL;
        }
    keep_bodies(n.attr, n.op->n_attr);
    g->node[g->n_node++] = n;
    return n.out;
}

LpType lp_graph_operand_type(const LpGraph *g, LpVal v)
{
    if (v & LP_VAL_IMM)
        return *lp_number_type(lp_graph_scalar(g, v).kind);
    return *g->value[v].type;
}

void lp_graph_operands(const LpGraph *g, const LpVal *in, size_t n, LpType *t,
                       LpScalar num[LP_MAX_IN])
{
    for (size_t i = 0; i < n; i++) {
        t[i] = lp_graph_operand_type(g, in[i]);
        if (i < LP_MAX_IN && lp_is_imm(in[i]))
            num[i] = lp_graph_scalar(g, in[i]);
    }
}

/* Texts of a graph are there once, so that their addresses tell them apart. */
bool lp_graph_add_name(LpGraph *g, LpVal v, const char *name, LpErr *e)
{
    LpName n = {.text = lp_graph_intern(g, name, e)}, **last;
    if (!n.text)
        return false;
    if (!g->value[v].name)
        g->value[v].name = n.text;
    if (g->value[v].name == n.text)
        return true;
    for (last = &g->value[v].more; *last; last = &(*last)->next)
        if ((*last)->text == n.text)
            return true;
    *last = lp_arena_memdup(&g->arena, &n, sizeof n);
    if (!*last)
        no_memory(e);
    return *last;
}

bool lp_origin_same_stage(const LpOrigin *a, const LpOrigin *b)
{
    return a->stage == b->stage && a->ipu == b->ipu && a->phase == b->phase;
}

long lp_node_multi_conv(const LpOrigin *o, const LpGraphNode *n)
{
    const char *text = o->multi_conv;
    return n->op->product >= LP_PRODUCT_CONV && *text ? strtol(text, NULL, 10)
                                                      : -1;
}

bool lp_node_rounds(const LpGraph *g, const LpGraphNode *n)
{
    bool computes = false, half = false;
    int at = 0;
    if (n->op->flags & (LP_OPF_VIEW | LP_OPF_MARKER | LP_OPF_EXACT) ||
        lp_node_body(n, &at)) /* its nodes do */
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        computes |= n->in[i] != LP_NOVAL && !lp_is_imm(n->in[i]);
    for (uint32_t i = 0; i < n->n_out; i++)
        half |= lp_is_half(lp_graph_type(g, n->out + i)->dtype);
    return computes && half;
}

bool lp_node_sums_halves(const LpGraph *g, const LpGraphNode *n)
{
    bool sums = n->op->product || n->op->flags & LP_OPF_SUMS;
    return sums && lp_is_value(n->in[0]) && n->n_out == 1 &&
           lp_graph_type(g, n->in[0])->dtype == LP_F16 &&
           lp_graph_type(g, n->out)->dtype == LP_F16;
}

uint64_t lp_origin_location(const LpOrigin *o)
{
    const char *slash = strrchr(o->file, '/');
    const char *file = slash ? slash + 1 : o->file;
    uint64_t place = lp_mix64(lp_hash_str(1, o->scope));
    place = lp_mix64(lp_hash_str(place, file));
    return lp_mix64_pair(place, (uint64_t)o->line);
}

bool lp_origin_same_location(const LpOrigin *a, const LpOrigin *b)
{
    return a->block == b->block && lp_origin_same_stage(a, b) &&
           a->multi_conv == b->multi_conv && a->backward == b->backward &&
           a->update == b->update;
}

bool lp_origin_same(const LpOrigin *a, const LpOrigin *b)
{
    return lp_origin_same_location(a, b) && a->scope == b->scope &&
           a->outline == b->outline && a->file == b->file && a->line == b->line;
}

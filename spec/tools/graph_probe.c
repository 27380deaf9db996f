/* Graphs from the command line, for what specs cannot reach from Lua: faulty
 * graphs, operators with other flags than their own, shortage of memory.
 * Reads the text form, does what the arguments say in their order, prints the
 * text form, or "error CLASS" with the message and the context.
 *
 *   inline=OP      OP is no device operation from now on (regions)
 *   effect=OP      OP has an effect
 *   marker=OP      OP is a marker
 *   parse          reads the text; what follows needs it
 *   pass=NAME      runs a pass, then the verifier
 *   clone          goes on with a clone
 *   damage=KIND    spoils the graph in one way
 *   verify         runs the verifier
 *   starve[=lasting]  does parse, clone, all passes and print again and
 *                  again, the 1st, 2nd, … allocation failing (lasting: and
 *                  all after it), until none fails; prints the number of
 *                  failures, or what was wrong */
#include <stdio.h>
#include <string.h>

#include "src/ir/schema.h"
#include "src/ops/ops.h"
#include "src/passes/pass.h"

static char text[1 << 20];

/* ---- damage -------------------------------------------------------------- */
static LpGraphNode *last_node(LpGraph *g)
{
    return &g->node[g->n_node - 1];
}

static void set_operand(LpGraph *g, LpVal v)
{
    *(LpVal *)(uintptr_t)&last_node(g)->in[0] = v;
}

static LpType *last_type(LpGraph *g)
{
    return (LpType *)(uintptr_t)g->value[g->n_value - 1].type;
}

static LpAttr *last_attr(LpGraph *g)
{
    return (LpAttr *)(uintptr_t)last_node(g)->attr;
}

static bool damage_node(LpGraph *g, const char *kind)
{
    LpGraphNode *n = last_node(g);
    if (!strcmp(kind, "self"))
        set_operand(g, n->out);
    else if (!strcmp(kind, "range"))
        set_operand(g, (LpVal)g->n_value + 7);
    else if (!strcmp(kind, "number"))
        set_operand(g, (LpVal)g->n_imm | LP_VAL_IMM);
    else if (!strcmp(kind, "hole"))
        set_operand(g, LP_NOVAL);
    else if (!strcmp(kind, "count"))
        n->n_in = 0;
    else if (!strcmp(kind, "composite"))
        n->op = &op_ravel;
    else if (!strcmp(kind, "kind"))
        last_attr(g)->kind = LP_ATTR_FLOAT;
    else if (!strcmp(kind, "canonical"))
        *(int64_t *)(uintptr_t)last_attr(g)->v = -1;
    else if (!strcmp(kind, "origin"))
        n->origin = 0;
    else if (!strcmp(kind, "no_origin"))
        n->origin = 99;
    else if (!strcmp(kind, "region"))
        n->region = 99;
    else if (!strcmp(kind, "site"))
        n->site = 1;
    else if (!strcmp(kind, "results"))
        n->n_out = 0;
    else if (!strcmp(kind, "first"))
        n->out--;
    else
        return false;
    return true;
}

static bool damage_rest(LpGraph *g, const char *kind)
{
    LpValue *v = &g->value[g->n_value - 1];
    if (!strcmp(kind, "dtype"))
        last_type(g)->dtype = LP_F16;
    else if (!strcmp(kind, "no_dtype"))
        last_type(g)->dtype = LP_DT_NONE;
    else if (!strcmp(kind, "shape"))
        last_type(g)->shape[0]++;
    else if (!strcmp(kind, "ndim"))
        last_type(g)->ndim = 77;
    else if (!strcmp(kind, "owner"))
        v->node = 0;
    else if (!strcmp(kind, "nr"))
        v->nr = 5;
    else if (!strcmp(kind, "values"))
        g->n_value--;
    else if (!strcmp(kind, "output"))
        g->output[0] = (LpVal)g->n_value;
    else if (!strcmp(kind, "output_hole"))
        g->output[0] = LP_NOVAL;
    else if (!strcmp(kind, "input"))
        g->input[0] = g->node[0].out;
    else if (!strcmp(kind, "input_range"))
        g->input[0] = 1000;
    else if (!strcmp(kind, "region_op"))
        g->region[1].op = &op_neg;
    else if (!strcmp(kind, "region_in"))
        *(LpVal *)(uintptr_t)&g->region[1].in[0] = 1000;
    else if (!strcmp(kind, "region_out"))
        *(LpVal *)(uintptr_t)&g->region[1].out[0] = 1000;
    else if (!strcmp(kind, "region_young"))
        *(LpVal *)(uintptr_t)&g->region[1].in[0] = (LpVal)g->n_value - 1;
    else
        return false;
    return true;
}

/* ---- memory -------------------------------------------------------------- */
static LpStatus everything(LpErr *e)
{
    LpGraph *g, *copy = NULL;
    LP_TRY(lp_graph_parse(text, &g, e));
    copy = lp_graph_clone(g, e);
    lp_graph_free(g);
    if (!copy)
        return e->code;
    LpStatus st = lp_run_common_passes(&copy, e);
    char *s = st == LP_OK ? lp_graph_print(copy, e) : NULL;
    lp_free(s);
    lp_graph_free(copy);
    return e->code;
}

static int starve(bool lasting)
{
    int64_t before = lp_mem_live();
    for (uint64_t n = 1;; n++) {
        LpErr e = {0};
        lp_mem_fail_at(n, lasting);
        LpStatus st = everything(&e);
        lp_mem_fail_at(0, false);
        if (lp_mem_live() != before)
            return printf("leak after failure %llu\n", (unsigned long long)n);
        if (st == LP_OK)
            return printf("failures %llu\n", (unsigned long long)n - 1);
        if (st != LP_E_MEMORY)
            return printf("failure %llu: %s\n", (unsigned long long)n, e.msg);
    }
}

/* ---- arguments ----------------------------------------------------------- */
static LpOp *op_of(const char *name)
{
    const LpOp *op = lp_op_find(name);
    return op ? lp_ops[op->id] : NULL;
}

static bool change_op(const char *what, LpOp *op)
{
    if (!op)
        return false;
    if (!strcmp(what, "inline"))
        op->flags &= ~(uint32_t)LP_OPF_DEVICE;
    else if (!strcmp(what, "effect"))
        op->flags |= LP_OPF_EFFECT;
    else if (!strcmp(what, "marker"))
        op->flags |= LP_OPF_MARKER;
    else
        return false;
    return true;
}

static bool act(LpGraph **g, const char *what, const char *arg, LpErr *e)
{
    if (!strcmp(what, "parse")) {
        lp_graph_parse(text, g, e);
    } else if (!strcmp(what, "pass")) {
        lp_run_pass(arg, g, e);
    } else if (!strcmp(what, "verify")) {
        lp_graph_verify(*g, e);
    } else if (!strcmp(what, "clone")) {
        LpGraph *copy = lp_graph_clone(*g, e);
        lp_graph_free(*g);
        *g = copy;
    } else if (!strcmp(what, "damage")) {
        return damage_node(*g, arg) || damage_rest(*g, arg);
    } else if (!strcmp(what, "starve")) {
        starve(!strcmp(arg, "lasting"));
    } else {
        return change_op(what, op_of(arg));
    }
    return true;
}

int main(int argc, char **argv)
{
    LpGraph *g = NULL;
    LpErr e = {0};
    text[fread(text, 1, sizeof text - 1, stdin)] = '\0';
    lp_schema_init(&e);
    for (int i = 1; i < argc && e.code == LP_OK; i++) {
        char *arg = strchr(argv[i], '=');
        if (arg)
            *arg++ = '\0';
        if (!act(&g, argv[i], arg ? arg : "", &e)) {
            fprintf(stderr, "graph_probe: no such thing: %s\n", argv[i]);
            return 2;
        }
    }
    char *s = g && e.code == LP_OK ? lp_graph_print(g, &e) : NULL;
    if (e.code != LP_OK)
        printf("error %s\n%s\n%s\n", lp_status_class(e.code), e.msg, e.context);
    else if (s)
        fputs(s, stdout);
    lp_free(s);
    lp_graph_free(g);
    return 0;
}

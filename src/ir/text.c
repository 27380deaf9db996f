/* Text form of a graph, the printer. The parser is text_parse.c; what one
 * writes the other reads, and values keep their numbers.
 *
 *   graph    = "graph" ["differentiated"] ["host"] NL {line NL}
 *   line     = input | origin | node | region | output | empty
 *   input    = "input" value ":" type
 *   origin   = "origin" ("none" | {"block" STR | "stage" INT | "ipu" INT |
 *              "phase" INT | "multi_conv" STR | "outline" STR | "scope" STR |
 *              "file" STR | "line" INT | "backward" | "update"})
 *   node     = [value {"," value}] "=" WORD "(" [arg {"," arg}] ")"
 *              [":" type {"," type}] {"region" INT | "site" INT |
 *              "half_partials"}
 *   region   = "region" INT "=" WORD "(" [arg {"," arg}] ")"
 *              ["->" operand {"," operand}]
 *   output   = "output" operand {"," operand}
 *   value    = LABEL {STR}                     a label and the value's names
 *   arg      = operand | "[" [operand {"," operand}] "]" | WORD "=" attr
 *   operand  = LABEL | number | "_"
 *   attr     = "None" | number | "[" [INT {"," INT}] "]" | dtype | STR |
 *              "{" NL graph "}"
 *   type     = dtype "[" [INT {"," INT}] "]"
 *   number   = INT | FLOAT | "inf" | "-inf" | "nan" ["(" INT ")"] | "true" |
 *              "false"
 *
 * LABEL is % with letters, digits and _; it is defined once, above its uses.
 * INT is decimal or 0x…; a FLOAT has a point or an exponent; nan(0x…) gives
 * the bits. STR has the escapes \" \\ \n \t \r \xHH. # begins a comment.
 *
 * An origin line holds for the nodes below it, up to the next; what it leaves
 * out is not given. The arguments of a node are the operands, then attributes
 * by the names of the operator's first form; one that is left out has that
 * form's default. A list of operands stands in brackets. Types may be left
 * out on reading: the shape rule gives them, and refuses others. A graph in
 * braces is a body, with labels of its own. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/ir/text.h"

/* ---- pieces -------------------------------------------------------------- */
static void text_float(LpBuf *b, double f)
{
    char s[40];
    uint64_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(f)) {
        if (bits == 0x7ff8000000000000u)
            lp_buf_str(b, "nan");
        else
            lp_buf_fmt(b, "nan(0x%" PRIx64 ")", bits);
        return;
    }
    if (isinf(f)) {
        lp_buf_str(b, f < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(s, sizeof s, "%.*g", digits, f);
        if (strtod(s, NULL) == f)
            break;
    }
    lp_buf_str(b, s);
    if (!strpbrk(s, ".e"))
        lp_buf_str(b, ".0");
}

static void print_scalar(LpBuf *b, LpScalar s)
{
    if (s.kind == LP_KIND_FLOAT)
        text_float(b, s.f);
    else if (s.kind == LP_KIND_BOOL)
        lp_buf_str(b, s.i ? "true" : "false");
    else
        lp_buf_fmt(b, "%" PRId64, s.i);
}

static void text_ints(LpBuf *b, const int64_t *v, int n)
{
    lp_buf_str(b, "[");
    for (int i = 0; i < n; i++)
        lp_buf_fmt(b, "%s%" PRId64, i ? ", " : "", v[i]);
    lp_buf_str(b, "]");
}

void lp_text_string(LpBuf *b, const char *s)
{
    lp_buf_str(b, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            lp_buf_fmt(b, "\\%c", c);
        else if (c == '\n')
            lp_buf_str(b, "\\n");
        else if (c == '\t')
            lp_buf_str(b, "\\t");
        else if (c == '\r')
            lp_buf_str(b, "\\r");
        else if (c < 0x20 || c == 0x7f)
            lp_buf_fmt(b, "\\x%02x", c);
        else
            lp_buf_add(b, s, 1);
    }
    lp_buf_str(b, "\"");
}

/* Its lines are indented by two more than those around. */
static void print_body(LpBuf *b, const LpGraph *g)
{
    LpBuf lines = {0};
    lp_text_graph(&lines, g);
    char *s = lp_buf_take(&lines);
    if (!s)
        b->failed = true;
    lp_buf_str(b, "{\n");
    for (const char *p = s; p && *p;) {
        size_t n = strcspn(p, "\n") + 1;
        lp_buf_str(b, "  ");
        lp_buf_add(b, p, n);
        p += n;
    }
    lp_free(s);
    lp_buf_str(b, "}");
}

static void print_attr(LpBuf *b, const LpAttr *a)
{
    switch (a->kind) {
    case LP_ATTR_NONE:
        lp_buf_str(b, "None");
        break;
    case LP_ATTR_INT:
        lp_buf_fmt(b, "%" PRId64, a->i);
        break;
    case LP_ATTR_FLOAT:
        text_float(b, a->f);
        break;
    case LP_ATTR_BOOL:
        lp_buf_str(b, a->i ? "true" : "false");
        break;
    case LP_ATTR_INTS:
        text_ints(b, a->v, a->n);
        break;
    case LP_ATTR_SCALAR:
        print_scalar(b, a->s);
        break;
    case LP_ATTR_DTYPE:
        lp_buf_str(b, a->i >= 0 && a->i < LP_N_DTYPES
                          ? lp_dtype_name((LpDtype)a->i)
                          : "?");
        break;
    case LP_ATTR_STR:
        lp_text_string(b, a->str);
        break;
    case LP_ATTR_GRAPH:
        print_body(b, a->graph);
        break;
    }
}

void lp_text_type(LpBuf *b, const LpType *t)
{
    int n = t->ndim < 0 || t->ndim > LP_MAX_DIMS ? 0 : t->ndim;
    lp_buf_str(b, t->dtype < LP_N_DTYPES ? lp_dtype_name(t->dtype) : "?");
    text_ints(b, t->shape, n);
}

/* ---- calls --------------------------------------------------------------- */
static void text_operand(LpBuf *b, const LpGraph *g, LpVal v)
{
    if (v == LP_NOVAL)
        lp_buf_str(b, "_");
    else if (!lp_is_imm(v))
        lp_buf_fmt(b, "%%%" PRIu32, v);
    else if ((v & ~LP_VAL_IMM) < g->n_imm)
        print_scalar(b, lp_graph_scalar(g, v));
    else
        lp_buf_str(b, "?");
}

static void text_call(LpBuf *b, const LpGraph *g, const LpOp *op,
                      const LpVal *in, uint32_t n_in, const LpAttr *attr)
{
    const LpForm *f = lp_op_form(op);
    uint32_t list = op->has_list ? op->n_operands - 1u : UINT32_MAX;
    const char *sep = "";
    lp_buf_fmt(b, "%s(", op->name);
    for (uint32_t i = 0; i < n_in; i++) {
        lp_buf_fmt(b, "%s%s", i ? ", " : "", i == list ? "[" : "");
        text_operand(b, g, in[i]);
        sep = ", ";
    }
    if (op->has_list) {
        lp_buf_str(b, n_in > list ? "]" : n_in ? ", []" : "[]");
        sep = ", ";
    }
    for (int i = 0; i < f->n_args; i++) {
        const LpFormArg *a = &f->arg[i];
        if (lp_arg_is_operand(a->kind) ||
            (a->has_default && lp_attr_eq(&a->def, &attr[a->slot])))
            continue;
        lp_buf_fmt(b, "%s%s=", sep, a->name);
        print_attr(b, &attr[a->slot]);
        sep = ", ";
    }
    lp_buf_str(b, ")");
}

static void text_value(LpBuf *b, const LpGraph *g, LpVal v)
{
    lp_buf_fmt(b, "%%%" PRIu32, v);
    if (v >= g->n_value)
        return;
    const LpValue *x = &g->value[v];
    if (x->name) {
        lp_buf_str(b, " ");
        lp_text_string(b, x->name);
    }
    for (const LpName *n = x->more; n; n = n->next) {
        lp_buf_str(b, " ");
        lp_text_string(b, n->text);
    }
}

void lp_text_node(LpBuf *b, const LpGraph *g, LpNodeId id)
{
    const LpGraphNode *n = &g->node[id];
    for (uint32_t i = 0; i < n->n_out; i++) {
        lp_buf_str(b, i ? ", " : "");
        text_value(b, g, n->out + i);
    }
    lp_buf_str(b, n->n_out ? " = " : "= ");
    text_call(b, g, n->op, n->in, n->n_in, n->attr);
    for (uint32_t i = 0; i < n->n_out && n->out + i < g->n_value; i++) {
        lp_buf_str(b, i ? ", " : ": ");
        lp_text_type(b, g->value[n->out + i].type);
    }
    if (n->region)
        lp_buf_fmt(b, " region %" PRIu32, n->region);
    if (n->site)
        lp_buf_fmt(b, " site 0x%" PRIx64, n->site);
    if (n->half_partials)
        lp_buf_str(b, " half_partials");
}

/* ---- the graph ----------------------------------------------------------- */
static void text_key(LpBuf *b, const char *key, const char *s)
{
    if (!s[0])
        return;
    lp_buf_fmt(b, " %s ", key);
    lp_text_string(b, s);
}

static void text_number(LpBuf *b, const char *key, int32_t i, int32_t none)
{
    if (i != none)
        lp_buf_fmt(b, " %s %" PRId32, key, i);
}

static void text_origin(LpBuf *b, const LpOrigin *o)
{
    lp_buf_str(b, "origin");
    text_key(b, "block", o->block);
    text_number(b, "stage", o->stage, -1);
    text_number(b, "ipu", o->ipu, -1);
    text_number(b, "phase", o->phase, -1);
    text_key(b, "multi_conv", o->multi_conv);
    text_key(b, "outline", o->outline);
    text_key(b, "scope", o->scope);
    text_key(b, "file", o->file);
    text_number(b, "line", o->line, 0);
    lp_buf_fmt(b, "%s%s\n", o->backward ? " backward" : "",
               o->update ? " update" : "");
}

/* Writes the inputs that are older than value `before`. */
static void text_inputs(LpBuf *b, const LpGraph *g, size_t *next, LpVal before)
{
    for (; *next < g->n_input && g->input[*next] < before; ++*next) {
        LpVal v = g->input[*next];
        lp_buf_str(b, "input ");
        text_value(b, g, v);
        lp_buf_str(b, ": ");
        lp_text_type(b, lp_graph_type(g, v));
        lp_buf_str(b, "\n");
    }
}

static void text_values(LpBuf *b, const LpGraph *g, const LpVal *v, size_t n,
                        const char *lead)
{
    for (size_t i = 0; i < n; i++) {
        lp_buf_str(b, i ? ", " : lead);
        text_operand(b, g, v[i]);
    }
}

void lp_text_graph(LpBuf *b, const LpGraph *g)
{
    size_t input = 0;
    LpOriginId last = 0;
    lp_buf_fmt(b, "graph%s%s\n", g->differentiated ? " differentiated" : "",
               g->host ? " host" : "");
    for (LpNodeId i = 0; i < g->n_node; i++) {
        LpOriginId o = g->node[i].origin;
        text_inputs(b, g, &input, g->node[i].out);
        if (o != last && o == 0)
            lp_buf_str(b, "origin none\n");
        else if (o != last && (last == 0 || !lp_origin_same(&g->origin[o],
                                                            &g->origin[last])))
            text_origin(b, &g->origin[o]);
        last = o;
        lp_text_node(b, g, i);
        lp_buf_str(b, "\n");
    }
    text_inputs(b, g, &input, (LpVal)g->n_value);
    for (uint32_t i = 1; i < g->n_region; i++) {
        const LpRegion *r = &g->region[i];
        lp_buf_fmt(b, "region %" PRIu32 " = ", i);
        text_call(b, g, r->op, r->in, r->n_in, r->attr);
        text_values(b, g, r->out, r->n_out, " -> ");
        lp_buf_str(b, "\n");
    }
    text_values(b, g, g->output, g->n_output, "output ");
    lp_buf_str(b, g->n_output ? "\n" : "");
}

char *lp_text_take(LpBuf *b, LpErr *e)
{
    char *s = lp_buf_take(b);
    if (!s)
        lp_no_memory(e);
    return s;
}

char *lp_graph_print(const LpGraph *g, LpErr *e)
{
    LpBuf b = {0};
    lp_text_graph(&b, g);
    return lp_text_take(&b, e);
}

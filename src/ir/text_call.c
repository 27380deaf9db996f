/* Parts of the text form: labels, numbers, types, operands, attributes, calls
 * (grammar: text.c). Reads outside data. */
#include <string.h>

#include "src/base/hash.h"
#include "src/ir/text_parse.h"

/* A failure of a rule becomes one of the text at `at`. */
LpStatus lp_parse_located(LpParser *p, const LpToken *at, const LpErr *rule)
{
    if (rule->code == LP_E_MEMORY)
        return lp_no_memory(p->err);
    return lp_lex_fail(&p->x, at, "%s", rule->msg);
}

/* ---- labels -------------------------------------------------------------- */
static const LpLabel *find_label(const LpLabels *l, const char *name)
{
    uint64_t h = lp_hash_str(LP_HASH_START, name);
    for (const uint32_t *at = lp_map_first(&l->at, h); at;
         at = lp_map_next(&l->at, at))
        if (strcmp(l->label[*at].name, name) == 0)
            return &l->label[*at];
    return NULL;
}

void lp_labels_fini(LpLabels *l)
{
    lp_free(l->label);
    lp_map_fini(&l->at);
    *l = (LpLabels){0};
}

LpStatus lp_parse_define(LpParser *p, const LpToken *at, LpVal v)
{
    uint64_t h = lp_hash_str(LP_HASH_START, at->text);
    LpLabels *l = &p->labels;
    if (find_label(l, at->text))
        return lp_lex_fail(&p->x, at, "%%%s is defined twice", at->text);
    if (!LP_GROW(l->label, l->cap, l->n) ||
        !lp_map_add(&l->at, h, (uint32_t)l->n))
        return lp_no_memory(p->err);
    l->label[l->n++] = (LpLabel){.name = at->text, .value = v};
    return LP_OK;
}

static LpStatus resolve(LpParser *p, const LpLabels *among, LpVal *v)
{
    const LpToken *t = &p->x.t;
    const LpLabel *l = find_label(among, t->text);
    if (!l)
        return lp_lex_fail(&p->x, t, "%%%s is not defined above", t->text);
    *v = l->value;
    return LP_OK;
}

/* ---- small parts --------------------------------------------------------- */
static LpStatus next(LpParser *p)
{
    return lp_lex_next(&p->x);
}

bool lp_parse_at_word(const LpParser *p, const char *w)
{
    return p->x.t.kind == LP_TOK_WORD && strcmp(p->x.t.text, w) == 0;
}

bool lp_parse_at_line_end(const LpParser *p)
{
    return p->x.t.kind == LP_TOK_LINE || p->x.t.kind == LP_TOK_END;
}

LpStatus lp_parse_line_end(LpParser *p)
{
    if (!lp_parse_at_line_end(p))
        return lp_lex_expected(&p->x, "the end of the line");
    return p->x.t.kind == LP_TOK_LINE ? next(p) : LP_OK;
}

LpStatus lp_parse_label(LpParser *p, const LpLabels *l, LpVal *v)
{
    if (p->x.t.kind != LP_TOK_LABEL)
        return lp_lex_expected(&p->x, "a value such as %3");
    LP_TRY(resolve(p, l, v));
    return next(p);
}

LpStatus lp_parse_sign(LpParser *p, char c)
{
    char what[4] = {'\'', c, '\'', '\0'};
    if (!lp_lex_sign(&p->x, c))
        return lp_lex_expected(&p->x, what);
    return next(p);
}

LpStatus lp_parse_int(LpParser *p, int64_t min, int64_t max, int64_t *out)
{
    const LpToken *t = &p->x.t;
    if (t->kind != LP_TOK_NUMBER || t->number.kind != LP_KIND_INT)
        return lp_lex_expected(&p->x, "an integer");
    if (t->number.i < min || t->number.i > max)
        return lp_lex_fail(&p->x, t, "%lld is outside %lld..%lld",
                           (long long)t->number.i, (long long)min,
                           (long long)max);
    *out = t->number.i;
    return next(p);
}

LpStatus lp_parse_string(LpParser *p, const char **out)
{
    if (p->x.t.kind != LP_TOK_STRING)
        return lp_lex_expected(&p->x, "a string");
    *out = p->x.t.text;
    return next(p);
}

/* "[1, 2]" of at most `max` integers into v. */
static LpStatus integers(LpParser *p, int64_t *v, int max, int *n)
{
    *n = 0;
    LP_TRY(lp_parse_sign(p, '['));
    while (!lp_lex_sign(&p->x, ']')) {
        if (*n > 0)
            LP_TRY(lp_parse_sign(p, ','));
        if (*n == max)
            return lp_lex_fail(&p->x, &p->x.t,
                               "a list has at most %d elements here", max);
        LP_TRY(lp_parse_int(p, INT64_MIN, INT64_MAX, &v[*n]));
        ++*n;
    }
    return next(p);
}

static LpStatus dtype(LpParser *p, LpDtype *t)
{
    *t = p->x.t.kind == LP_TOK_WORD ? lp_dtype_find(p->x.t.text) : LP_DT_NONE;
    if (*t == LP_DT_NONE)
        return lp_lex_expected(&p->x, "a type such as float32");
    return next(p);
}

LpStatus lp_parse_type(LpParser *p, LpType *t)
{
    LpErr rule = {0};
    LpToken at = p->x.t;
    int n = 0;
    *t = (LpType){.dtype = LP_DT_NONE};
    LP_TRY(dtype(p, &t->dtype));
    LP_TRY(integers(p, t->shape, LP_MAX_DIMS, &n));
    t->ndim = (int8_t)n;
    if (lp_shape_check(t, &rule) != LP_OK)
        return lp_parse_located(p, &at, &rule);
    return LP_OK;
}

static bool number(const LpParser *p, LpScalar *s)
{
    if (p->x.t.kind == LP_TOK_NUMBER)
        *s = p->x.t.number;
    else if (lp_parse_at_word(p, "true") || lp_parse_at_word(p, "false"))
        *s = lp_boolean(lp_parse_at_word(p, "true"));
    else
        return false;
    return true;
}

LpStatus lp_parse_operand(LpParser *p, LpVal *v)
{
    LpScalar s;
    if (p->x.t.kind == LP_TOK_LABEL) {
        LP_TRY(resolve(p, &p->labels, v));
    } else if (lp_parse_at_word(p, "_")) {
        *v = LP_NOVAL;
    } else if (number(p, &s)) {
        *v = lp_graph_imm(p->g, s, p->err);
        if (*v == LP_NOVAL)
            return lp_no_memory(p->err);
    } else {
        return lp_lex_expected(&p->x, "a value, a number or _");
    }
    return next(p);
}

/* ---- attributes ---------------------------------------------------------- */
static LpStatus attr_ints(LpParser *p, LpAttr *a)
{
    int n;
    LP_TRY(integers(p, p->ints, LP_MAX_INTS, &n));
    int64_t *v = lp_arena_memdup(&p->scratch, p->ints, (size_t)n * sizeof *v);
    if (!v)
        return lp_no_memory(p->err);
    *a = lp_attr_ints(v, n);
    return LP_OK;
}

/* "{", a graph, "}": by a parser of its own that goes on with the lexer. */
static LpStatus attr_body(LpParser *p, LpAttr *a)
{
    static const char *const stop[] = {NULL};
    LpGraph *g;
    if (p->depth == LP_MAX_DEPTH)
        return lp_lex_fail(&p->x, &p->x.t, "more than %d bodies in each other",
                           LP_MAX_DEPTH);
    LP_TRY(lp_parse_sign(p, '{'));
    LP_TRY(lp_parse_line_end(p));
    LpParser *q = lp_calloc(1, sizeof *q);
    if (!q)
        return lp_no_memory(p->err);
    q->x = p->x;
    q->err = p->err;
    q->depth = p->depth + 1;
    LpStatus st = lp_parse_graph(q, stop, &g);
    p->x = q->x;
    lp_parser_free(q);
    LP_TRY(st);
    p->body[p->n_body++] = g;
    *a = lp_attr_graph(g);
    return lp_parse_sign(p, '}');
}

static LpStatus attr_number(LpParser *p, LpArgKind kind, LpAttr *a)
{
    LpScalar s;
    if (!number(p, &s))
        return lp_lex_expected(&p->x, "a number");
    bool fits = kind == LP_ARG_SCALAR ||
                (kind == LP_ARG_BOOL  ? s.kind == LP_KIND_BOOL
                 : kind == LP_ARG_INT ? s.kind == LP_KIND_INT
                                      : s.kind != LP_KIND_BOOL);
    if (!fits)
        return lp_lex_expected(&p->x, kind == LP_ARG_BOOL  ? "true or false"
                                      : kind == LP_ARG_INT ? "an integer"
                                                           : "a number");
    *a = kind == LP_ARG_SCALAR ? lp_attr_scalar(s)
         : kind == LP_ARG_BOOL ? lp_attr_bool(s.i != 0)
         : kind == LP_ARG_INT  ? lp_attr_int(s.i)
                               : lp_attr_float(lp_scalar_f(s));
    return next(p);
}

static LpStatus attr_value(LpParser *p, const LpFormArg *arg, LpAttr *a)
{
    LpDtype t;
    const char *s = NULL;
    if (lp_parse_at_word(p, "None")) {
        if (!arg->optional)
            return lp_lex_fail(&p->x, &p->x.t, "%s may not be None", arg->name);
        *a = LP_NONE_ATTR;
        return next(p);
    }
    switch (arg->kind) {
    case LP_ARG_INTS:
        return attr_ints(p, a);
    case LP_ARG_GRAPH:
        return attr_body(p, a);
    case LP_ARG_STR:
        LP_TRY(lp_parse_string(p, &s));
        *a = lp_attr_str(s);
        return LP_OK;
    case LP_ARG_DTYPE:
        LP_TRY(dtype(p, &t));
        *a = lp_attr_dtype(t);
        return LP_OK;
    default:
        return attr_number(p, arg->kind, a);
    }
}

static LpStatus attribute(LpParser *p, LpParsedCall *c, const LpToken *name)
{
    const LpForm *f = lp_op_form(c->op);
    for (int i = 0; i < f->n_args; i++) {
        const LpFormArg *a = &f->arg[i];
        if (lp_arg_is_operand(a->kind) || strcmp(a->name, name->text) != 0)
            continue;
        if (c->given[a->slot])
            return lp_lex_fail(&p->x, name, "%s is given twice", name->text);
        c->given[a->slot] = true;
        return attr_value(p, a, &c->attr[a->slot]);
    }
    return lp_lex_fail(&p->x, name,
                       "%s has no attribute '%s'; its signature is %s",
                       c->op->name, name->text, f->text);
}

static LpStatus fill_defaults(LpParser *p, LpParsedCall *c)
{
    const LpForm *f = lp_op_form(c->op);
    for (int i = 0; i < f->n_args; i++) {
        const LpFormArg *a = &f->arg[i];
        if (lp_arg_is_operand(a->kind) || c->given[a->slot])
            continue;
        if (!a->has_default)
            return lp_lex_fail(&p->x, &c->at, "%s needs the attribute '%s'",
                               c->op->name, a->name);
        c->attr[a->slot] = a->def;
    }
    return LP_OK;
}

/* ---- calls --------------------------------------------------------------- */
static LpStatus add_operand(LpParser *p, LpParsedCall *c)
{
    if (c->list)
        return lp_lex_fail(&p->x, &p->x.t, "the list is the last operand of %s",
                           c->op->name);
    if (c->n_in == LP_MAX_LIST)
        return lp_lex_fail(&p->x, &p->x.t, "more than %d operands",
                           LP_MAX_LIST);
    return lp_parse_operand(p, &p->in[c->n_in++]);
}

static LpStatus operand_list(LpParser *p, LpParsedCall *c)
{
    if (!c->op->has_list || c->list || c->n_in != c->op->n_operands - 1)
        return lp_lex_fail(&p->x, &p->x.t,
                           "%s has no list here; its "
                           "signature is %s",
                           c->op->name, lp_op_form(c->op)->text);
    LP_TRY(next(p));
    for (int i = 0; !lp_lex_sign(&p->x, ']'); i++) {
        if (i > 0)
            LP_TRY(lp_parse_sign(p, ','));
        LP_TRY(add_operand(p, c));
    }
    c->list = true;
    return next(p);
}

/* WORD "=": true and past both. */
static LpStatus attribute_name(LpParser *p, LpToken *name, bool *is)
{
    LpLexer back = p->x;
    *name = p->x.t;
    *is = false;
    if (name->kind != LP_TOK_WORD)
        return LP_OK;
    LP_TRY(next(p));
    if (!lp_lex_sign(&p->x, '=')) {
        p->x = back;
        return LP_OK;
    }
    *is = true;
    return next(p);
}

static LpStatus arguments(LpParser *p, LpParsedCall *c)
{
    LpToken name;
    bool is;
    LP_TRY(lp_parse_sign(p, '('));
    for (int i = 0; !lp_lex_sign(&p->x, ')'); i++) {
        if (i > 0)
            LP_TRY(lp_parse_sign(p, ','));
        LP_TRY(attribute_name(p, &name, &is));
        if (is)
            LP_TRY(attribute(p, c, &name));
        else if (lp_lex_sign(&p->x, '['))
            LP_TRY(operand_list(p, c));
        else
            LP_TRY(add_operand(p, c));
    }
    LP_TRY(next(p));
    if (c->op->has_list && !c->list)
        return lp_lex_fail(&p->x, &c->at, "%s needs a list of operands",
                           c->op->name);
    return fill_defaults(p, c);
}

LpStatus lp_parse_call(LpParser *p, LpParsedCall *c)
{
    *c = (LpParsedCall){.at = p->x.t};
    if (p->x.t.kind != LP_TOK_WORD)
        return lp_lex_expected(&p->x, "an operator");
    c->op = lp_op_find(p->x.t.text);
    if (!c->op)
        return lp_lex_fail(&p->x, &c->at, "there is no operator '%s'",
                           p->x.t.text);
    LP_TRY(next(p));
    return arguments(p, c);
}

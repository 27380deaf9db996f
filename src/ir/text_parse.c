/* Text form of a graph, the parser (grammar: text.c). The text is outside
 * data: every number is checked, every label resolved, every node goes
 * through its shape rule, so what comes out has consistent types. Whether it
 * is also a legal graph (origins, regions) is for lp_graph_verify.
 *
 * One token ahead, a line at a time. Labels are found by hashing; memory is
 * proportional to the text. */
#include <string.h>

#include "src/ir/text_parse.h"

#define MAX_TEXT ((size_t)1 << 30) /* keeps every count below 2^31 */

static LpStatus next(LpParser *p)
{
    return lp_lex_next(&p->x);
}

/* LABEL {STR} */
static LpStatus value(LpParser *p)
{
    const char *s;
    if (p->x.t.kind != LP_TOK_LABEL)
        return lp_lex_expected(&p->x, "a value such as %3");
    if (p->n_result == LP_MAX_LIST)
        return lp_lex_fail(&p->x, &p->x.t, "more than %d results", LP_MAX_LIST);
    p->result[p->n_result] = p->x.t;
    LP_TRY(next(p));
    while (p->x.t.kind == LP_TOK_STRING) {
        if (p->n_name == LP_MAX_LIST)
            return lp_lex_fail(&p->x, &p->x.t, "more than %d names",
                               LP_MAX_LIST);
        LP_TRY(lp_parse_string(p, &s));
        p->name[p->n_name] = s;
        p->name_of[p->n_name++] = p->n_result;
    }
    p->n_result++;
    return LP_OK;
}

/* Up to = or : */
static LpStatus values(LpParser *p)
{
    p->n_result = p->n_name = 0;
    while (!lp_lex_sign(&p->x, '=') && !lp_lex_sign(&p->x, ':')) {
        if (p->n_result > 0)
            LP_TRY(lp_parse_sign(p, ','));
        LP_TRY(value(p));
    }
    return LP_OK;
}

static LpStatus define_all(LpParser *p, LpVal first)
{
    for (int i = 0; i < p->n_result; i++)
        LP_TRY(lp_parse_define(p, &p->result[i], first + (LpVal)i));
    for (int i = 0; i < p->n_name; i++)
        if (!lp_graph_add_name(p->g, first + (LpVal)p->name_of[i], p->name[i],
                               p->err))
            return lp_no_memory(p->err);
    return LP_OK;
}

static LpStatus input_line(LpParser *p)
{
    LpType t;
    LP_TRY(next(p));
    LP_TRY(values(p));
    if (p->n_result != 1)
        return lp_lex_expected(&p->x, "one value");
    LP_TRY(lp_parse_sign(p, ':'));
    LP_TRY(lp_parse_type(p, &t));
    LpVal v = lp_graph_input(p->g, &t, NULL, p->err);
    if (v == LP_NOVAL)
        return lp_no_memory(p->err);
    return define_all(p, v);
}

static LpStatus origin_part(LpParser *p, LpOrigin *o)
{
    struct {
        const char *key, **s;
    } str[] = {{"block", &o->block},
               {"scope", &o->scope},
               {"file", &o->file},
               {"multi_conv", &o->multi_conv},
               {"outline", &o->outline}};
    struct {
        const char *key;
        int32_t *i;
    } num[] = {{"stage", &o->stage},
               {"ipu", &o->ipu},
               {"phase", &o->phase},
               {"line", &o->line}};
    for (int i = 0; i < 5; i++)
        if (lp_parse_at_word(p, str[i].key)) {
            LP_TRY(next(p));
            return lp_parse_string(p, str[i].s);
        }
    for (int i = 0; i < 4; i++)
        if (lp_parse_at_word(p, num[i].key)) {
            int64_t v;
            LP_TRY(next(p));
            LP_TRY(lp_parse_int(p, -1, INT32_MAX, &v));
            *num[i].i = (int32_t)v;
            return LP_OK;
        }
    if (lp_parse_at_word(p, "backward"))
        o->backward = true;
    else if (lp_parse_at_word(p, "update"))
        o->update = true;
    else
        return lp_lex_expected(&p->x,
                               "block, stage, ipu, phase, scope, file, "
                               "line, multi_conv, outline, backward or update");
    return next(p);
}

static LpStatus origin_line(LpParser *p)
{
    LpOrigin o = {.block = "",
                  .scope = "",
                  .file = "",
                  .ipu = -1,
                  .stage = -1,
                  .phase = -1};
    LP_TRY(next(p));
    if (lp_parse_at_word(p, "none")) {
        p->origin = 0;
        return next(p);
    }
    while (!lp_parse_at_line_end(p))
        LP_TRY(origin_part(p, &o));
    p->origin = lp_graph_origin(p->g, &o, p->err);
    return p->origin ? LP_OK : lp_no_memory(p->err);
}

/* Compares the types written, if any, with those of the shape rule. */
static LpStatus written_types(LpParser *p, const LpParsedCall *c, int n)
{
    const LpType *out = p->out;
    LpType t;
    if (!lp_lex_sign(&p->x, ':'))
        return LP_OK;
    LP_TRY(next(p));
    for (int i = 0; i < n; i++) {
        LpToken at = p->x.t;
        if (i > 0) {
            LP_TRY(lp_parse_sign(p, ','));
            at = p->x.t;
        }
        LP_TRY(lp_parse_type(p, &t));
        if (!lp_type_eq(&t, &out[i]))
            return lp_lex_fail(&p->x, &at, "result %d of %s is %s%s here", i,
                               c->op->name, lp_dtype_name(out[i].dtype),
                               lp_shape_str(&out[i]));
    }
    return LP_OK;
}

static LpStatus suffixes(LpParser *p, LpGraphNode *n)
{
    int64_t i;
    while (!lp_parse_at_line_end(p)) {
        bool region = lp_parse_at_word(p, "region");
        if (lp_parse_at_word(p, "half_partials")) {
            n->half_partials = true;
            LP_TRY(next(p));
            continue;
        }
        if (!region && !lp_parse_at_word(p, "site"))
            return lp_lex_expected(&p->x, "region, site, half_partials or the "
                                          "end of the line");
        LpToken at = p->x.t;
        LP_TRY(next(p));
        if (region) {
            LP_TRY(lp_parse_int(p, 1, INT32_MAX, &i));
            n->region = (uint32_t)i;
            if (n->region > p->max_region) {
                p->max_region = n->region;
                p->region_at = at;
            }
        } else {
            LP_TRY(lp_parse_int(p, INT64_MIN, INT64_MAX, &i));
            n->site = (uint64_t)i;
        }
    }
    return LP_OK;
}

static LpStatus node_line(LpParser *p)
{
    LpParsedCall c;
    LpErr rule = {0};
    int n_out = 0;
    LP_TRY(values(p));
    LP_TRY(lp_parse_sign(p, '='));
    LP_TRY(lp_parse_call(p, &c));
    if (lp_check_operands(p->g, c.op, p->in, (size_t)c.n_in, &rule) != LP_OK ||
        lp_graph_infer(p->g, c.op, p->in, (size_t)c.n_in, c.attr, p->out,
                       &n_out, &p->scratch, &rule) != LP_OK)
        return lp_parse_located(p, &c.at, &rule);
    if (n_out != p->n_result)
        return lp_lex_fail(&p->x, &c.at, "%s has %d results here, not %d",
                           c.op->name, n_out, p->n_result);
    LpGraphNode n = {.op = c.op,
                     .attr = c.attr,
                     .in = p->in,
                     .n_in = (uint32_t)c.n_in,
                     .n_out = (uint32_t)n_out,
                     .origin = p->origin};
    LP_TRY(written_types(p, &c, n_out));
    LP_TRY(suffixes(p, &n));
    LpVal first = lp_graph_add(p->g, &n, p->out, p->err);
    if (first == LP_NOVAL)
        return lp_no_memory(p->err);
    return define_all(p, first);
}

static LpStatus region_line(LpParser *p)
{
    LpParsedCall c;
    int64_t id, want = (int64_t)p->g->n_region;
    LP_TRY(next(p));
    LP_TRY(lp_parse_int(p, want, want, &id));
    LP_TRY(lp_parse_sign(p, '='));
    LP_TRY(lp_parse_call(p, &c));
    LpRegion r = {.op = c.op,
                  .attr = c.attr,
                  .in = p->in,
                  .out = p->region_out,
                  .n_in = (uint32_t)c.n_in};
    while (r.n_out == 0 ? p->x.t.kind == LP_TOK_ARROW
                        : lp_lex_sign(&p->x, ',')) {
        LP_TRY(next(p));
        if (r.n_out == LP_MAX_LIST)
            return lp_lex_fail(&p->x, &p->x.t, "more than %d results",
                               LP_MAX_LIST);
        LP_TRY(lp_parse_operand(p, &p->region_out[r.n_out++]));
    }
    return lp_graph_region(p->g, &r, p->err) ? LP_OK : lp_no_memory(p->err);
}

static LpStatus output_line(LpParser *p)
{
    LpVal v;
    LP_TRY(next(p));
    for (int i = 0; i == 0 || !lp_parse_at_line_end(p); i++) {
        if (i > 0)
            LP_TRY(lp_parse_sign(p, ','));
        LP_TRY(lp_parse_label(p, &p->labels, &v));
        if (!lp_graph_output(p->g, v, p->err))
            return lp_no_memory(p->err);
    }
    return LP_OK;
}

static LpStatus graph_line(LpParser *p)
{
    if (lp_parse_at_line_end(p))
        return LP_OK;
    if (p->x.t.kind == LP_TOK_LABEL || lp_lex_sign(&p->x, '='))
        return node_line(p);
    if (lp_parse_at_word(p, "input"))
        return input_line(p);
    if (lp_parse_at_word(p, "origin"))
        return origin_line(p);
    if (lp_parse_at_word(p, "region"))
        return region_line(p);
    if (lp_parse_at_word(p, "output"))
        return output_line(p);
    return lp_lex_expected(&p->x, "a value, input, origin, region or output");
}

static bool at_one_of(const LpParser *p, const char *const *word)
{
    while (*word && !lp_parse_at_word(p, *word))
        word++;
    return *word != NULL;
}

/* The nodes of the line have references of their own. */
static void drop_bodies(LpParser *p)
{
    while (p->n_body > 0)
        lp_graph_free(p->body[--p->n_body]);
}

static LpStatus parse(LpParser *p, const char *const *stop)
{
    if (!lp_parse_at_word(p, "graph"))
        return lp_lex_expected(&p->x, "graph");
    LP_TRY(next(p));
    if (lp_parse_at_word(p, "differentiated")) {
        p->g->differentiated = true;
        LP_TRY(next(p));
    }
    if (lp_parse_at_word(p, "host")) {
        p->g->host = true;
        LP_TRY(next(p));
    }
    LP_TRY(lp_parse_line_end(p));
    while (p->x.t.kind != LP_TOK_END && !at_one_of(p, stop) &&
           !(p->depth && lp_lex_sign(&p->x, '}'))) {
        LpStatus st = graph_line(p);
        drop_bodies(p);
        LP_TRY(st);
        LP_TRY(lp_parse_line_end(p));
        lp_arena_reset(&p->scratch);
    }
    if (p->max_region >= p->g->n_region)
        return lp_lex_fail(&p->x, &p->region_at, "region %u is not described",
                           (unsigned)p->max_region);
    return LP_OK;
}

LpStatus lp_parse_graph(LpParser *p, const char *const *stop, LpGraph **out)
{
    *out = NULL;
    p->origin = 0;
    p->max_region = 0;
    p->g = lp_graph_new();
    LpStatus st = p->g ? parse(p, stop) : lp_no_memory(p->err);
    if (st == LP_OK)
        *out = p->g;
    else
        lp_graph_free(p->g);
    p->g = NULL;
    return st;
}

LpStatus lp_parser_new(const char *s, LpParser **out, LpErr *e)
{
    *out = NULL;
    LP_FAIL_IF(strlen(s) > MAX_TEXT, e, LP_E_PARSE,
               "a graph's text has at most %zu bytes", MAX_TEXT);
    LpParser *p = lp_calloc(1, sizeof *p);
    LP_FAIL_IF(!p, e, LP_E_MEMORY, "out of memory");
    p->err = e;
    LpStatus st = lp_lex_init(&p->x, s, &p->keep, e);
    while (st == LP_OK && p->x.t.kind == LP_TOK_LINE)
        st = next(p);
    if (st == LP_OK)
        *out = p;
    else
        lp_parser_free(p);
    return st;
}

void lp_parser_free(LpParser *p)
{
    if (!p)
        return;
    lp_arena_fini(&p->keep);
    lp_arena_fini(&p->scratch);
    lp_labels_fini(&p->labels);
    lp_free(p);
}

LpStatus lp_graph_parse(const char *s, LpGraph **out, LpErr *e)
{
    static const char *const stop[] = {NULL};
    LpErr own = {0};
    LpParser *p;
    *out = NULL;
    LP_TRY(lp_parser_new(s, &p, e ? e : &own));
    LpStatus st = lp_parse_graph(p, stop, out);
    lp_parser_free(p);
    return st;
}

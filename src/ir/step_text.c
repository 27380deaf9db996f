/* Text form of a complete step. The parser reads what the printer writes, and
 * graphs and variables keep their numbers; data of variables is not in it.
 *
 *   step     = "step" "iterations" INT "accumulation" INT "replicas" INT
 *              ("mean" | "sum") {NUMERIC} NL "micro" NL graph
 *              ["update" NL graph]
 *              {variable NL}
 *   variable = "var" ROLE STR ":" type ["of" INT] ["group" group]
 *              ["micro" use] ["update" use]
 *   group    = ("consecutive" INT | "orthogonal" INT | "none") ["each"]
 *              (group.h)
 *   use      = LABEL | ["LABEL"] "->" LABEL     read; and written
 *
 * (the rest of the grammar: text.c). A NUMERIC is one of LP_NUMERICS, in its
 * order: stochastic, half_partials, half_statistics, trap. ROLE is one word,
 * as lp_var_role_name has it; a label is one of the graph that is named
 * before it; "of" counts from 0. The text is outside data: what is parsed
 * goes through the verifiers. */
#include <inttypes.h>
#include <string.h>

#include "src/ir/step.h"
#include "src/ir/text_parse.h"

static bool has_size(LpGroupKind k)
{
    return k == LP_GROUP_CONSECUTIVE || k == LP_GROUP_ORTHOGONAL;
}

/* ---- printing ----------------------------------------------------------- */
static void text_use(LpBuf *b, const char *graph, LpVal in, LpVal out)
{
    if (in == LP_NOVAL && out == LP_NOVAL)
        return;
    lp_buf_fmt(b, " %s", graph);
    if (in != LP_NOVAL)
        lp_buf_fmt(b, " %%%" PRIu32, in);
    if (out != LP_NOVAL)
        lp_buf_fmt(b, " -> %%%" PRIu32, out);
}

static void text_variable(LpBuf *b, const LpVariable *v)
{
    lp_buf_fmt(b, "var %s ", lp_var_role_name(v->role));
    lp_text_string(b, v->name);
    lp_buf_str(b, ": ");
    lp_text_type(b, &v->type);
    if (v->param >= 0)
        lp_buf_fmt(b, " of %d", v->param);
    if (v->group.kind != LP_GROUP_ALL)
        lp_buf_fmt(b, " group %s", lp_group_kind_names[v->group.kind]);
    if (has_size(v->group.kind))
        lp_buf_fmt(b, " %" PRId64, v->group.size);
    if (v->group.each)
        lp_buf_str(b, " each");
    text_use(b, "micro", v->micro_in, v->micro_out);
    text_use(b, "update", v->update_in, v->update_out);
    lp_buf_str(b, "\n");
}

static void text_numerics(LpBuf *b, const LpNumerics *n)
{
#define LP_NUMERIC(name)                                                       \
    if (n->name)                                                               \
        lp_buf_str(b, " " #name);
    LP_NUMERICS(LP_NUMERIC)
#undef LP_NUMERIC
}

static char *print(const LpStep *s, LpErr *e)
{
    LpBuf b = {0};
    lp_buf_fmt(&b,
               "step iterations %" PRId64 " accumulation %" PRId64
               " replicas %" PRId64 " %s",
               s->device_iterations, s->gradient_accumulation, s->replicas,
               s->mean_reduction ? "mean" : "sum");
    text_numerics(&b, &s->numerics);
    lp_buf_str(&b, "\nmicro\n");
    lp_text_graph(&b, s->micro);
    if (s->update) {
        lp_buf_str(&b, "update\n");
        lp_text_graph(&b, s->update);
    }
    for (size_t i = 0; i < s->n_var; i++)
        text_variable(&b, &s->var[i]);
    return lp_text_take(&b, e);
}

char *lp_step_print(const LpStep *s, LpErr *e)
{
    if (s->complete)
        return print(s, e);
    lp_fail(e, LP_E_RUNTIME, "the step is not complete");
    return NULL;
}

/* The end of the STR that starts at p, behind its quote. */
static const char *string_end(const char *p)
{
    for (p++; *p && *p != '"'; p++)
        p += *p == '\\' && p[1];
    return p + (*p != '\0');
}

/* Takes file and line out of an origin line, which keeps its end. */
static void drop_source(char *line, char **to)
{
    const char *p = line;
    while (*p && *p != '\n') {
        const char *from = p;
        if (strncmp(p, " file \"", 7) == 0)
            from = p = string_end(p + 6);
        else if (strncmp(p, " line ", 6) == 0)
            from = p = p + 6 + strspn(p + 6, "0123456789");
        else
            p = *p == '"' ? string_end(p) : p + 1;
        memmove(*to, from, (size_t)(p - from));
        *to += p - from;
    }
}

char *lp_step_print_key(const LpStep *s, LpErr *e)
{
    char *text = print(s, e), *to = text;
    for (char *p = text; p && *p;) {
        size_t n = strcspn(p, "\n");
        if (strncmp(p + strspn(p, " "), "origin", 6) == 0) {
            drop_source(p, &to);
        } else {
            memmove(to, p, n);
            to += n;
        }
        p += n;
        if (*p)
            *to++ = *p++;
    }
    if (text)
        *to = '\0';
    return text;
}

/* ---- parsing ------------------------------------------------------------ */
static LpStatus word(LpParser *p, const char *w)
{
    if (!lp_parse_at_word(p, w))
        return lp_lex_expected(&p->x, w);
    return lp_lex_next(&p->x);
}

static LpStatus loop(LpParser *p, const char *name, int64_t *n)
{
    LP_TRY(word(p, name));
    return lp_parse_int(p, 1, INT64_MAX, n);
}

static LpStatus numerics(LpParser *p, LpNumerics *n)
{
#define LP_NUMERIC(name)                                                       \
    n->name = lp_parse_at_word(p, #name);                                      \
    if (n->name)                                                               \
        LP_TRY(lp_lex_next(&p->x));
    LP_NUMERICS(LP_NUMERIC)
#undef LP_NUMERIC
    return LP_OK;
}

static LpStatus head(LpParser *p, LpStep *s)
{
    LP_TRY(word(p, "step"));
    LP_TRY(loop(p, "iterations", &s->device_iterations));
    LP_TRY(loop(p, "accumulation", &s->gradient_accumulation));
    LP_TRY(loop(p, "replicas", &s->replicas));
    s->mean_reduction = lp_parse_at_word(p, "mean");
    if (!s->mean_reduction && !lp_parse_at_word(p, "sum"))
        return lp_lex_expected(&p->x, "mean or sum");
    LP_TRY(lp_lex_next(&p->x));
    LP_TRY(numerics(p, &s->numerics));
    return lp_parse_line_end(p);
}

/* "micro" or "update" and its graph, whose labels become `l`. */
static LpStatus graph(LpParser *p, const char *name, LpGraph **g, LpLabels *l)
{
    static const char *const stop[] = {"update", "var", NULL};
    LP_TRY(word(p, name));
    LP_TRY(lp_parse_line_end(p));
    LP_TRY(lp_parse_graph(p, stop, g));
    *l = p->labels;
    p->labels = (LpLabels){0};
    return LP_OK;
}

static LpStatus role(LpParser *p, LpVarRole *r)
{
    for (int i = 0; i < LP_N_VAR_ROLES; i++)
        if (lp_parse_at_word(p, lp_var_role_name((LpVarRole)i))) {
            *r = (LpVarRole)i;
            return lp_lex_next(&p->x);
        }
    return lp_lex_expected(&p->x, "a role such as parameter");
}

static LpStatus group_of(LpParser *p, LpGroup *g)
{
    if (!lp_parse_at_word(p, "group"))
        return LP_OK;
    LP_TRY(lp_lex_next(&p->x));
    for (int i = LP_GROUP_ALL + 1; i < LP_N_GROUP_KINDS; i++)
        if (lp_parse_at_word(p, lp_group_kind_names[i])) {
            g->kind = (LpGroupKind)i;
            LP_TRY(lp_lex_next(&p->x));
            if (has_size(g->kind))
                LP_TRY(lp_parse_int(p, 1, INT64_MAX, &g->size));
            g->each = lp_parse_at_word(p, "each");
            return g->each ? lp_lex_next(&p->x) : LP_OK;
        }
    return lp_lex_expected(&p->x, "consecutive, orthogonal or none");
}

static LpStatus use(LpParser *p, const char *name, const LpLabels *l, LpVal *in,
                    LpVal *out)
{
    if (!lp_parse_at_word(p, name))
        return LP_OK;
    LP_TRY(lp_lex_next(&p->x));
    if (p->x.t.kind != LP_TOK_ARROW)
        LP_TRY(lp_parse_label(p, l, in));
    if (p->x.t.kind != LP_TOK_ARROW)
        return LP_OK;
    LP_TRY(lp_lex_next(&p->x));
    return lp_parse_label(p, l, out);
}

static LpStatus variable(LpParser *p, LpStep *s, const LpLabels l[2])
{
    LpVariable v = {.param = -1};
    int64_t of;
    LP_TRY(word(p, "var"));
    LP_TRY(role(p, &v.role));
    LP_TRY(lp_parse_string(p, &v.name));
    LP_TRY(lp_parse_sign(p, ':'));
    LP_TRY(lp_parse_type(p, &v.type));
    if (lp_parse_at_word(p, "of")) {
        LP_TRY(lp_lex_next(&p->x));
        LP_TRY(lp_parse_int(p, 0, INT32_MAX, &of));
        v.param = (int)of;
    }
    LP_TRY(group_of(p, &v.group));
    LP_TRY(use(p, "micro", &l[0], &v.micro_in, &v.micro_out));
    LP_TRY(use(p, "update", &l[1], &v.update_in, &v.update_out));
    LP_TRY(lp_parse_line_end(p));
    return lp_step_add(s, &v, p->err) < 0 ? LP_E_MEMORY : LP_OK;
}

static LpStatus parse(LpParser *p, LpStep *s, LpLabels l[2])
{
    LP_TRY(head(p, s));
    lp_graph_free(s->micro);
    s->micro = NULL;
    LP_TRY(graph(p, "micro", &s->micro, &l[0]));
    if (lp_parse_at_word(p, "update"))
        LP_TRY(graph(p, "update", &s->update, &l[1]));
    while (p->x.t.kind != LP_TOK_END)
        LP_TRY(variable(p, s, l));
    LP_TRY(lp_graph_verify(s->micro, p->err));
    if (s->update)
        LP_TRY(lp_graph_verify(s->update, p->err));
    LP_TRY(lp_step_verify(s, p->err));
    s->complete = true;
    return LP_OK;
}

LpStatus lp_step_parse(const char *text, LpStep **out, LpErr *e)
{
    LpErr own = {0};
    LpLabels l[2] = {0};
    LpParser *p = NULL;
    LpStep *s = lp_step_new();
    *out = NULL;
    e = e ? e : &own;
    LpStatus st = s ? lp_parser_new(text, &p, e) : lp_no_memory(e);
    if (st == LP_OK)
        st = parse(p, s, l);
    if (st == LP_OK)
        *out = s;
    else
        lp_step_release(s);
    lp_labels_fini(&l[0]);
    lp_labels_fini(&l[1]);
    lp_parser_free(p);
    return st;
}

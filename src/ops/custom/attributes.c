/* Reading and writing the attributes of custom operators; see attributes.h. */
#include "src/ops/custom/attributes.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/ir/text.h"
#include "src/ir/text_lex.h"

static const char *const kind_names[] = {
    "an empty list",  "a float",  "a list of floats", "an int",
    "a list of ints", "a string", "a list of strings"};

/* ---- values --------------------------------------------------------- */
typedef struct Element {
    int32_t kind;
    float f;
    int64_t i;
    const char *s;
} Element;

/* A list, or one element; `kind` is 0 for an empty list. */
typedef struct Value {
    Element *at;
    size_t n, cap;
    int32_t kind;
} Value;

static LpStatus read_float(const char *name, double v, Element *out, LpErr *e)
{
    LP_FAIL_IF(isinf((float)v) && !isinf(v), e, LP_E_POPTORCH,
               "attribute '%.80s': %g is too %s for a float attribute, which "
               "has 32 bits",
               name, v, v > 0 ? "high" : "low");
    *out = (Element){.kind = LUPINE_FLOAT, .f = (float)v};
    return LP_OK;
}

static LpStatus read_element(LpLexer *x, const char *name, Element *out)
{
    if (x->t.kind == LP_TOK_STRING)
        *out = (Element){.kind = LUPINE_STRING, .s = x->t.text};
    else if (x->t.kind != LP_TOK_NUMBER)
        return lp_lex_expected(x, "a number, a string or a list");
    else if (x->t.number.kind == LP_KIND_FLOAT)
        LP_TRY(read_float(name, x->t.number.f, out, x->err));
    else
        *out = (Element){.kind = LUPINE_INT, .i = x->t.number.i};
    return lp_lex_next(x);
}

static LpStatus add_element(LpLexer *x, const char *name, Value *v)
{
    Element one;
    LP_TRY(read_element(x, name, &one));
    LP_FAIL_IF(v->n == LP_CUSTOM_MAX_LIST, x->err, LP_E_VALUE,
               "attribute '%.80s': a list has at most %d elements", name,
               LP_CUSTOM_MAX_LIST);
    LP_FAIL_IF(v->n > 0 && v->at[0].kind != one.kind, x->err, LP_E_VALUE,
               "attribute '%.80s': a list holds values of one kind, got %s and "
               "%s",
               name, kind_names[v->at[0].kind], kind_names[one.kind]);
    LP_FAIL_IF(!LP_GROW(v->at, v->cap, v->n), x->err, LP_E_MEMORY,
               "out of memory");
    v->at[v->n++] = one;
    return LP_OK;
}

static LpStatus read_list(LpLexer *x, const char *name, Value *v)
{
    LP_TRY(lp_lex_next(x));
    while (!lp_lex_sign(x, ']')) {
        if (v->n > 0 && !lp_lex_sign(x, ','))
            return lp_lex_expected(x, "`,` or `]`");
        if (v->n > 0)
            LP_TRY(lp_lex_next(x));
        LP_TRY(add_element(x, name, v));
    }
    v->kind = v->n ? v->at[0].kind + 1 : 0;
    return lp_lex_next(x);
}

static LpStatus read_value(LpLexer *x, const char *name, Value *v)
{
    v->n = 0;
    if (lp_lex_sign(x, '['))
        return read_list(x, name, v);
    LP_TRY(add_element(x, name, v));
    v->kind = v->at[0].kind;
    return LP_OK;
}

static bool is_list(int32_t kind)
{
    return kind == LUPINE_FLOATS || kind == LUPINE_INTS ||
           kind == LUPINE_STRINGS;
}

/* The value as the attribute of that kind. */
static LpStatus keep(const Value *v, const char *name, int32_t kind,
                     LpArena *mem, lupine_attr *out, LpErr *e)
{
    bool fits = v->kind == kind || (v->kind == 0 && is_list(kind));
    LP_FAIL_IF(!fits, e, LP_E_VALUE, "attribute '%.80s': expected %s, got %s%s",
               name, kind_names[kind], kind_names[v->kind],
               kind <= LUPINE_FLOATS && v->kind == kind + 2
                   ? " (2.0 is a float, 2 an int)"
                   : "");
    float *f = lp_arena_alloc(mem, (v->n + 1) * sizeof *f);
    int64_t *i = lp_arena_alloc(mem, (v->n + 1) * sizeof *i);
    const char **s = lp_arena_alloc(mem, (v->n + 1) * sizeof *s);
    LP_FAIL_IF(!f || !i || !s, e, LP_E_MEMORY, "out of memory");
    for (size_t k = 0; k < v->n; k++) {
        f[k] = v->at[k].f;
        i[k] = v->at[k].i;
        s[k] = v->at[k].s;
    }
    bool floats = kind <= LUPINE_FLOATS, ints = !floats && kind <= LUPINE_INTS;
    *out = (lupine_attr){.kind = kind,
                         .n = (int32_t)v->n,
                         .floats = floats ? f : NULL,
                         .ints = ints ? i : NULL,
                         .strings = floats || ints ? NULL : s};
    return LP_OK;
}

static LpStatus at_end(LpLexer *x)
{
    return x->t.kind == LP_TOK_END ? LP_OK : lp_lex_expected(x, "the end");
}

LpStatus lp_custom_value_read(const char *text, int32_t kind, LpArena *mem,
                              lupine_attr *out, LpErr *e)
{
    LpLexer x;
    Value v = {0};
    LpStatus s = lp_lex_init(&x, text, mem, e);
    if (s == LP_OK)
        s = read_value(&x, text, &v);
    if (s == LP_OK)
        s = at_end(&x);
    if (s == LP_OK)
        s = keep(&v, text, kind, mem, out, e);
    lp_free(v.at);
    return s;
}

/* ---- all of a call -------------------------------------------------- */
static LpStatus unknown(const LpCustomSpecs *s, const char *name, LpErr *e)
{
    char known[256] = "";
    size_t n = 0;
    for (int i = 0; i < s->n && n < sizeof known - 1; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s",
                              i ? ", " : "", s->spec[i].name);
    return lp_fail(e, LP_E_VALUE, "no attribute '%.80s'. Allowed: %s", name,
                   s->n ? known : "none");
}

static LpStatus read_named(const LpCustomSpecs *s, LpLexer *x, Value *v,
                           LpArena *mem, lupine_attr *attr)
{
    int i = 0;
    const char *name = x->t.text;
    if (x->t.kind != LP_TOK_WORD)
        return lp_lex_expected(x, "an attribute's name");
    LP_TRY(lp_lex_next(x));
    while (i < s->n && strcmp(s->spec[i].name, name) != 0)
        i++;
    if (i == s->n)
        return unknown(s, name, x->err);
    LP_FAIL_IF(attr[i].kind, x->err, LP_E_VALUE,
               "attribute '%.80s' is given twice", name);
    if (!lp_lex_sign(x, '='))
        return lp_lex_expected(x, "`=`");
    LP_TRY(lp_lex_next(x));
    LP_TRY(read_value(x, name, v));
    return keep(v, name, s->spec[i].kind, mem, &attr[i], x->err);
}

static LpStatus read_all(const LpCustomSpecs *s, LpLexer *x, Value *v,
                         LpArena *mem, lupine_attr *attr)
{
    for (bool first = true; x->t.kind != LP_TOK_END; first = false) {
        if (!first && !lp_lex_sign(x, ','))
            return lp_lex_expected(x, "`,`");
        if (!first)
            LP_TRY(lp_lex_next(x));
        LP_TRY(read_named(s, x, v, mem, attr));
    }
    for (int i = 0; i < s->n; i++) {
        const lupine_attr_spec *d = &s->spec[i];
        if (attr[i].kind)
            continue;
        LP_FAIL_IF(!d->fallback, x->err, LP_E_VALUE,
                   "attribute '%s', %s, is missing and has no default", d->name,
                   kind_names[d->kind]);
        LP_TRY(
            lp_custom_value_read(d->fallback, d->kind, mem, &attr[i], x->err));
    }
    return LP_OK;
}

LpStatus lp_custom_attrs_read(const LpCustomSpecs *s, const char *text,
                              LpArena *mem, lupine_attr *attr, LpErr *e)
{
    LpLexer x;
    Value v = {0};
    LpErr why = {0};
    LP_FAIL_IF(strlen(text) > LP_CUSTOM_MAX_TEXT, e, LP_E_VALUE,
               "%s: attributes have at most %zu bytes", s->label,
               LP_CUSTOM_MAX_TEXT);
    memset(attr, 0, (size_t)s->n * sizeof *attr);
    LpStatus st = lp_lex_init(&x, text, mem, &why);
    if (st == LP_OK)
        st = read_all(s, &x, &v, mem, attr);
    lp_free(v.at);
    LP_FAIL_IF(st != LP_OK, e, st == LP_E_MEMORY ? st : LP_E_POPTORCH,
               "%s: %.560s", s->label, why.msg);
    return LP_OK;
}

/* ---- writing -------------------------------------------------------- */
static void write_float(LpBuf *b, float f)
{
    char s[40] = "nan";
    for (int digits = 1; digits <= 9 && !isnan(f); digits++) {
        snprintf(s, sizeof s, "%.*g", digits, (double)f);
        if (strtof(s, NULL) == f)
            break;
    }
    lp_buf_str(b, s);
    if (isfinite(f) && !strpbrk(s, ".e"))
        lp_buf_str(b, ".0");
}

static void write_attr(LpBuf *b, const lupine_attr *a)
{
    bool list = is_list(a->kind);
    lp_buf_str(b, list ? "[" : "");
    for (int32_t i = 0; i < a->n; i++) {
        lp_buf_str(b, i ? ", " : "");
        if (a->floats)
            write_float(b, a->floats[i]);
        else if (a->ints)
            lp_buf_fmt(b, "%" PRId64, a->ints[i]);
        else
            lp_text_string(b, a->strings[i]);
    }
    lp_buf_str(b, list ? "]" : "");
}

char *lp_custom_attrs_text(const LpCustomSpecs *s, const lupine_attr *attr,
                           LpArena *mem)
{
    LpBuf b = {0};
    for (int i = 0; i < s->n; i++) {
        lp_buf_fmt(&b, "%s%s=", i ? ", " : "", s->spec[i].name);
        write_attr(&b, &attr[i]);
    }
    char *text = lp_buf_take(&b), *kept = NULL;
    if (text || s->n == 0)
        kept = lp_arena_strdup(mem, text ? text : "");
    lp_free(text);
    return kept;
}

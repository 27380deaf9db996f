/* The words of the notation of forms (op.h): names, types, constants. No
 * look-ahead beyond a character. */
#include "src/ir/schema_read.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LIST 8 /* elements of a default int[] */

bool lp_fr_at_end(const LpFormReader *s)
{
    return *s->p == '\n' || *s->p == '\0';
}

void lp_fr_blanks(LpFormReader *s)
{
    while (*s->p == ' ' || *s->p == '\t')
        s->p++;
}

LpStatus lp_fr_wrong(LpFormReader *s, const char *what)
{
    int n = (int)strcspn(s->p, "\n");
    return lp_fail(s->err, LP_E_INTERNAL,
                   "operator %s, form '%s': %s at '%.*s'", s->op->name,
                   s->f->text, what, n > 40 ? 40 : n, s->p);
}

bool lp_fr_accept(LpFormReader *s, char c)
{
    lp_fr_blanks(s);
    if (*s->p != c)
        return false;
    s->p++;
    return true;
}

bool lp_fr_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_';
}

/* A word of the line, not terminated. */
int lp_fr_word(LpFormReader *s, const char **w)
{
    lp_fr_blanks(s);
    *w = s->p;
    while (lp_fr_is_word(*s->p))
        s->p++;
    return (int)(s->p - *w);
}

bool lp_fr_word_is(const char *w, int n, const char *s)
{
    return strlen(s) == (size_t)n && memcmp(w, s, (size_t)n) == 0;
}

char *lp_fr_copy(LpFormReader *s, const char *w, int n)
{
    char *c = lp_arena_alloc(s->arena, (size_t)n + 1);
    if (c) {
        memcpy(c, w, (size_t)n);
        c[n] = '\0';
    }
    return c;
}

LpStatus lp_fr_name(LpFormReader *s, const char **out)
{
    const char *w;
    int n = lp_fr_word(s, &w);
    if (n == 0)
        return lp_fr_wrong(s, "a name is missing");
    *out = lp_fr_copy(s, w, n);
    return *out ? LP_OK : LP_FR_MEMORY(s);
}

/* ---- types --------------------------------------------------------------- */
const char *const lp_arg_kind_names[] = {
    [LP_ARG_TENSOR] = "Tensor", [LP_ARG_TENSORS] = "Tensor[]",
    [LP_ARG_VALUE] = "Value",   [LP_ARG_INT] = "int",
    [LP_ARG_INTS] = "int[]",    [LP_ARG_FLOAT] = "float",
    [LP_ARG_BOOL] = "bool",     [LP_ARG_STR] = "str",
    [LP_ARG_SCALAR] = "Scalar", [LP_ARG_DTYPE] = "ScalarType",
    [LP_ARG_GRAPH] = "Graph",
};

LpStatus lp_fr_type(LpFormReader *s, LpFormArg *a)
{
    const char *w;
    int n = lp_fr_word(s, &w);
    int i = 0; /* no word has brackets */
    while (i <= LP_ARG_GRAPH && !lp_fr_word_is(w, n, lp_arg_kind_names[i]))
        i++;
    if (i > LP_ARG_GRAPH)
        return lp_fr_wrong(s, "an unknown type");
    a->kind = (LpArgKind)i;
    if (s->p[0] == '?' && s->p[1] == '[') { /* a list with holes */
        a->optional = true;
        s->p++;
    }
    if (*s->p == '[') {
        if (a->kind != LP_ARG_TENSOR && a->kind != LP_ARG_INT)
            return lp_fr_wrong(s, "a list of a type that has none");
        a->kind = a->kind == LP_ARG_INT ? LP_ARG_INTS : LP_ARG_TENSORS;
        s->p++;
        while (*s->p >= '0' && *s->p <= '9')
            a->repeat = a->repeat * 10 + (*s->p++ - '0');
        if (*s->p++ != ']')
            return lp_fr_wrong(s, "']' is missing");
    }
    if (*s->p == '?') {
        a->optional = true;
        s->p++;
    }
    return LP_OK;
}

/* ---- constants ----------------------------------------------------------- */
static LpStatus number(LpFormReader *s, LpScalar *out)
{
    char *end_i, *end_f;
    lp_fr_blanks(s);
    long long i = strtoll(s->p, &end_i, 10);
    double f = strtod(s->p, &end_f);
    if (end_f == s->p)
        return lp_fr_wrong(s, "a number is missing");
    *out = end_f == end_i ? lp_int(i) : lp_float(f);
    s->p = end_f;
    return LP_OK;
}

static LpStatus integers(LpFormReader *s, const LpFormArg *a, LpAttr *out)
{
    int64_t v[MAX_LIST];
    int n = 0;
    LpScalar x;
    if (lp_fr_accept(s, '[')) {
        while (!lp_fr_accept(s, ']')) {
            if (n == MAX_LIST || (n && !lp_fr_accept(s, ',')))
                return lp_fr_wrong(s, "a list that does not end");
            LP_TRY(number(s, &x));
            v[n++] = lp_scalar_i(x);
        }
    } else {
        LP_TRY(number(s, &x));
        for (n = 0; n < (a->repeat ? a->repeat : 1) && n < MAX_LIST; n++)
            v[n] = lp_scalar_i(x);
    }
    size_t bytes = (size_t)n * sizeof *v;
    int64_t *kept = n ? lp_arena_memdup(s->arena, v, bytes) : NULL;
    if (n && !kept)
        return LP_FR_MEMORY(s);
    *out = lp_attr_ints(kept, n);
    return LP_OK;
}

static LpStatus string(LpFormReader *s, LpAttr *out)
{
    char quote = *s->p;
    const char *w = s->p;
    int n;
    if (quote == '"' || quote == '\'') {
        w = ++s->p;
        n = (int)strcspn(w, quote == '"' ? "\"\n" : "'\n");
        if (w[n] != quote)
            return lp_fr_wrong(s, "a string that does not end");
        s->p += n + 1;
    } else {
        n = lp_fr_word(s, &w);
    }
    *out = lp_attr_str(lp_fr_copy(s, w, n));
    return out->str ? LP_OK : LP_FR_MEMORY(s);
}

/* A number as an attribute of the kind that its argument has. */
static LpStatus attr_number(LpFormReader *s, LpArgKind kind, LpAttr *out)
{
    LpScalar x;
    LP_TRY(number(s, &x));
    if (kind == LP_ARG_INT && x.kind != LP_KIND_INT)
        return lp_fr_wrong(s, "an int that is not integer");
    if (kind == LP_ARG_INT)
        *out = lp_attr_int(x.i);
    else if (kind == LP_ARG_FLOAT)
        *out = lp_attr_float(lp_scalar_f(x));
    else
        *out = lp_attr_scalar(x);
    return LP_OK;
}

LpStatus lp_fr_constant(LpFormReader *s, const LpFormArg *a, LpAttr *out)
{
    const char *start = (lp_fr_blanks(s), s->p), *w;
    int n = lp_fr_word(s, &w);
    *out = LP_NONE_ATTR;
    if (lp_fr_word_is(w, n, "None"))
        return a->optional
                   ? LP_OK
                   : lp_fr_wrong(s, "None for an argument that needs a value");
    bool yes = lp_fr_word_is(w, n, "True");
    if (yes || lp_fr_word_is(w, n, "False")) {
        if (a->own == LP_ARG_BOOL)
            *out = lp_attr_bool(yes);
        else if (a->own == LP_ARG_SCALAR || a->own == LP_ARG_VALUE)
            *out = lp_attr_scalar(lp_boolean(yes));
        else
            return lp_fr_wrong(s, "a bool for an argument of another type");
        return LP_OK;
    }
    LpDtype t;
    s->p = start;
    switch (a->own) {
    case LP_ARG_INTS:
        return integers(s, a, out);
    case LP_ARG_STR:
        return string(s, out);
    case LP_ARG_DTYPE:
        n = lp_fr_word(s, &w);
        for (t = 0; t < LP_N_DTYPES; t++)
            if (lp_fr_word_is(w, n, lp_dtype_name(t)))
                break;
        if (t == LP_N_DTYPES)
            return lp_fr_wrong(s, "an unknown dtype");
        *out = lp_attr_dtype(t);
        return LP_OK;
    case LP_ARG_INT:
    case LP_ARG_FLOAT:
    case LP_ARG_SCALAR:
    case LP_ARG_VALUE:
        return attr_number(s, a->own, out);
    default:
        return lp_fr_wrong(s, "a constant for an argument that takes none");
    }
}

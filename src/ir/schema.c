/* Parser of forms. One pass over each line, no look-ahead beyond a character;
 * everything parsed lives in one arena until the process ends. The first form
 * of an operator fixes the slots: its Tensor, Tensor[] and Value arguments are
 * the operands in order, all others the attributes. Later forms refer to them
 * by name. The notation is described at the head of op.h; this parser is
 * strict, since a mistake is a mistake in a record. */
#include "src/ir/schema.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"

#define MAX_LIST 8 /* elements of a default int[] */

typedef struct Parser {
    LpOp *op;
    const char *p;     /* cursor; the line ends at '\n' or NUL */
    const LpForm *own; /* first form of op; NULL while parsing it */
    LpForm *f;
    LpErr *err;
} Parser;

static LpArena arena;
static LpForm *forms;
static int *first_form; /* by operator id */
static int n_forms;
static bool done;

static bool at_end(const Parser *s)
{
    return *s->p == '\n' || *s->p == '\0';
}

static void blanks(Parser *s)
{
    while (*s->p == ' ' || *s->p == '\t')
        s->p++;
}

static LpStatus wrong(Parser *s, const char *what)
{
    int n = (int)strcspn(s->p, "\n");
    return lp_fail(s->err, LP_E_INTERNAL,
                   "operator %s, form '%s': %s at '%.*s'", s->op->name,
                   s->f->text, what, n > 40 ? 40 : n, s->p);
}

#define MEMORY(s)                                                              \
    lp_fail((s)->err, LP_E_MEMORY, "out of memory while reading operator forms")

static bool accept(Parser *s, char c)
{
    blanks(s);
    if (*s->p != c)
        return false;
    s->p++;
    return true;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9') || c == '_';
}

/* A word of the line, not terminated. */
static int word(Parser *s, const char **w)
{
    blanks(s);
    *w = s->p;
    while (is_word(*s->p))
        s->p++;
    return (int)(s->p - *w);
}

static bool word_is(const char *w, int n, const char *s)
{
    return strlen(s) == (size_t)n && memcmp(w, s, (size_t)n) == 0;
}

static char *copy(const char *w, int n)
{
    char *c = lp_arena_alloc(&arena, (size_t)n + 1);
    if (c) {
        memcpy(c, w, (size_t)n);
        c[n] = '\0';
    }
    return c;
}

static LpStatus name_word(Parser *s, const char **out)
{
    const char *w;
    int n = word(s, &w);
    if (n == 0)
        return wrong(s, "a name is missing");
    *out = copy(w, n);
    return *out ? LP_OK : MEMORY(s);
}

/* ---- types ----------------------------------------------------------------
 */
static const struct {
    const char *name;
    LpArgKind kind;
} type_names[] = {
    {"Tensor", LP_ARG_TENSOR}, {"Value", LP_ARG_VALUE},
    {"int", LP_ARG_INT},       {"float", LP_ARG_FLOAT},
    {"bool", LP_ARG_BOOL},     {"str", LP_ARG_STR},
    {"Scalar", LP_ARG_SCALAR}, {"ScalarType", LP_ARG_DTYPE},
};

static LpStatus type(Parser *s, LpFormArg *a)
{
    const char *w;
    int n = word(s, &w);
    size_t i = 0, count = sizeof type_names / sizeof *type_names;
    while (i < count && !word_is(w, n, type_names[i].name))
        i++;
    if (i == count)
        return wrong(s, "an unknown type");
    a->kind = type_names[i].kind;
    if (s->p[0] == '?' && s->p[1] == '[') { /* a list with holes */
        a->optional = true;
        s->p++;
    }
    if (*s->p == '[') {
        if (a->kind != LP_ARG_TENSOR && a->kind != LP_ARG_INT)
            return wrong(s, "a list of a type that has none");
        a->kind = a->kind == LP_ARG_INT ? LP_ARG_INTS : LP_ARG_TENSORS;
        s->p++;
        while (*s->p >= '0' && *s->p <= '9')
            a->repeat = a->repeat * 10 + (*s->p++ - '0');
        if (*s->p++ != ']')
            return wrong(s, "']' is missing");
    }
    if (*s->p == '?') {
        a->optional = true;
        s->p++;
    }
    return LP_OK;
}

/* ---- constants ------------------------------------------------------------
 */
static LpStatus number(Parser *s, LpScalar *out)
{
    char *end_i, *end_f;
    blanks(s);
    long long i = strtoll(s->p, &end_i, 10);
    double f = strtod(s->p, &end_f);
    if (end_f == s->p)
        return wrong(s, "a number is missing");
    *out = end_f == end_i ? lp_int(i) : lp_float(f);
    s->p = end_f;
    return LP_OK;
}

static LpStatus integers(Parser *s, const LpFormArg *a, LpAttr *out)
{
    int64_t v[MAX_LIST];
    int n = 0;
    LpScalar x;
    if (accept(s, '[')) {
        while (!accept(s, ']')) {
            if (n == MAX_LIST || (n && !accept(s, ',')))
                return wrong(s, "a list that does not end");
            LP_TRY(number(s, &x));
            v[n++] = lp_scalar_i(x);
        }
    } else {
        LP_TRY(number(s, &x));
        for (n = 0; n < (a->repeat ? a->repeat : 1) && n < MAX_LIST; n++)
            v[n] = lp_scalar_i(x);
    }
    size_t bytes = (size_t)n * sizeof *v;
    int64_t *kept = n ? lp_arena_memdup(&arena, v, bytes) : NULL;
    if (n && !kept)
        return MEMORY(s);
    *out = lp_attr_ints(kept, n);
    return LP_OK;
}

static LpStatus string(Parser *s, LpAttr *out)
{
    char quote = *s->p;
    const char *w = s->p;
    int n;
    if (quote == '"' || quote == '\'') {
        w = ++s->p;
        n = (int)strcspn(w, quote == '"' ? "\"\n" : "'\n");
        if (w[n] != quote)
            return wrong(s, "a string that does not end");
        s->p += n + 1;
    } else {
        n = word(s, &w);
    }
    *out = lp_attr_str(copy(w, n));
    return out->str ? LP_OK : MEMORY(s);
}

/* A number as an attribute of the kind that its argument has. */
static LpStatus attr_number(Parser *s, LpArgKind kind, LpAttr *out)
{
    LpScalar x;
    LP_TRY(number(s, &x));
    if (kind == LP_ARG_INT && x.kind != LP_KIND_INT)
        return wrong(s, "an int that is not integer");
    if (kind == LP_ARG_INT)
        *out = lp_attr_int(x.i);
    else if (kind == LP_ARG_FLOAT)
        *out = lp_attr_float(lp_scalar_f(x));
    else
        *out = lp_attr_scalar(x);
    return LP_OK;
}

static LpStatus constant(Parser *s, const LpFormArg *a, LpAttr *out)
{
    const char *start = (blanks(s), s->p), *w;
    int n = word(s, &w);
    *out = LP_NONE_ATTR;
    if (word_is(w, n, "None"))
        return a->optional
                   ? LP_OK
                   : wrong(s, "None for an argument that needs a value");
    bool yes = word_is(w, n, "True");
    if (yes || word_is(w, n, "False")) {
        if (a->own == LP_ARG_BOOL)
            *out = lp_attr_bool(yes);
        else if (a->own == LP_ARG_SCALAR || a->own == LP_ARG_VALUE)
            *out = lp_attr_scalar(lp_boolean(yes));
        else
            return wrong(s, "a bool for an argument of another type");
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
        n = word(s, &w);
        for (t = 0; t < LP_N_DTYPES; t++)
            if (word_is(w, n, lp_dtype_name(t)))
                break;
        if (t == LP_N_DTYPES)
            return wrong(s, "an unknown dtype");
        *out = lp_attr_dtype(t);
        return LP_OK;
    case LP_ARG_INT:
    case LP_ARG_FLOAT:
    case LP_ARG_SCALAR:
    case LP_ARG_VALUE:
        return attr_number(s, a->own, out);
    default:
        return wrong(s, "a constant for an argument that takes none");
    }
}

/* ---- arguments ------------------------------------------------------------
 */
static bool is_operand(LpArgKind k)
{
    return k == LP_ARG_TENSOR || k == LP_ARG_TENSORS || k == LP_ARG_VALUE;
}

static const LpFormArg *find_arg(const LpForm *f, const char *w, int n)
{
    for (int i = 0; i < f->n_args; i++)
        if (word_is(w, n, f->arg[i].name))
            return &f->arg[i];
    return NULL;
}

/* May an argument of kind `k` fill one of the operator's own kind `own`? */
static bool fits(LpArgKind own, LpArgKind k)
{
    if (own == k)
        return true;
    if (own == LP_ARG_TENSOR || own == LP_ARG_VALUE)
        return k == LP_ARG_TENSOR || k == LP_ARG_VALUE;
    if (own == LP_ARG_INTS || own == LP_ARG_FLOAT)
        return k == LP_ARG_INT;
    if (own == LP_ARG_SCALAR)
        return k == LP_ARG_INT || k == LP_ARG_FLOAT || k == LP_ARG_BOOL;
    return false;
}

static LpStatus give_slot(Parser *s, LpFormArg *a)
{
    LpOp *op = s->op;
    if (s->own) {
        const LpFormArg *o = find_arg(s->own, a->name, (int)strlen(a->name));
        if (!o)
            return wrong(s, "an argument that the first form does not have");
        if (!fits(o->kind, a->kind))
            return wrong(s,
                         "an argument of another type than in the first form");
        a->slot = o->slot;
        a->own = o->kind;
        if (!a->repeat)
            a->repeat = o->repeat;
        return LP_OK;
    }
    a->own = a->kind;
    if (is_operand(a->kind)) {
        if (op->has_list)
            return wrong(s, "an operand after Tensor[]");
        if (op->n_operands == LP_MAX_IN)
            return wrong(s, "too many operands");
        a->slot = op->n_operands++;
        op->has_list = a->kind == LP_ARG_TENSORS;
    } else {
        if (op->n_attr == LP_MAX_ATTR)
            return wrong(s, "too many attributes");
        a->slot = op->n_attr++;
    }
    return LP_OK;
}

static LpStatus argument(Parser *s, bool kw_only)
{
    LpForm *f = s->f;
    if (f->n_args == LP_MAX_FORM_ARGS)
        return wrong(s, "too many arguments");
    LpFormArg *a = &f->arg[f->n_args];
    *a = (LpFormArg){.kw_only = kw_only, .def = LP_NONE_ATTR};
    LP_TRY(type(s, a));
    LP_TRY(name_word(s, &a->name));
    if (find_arg(f, a->name, (int)strlen(a->name)))
        return wrong(s, "an argument given twice");
    LP_TRY(give_slot(s, a));
    if (accept(s, '=')) {
        a->has_default = true;
        LP_TRY(constant(s, a, &a->def));
    }
    if (a->kind == LP_ARG_TENSORS)
        f->list_arg = f->n_args;
    f->n_args++;
    if (!kw_only)
        f->n_positional++;
    return LP_OK;
}

static LpStatus arguments(Parser *s)
{
    bool kw_only = false;
    if (!accept(s, '('))
        return wrong(s, "'(' is missing");
    if (accept(s, ')'))
        return LP_OK;
    do {
        if (!kw_only && accept(s, '*')) {
            kw_only = true;
            continue;
        }
        LP_TRY(argument(s, kw_only));
    } while (accept(s, ','));
    return accept(s, ')') ? LP_OK : wrong(s, "')' is missing");
}

/* ---- the rest of a line ---------------------------------------------------
 */
static LpStatus one_result(Parser *s)
{
    const char *w;
    int n = word(s, &w);
    return word_is(w, n, "Tensor") ? LP_OK
                                   : wrong(s, "a result must be Tensor");
}

static LpStatus results(Parser *s)
{
    LpForm *f = s->f;
    const char *w;
    blanks(s);
    if (strncmp(s->p, "->", 2) != 0)
        return wrong(s, "'->' is missing");
    s->p += 2;
    if (accept(s, '(')) {
        do {
            LP_TRY(one_result(s));
            word(s, &w); /* the result's name */
            f->n_results++;
        } while (accept(s, ','));
        if (!accept(s, ')'))
            return wrong(s, "')' is missing");
    } else {
        LP_TRY(one_result(s));
        f->n_results = 1;
        if (strncmp(s->p, "[]", 2) == 0) {
            s->p += 2;
            f->n_results = 0;
        }
    }
    int own = s->own ? s->op->n_results : f->n_results;
    if (f->n_results > LP_MAX_OUT || f->n_results > own ||
        (f->n_results == 0) != (own == 0))
        return wrong(s, "more results than the operator has");
    s->op->n_results = (uint8_t)own;
    return LP_OK;
}

static LpStatus flags(Parser *s)
{
    static const char letters[] = "fminoslp";
    static const uint32_t bits[] = {
        LP_FORM_FUNCTION, LP_FORM_METHOD,  LP_FORM_INPLACE, LP_FORM_NN,
        LP_FORM_OUT,      LP_FORM_SPECIAL, LP_FORM_LINALG,  LP_FORM_INTERNAL,
    };
    if (!accept(s, '@'))
        return LP_OK;
    for (; is_word(*s->p); s->p++) {
        const char *at = strchr(letters, *s->p);
        if (!at)
            return wrong(s, "an unknown flag");
        s->f->flags |= bits[at - letters];
    }
    return LP_OK;
}

static LpStatus constants(Parser *s)
{
    while (accept(s, ';') || accept(s, ',') || (blanks(s), is_word(*s->p))) {
        const char *w;
        int n = word(s, &w);
        const LpFormArg *own = s->own ? find_arg(s->own, w, n) : NULL;
        if (!own || !accept(s, '='))
            return wrong(s, "a constant that names no argument of the first "
                            "form");
        if (find_arg(s->f, w, n))
            return wrong(s, "a constant for an argument of this form");
        if (own->kind == LP_ARG_TENSOR || own->kind == LP_ARG_TENSORS)
            return wrong(s, "a constant for a tensor");
        LP_TRY(constant(s, own,
                        own->kind == LP_ARG_VALUE ? &s->f->operand[own->slot]
                                                  : &s->f->base[own->slot]));
    }
    return LP_OK;
}

/* What a later form leaves out must have a value from elsewhere. */
static LpStatus check_left_out(Parser *s, const char *constants_text)
{
    for (int i = 0; s->own && i < s->own->n_args; i++) {
        const LpFormArg *o = &s->own->arg[i];
        size_t n = strlen(o->name);
        if (find_arg(s->f, o->name, (int)n) || o->has_default || o->optional)
            continue;
        const char *at = strstr(constants_text, o->name);
        if (!at || at[n] != '=')
            return lp_fail(s->err, LP_E_INTERNAL,
                           "operator %s, form '%s': argument %s is left out "
                           "and has neither a default nor a constant",
                           s->op->name, s->f->text, o->name);
    }
    return LP_OK;
}

static LpStatus name(Parser *s)
{
    LpForm *f = s->f;
    LP_TRY(name_word(s, &f->name));
    f->variant = "";
    if (*s->p == '.') {
        s->p++;
        LP_TRY(name_word(s, &f->variant));
    }
    return LP_OK;
}

static LpStatus line(Parser *s)
{
    LpForm *f = s->f;
    int n = (int)strcspn(s->p, "\n");
    memset(f, 0, sizeof *f);
    f->op = s->op;
    f->list_arg = -1;
    f->text = copy(s->p, n);
    if (!f->text)
        return MEMORY(s);
    LP_TRY(name(s));
    LP_TRY(arguments(s));
    LP_TRY(results(s));
    LP_TRY(flags(s));
    const LpForm *src = s->own ? s->own : f; /* defaults of the operator */
    for (int i = 0; i < src->n_args; i++) {
        const LpFormArg *a = &src->arg[i];
        if (a->kind == LP_ARG_VALUE)
            f->operand[a->slot] = a->def;
        else if (!is_operand(a->kind))
            f->base[a->slot] = a->def;
    }
    const char *rest = s->p;
    LP_TRY(constants(s));
    LP_TRY(check_left_out(s, rest));
    return at_end(s) ? LP_OK : wrong(s, "something unexpected");
}

static LpStatus operator_forms(LpOp *op, LpErr *err)
{
    Parser s = {.op = op, .p = op->forms ? op->forms : "", .err = err};
    op->n_operands = op->n_attr = op->n_results = 0;
    op->has_list = false;
    first_form[op->id] = n_forms;
    for (;;) {
        while (*s.p == '\n' || *s.p == ' ')
            s.p++;
        if (*s.p == '\0')
            break;
        s.f = &forms[n_forms];
        LP_TRY(line(&s));
        n_forms++;
        if (!s.own)
            s.own = s.f;
    }
    return s.own ? LP_OK
                 : lp_fail(err, LP_E_INTERNAL, "operator %s has no form",
                           op->name);
}

LpStatus lp_schema_init(LpErr *e)
{
    if (done)
        return LP_OK;
    size_t lines = 1;
    for (int i = 0; i < lp_n_ops; i++) {
        lines++;
        for (const char *p = lp_ops[i]->forms; p && *p; p++)
            lines += *p == '\n';
    }
    lp_arena_fini(&arena);
    n_forms = 0;
    forms = lp_arena_alloc(&arena, lines * sizeof *forms);
    first_form =
        lp_arena_calloc(&arena, (size_t)(lp_n_ops + 1) * sizeof *first_form);
    LP_FAIL_IF(!forms || !first_form, e, LP_E_MEMORY,
               "out of memory while reading operator forms");
    for (int i = 0; i < lp_n_ops; i++)
        LP_TRY(operator_forms(lp_ops[i], e));
    done = true;
    return LP_OK;
}

int lp_n_forms(void)
{
    return n_forms;
}

const LpForm *lp_form(int i)
{
    return &forms[i];
}

const LpForm *lp_op_form(const LpOp *op)
{
    return &forms[first_form[op->id]];
}

/* Parser of forms. One pass over each line, no look-ahead beyond a character;
 * everything parsed lives in one arena until the process ends. The first form
 * of an operator fixes the slots: its Tensor, Tensor[] and Value arguments are
 * the operands in order, all others the attributes. Later forms refer to them
 * by name. The notation is described at the head of op.h; this parser is
 * strict, since a mistake is a mistake in a record. */
#include "src/ir/schema.h"

#include <string.h>

#include "src/ir/schema_read.h"

static LpArena arena;
static LpForm *forms;
static int *first_form; /* by operator id */
static int n_forms;
static bool done;

/* ---- arguments ----------------------------------------------------------- */
static const LpFormArg *find_arg(const LpForm *f, const char *w, int n)
{
    for (int i = 0; i < f->n_args; i++)
        if (lp_fr_word_is(w, n, f->arg[i].name))
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

static LpStatus give_slot(LpFormReader *s, LpFormArg *a)
{
    LpOp *op = s->op;
    if (s->own) {
        const LpFormArg *o = find_arg(s->own, a->name, (int)strlen(a->name));
        if (!o)
            return lp_fr_wrong(s,
                               "an argument that the first form does not have");
        if (!fits(o->kind, a->kind))
            return lp_fr_wrong(
                s, "an argument of another type than in the first form");
        a->slot = o->slot;
        a->own = o->kind;
        if (!a->repeat)
            a->repeat = o->repeat;
        return LP_OK;
    }
    a->own = a->kind;
    if (lp_arg_is_operand(a->kind)) {
        if (op->has_list)
            return lp_fr_wrong(s, "an operand after Tensor[]");
        if (op->n_operands == LP_MAX_IN)
            return lp_fr_wrong(s, "too many operands");
        a->slot = op->n_operands++;
        op->has_list = a->kind == LP_ARG_TENSORS;
    } else {
        if (op->n_attr == LP_MAX_ATTR)
            return lp_fr_wrong(s, "too many attributes");
        a->slot = op->n_attr++;
    }
    return LP_OK;
}

static LpStatus argument(LpFormReader *s, bool kw_only)
{
    LpForm *f = s->f;
    if (f->n_args == LP_MAX_FORM_ARGS)
        return lp_fr_wrong(s, "too many arguments");
    LpFormArg *a = &f->arg[f->n_args];
    *a = (LpFormArg){.kw_only = kw_only, .def = LP_NONE_ATTR};
    LP_TRY(lp_fr_type(s, a));
    LP_TRY(lp_fr_name(s, &a->name));
    if (find_arg(f, a->name, (int)strlen(a->name)))
        return lp_fr_wrong(s, "an argument given twice");
    LP_TRY(give_slot(s, a));
    if (lp_fr_accept(s, '=')) {
        a->has_default = true;
        LP_TRY(lp_fr_constant(s, a, &a->def));
    }
    if (a->kind == LP_ARG_TENSORS)
        f->list_arg = f->n_args;
    f->n_args++;
    if (!kw_only)
        f->n_positional++;
    return LP_OK;
}

static LpStatus arguments(LpFormReader *s)
{
    bool kw_only = false;
    if (!lp_fr_accept(s, '('))
        return lp_fr_wrong(s, "'(' is missing");
    if (lp_fr_accept(s, ')'))
        return LP_OK;
    do {
        if (!kw_only && lp_fr_accept(s, '*')) {
            kw_only = true;
            continue;
        }
        LP_TRY(argument(s, kw_only));
    } while (lp_fr_accept(s, ','));
    return lp_fr_accept(s, ')') ? LP_OK : lp_fr_wrong(s, "')' is missing");
}

/* ---- the rest of a line -------------------------------------------------- */
static LpStatus one_result(LpFormReader *s)
{
    const char *w;
    int n = lp_fr_word(s, &w);
    return lp_fr_word_is(w, n, "Tensor")
               ? LP_OK
               : lp_fr_wrong(s, "a result must be Tensor");
}

static LpStatus results(LpFormReader *s)
{
    LpForm *f = s->f;
    const char *w;
    lp_fr_blanks(s);
    if (strncmp(s->p, "->", 2) != 0)
        return lp_fr_wrong(s, "'->' is missing");
    s->p += 2;
    if (lp_fr_accept(s, '(')) {
        do {
            LP_TRY(one_result(s));
            lp_fr_word(s, &w); /* the result's name */
            f->n_results++;
        } while (lp_fr_accept(s, ','));
        if (!lp_fr_accept(s, ')'))
            return lp_fr_wrong(s, "')' is missing");
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
        return lp_fr_wrong(s, "more results than the operator has");
    s->op->n_results = (uint8_t)own;
    return LP_OK;
}

static LpStatus flags(LpFormReader *s)
{
    static const char letters[] = "fminocdslpwgr";
    static const uint32_t bits[] = {
        LP_FORM_FUNCTION,
        LP_FORM_METHOD,
        LP_FORM_INPLACE,
        LP_FORM_NN,
        LP_FORM_OUT,
        LP_FORM_OUT | LP_FORM_CASTS,
        LP_FORM_OUT | LP_FORM_TAKES_DTYPE,
        LP_FORM_SPECIAL,
        LP_FORM_LINALG,
        LP_FORM_INTERNAL,
        LP_FORM_OVERWRITES,
        LP_FORM_DRAWS,
        LP_FORM_MAKES,
    };
    if (!lp_fr_accept(s, '@'))
        return LP_OK;
    for (; lp_fr_is_word(*s->p); s->p++) {
        const char *at = strchr(letters, *s->p);
        if (!at)
            return lp_fr_wrong(s, "an unknown flag");
        s->f->flags |= bits[at - letters];
    }
    return LP_OK;
}

static LpStatus constants(LpFormReader *s)
{
    while (lp_fr_accept(s, ';') || lp_fr_accept(s, ',') ||
           (lp_fr_blanks(s), lp_fr_is_word(*s->p))) {
        const char *w;
        int n = lp_fr_word(s, &w);
        const LpFormArg *own = s->own ? find_arg(s->own, w, n) : NULL;
        if (!own || !lp_fr_accept(s, '='))
            return lp_fr_wrong(s,
                               "a constant that names no argument of the first "
                               "form");
        if (find_arg(s->f, w, n))
            return lp_fr_wrong(s, "a constant for an argument of this form");
        if (own->kind == LP_ARG_TENSOR || own->kind == LP_ARG_TENSORS)
            return lp_fr_wrong(s, "a constant for a tensor");
        LP_TRY(lp_fr_constant(s, own,
                              own->kind == LP_ARG_VALUE
                                  ? &s->f->operand[own->slot]
                                  : &s->f->base[own->slot]));
    }
    return LP_OK;
}

/* What a later form leaves out must have a value from elsewhere. */
static LpStatus check_left_out(LpFormReader *s, const char *constants_text)
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

static LpStatus name(LpFormReader *s)
{
    LpForm *f = s->f;
    LP_TRY(lp_fr_name(s, &f->name));
    f->variant = "";
    if (*s->p == '.') {
        s->p++;
        LP_TRY(lp_fr_name(s, &f->variant));
    }
    return LP_OK;
}

static LpStatus line(LpFormReader *s)
{
    LpForm *f = s->f;
    int n = (int)strcspn(s->p, "\n");
    memset(f, 0, sizeof *f);
    f->op = s->op;
    f->list_arg = -1;
    f->text = lp_fr_copy(s, s->p, n);
    if (!f->text)
        return LP_FR_MEMORY(s);
    LP_TRY(name(s));
    LP_TRY(arguments(s));
    LP_TRY(results(s));
    LP_TRY(flags(s));
    const LpForm *src = s->own ? s->own : f; /* defaults of the operator */
    for (int i = 0; i < src->n_args; i++) {
        const LpFormArg *a = &src->arg[i];
        if (a->kind == LP_ARG_VALUE)
            f->operand[a->slot] = a->def;
        else if (!lp_arg_is_operand(a->kind))
            f->base[a->slot] = a->def;
    }
    const char *rest = s->p;
    LP_TRY(constants(s));
    LP_TRY(check_left_out(s, rest));
    return lp_fr_at_end(s) ? LP_OK : lp_fr_wrong(s, "something unexpected");
}

static LpStatus operator_forms(LpOp *op, LpErr *err)
{
    LpFormReader s = {
        .op = op, .arena = &arena, .p = op->forms ? op->forms : "", .err = err};
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

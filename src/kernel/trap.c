/* The frame of floating-point exceptions. See trap.h. Operands are looked at
 * before the kernel runs, which may write over them. */
#include "src/kernel/trap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/rounding.h"
#include "src/kernel/state.h"

/* What operands have: of an element, or anywhere. */
enum { HAS_NAN = 1, HAS_INFINITY = 2, BY_ZERO = 4, BY_INFINITY = 8 };

typedef struct Seen {
    LpDesc desc;
    bool read;        /* floating-point numbers */
    bool divides;     /* an operand: zero or infinite, it is an exception */
    bool zero_is_inf; /* an operand: zero makes what it makes infinite */
    bool one_over;    /* a result, of a variance: zero if that overflowed */
    LpCopyPlan plan;  /* to numbers of `type`, one after another */
    int64_t n;
} Seen;

typedef struct Trap {
    LpKernel k;
    char *where;  /* owned */
    size_t off_k; /* scratch: the marks, numbers, the kernel's own */
    size_t off_x;
    bool by_element; /* pointwise */
    bool compares, has_poles;
    LpDtype type; /* numbers are looked at as F32 or F64 */
    int n_in, n_out;
    Seen seen[]; /* operands, then results */
} Trap;

/* ---- which operators ----------------------------------------------------- */
static bool named(const LpOp *op, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(op->name, *names) == 0)
            return true;
    return false;
}

static const char *const comparisons[] = {"eq", "ne", "lt", "le",
                                          "gt", "ge", NULL};
static const char *const divisions[] = {"div",       "floor_divide", "fmod",
                                        "remainder", "true_divide",  NULL};
static const char *const of_zero[] = {"reciprocal", "rsqrt", "log",   "log2",
                                      "log10",      "pow",   "xlogy", NULL};
/* Whose third result is one over a deviation, which they do not give. */
static const char *const norms[] = {"native_layer_norm", "native_group_norm",
                                    NULL};
/* What is infinite of a finite operand there is no overflow. */
static const char *const poles[] = {"log1p", "atanh", "logit", NULL};

/* ---- looking ------------------------------------------------------------- */
static int kind_of(double x)
{
    return isnan(x) ? HAS_NAN : isinf(x) ? HAS_INFINITY : 0;
}

static double at(LpDtype t, const void *x, int64_t i)
{
    return t == LP_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static int mark_of(const Seen *s, double x)
{
    int mark = kind_of(x);
    if (x == 0 && (s->divides || s->zero_is_inf))
        mark |= BY_ZERO;
    if (isinf(x) && s->divides)
        mark |= BY_INFINITY;
    return mark;
}

/* Marks what an operand has; returns what it has anywhere. */
static int mark(const Trap *t, const Seen *s, const void *p, void *x,
                uint8_t *marks)
{
    int all = 0;
    if (!s->read)
        return 0;
    if (s->desc.is_imm) {
        lp_fill_strided(
            &(LpDesc){
                .dtype = t->type, .ndim = 1, .shape = {s->n}, .strides = {1}},
            x, s->desc.imm);
    } else {
        lp_copy_run(&s->plan, p, x);
    }
    for (int64_t i = 0; i < s->n; i++) {
        int m = mark_of(s, at(t->type, x, i));
        all |= m;
        if (t->by_element)
            marks[i] |= (uint8_t)m;
    }
    return all;
}

static LpStatus raise_event(const Trap *t, const char *what, LpErr *e)
{
    return lp_fail(e, LP_E_EXCEPTION, "floating-point exception: %s in %s",
                   what, t->where);
}

static LpStatus judge(const Trap *t, const Seen *s, const void *x,
                      const uint8_t *marks, int all, LpErr *e)
{
    for (int64_t i = 0; i < s->n; i++) {
        int before = t->by_element ? marks[i] : all;
        double v = at(t->type, x, i);
        int now = s->one_over && v == 0 ? HAS_INFINITY : kind_of(v);
        if (now == 0)
            continue;
        if (now == HAS_NAN && !(before & HAS_NAN))
            return raise_event(t, "invalid operation", e);
        bool pole = t->has_poles || before & BY_ZERO;
        if (now == HAS_INFINITY && !(before & HAS_INFINITY))
            return raise_event(t, pole ? "division by zero" : "overflow", e);
    }
    return LP_OK;
}

/* Events that operands alone tell. */
static LpStatus judge_operands(const Trap *t, int all, LpErr *e)
{
    if (t->compares && all & HAS_NAN)
        return raise_event(t, "invalid operation (comparison with NaN)", e);
    if (all & BY_INFINITY)
        return raise_event(t, "invalid operation (division by infinity)", e);
    return LP_OK;
}

LP_KERNEL_RUN(run_trap)
{
    const Trap *t = k->state;
    uint8_t *marks = work;
    void *x = (char *)work + t->off_x;
    int all = 0;
    if (t->by_element)
        memset(marks, 0, (size_t)t->seen[t->n_in].n);
    for (int i = 0; i < t->n_in; i++)
        all |= mark(t, &t->seen[i], in[i], x, marks);
    LP_TRY(judge_operands(t, all, e));
    LP_TRY(t->k.run(&t->k, in, out, (char *)work + t->off_k, rc, e));
    for (int i = 0; i < t->n_out; i++) {
        const Seen *s = &t->seen[t->n_in + i];
        if (!s->read)
            continue;
        lp_copy_run(&s->plan, out[i], x);
        LP_TRY(judge(t, s, x, marks, all, e));
    }
    return LP_OK;
}

/* ---- making one ---------------------------------------------------------- */
static void fini_trap(LpKernel *k)
{
    Trap *t = k->state;
    if (t) {
        lp_kernel_fini(&t->k);
        lp_free(t->where);
    }
    lp_free(t);
    k->state = NULL;
}

/* How an operand or result is looked at: as `like` if that is not NULL. */
static void look(const Trap *t, const LpDesc *d, const LpDesc *like,
                 int threads, Seen *s)
{
    s->desc = *d;
    s->read = d->is_imm ? like != NULL
                        : d->dtype != LP_DT_NONE && lp_is_float(d->dtype);
    if (!s->read)
        return;
    LpDesc to = lp_desc_plain(like ? like : d, t->type);
    s->n = lp_desc_numel(&to);
    if (!d->is_imm)
        lp_copy_plan(d, &to, threads, &s->plan);
}

static bool has_doubles(const LpKernelReq *r)
{
    bool is = false;
    for (int i = 0; i < r->n_in; i++)
        is |= r->in[i].dtype == LP_F64 && !r->in[i].is_imm;
    for (int i = 0; i < r->n_out; i++)
        is |= r->out[i].dtype == LP_F64;
    return is;
}

static LpStatus fill(Trap *t, const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    LpKernelReq q = *r;
    int64_t most = 0;
    t->by_element = (r->op->flags & LP_OPF_POINTWISE) != 0 && r->n_out == 1;
    t->compares = named(r->op, comparisons);
    t->has_poles = named(r->op, poles);
    t->type = has_doubles(r) ? LP_F64 : LP_F32;
    t->n_in = r->n_in;
    t->n_out = r->n_out;
    for (int i = 0; i < r->n_in + r->n_out; i++) {
        bool operand = i < r->n_in;
        Seen *s = &t->seen[i];
        look(t, operand ? &r->in[i] : &r->out[i - r->n_in],
             operand && t->by_element ? &r->out[0] : NULL, r->threads, s);
        s->divides = operand && i == 1 && named(r->op, divisions);
        s->zero_is_inf = operand && named(r->op, of_zero);
        s->one_over = i == r->n_in + 2 && named(r->op, norms);
        most = s->n > most ? s->n : most;
    }
    if (t->by_element)
        t->seen[r->n_in].n = lp_desc_numel(&r->out[0]);
    q.numerics.trap = false;
    LP_TRY(lp_prepare(&q, &t->k, e));
    size_t marks = t->by_element ? (size_t)t->seen[r->n_in].n : 0, numbers;
    t->off_x = (marks + 63) / 64 * 64;
    LP_FAIL_IF(!lp_mul_size((size_t)most, 8, &numbers) ||
                   !lp_add_size(t->off_x, numbers + 64, &t->off_k),
               e, LP_E_MEMORY, "%s: scratch memory too large", r->op->name);
    t->off_k = t->off_k / 64 * 64;
    LP_FAIL_IF(!lp_add_size(t->off_k, t->k.work_bytes, &k->work_bytes), e,
               LP_E_MEMORY, "%s: scratch memory too large", r->op->name);
    return LP_OK;
}

static char *copy_text(const char *s)
{
    size_t n = strlen(s) + 1;
    char *to = lp_alloc(n);
    return to ? memcpy(to, s, n) : NULL;
}

LpStatus lp_trap_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    size_t n = (size_t)r->n_in + (size_t)r->n_out;
    Trap *t = lp_calloc(1, sizeof *t + n * sizeof *t->seen);
    LP_FAIL_IF(!t, e, LP_E_MEMORY, "%s: out of memory", r->op->name);
    t->where = copy_text(r->where ? r->where : r->op->name);
    k->state = t;
    k->run = run_trap;
    k->fini = fini_trap;
    LpStatus s =
        t->where ? fill(t, r, k, e) : lp_fail(e, LP_E_MEMORY, "out of memory");
    if (s != LP_OK)
        fini_trap(k);
    return s;
}

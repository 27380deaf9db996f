/* einsum: sums of products over named dimensions, made of permutations,
 * reshapes and batched matrix products.
 *
 * Operands are contracted from left to right. Each keeps a list of the labels
 * of its dimensions; a label that neither the result nor a later operand has
 * is summed as soon as it may be. Labels: 0-25 A-Z, 26-51 a-z, then the
 * dimensions of the ellipsis, numbered from the right. */
#include <string.h>

#include "src/ops/rules.h"

#define LETTERS 52
#define LABELS (LETTERS + LP_MAX_DIMS)
#define ELLIPSIS (-1)
#define MAX_TERM (2 * LP_MAX_DIMS)

typedef struct Term {
    LpVal v;
    int n;
    int8_t label[MAX_TERM];
} Term;

typedef struct Equation {
    LpBuilder *b;
    Term *term;           /* one an operand */
    int n_terms, dots;    /* most dimensions of an ellipsis */
    int count[LABELS];    /* occurrences in the operands */
    int last_use[LABELS]; /* the last operand that has the label, or -1 */
    bool in_result[LABELS];
    Term result;
} Equation;

/* ---- reading ------------------------------------------------------------- */
static int label_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    return c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

static char letter_of(int label)
{
    return (char)(label < 26 ? 'A' + label : 'a' + label - 26);
}

#define INVALID                                                                \
    "einsum(): invalid subscript given at index %d in the equation string, "   \
    "subscripts must be in [a-zA-Z]"

/* One side's labels up to `stops` into t; *pos moves. Where: operand number,
 * or -1 for the result. */
static bool read_labels(LpBuilder *b, const char *eq, int *pos, int where,
                        Term *t)
{
    const char *of = where < 0 ? "the output" : "an operand";
    bool dots = false;
    t->n = 0;
    for (; eq[*pos] && eq[*pos] != ',' && strncmp(eq + *pos, "->", 2) != 0;
         ++*pos) {
        char c = eq[*pos];
        if (c == ' ')
            continue;
        if (t->n == MAX_TERM)
            return LP_REFUSE(b, LP_E_RUNTIME,
                             "einsum(): more than %d subscripts for %s",
                             MAX_TERM, of);
        if (c != '.') {
            if (label_of(c) < 0)
                return LP_REFUSE(b, LP_E_RUNTIME, INVALID, *pos);
            t->label[t->n++] = (int8_t)label_of(c);
            continue;
        }
        bool wrong = strncmp(eq + *pos, "...", 3) != 0 || dots;
        if (wrong && where < 0)
            return LP_REFUSE(
                b, LP_E_RUNTIME,
                "einsum(): found '.' for output but an ellipsis "
                "(...) was already found or it is not part of any");
        if (wrong)
            return LP_REFUSE(b, LP_E_RUNTIME,
                             "einsum(): found '.' for operand %d %s", where,
                             dots ? "for which an ellipsis was already found"
                                  : "that is not part of any ellipsis");
        *pos += 2;
        dots = true;
        t->label[t->n++] = ELLIPSIS;
    }
    return true;
}

/* Left-hand side; *pos stops at "->" or at the end. */
static bool read_operands(Equation *q, const char *eq, int *pos)
{
    for (int i = 0;; i++) {
        if (i == q->n_terms)
            return LP_REFUSE(q->b, LP_E_RUNTIME,
                             "einsum(): fewer operands were provided than "
                             "specified in the equation");
        if (!read_labels(q->b, eq, pos, i, &q->term[i]))
            return false;
        if (eq[*pos] != ',') {
            if (i + 1 < q->n_terms)
                lp_fail(q->b->err, LP_E_RUNTIME,
                        "einsum(): more operands were provided than specified "
                        "in the equation");
            return i + 1 == q->n_terms;
        }
        ++*pos;
    }
}

/* The ellipsis of a term becomes labels of its dimensions, `dots` of them. */
static void spell_ellipsis(Term *t, int dots)
{
    int8_t spelt[MAX_TERM + LP_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < t->n; i++)
        if (t->label[i] == ELLIPSIS)
            for (int d = dots; d-- > 0;)
                spelt[n++] = (int8_t)(LETTERS + d);
        else
            spelt[n++] = t->label[i];
    t->n = n < MAX_TERM ? n : MAX_TERM;
    memcpy(t->label, spelt, (size_t)t->n);
}

/* The labels of operand i as many as its dimensions. */
static bool fit_operand(Equation *q, int i)
{
    Term *t = &q->term[i];
    int ndim = lp_type(q->b, t->v)->ndim, named = 0;
    for (int k = 0; k < t->n; k++)
        named += t->label[k] != ELLIPSIS;
    bool dots = named < t->n;
    if (dots ? named > ndim : named != ndim)
        return LP_REFUSE(
            q->b, LP_E_RUNTIME,
            "einsum(): the number of subscripts in the equation (%d) %s the "
            "number of dimensions (%d) for operand %d%s",
            named, dots ? "is more than" : "does not match", ndim, i,
            dots ? "" : " and no ellipsis was given");
    spell_ellipsis(t, ndim - named);
    for (int k = 0; k < t->n; k++)
        q->count[t->label[k]]++;
    if (ndim - named > q->dots)
        q->dots = ndim - named;
    return true;
}

/* Without "->": the ellipsis, then what occurs once, by the alphabet. */
static void implied_result(Equation *q)
{
    Term *r = &q->result;
    r->n = 0;
    for (int d = q->dots; d-- > 0;)
        r->label[r->n++] = (int8_t)(LETTERS + d);
    for (int l = 0; l < LETTERS && r->n < MAX_TERM; l++)
        if (q->count[l] == 1)
            r->label[r->n++] = (int8_t)l;
}

static bool read_result(Equation *q, const char *eq, int pos)
{
    Term *r = &q->result;
    if (!eq[pos]) {
        implied_result(q);
    } else {
        pos += 2;
        if (!read_labels(q->b, eq, &pos, -1, r))
            return false;
        if (eq[pos])
            return LP_REFUSE(q->b, LP_E_RUNTIME, INVALID, pos);
        spell_ellipsis(r, q->dots);
    }
    for (int k = 0; k < r->n; k++) {
        int l = r->label[k];
        bool unknown = q->last_use[l] < 0;
        if (unknown || q->in_result[l])
            return LP_REFUSE(
                q->b, LP_E_RUNTIME, "einsum(): output subscript %c %s",
                letter_of(l),
                unknown
                    ? "does not appear in the equation for any input operand"
                    : "appears more than once in the output");
        q->in_result[l] = true;
    }
    if (r->n > LP_MAX_DIMS)
        lp_fail(q->b->err, LP_E_RUNTIME,
                "einsum(): the result has %d dimensions, at most %d are "
                "supported",
                r->n, LP_MAX_DIMS);
    return !lp_failed(q->b);
}

/* ---- one operand --------------------------------------------------------- */
static int place_of(const Term *t, int label)
{
    for (int i = 0; i < t->n; i++)
        if (t->label[i] == label)
            return i;
    return -1;
}

static int64_t size_at(LpBuilder *b, const Term *t, int i)
{
    return lp_type(b, t->v)->shape[i];
}

static void drop(Term *t, int i)
{
    memmove(t->label + i, t->label + i + 1, (size_t)(t->n - i - 1));
    t->n--;
}

/* A label twice in an operand: the diagonal. */
static bool take_diagonals(LpBuilder *b, Term *t, int operand)
{
    for (int i = 0; i < t->n; i++)
        for (int j = t->n - 1; j > i; j--) {
            if (t->label[j] != t->label[i])
                continue;
            int64_t x = size_at(b, t, i), y = size_at(b, t, j);
            if (x != y)
                return LP_REFUSE(
                    b, LP_E_RUNTIME,
                    "einsum(): subscript %c is repeated for operand %d but the "
                    "sizes don't match, %lld != %lld",
                    letter_of(t->label[i]), operand, (long long)y,
                    (long long)x);
            LpAttr a[] = {lp_attr_int(0), lp_attr_int(i), lp_attr_int(j)};
            int8_t label = t->label[i];
            t->v = lp_emit(b, LP_OP_diagonal, &t->v, 1, a);
            drop(t, j);
            drop(t, i);
            t->label[t->n++] = label;
            if (lp_failed(b))
                return false;
            i = -1; /* the diagonal came last: look again */
            break;
        }
    return true;
}

/* Sums what nobody after operand `done` wants, and of the labels that `other`
 * has only what nobody wants at all. */
static void sum_unwanted(Equation *q, Term *t, const Term *other, int done)
{
    int64_t dims[MAX_TERM];
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        int l = t->label[i];
        if (!q->in_result[l] && q->last_use[l] <= done &&
            (!other || place_of(other, l) < 0))
            dims[n++] = i;
    }
    if (n == 0 || lp_failed(q->b))
        return;
    LpDtype type = lp_type(q->b, t->v)->dtype;
    t->v = lp_cast(q->b, lp_sum(q->b, t->v, dims, n, false), type);
    for (int k = n; k-- > 0;)
        drop(t, (int)dims[k]);
}

/* The dimension of size 1 of one is dropped where the other's is longer. */
static void drop_broadcast(LpBuilder *b, Term *x, const Term *y)
{
    for (int i = 0; i < x->n && !lp_failed(b); i++) {
        int j = place_of(y, x->label[i]);
        if (j < 0 || size_at(b, x, i) != 1 || size_at(b, y, j) == 1)
            continue;
        LpType t = lp_type_of(b, x->v);
        memmove(t.shape + i, t.shape + i + 1,
                (size_t)(t.ndim - i - 1) * sizeof *t.shape);
        x->v = lp_reshape(b, x->v, t.shape, t.ndim - 1);
        drop(x, i--);
    }
}

/* ---- a pair -------------------------------------------------------------- */
typedef struct Group {
    int n;
    int8_t label[MAX_TERM];
} Group;

static void join(Group *g, int label)
{
    g->label[g->n++] = (int8_t)label;
}

/* t's dimensions in the order of three groups, each made one dimension. */
static LpVal arranged(LpBuilder *b, const Term *t, const Group *g[3],
                      int64_t sizes[3])
{
    int64_t order[MAX_TERM];
    int n = 0;
    if (lp_failed(b))
        return LP_NOVAL;
    for (int k = 0; k < 3; k++) {
        sizes[k] = 1;
        for (int i = 0; i < g[k]->n; i++) {
            int at = place_of(t, g[k]->label[i]);
            sizes[k] *= size_at(b, t, at);
            order[n++] = at;
        }
    }
    return lp_reshape(b, lp_permute(b, t->v, order, n), sizes, 3);
}

static bool sizes_agree(const Equation *q, const Term *x, const Term *y, int at)
{
    for (int i = 0; i < x->n; i++) {
        int j = place_of(y, x->label[i]);
        if (j < 0 || size_at(q->b, x, i) == size_at(q->b, y, j))
            continue;
        char name[] = {'.', '.', '.', 0};
        if (x->label[i] < LETTERS)
            memcpy(name, (char[]){letter_of(x->label[i]), 0}, 2);
        return LP_REFUSE(
            q->b, LP_E_RUNTIME,
            "einsum(): subscript %s has size %lld for operand %d which does "
            "not broadcast with previously seen size %lld",
            name, (long long)size_at(q->b, y, j), at,
            (long long)size_at(q->b, x, i));
    }
    return true;
}

/* x times y, summed over what only they have: [batch, left, sum] times
 * [batch, sum, right]. */
static void contract(Equation *q, Term *x, Term *y, int at)
{
    LpBuilder *b = q->b;
    Group batch = {0}, sum = {0}, left = {0}, right = {0};
    int64_t sx[3], sy[3], shape[MAX_TERM];
    drop_broadcast(b, x, y);
    drop_broadcast(b, y, x);
    if (lp_failed(b) || !sizes_agree(q, x, y, at))
        return;
    sum_unwanted(q, x, y, at);
    sum_unwanted(q, y, x, at);
    for (int i = 0; i < x->n; i++) {
        int l = x->label[i];
        bool wanted = q->in_result[l] || q->last_use[l] > at;
        join(place_of(y, l) < 0 ? &left : wanted ? &batch : &sum, l);
    }
    for (int i = 0; i < y->n; i++)
        if (place_of(x, y->label[i]) < 0)
            join(&right, y->label[i]);
    LpVal p = arranged(b, x, (const Group *[]){&batch, &left, &sum}, sx);
    LpVal r = arranged(b, y, (const Group *[]){&batch, &sum, &right}, sy);
    if (lp_failed(b))
        return;
    r = sum.n == 0 ? lp_mul(b, p, r) : lp_op2(b, LP_OP_bmm, p, r);
    const Group *kept[] = {&batch, &left, &right};
    Term to = {.n = 0};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < kept[k]->n; i++) {
            int l = kept[k]->label[i];
            const Term *from = k == 2 ? y : x;
            shape[to.n] = size_at(b, from, place_of(from, l));
            to.label[to.n++] = (int8_t)l;
        }
    if (to.n > LP_MAX_DIMS) {
        lp_fail(b->err, LP_E_RUNTIME,
                "einsum(): a product of operands has %d dimensions, at most "
                "%d are supported",
                to.n, LP_MAX_DIMS);
        return;
    }
    to.v = lp_reshape(b, r, shape, to.n);
    *x = to;
}

/* ---- einsum -------------------------------------------------------------- */
static bool prepare(Equation *q, const char *eq)
{
    int pos = 0;
    for (int l = 0; l < LABELS; l++)
        q->last_use[l] = -1;
    if (!read_operands(q, eq, &pos))
        return false;
    for (int i = 0; i < q->n_terms; i++) {
        if (!fit_operand(q, i) || !take_diagonals(q->b, &q->term[i], i))
            return false;
        for (int k = 0; k < q->term[i].n; k++)
            q->last_use[q->term[i].label[k]] = i;
    }
    return read_result(q, eq, pos);
}

/* Does an equation sum over a letter of an operand behind the first? Only then
 * a product of matrices is made of it. */
static bool contracts(const char *eq)
{
    int count[256] = {0};
    const char *arrow = strstr(eq, "->");
    const char *end = arrow ? arrow : eq + strlen(eq);
    for (const char *p = eq; p < end; p++)
        count[(unsigned char)*p]++;
    bool behind = false;
    for (const char *p = eq; p < end; p++) {
        behind |= *p == ',';
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
        bool kept =
            arrow ? strchr(arrow, *p) != NULL : count[(unsigned char)*p] == 1;
        if (behind && letter && !kept)
            return true;
    }
    return false;
}

static LpCast cast_einsum(const LpAttr *attr)
{
    return contracts(attr[0].str) ? LP_CAST_NARROW : LP_CAST_AS_IS;
}

LP_FORMULA(einsum, "einsum(str equation, Tensor[] operands) -> Tensor @f",
           .cast_of = cast_einsum)
{
    Equation q = {.b = b, .n_terms = n_in};
    if (n_in == 0)
        return LP_REFUSE(b, LP_E_RUNTIME,
                         "einsum(): must provide at least one operand");
    q.term = lp_arena_calloc(b->scratch, (size_t)n_in * sizeof *q.term);
    if (!q.term)
        return LP_REFUSE(b, LP_E_MEMORY,
                         "no memory for the operands of einsum");
    for (int i = 0; i < n_in; i++)
        q.term[i].v = in[i];
    if (lp_failed(b) || !prepare(&q, attr[0].str))
        return LP_NOVAL;
    Term *x = &q.term[0];
    sum_unwanted(&q, x, NULL, 0);
    for (int i = 1; i < n_in && !lp_failed(b); i++)
        contract(&q, x, &q.term[i], i);
    if (lp_failed(b))
        return LP_NOVAL;
    int64_t order[LP_MAX_DIMS];
    for (int k = 0; k < q.result.n; k++)
        order[k] = place_of(x, q.result.label[k]);
    LpVal y = q.result.n ? lp_permute(b, x->v, order, q.result.n) : x->v;
    return n_in == 1 && y == in[0] ? lp_op1(b, LP_OP_alias, y) : y;
}

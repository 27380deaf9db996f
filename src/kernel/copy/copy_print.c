/* Prints a tensor as nested brackets:
 *
 *   title: (
 *    (1.000, 2.000)
 *    (3.000, 4.000)
 *   )
 *
 * Of `digits` one stands before the point. More than `summarise_threshold`
 * elements are summarised: of each dimension the first and last `edge_items`,
 * "..." between. A line is broken after a separator when the next number would
 * go beyond `max_line_width` (0: never). The threshold 0 prints everything.
 * auto chooses scientific notation if an element's magnitude asks for it. The
 * whole text is written at once, so that prints of several threads do not mix.
 */
#include "src/kernel/copy/hooks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/kernel/attrs.h"
#include "src/kernel/copy/copy.h"
#include "src/kernel/state.h"

typedef struct Print {
    LpCopyPlan copy;
    LpDesc in;
    int64_t threshold, edge, width;
    int digits;
    char format;                            /* first letter of the notation */
    char *title, *separator, *open, *close; /* in one block after the struct */
} Print;

typedef struct Text {
    char *s;
    size_t n, cap;
    int64_t column;
    bool failed;
} Text;

static void put(Text *t, const char *s)
{
    size_t n = strlen(s);
    while (!t->failed && t->n + n + 1 > t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 1024;
        char *more = lp_realloc(t->s, cap);
        t->failed = !more;
        if (more) {
            t->s = more;
            t->cap = cap;
        }
    }
    if (t->failed)
        return;
    memcpy(t->s + t->n, s, n + 1);
    t->n += n;
    t->column += (int64_t)n;
}

static void put_line(Text *t, int indent)
{
    put(t, "\n");
    t->column = 0;
    for (int i = 0; i < indent; i++)
        put(t, " ");
}

static void put_number(Text *t, const Print *p, const char *at, int indent)
{
    char buf[400]; /* the largest float64 in fixed notation has 309 digits */
    int decimals = p->digits > 0 ? p->digits - 1 : 0;
    LpScalar v = lp_scalar_load(p->in.dtype, at);
    if (v.kind != LP_KIND_FLOAT)
        snprintf(buf, sizeof buf, "%lld", (long long)v.i);
    else if (p->format == 's')
        snprintf(buf, sizeof buf, "%.*e", decimals, v.f);
    else if (p->format == 'n')
        snprintf(buf, sizeof buf, "%.*g", p->digits, v.f);
    else
        snprintf(buf, sizeof buf, "%.*f", decimals, v.f);
    if (indent && p->width && t->column + (int64_t)strlen(buf) > p->width)
        put_line(t, indent);
    put(t, buf);
}

/* `edge`: how many elements of a longer dimension are left at each end. */
static void put_dim(Text *t, const Print *p, const char *at, int dim,
                    int64_t edge)
{
    const LpDesc *d = &p->in;
    bool row = dim == d->ndim - 1;
    int64_t n = d->shape[dim];
    int64_t step = d->strides[dim] * (int64_t)lp_dtype_size(d->dtype);
    put(t, p->open);
    for (int64_t i = 0; i < n && !t->failed; i++) {
        if (!row)
            put_line(t, dim + 1);
        if (i == edge && n > 2 * edge) {
            put(t, "...");
            i = n - edge - 1;
        } else if (row) {
            put_number(t, p, at + i * step, i > 0 ? dim + 2 : 0);
        } else {
            put_dim(t, p, at + i * step, dim + 1, edge);
        }
        if (row && i < n - 1)
            put(t, p->separator);
    }
    if (!row)
        put_line(t, dim);
    put(t, p->close);
}

/* Fixed notation, unless a number would lose its digits or fill the line. */
static char choose_format(const Print *p, const void *data)
{
    LpDesc plain = lp_desc_plain(&p->in, LP_F64);
    int64_t n = lp_desc_numel(&plain);
    double *v = lp_alloc((size_t)(n + 1) * sizeof *v);
    double most = 0, least = INFINITY;
    if (!v)
        return 's';
    lp_copy_strided(&p->in, data, &plain, v);
    for (int64_t i = 0; i < n; i++) {
        double a = fabs(v[i]);
        if (!isfinite(a) || a == 0)
            continue;
        most = a > most ? a : most;
        least = a < least ? a : least;
    }
    lp_free(v);
    return most >= 1e8 || least < pow(10, -p->digits) ? 's' : 'f';
}

LP_KERNEL_RUN(run_print)
{
    Print p = *(const Print *)k->state;
    Text t = {.s = NULL};
    if (in[0] != out[0])
        lp_copy_run(&p.copy, in[0], out[0]);
    if (p.format == 'a')
        p.format = choose_format(&p, in[0]);
    if (p.title[0]) {
        put(&t, p.title);
        put(&t, ": ");
    }
    bool all = p.threshold == 0 || lp_desc_numel(&p.in) <= p.threshold;
    if (p.in.ndim == 0)
        put_number(&t, &p, in[0], 0);
    else
        put_dim(&t, &p, in[0], 0, all ? INT64_MAX / 2 : p.edge);
    put(&t, "\n");
    if (!t.failed)
        fwrite(t.s, 1, t.n, stderr);
    lp_free(t.s);
    LP_FAIL_IF(t.failed, e, LP_E_MEMORY, "no memory to print a tensor");
    return LP_OK;
}

static char *take(char **block, const char *s)
{
    size_t n = strlen(s) + 1;
    char *to = memcpy(*block, s, n);
    *block += n;
    return to;
}

LP_KERNEL_PREPARE(lp_print_prepare)
{
    const LpAttr *a = r->attr;
    size_t n = strlen(a[LP_PRINT_TITLE].str) +
               strlen(a[LP_PRINT_SEPARATOR].str) +
               strlen(a[LP_PRINT_OPEN_BRACKET].str) +
               strlen(a[LP_PRINT_CLOSE_BRACKET].str) + 4;
    LP_TRY(lp_kernel_state(r->op->name, sizeof(Print) + n, run_print, k, e));
    Print *p = k->state;
    char *block = (char *)(p + 1);
    lp_copy_plan(&r->in[0], &r->out[0], r->threads, &p->copy);
    p->in = r->in[0];
    p->threshold = a[LP_PRINT_SUMMARISE_THRESHOLD].i;
    p->edge = a[LP_PRINT_EDGE_ITEMS].i;
    p->width = a[LP_PRINT_MAX_LINE_WIDTH].i;
    p->digits = a[LP_PRINT_DIGITS].i < 30 ? (int)a[LP_PRINT_DIGITS].i : 30;
    p->format = a[LP_PRINT_FLOAT_FORMAT].str[0];
    p->title = take(&block, a[LP_PRINT_TITLE].str);
    p->separator = take(&block, a[LP_PRINT_SEPARATOR].str);
    p->open = take(&block, a[LP_PRINT_OPEN_BRACKET].str);
    p->close = take(&block, a[LP_PRINT_CLOSE_BRACKET].str);
    return LP_OK;
}

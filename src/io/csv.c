/* CSV: RFC 4180 with any one-byte delimiter; lines end with LF or CRLF; a field
 * in double quotes may hold delimiters, line ends and doubled quotes. Empty
 * lines are skipped, a byte-order mark of UTF-8 too. Fields are cut in place:
 * one copy of the text, one record a field. */
#include "src/io/csv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"

#define MOST_FILE ((int64_t)1 << 36)
#define MOST_COLUMNS 65536 /* a column is a tensor or a list */
#define LOOK 4096          /* rows between two looks for Ctrl-C */

typedef struct Cut {
    LpCsv *c;
    char *p, *end; /* p: next byte */
    char delimiter;
    const char *name;
    int64_t line;
} Cut;

static LpStatus bad(const Cut *k, const char *what, LpErr *e)
{
    return lp_fail(e, LP_E_VALUE, "%s, line %lld: %s", k->name,
                   (long long)k->line, what);
}

static LpStatus add_cell(LpCsv *c, const char *p, size_t n, bool quoted,
                         LpErr *e)
{
    LP_FAIL_IF(!LP_GROW(c->cells, c->cap, c->n_cells), e, LP_E_MEMORY,
               "out of memory");
    c->cells[c->n_cells++] = (LpCsvCell){p, n, quoted};
    return LP_OK;
}

/* A field in quotes, cut in place: doubled quotes become one. */
static LpStatus quoted_field(Cut *k, LpErr *e)
{
    char *to = ++k->p, *start = to;
    for (;; *to++ = *k->p++) {
        if (k->p == k->end)
            return bad(k, "a quoted field without its end", e);
        k->line += *k->p == '\n';
        if (*k->p != '"')
            continue;
        if (k->p + 1 == k->end || k->p[1] != '"')
            break;
        k->p++;
    }
    k->p++; /* the closing quote: its place takes the terminator */
    bool ends = k->p == k->end || *k->p == k->delimiter || *k->p == '\n' ||
                *k->p == '\r';
    if (!ends)
        return bad(k, "text after a quoted field", e);
    *to = '\0';
    return add_cell(k->c, start, (size_t)(to - start), true, e);
}

/* Leaves p at what ended the field; its terminator is written by the row. */
static LpStatus plain_field(Cut *k, LpErr *e)
{
    char *start = k->p;
    while (k->p < k->end && *k->p != k->delimiter && *k->p != '\n' &&
           !(*k->p == '\r' && (k->p + 1 == k->end || k->p[1] == '\n'))) {
        if (*k->p == '"')
            return bad(k, "a quote inside of a field", e);
        if (*k->p == '\0')
            return bad(k, "a zero byte", e);
        k->p++;
    }
    return add_cell(k->c, start, (size_t)(k->p - start), false, e);
}

static LpStatus one_row(Cut *k, LpErr *e)
{
    int64_t n = 0;
    for (bool more = true; more; n++) {
        bool quoted = k->p < k->end && *k->p == '"';
        if (n == MOST_COLUMNS)
            return bad(k, "more than 65536 fields", e);
        LP_TRY(quoted ? quoted_field(k, e) : plain_field(k, e));
        more = k->p < k->end && *k->p == k->delimiter;
        if (more)
            *k->p++ = '\0';
    }
    if (k->p < k->end && *k->p == '\r')
        *k->p++ = '\0';
    if (k->p < k->end && *k->p != '\n')
        return bad(k, "a carriage return without a line feed", e);
    if (k->p < k->end)
        *k->p++ = '\0';
    if (k->c->columns == 0)
        k->c->columns = n;
    LP_FAIL_IF(n != k->c->columns, e, LP_E_VALUE,
               "%s, line %lld: %lld fields; the first line has %lld", k->name,
               (long long)k->line, (long long)n, (long long)k->c->columns);
    k->c->rows++;
    k->line++;
    LP_FAIL_IF(k->c->rows % LOOK == 0 && lp_interrupt_raised(), e,
               LP_E_INTERRUPT, "interrupted");
    return LP_OK;
}

static bool skip_empty(Cut *k)
{
    size_t n = k->p[0] == '\n'                                           ? 1
               : k->p[0] == '\r' && k->p + 1 < k->end && k->p[1] == '\n' ? 2
                                                                         : 0;
    k->p += n;
    k->line += n > 0;
    return n > 0;
}

/* Takes over `text`, n bytes and a terminator. */
static LpStatus cut(char *text, size_t n, char delimiter, const char *name,
                    LpCsv *out, LpErr *e)
{
    Cut k = {out, text, text + n, delimiter, name, 1};
    *out = (LpCsv){.text = text};
    text[n] = '\0';
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        k.p += 3;
    while (k.p < k.end)
        if (!skip_empty(&k))
            LP_TRY(one_row(&k, e));
    LP_FAIL_IF(out->rows == 0, e, LP_E_VALUE, "%s: no lines", name);
    return LP_OK;
}

LpStatus lp_csv_read(const char *path, char delimiter, LpCsv *out, LpErr *e)
{
    FILE *f;
    int64_t size;
    *out = (LpCsv){0};
    LP_TRY(lp_file_open(path, &f, &size, e));
    char *text = size <= MOST_FILE ? lp_alloc((size_t)size + 1) : NULL;
    LpStatus s = text ? lp_file_read(f, path, text, (size_t)size, "the file", e)
                      : lp_fail(e, LP_E_MEMORY, "%s: out of memory", path);
    fclose(f);
    if (s != LP_OK) {
        lp_free(text);
        return s;
    }
    return cut(text, (size_t)size, delimiter, path, out, e);
}

void lp_csv_fini(LpCsv *c)
{
    lp_free(c->text);
    lp_free(c->cells);
    *c = (LpCsv){0};
}

/* ---- numbers ------------------------------------------------------------- */
static bool missing(const char *s)
{
    return s[0] == '\0' || strcmp(s, "NA") == 0 || strcmp(s, "nan") == 0 ||
           strcmp(s, "NaN") == 0;
}

/* 2: a whole number of 64 bits, 1: another number, 0: none. */
static int number(const LpCsvCell *x, int64_t *i, double *d)
{
    char *end;
    if (strlen(x->p) != x->n || strpbrk(x->p, "xXpP"))
        return 0;
    if (missing(x->p)) {
        *d = NAN;
        return 1;
    }
    errno = 0;
    *i = strtoll(x->p, &end, 10);
    if (*end == '\0' && errno == 0) {
        *d = (double)*i;
        return 2;
    }
    *d = strtod(x->p, &end);
    if (end == x->p)
        return 0;
    while (*end == ' ')
        end++;
    return *end == '\0';
}

LpStatus lp_csv_numbers(const LpCsv *c, int64_t first, int64_t column,
                        LpTensor **out, LpErr *e)
{
    LpType type = {.dtype = LP_I64, .ndim = 1, .shape = {c->rows - first}};
    int64_t i = 0;
    double d = 0;
    *out = NULL;
    for (int64_t r = first; r < c->rows; r++) {
        int kind = number(&c->cells[r * c->columns + column], &i, &d);
        if (kind == 0)
            return LP_OK;
        if (kind == 1)
            type.dtype = LP_F64;
    }
    LP_TRY(lp_tensor_new(&type, out, e));
    for (int64_t r = first; r < c->rows; r++) {
        number(&c->cells[r * c->columns + column], &i, &d);
        if (type.dtype == LP_I64)
            ((int64_t *)lp_tensor_data(*out))[r - first] = i;
        else
            ((double *)lp_tensor_data(*out))[r - first] = d;
    }
    return LP_OK;
}

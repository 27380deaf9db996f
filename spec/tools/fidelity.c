/* Compares the cost model with the cycles and bytes that Graphcore recorded for
 * its own IPUModel (github graphcore/poplibs, commit 3a650a11^, March 2021,
 * tests/benchmark_results.csv), kept in spec/fidelity.csv.
 *
 * Usage: fidelity [CSV [-q]]. Prints a row a layer and generation, then the
 * mean absolute error of each group. Exits 1 when a bound of `groups` is
 * missed, 2 when the file cannot be read. -q prints the groups alone.
 *
 * Layers of fully connected and convolution kind are three products: forward,
 * gradient of the input, gradient of the weights, then the scaled addition of
 * the last to the weights. The recorded runs had no compiled codelets, so that
 * code is left out of the bytes. They were made without data too, which leaves
 * every index of an embedding zero: one row takes all look-ups. */
#include "runtime/cost/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FIELDS = 40, MAX_LINE = 1024 };

typedef struct Row {
    char line[MAX_LINE];
    const char *field[MAX_FIELDS];
} Row;

/* Columns, by the names in the first line of the file. */
static Row head;

static void split(Row *r)
{
    char *p = r->line;
    r->line[strcspn(r->line, "\r\n")] = 0;
    for (int i = 0; i < MAX_FIELDS; i++) {
        char *comma = p ? strchr(p, ',') : NULL;
        r->field[i] = p ? p : "";
        if (comma)
            *comma = 0;
        p = comma ? comma + 1 : NULL;
    }
}

static const char *text(const Row *r, const char *column)
{
    for (int i = 0; i < MAX_FIELDS; i++)
        if (!strcmp(head.field[i], column))
            return r->field[i];
    fprintf(stderr, "fidelity: no column '%s'\n", column);
    exit(2);
}

static int64_t number(const Row *r, const char *column, int64_t none)
{
    const char *s = text(r, column);
    return *s ? strtoll(s, NULL, 10) : none;
}

/* Numbers between blanks; gives how many. */
static int list(const char *s, int64_t *out, int most)
{
    int n = 0;
    for (char *end; n < most; s = end) {
        out[n] = strtoll(s, &end, 10);
        if (end == s)
            break;
        n++;
    }
    return n;
}

/* What the model says of a layer. */
typedef struct Result {
    int64_t cycles, total_bytes, max_tile_bytes;
} Result;

static Result finish(const LpCostCtx *x, const LpCost *c, int64_t live_bytes)
{
    int64_t fixed = c->vertex_bytes + c->exchange_code_bytes;
    int64_t tile = live_bytes / x->chip->tiles + c->temp_tile_bytes + fixed;
    return (Result){
        lp_cost_cyc(c), tile * c->tiles,
        lp_tile_with_gaps(x->chip, tile, c->interleaved_tile_bytes)};
}

static Result products(const LpCostCtx *x, LpCostType t, const Row *r)
{
    int64_t g = number(r, "groups", 1), e = lp_cost_type_bytes(t), out;
    int64_t live;
    LpCost c;
    if (!strcmp(text(r, "op"), "gemm")) {
        LpMatmulShape p = {g, number(r, "m", 0), number(r, "k", 0),
                           number(r, "n", 0)};
        c = lp_cost_matmul(x, t, p, LP_PASS_NONE);
        out = p.m * p.n;
        live = (p.m * p.k + p.k * p.n + out) * e;
    } else {
        int64_t b = number(r, "batch", 0), k = number(r, "in", 0);
        int64_t n = number(r, "out", 0);
        LpMatmulShape fwd = {g, b, k, n}, bwd = {g, b, n, k}, wu = {g, k, b, n};
        c = lp_cost_matmul(x, t, fwd, LP_PASS_FWD);
        lp_cost_add(&c, lp_cost_matmul(x, t, bwd, LP_PASS_BWD));
        lp_cost_add(&c, lp_cost_matmul(x, t, wu, LP_PASS_WU));
        out = g * k * n;
        live = (g * b * (k + n) + out) * e;
    }
    lp_cost_add(&c, lp_cost_scaled_add(x, t, out, false));
    return finish(x, &c, live);
}

static void pair(const Row *r, const char *column, int64_t none, int64_t *out)
{
    int n = list(text(r, column), out, 2);
    if (n == 0)
        out[0] = out[1] = none;
    else if (n == 1)
        out[1] = out[0];
}

static Result convolution(const LpCostCtx *x, LpCostType t, const Row *r)
{
    LpConvShape c = {.groups = number(r, "groups", 1),
                     .batch = number(r, "batch", 1),
                     .in = number(r, "in", 0),
                     .out = number(r, "out", 0),
                     .field = {1, 1, 1},
                     .kernel = {1, 1, 1},
                     .stride = {1, 1, 1},
                     .dilation = {1, 1, 1}};
    pair(r, "field", 1, c.field + 1);
    pair(r, "kernel", 1, c.kernel + 1);
    pair(r, "stride", 1, c.stride + 1);
    pair(r, "pad_lower", 0, c.pad_lower + 1);
    pair(r, "pad_upper", 0, c.pad_upper + 1);
    LpCost sum = {0};
    for (int pass = LP_PASS_FWD; pass <= LP_PASS_WU; pass++)
        lp_cost_add(&sum, lp_cost_conv(x, t, &c, (LpConvPass)pass));
    int64_t weights = c.groups * c.in * c.out * c.kernel[1] * c.kernel[2];
    lp_cost_add(&sum, lp_cost_scaled_add(x, t, weights, false));
    int64_t live = (weights + c.batch * c.groups *
                                  (c.in * c.field[1] * c.field[2] +
                                   c.out * lp_conv_out_dim(&c, 1) *
                                       lp_conv_out_dim(&c, 2))) *
                   lp_cost_type_bytes(t);
    return finish(x, &sum, live);
}

static Result lstm(const LpCostCtx *x, LpCostType t, const Row *r)
{
    LpRnnShape p = {number(r, "seq", 0), number(r, "batch", 0),
                    number(r, "in", 0), number(r, "out", 0), 4};
    bool train = strcmp(text(r, "phases"), "fwd") != 0;
    LpCost sum = lp_cost_rnn(x, t, &p, train ? LP_PASS_FWD : LP_PASS_NONE);
    if (train)
        lp_cost_add(&sum, lp_cost_rnn_grad(x, t, &p));
    int64_t live = ((p.in + p.hidden) * 4 * p.hidden +
                    p.steps * p.batch * (p.in + p.hidden)) *
                   lp_cost_type_bytes(t);
    return finish(x, &sum, live);
}

static LpRedOp reduce_op(const char *name)
{
    return !strcmp(name, "MAX")          ? LP_RED_MAX
           : !strcmp(name, "SQUARE_ADD") ? LP_RED_SQUARE_ADD
                                         : LP_RED_ADD;
}

static Result reduction(const LpCostCtx *x, LpCostType t, const Row *r)
{
    int64_t shape[8], dims[8], n_in = 1;
    int rank = list(text(r, "shape"), shape, 8);
    int n = list(text(r, "dims"), dims, 8);
    uint32_t reduced = 0;
    for (int i = 0; i < n; i++)
        reduced |= 1u << dims[i];
    for (int i = 0; i < rank; i++)
        n_in *= shape[i];
    LpCost sum = lp_cost_reduce(x, reduce_op(text(r, "reduce")), t, shape, rank,
                                reduced);
    int64_t live = n_in * lp_cost_type_bytes(t);
    return finish(x, &sum, live);
}

static Result embedding(const LpCostCtx *x, LpCostType t, const Row *r)
{
    int64_t shape[2] = {0, 0}, n = number(r, "indices", 0);
    list(text(r, "shape"), shape, 2);
    LpLookup l = {shape[0], shape[1], n, true};
    LpCost sum = lp_cost_lookup(x, t, &l);
    lp_cost_add(&sum, lp_cost_lookup_add(x, t, &l));
    int64_t live = (l.rows + 2 * n) * l.cols * lp_cost_type_bytes(t);
    return finish(x, &sum, live);
}

/* Groups, how a row is told to belong, and the bound on the mean absolute
 * error of cycles on Mk2 in percent (0: reported only). */
typedef struct Group {
    const char *name, *op, *prefix, *not_prefix;
    Result (*model)(const LpCostCtx *, LpCostType, const Row *);
    double bound;
} Group;

static const Group groups[] = {
    {"GEMM", "gemm", "", NULL, products, 5},
    {"BERT fully connected", "fc", "bert_", "bert_grouped", products, 8},
    {"BERT grouped products", "fc", "bert_grouped", NULL, products, 0},
    {"small fully connected", "fc", "fc_", NULL, products, 0},
    {"convolutions", "conv", "", NULL, convolution, 0},
    {"reductions", "reduction", "", NULL, reduction, 0},
    {"LSTM", "lstm", "", NULL, lstm, 0},
    {"embeddings", "embedding", "", NULL, embedding, 0},
};
enum { N_GROUPS = sizeof groups / sizeof *groups };

typedef struct Errors {
    double cycles, bias, total, tile;
    int n;
} Errors;

static const Group *group_of(const Row *r)
{
    const char *name = text(r, "name"), *op = text(r, "op");
    for (const Group *g = groups; g < groups + N_GROUPS; g++)
        if (!strcmp(op, g->op) &&
            !strncmp(name, g->prefix, strlen(g->prefix)) &&
            !(g->not_prefix &&
              !strncmp(name, g->not_prefix, strlen(g->not_prefix))))
            return g;
    return NULL;
}

static double percent(int64_t ours, int64_t recorded)
{
    return 100.0 * (double)(ours - recorded) / (double)recorded;
}

static void compare(const LpChip *chip, const char *mk, const Row *r,
                    Errors *errors, bool quiet)
{
    const Group *g = group_of(r);
    char column[40];
    if (!g) {
        if (!quiet)
            printf("%-36s not compared\n", text(r, "name"));
        return;
    }
    LpCostCtx x = lp_cost_ctx(chip);
    x.tiles = (int)number(r, "tiles", 0);
    LpCostType t =
        strcmp(text(r, "dtype"), "half") ? LP_COST_FLOAT : LP_COST_HALF;
    Result ours = g->model(&x, t, r), recorded;
    snprintf(column, sizeof column, "%s_cycles", mk);
    recorded.cycles = number(r, column, 1);
    snprintf(column, sizeof column, "%s_total_bytes", mk);
    recorded.total_bytes = number(r, column, 1);
    snprintf(column, sizeof column, "%s_max_tile_bytes", mk);
    recorded.max_tile_bytes = number(r, column, 1);
    double c = percent(ours.cycles, recorded.cycles);
    double m = percent(ours.total_bytes, recorded.total_bytes);
    double b = percent(ours.max_tile_bytes, recorded.max_tile_bytes);
    Errors *e = &errors[g - groups];
    e->cycles += fabs(c);
    e->bias += c;
    e->total += fabs(m);
    e->tile += fabs(b);
    e->n++;
    if (!quiet)
        printf("%-36s %9lld %9lld %+6.1f %10lld %+7.1f %8lld %+7.1f\n",
               text(r, "name"), (long long)recorded.cycles,
               (long long)ours.cycles, c, (long long)recorded.total_bytes, m,
               (long long)recorded.max_tile_bytes, b);
}

static bool summary(const LpChip *chip, const Errors *errors, bool bounded)
{
    bool kept = true;
    printf("\n%s: mean absolute error in percent\n", chip->name);
    printf("  %-24s %4s %7s %7s %7s %7s  bound\n", "group", "n", "cycles",
           "bias", "bytes", "tile");
    for (int i = 0; i < N_GROUPS; i++) {
        const Errors *e = &errors[i];
        double n = e->n ? e->n : 1, mean = e->cycles / n;
        printf("  %-24s %4d %7.2f %+7.2f %7.1f %7.1f", groups[i].name, e->n,
               mean, e->bias / n, e->total / n, e->tile / n);
        if (bounded && groups[i].bound > 0) {
            bool ok = e->n && mean <= groups[i].bound;
            printf("  %4.0f %s", groups[i].bound, ok ? "kept" : "MISSED");
            kept = kept && ok;
        }
        printf("\n");
    }
    return kept;
}

static bool run(const char *path, const char *version, const char *mk,
                bool quiet)
{
    FILE *f = fopen(path, "r");
    Errors errors[N_GROUPS] = {{0}};
    const LpChip *chip = lp_chip_find(version);
    if (!f || !fgets(head.line, MAX_LINE, f)) {
        fprintf(stderr, "fidelity: cannot read %s\n", path);
        exit(2);
    }
    split(&head);
    if (!quiet)
        printf("\n%s\n%-36s %9s %9s %6s %10s %7s %8s %7s\n", chip->name,
               "layer", "recorded", "ours", "%", "bytes", "%", "tile", "%");
    for (Row r; fgets(r.line, MAX_LINE, f);) {
        split(&r);
        compare(chip, mk, &r, errors, quiet);
    }
    fclose(f);
    return summary(chip, errors, !strcmp(mk, "mk2"));
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "spec/fidelity.csv";
    bool quiet = argc > 2 && !strcmp(argv[2], "-q");
    bool first = run(path, "ipu1", "mk1", quiet);
    bool second = run(path, "ipu2", "mk2", quiet);
    return first && second ? 0 : 1;
}

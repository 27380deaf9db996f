/* Compares the cost model with the cycles and bytes that Graphcore recorded for
 * its own IPUModel (github graphcore/poplibs, commit 3a650a11^, March 2021,
 * tests/benchmark_results.csv), kept in spec/fidelity.csv.
 *
 * Usage: fidelity [CSV [-q]]. Prints a row a layer and generation, then the
 * mean absolute error of each group. Exits 1 when a bound of `groups` is
 * missed, 2 when the file cannot be read. -q prints the groups alone.
 *
 * Rows of ROWS have the same columns; the kinds are those of `groups`.
 *
 * Layers of fully connected and convolution kind are three products: forward,
 * gradient of the input, gradient of the weights, then the scaled addition of
 * the last to the weights. Bytes are those of the layer as a step of its own,
 * which src/passes/ipu plans: operands and results are always live, as the
 * programs that read and write them are apart. The model has no code and no
 * stacks: these are left out. */
#include "runtime/cost/cost.h"
#include "src/ir/schema.h"
#include "src/ir/text.h"
#include "src/ops/ops.h"
#include "src/passes/compile.h"
#include "src/passes/ipu/strategy.h"

#include <math.h>
#include <stdarg.h>
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
    return ""; /* of kinds that this file does not have */
}

static int64_t number(const Row *r, const char *column, int64_t none)
{
    const char *s = text(r, column);
    return *s ? strtoll(s, NULL, 10) : none;
}

/* Numbers between blanks, commas or crosses ("1 7", "{1;7}", "1x7"); gives how
 * many. */
static int list(const char *s, int64_t *out, int most)
{
    int n = 0;
    for (char *end; n < most; s = end) {
        s += strcspn(s, "0123456789");
        out[n] = strtoll(s, &end, 10);
        if (end == s)
            break;
        n++;
    }
    return n;
}

/* ---- the layer as a step ------------------------------------------------- */
static char graph[4096];

static void line(const char *format, ...)
{
    size_t n = strlen(graph);
    va_list a;
    va_start(a, format);
    vsnprintf(graph + n, sizeof graph - n, format, a);
    va_end(a);
}

#define HERE "origin block \"b\" stage 0 ipu 0 phase 0"
#define BACK HERE " backward\n"

/* Starts a graph. */
static void begin(void)
{
    strcpy(graph, "graph\n" HERE "\n");
}

/* What the model says of a layer. */
typedef struct Result {
    int64_t cycles, total_bytes, max_tile_bytes;
} Result;

static LpStatus give_up(const LpErr *e)
{
    fprintf(stderr, "fidelity: %s\n%s", e->msg, graph);
    exit(2);
}

/* Inputs named w are weights, others buffers; an output u is the new w, others
 * are buffers too. */
static LpStatus variables(LpStep *s, LpErr *e)
{
    const LpGraph *g = s->micro;
    for (size_t i = 0; i < g->n_input; i++) {
        LpVal in = g->input[i];
        bool weight = *g->value[in].name == 'w';
        LpVariable v = {.role = weight ? LP_VAR_PARAM : LP_VAR_BUFFER,
                        .name = g->value[in].name,
                        .type = *lp_graph_type(g, in),
                        .micro_in = in,
                        .param = -1};
        if (weight && g->n_output && *g->value[g->output[0]].name == 'u')
            v.micro_out = g->output[0];
        LP_FAIL_IF(lp_step_add(s, &v, e) < 0, e, LP_E_MEMORY, "out of memory");
    }
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = g->value[g->output[i]].name;
        LpVariable v = {.role = LP_VAR_BUFFER,
                        .name = name,
                        .type = *lp_graph_type(g, g->output[i]),
                        .micro_out = g->output[i],
                        .param = -1};
        LP_FAIL_IF(*name != 'u' && lp_step_add(s, &v, e) < 0, e, LP_E_MEMORY,
                   "out of memory");
    }
    return LP_OK;
}

static LpStatus plan(const LpCostCtx *x, LpStep *s, LpIpuPlan **p, LpErr *e)
{
    LpIpuOptions o = lp_ipu_options();
    o.chip = x->chip;
    o.tiles = x->tiles;
    o.partials = LP_F32;
    o.allow_out_of_memory = o.synthetic_data = true;
    lp_graph_free(s->micro);
    s->micro = NULL;
    LP_TRY(lp_graph_parse(graph, &s->micro, e));
    LP_TRY(variables(s, e));
    return lp_ipu_analyse(s, &o, NULL, p, e);
}

/* Bytes of a tile that the record does not have. */
static int64_t unseen(const LpIpuMemory *m, int tiles)
{
    return m->tile_code + m->bytes[LP_MEM_STACK] / tiles;
}

/* c: of the layer; NULL for what its nodes cost as the product has them. */
static Result finish(const LpCostCtx *x, const LpCost *c)
{
    LpCost sum = {0};
    LpErr e = {0};
    LpStep *s = lp_step_new();
    LpIpuPlan *p = NULL;
    if (!s || plan(x, s, &p, &e) != LP_OK)
        give_up(&e);
    for (LpNodeId n = 0; !c && n < p->step->micro->n_node; n++)
        lp_cost_add(&sum, *p->cost[n].cost);
    c = c ? c : &sum;
    const LpIpuMemory *m = &p->memory[0];
    int64_t not_there = unseen(m, lp_ipu_tiles(p));
    Result r = {
        lp_cost_cyc(c), m->always + m->not_always - not_there * lp_ipu_tiles(p),
        lp_tile_with_gaps(x->chip, m->max_tile - not_there,
                          c->interleaved_tile_bytes, c->apart_tile_bytes)};
    lp_ipu_plan_free(p);
    lp_step_release(s);
    return r;
}

#define N(v) (long long)(v)

static const char *dtype(LpCostType t)
{
    return t == LP_COST_HALF ? "float16" : "float32";
}

static Result products(const LpCostCtx *x, LpCostType t, const Row *r)
{
    int64_t g = number(r, "groups", 1);
    LpCost c;
    begin();
    if (!strcmp(text(r, "op"), "gemm")) {
        LpMatmulShape p = {g, number(r, "m", 0), number(r, "k", 0),
                           number(r, "n", 0)};
        c = lp_cost_matmul(x, t, p, LP_PASS_NONE);
        line("input %%1 \"a\": %s[%lld, %lld]\n", dtype(t), N(p.m), N(p.k));
        line("input %%2 \"b\": %s[%lld, %lld]\n", dtype(t), N(p.k), N(p.n));
        line("input %%3 \"w\": %s[%lld, %lld]\n", dtype(t), N(p.m), N(p.n));
        line("%%4 = mm(%%1, %%2)\n%%5 \"u\" = add(%%3, %%4, alpha=0.5)\n");
        line("output %%5\n");
        lp_cost_add(&c, lp_cost_scaled_add(x, t, p.m * p.n, false));
        return finish(x, &c);
    }
    int64_t b = number(r, "batch", 0), k = number(r, "in", 0);
    int64_t n = number(r, "out", 0);
    LpMatmulShape fwd = {g, b, k, n}, bwd = {g, b, n, k}, wu = {g, k, b, n};
    c = lp_cost_matmul(x, t, fwd, LP_PASS_FWD);
    lp_cost_add(&c, lp_cost_matmul(x, t, bwd, LP_PASS_BWD));
    lp_cost_add(&c, lp_cost_matmul(x, t, wu, LP_PASS_WU));
    lp_cost_add(&c, lp_cost_scaled_add(x, t, g * k * n, false));
    const char *d = dtype(t);
    line("input %%1 \"x\": %s[%lld, %lld, %lld]\n", d, N(g), N(b), N(k));
    line("input %%2 \"w\": %s[%lld, %lld, %lld]\n", d, N(g), N(k), N(n));
    line("input %%3 \"d\": %s[%lld, %lld, %lld]\n", d, N(g), N(b), N(n));
    line("%%4 \"y\" = bmm(%%1, %%2)\n" BACK "");
    line("%%5 = permute(%%2, dims=[0, 2, 1])\n%%6 \"e\" = bmm(%%3, %%5)\n");
    line("%%7 = permute(%%1, dims=[0, 2, 1])\n%%8 = bmm(%%7, %%3)\n");
    line("%%9 \"u\" = add(%%2, %%8, alpha=0.5)\noutput %%9, %%4, %%6\n");
    return finish(x, &c);
}

static void pair(const Row *r, const char *column, int64_t none, int64_t *out)
{
    int n = list(text(r, column), out, 2);
    if (n == 0)
        out[0] = out[1] = none;
    else if (n == 1)
        out[1] = out[0];
}

static void convolution_graph(const LpConvShape *c, const char *d)
{
    int64_t in = c->groups * c->in, out = c->groups * c->out;
    const int64_t *k = c->kernel, *f = c->field;
    char attr[200];
    snprintf(attr, sizeof attr,
             "stride=[%lld, %lld], padding=[%lld, %lld, %lld, %lld], "
             "dilation=[1, 1], transposed=false, output_padding=[0, 0], "
             "groups=%lld",
             N(c->stride[1]), N(c->stride[2]), N(c->pad_lower[1]),
             N(c->pad_lower[2]), N(c->pad_upper[1]), N(c->pad_upper[2]),
             N(c->groups));
    begin();
    line("input %%1 \"x\": %s[%lld, %lld, %lld, %lld]\n", d, N(c->batch), N(in),
         N(f[1]), N(f[2]));
    line("input %%2 \"w\": %s[%lld, %lld, %lld, %lld]\n", d, N(out), N(c->in),
         N(k[1]), N(k[2]));
    line("input %%3 \"d\": %s[%lld, %lld, %lld, %lld]\n", d, N(c->batch),
         N(out), N(lp_conv_out_dim(c, 1)), N(lp_conv_out_dim(c, 2)));
    line("%%4 \"y\" = convolution(%%1, %%2, %s)\n" BACK "", attr);
    line("%%5 \"e\" = convolution_backward_input(%%3, %%2, input_size=[%lld, "
         "%lld, %lld, %lld], %s)\n",
         N(c->batch), N(in), N(f[1]), N(f[2]), attr);
    line("%%6 = convolution_backward_weight(%%3, %%1, weight_size=[%lld, %lld, "
         "%lld, %lld], %s)\n",
         N(out), N(c->in), N(k[1]), N(k[2]), attr);
    line("%%7 \"u\" = add(%%2, %%6, alpha=0.5)\noutput %%7, %%4, %%5\n");
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
    convolution_graph(&c, dtype(t));
    return finish(x, &sum);
}

/* The sequences and weights of a recurrent layer, in training with what its
 * gradient reads and makes. */
static Result recurrent(const LpCostCtx *x, LpCostType t, const Row *r)
{
    bool gru = !strncmp(text(r, "op"), "gru", 3);
    LpRnnShape p = {number(r, "seq", 0), number(r, "batch", 0),
                    number(r, "in", 0), number(r, "out", 0), gru ? 3 : 4};
    bool train = strcmp(text(r, "phases"), "fwd") != 0;
    LpCost sum = lp_cost_rnn(x, t, &p, train ? LP_PASS_FWD : LP_PASS_NONE);
    if (train)
        lp_cost_add(&sum, lp_cost_rnn_grad(x, t, &p));
    const char *d = dtype(t);
    int64_t h = p.hidden, n = p.gates * h;
    begin();
    line("input %%1 \"x\": %s[%lld, %lld, %lld]\n", d, N(p.steps), N(p.batch),
         N(p.in));
    line("input %%2 \"h\": %s[%lld, %lld]\n", d, N(p.batch), N(h));
    line("input %%3 \"c\": %s[%lld, %lld]\n", d, N(p.batch), N(h));
    line("input %%4 \"wi\": %s[%lld, %lld]\n", d, N(n), N(p.in));
    line("input %%5 \"wh\": %s[%lld, %lld]\n", d, N(n), N(h));
    line("input %%6 \"wb\": %s[%lld]\n", d, N(n));
    if (train)
        line("input %%7 \"dy\": %s[%lld, %lld, %lld]\n", d, N(p.steps),
             N(p.batch), N(h));
    int first = train ? 8 : 7; /* values count on */
    if (gru)
        line("%%%d \"y\", %%%d, %%%d = gru(%%1, %%2, %%4, %%5, %%6, %%6, "
             "reverse=false)\n",
             first, first + 1, first + 2);
    else
        line("%%%d \"y\", %%%d, %%%d, %%%d, %%%d = lstm(%%1, %%2, %%3, %%4, "
             "%%5, %%6, %%6, _, reverse=false)\n",
             first, first + 1, first + 2, first + 3, first + 4);
    if (train && gru)
        line("" BACK "%%11 \"dx\", %%12, %%13 \"dwi\", %%14 \"dwh\", %%15, "
             "%%16 = gru_backward(%%7, _, %%1, %%2, %%4, %%5, %%6, %%6, %%8, "
             "%%10, reverse=false, need=61)\noutput %%8, %%11, %%13, %%14\n");
    else if (train)
        line("" BACK "%%13 \"dx\", %%14, %%15, %%16 \"dwi\", %%17 \"dwh\", "
             "%%18, %%19, %%20 = lstm_backward(%%7, _, _, %%1, %%2, %%3, %%4, "
             "%%5, %%6, %%6, _, %%8, %%11, %%12, reverse=false, need=121)\n"
             "output %%8, %%13, %%16, %%17\n");
    else
        line("output %%7\n");
    return finish(x, &sum);
}

static void window(const Row *r, LpPoolShape *s)
{
    int64_t lo[2], hi[2];
    pair(r, "field", 1, s->field + 1);
    pair(r, "kernel", 1, s->kernel + 1);
    pair(r, "stride", 1, s->stride + 1);
    pair(r, "pad_lower", 0, lo);
    pair(r, "pad_upper", 0, hi);
    for (int i = 1; i < 3; i++)
        s->out[i] = (s->field[i] + lo[i - 1] + hi[i - 1] - s->kernel[i]) /
                        s->stride[i] +
                    1;
}

static Result pooling(const LpCostCtx *x, LpCostType t, const Row *r)
{
    LpPoolShape s = {.batch = number(r, "batch", 1),
                     .chans = number(r, "in", number(r, "out", 0)),
                     .field = {1, 1, 1},
                     .out = {1, 1, 1},
                     .kernel = {1, 1, 1},
                     .stride = {1, 1, 1}};
    const char *kind = text(r, "reduce");
    bool mean = !strncmp(kind, "A", 1) || !strncmp(kind, "S", 1) ||
                !strncmp(kind, "a", 1) || !strncmp(kind, "s", 1);
    LpRedOp op = mean ? LP_RED_ADD : LP_RED_MAX;
    window(r, &s);
    LpCost sum = lp_cost_pool(x, op, t, &s);
    if (strcmp(text(r, "phases"), "fwd"))
        lp_cost_add(&sum, lp_cost_pool_grad(x, op, t, &s));
    const char *d = dtype(t);
    begin();
    line("input %%1 \"x\": %s[%lld, %lld, %lld, %lld]\n", d, N(s.batch),
         N(s.chans), N(s.field[1]), N(s.field[2]));
    line("input %%2 \"d\": %s[%lld, %lld, %lld, %lld]\n", d, N(s.batch),
         N(s.chans), N(s.out[1]), N(s.out[2]));
    line("%%3 \"y\" = adaptive_avg_pool(%%1, output_size=[%lld, %lld])\n",
         N(s.out[1]), N(s.out[2]));
    line("" BACK "%%4 \"e\" = adaptive_avg_pool_backward(%%2, "
         "size=[%lld, %lld])\noutput %%3, %%4\n",
         N(s.field[1]), N(s.field[2]));
    return finish(x, &sum);
}

static LpRedOp reduce_op(const char *name)
{
    return !strcmp(name, "MAX")          ? LP_RED_MAX
           : !strcmp(name, "SQUARE_ADD") ? LP_RED_SQUARE_ADD
                                         : LP_RED_ADD;
}

static Result reduction(const LpCostCtx *x, LpCostType t, const Row *r)
{
    int64_t shape[8], dims[8];
    int rank = list(text(r, "shape"), shape, 8);
    int n = list(text(r, "dims"), dims, 8);
    uint32_t reduced = 0;
    for (int i = 0; i < n; i++)
        reduced |= 1u << dims[i];
    LpCost sum = lp_cost_reduce(x, reduce_op(text(r, "reduce")), t, shape, rank,
                                reduced);
    begin();
    line("input %%1 \"x\": %s[", dtype(t));
    for (int i = 0; i < rank; i++)
        line("%s%lld", i ? ", " : "", N(shape[i]));
    line("]\n%%2 \"y\" = sum(%%1, dim=[");
    for (int i = 0; i < n; i++)
        line("%s%lld", i ? ", " : "", N(dims[i]));
    line("], keepdim=false)\noutput %%2\n");
    return finish(x, &sum);
}

static Result embedding(const LpCostCtx *x, LpCostType t, const Row *r)
{
    int64_t shape[2] = {0, 0}, n = number(r, "indices", 0);
    list(text(r, "shape"), shape, 2);
    LpLookup l = {shape[0], shape[1], n, true};
    LpCost sum = lp_cost_lookup(x, t, &l);
    lp_cost_add(&sum, lp_cost_lookup_add(x, t, &l));
    const char *d = dtype(t);
    begin();
    line("input %%1 \"w\": %s[%lld, %lld]\n", d, N(l.rows), N(l.cols));
    line("input %%2 \"i\": int32[%lld]\n", N(n));
    line("input %%3 \"d\": %s[%lld, %lld]\n", d, N(n), N(l.cols));
    line("%%4 \"y\" = embedding(%%1, %%2)\n" BACK "");
    line("%%5 \"u\" = index_add_rows(%%1, %%2, %%3, dim=0)\noutput %%5, %%4\n");
    return finish(x, &sum);
}

/* Steps of a sequence, classes, labels. */
static Result ctc(const LpCostCtx *x, LpCostType t, const Row *r)
{
    int64_t steps = number(r, "seq", 0), b = number(r, "batch", 1);
    int64_t classes = number(r, "in", number(r, "out", 0));
    int64_t labels = number(r, "indices", number(r, "n", 1));
    const char *d = dtype(t);
    begin();
    line("input %%1 \"x\": %s[%lld, %lld, %lld]\n", d, N(steps), N(b),
         N(classes));
    line("input %%2 \"l\": int32[%lld, %lld]\n", N(b), N(labels));
    line("input %%3 \"i\": int32[%lld]\ninput %%4 \"j\": int32[%lld]\n", N(b),
         N(b));
    line("input %%5 \"d\": %s[%lld]\n", d, N(b));
    line("%%6 \"y\", %%7 = ctc_loss_forward(%%1, %%2, %%3, %%4, blank=0, "
         "zero_infinity=false)\n");
    line("" BACK "%%8 \"e\" = ctc_loss_backward(%%5, %%1, %%2, %%3, %%4, %%7, "
         "blank=0, zero_infinity=false)\noutput %%6, %%8\n");
    return finish(x, NULL);
}

/* A [m, m] of as many systems as groups, n right-hand sides. */
static Result solver(const LpCostCtx *x, LpCostType t, const Row *r)
{
    int64_t g = number(r, "groups", number(r, "batch", 1));
    int64_t m = number(r, "m", number(r, "in", 0));
    int64_t n = number(r, "n", number(r, "out", 1));
    const char *d = dtype(t);
    begin();
    line("input %%1 \"a\": %s[%lld, %lld, %lld]\n", d, N(g), N(m), N(m));
    line("input %%2 \"b\": %s[%lld, %lld, %lld]\n", d, N(g), N(m), N(n));
    line("%%3 \"y\" = triangular(%%1, %%2, upper=false, left=true, "
         "unitriangular=false)\noutput %%3\n");
    return finish(x, NULL);
}

/* Groups, how a row is told to belong, and the bounds on the mean absolute
 * errors of cycles and bytes on Mk2 in percent. */
typedef struct Group {
    const char *name, *op, *prefix, *not_prefix;
    Result (*model)(const LpCostCtx *, LpCostType, const Row *);
    double cycles, bytes;
} Group;

static const Group groups[] = {
    {"GEMM", "gemm", "", NULL, products, 3, 6},
    {"BERT fully connected", "fc", "bert_", "bert_grouped", products, 3, 4},
    {"BERT grouped products", "fc", "bert_grouped", NULL, products, 6, 6},
    {"small fully connected", "fc", "", NULL, products, 12, 14},
    {"convolutions", "conv", "", NULL, convolution, 6, 18},
    {"reductions", "reduction", "", NULL, reduction, 10, 22},
    {"LSTM", "lstm", "", NULL, recurrent, 12, 14},
    {"GRU", "gru", "", NULL, recurrent, 18, 32},
    {"pooling", "pool", "", NULL, pooling, 15, 30},
    {"CTC", "ctc", "", NULL, ctc, 1000, 1000}, /* without a record */
    {"triangular systems", "tri", "", NULL, solver, 1000, 1000},
    {"embeddings", "embedding", "", NULL, embedding, 5, 12},
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
        if (!strncmp(op, g->op, strlen(g->op)) &&
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

/* Is there no row, or a mean within both bounds? */
static bool holds(const Group *g, const Errors *e)
{
    return !e->n ||
           (e->cycles / e->n <= g->cycles && e->total / e->n <= g->bytes);
}

static bool summary(const LpChip *chip, const Errors *errors, bool bounded)
{
    bool kept = true;
    Errors all = {0};
    printf("\n%s: mean absolute error in percent\n", chip->name);
    printf("  %-24s %4s %7s %7s %7s %7s  bounds\n", "group", "n", "cycles",
           "bias", "bytes", "tile");
    for (int i = 0; i < N_GROUPS; i++) {
        const Errors *e = &errors[i];
        const Group *g = &groups[i];
        double n = e->n ? e->n : 1;
        printf("  %-24s %4d %7.2f %+7.2f %7.1f %7.1f", g->name, e->n,
               e->cycles / n, e->bias / n, e->total / n, e->tile / n);
        if (bounded) {
            bool ok = holds(g, e);
            printf("  %4.0f %4.0f %s", g->cycles, g->bytes,
                   ok ? "kept" : "MISSED");
            kept = kept && ok;
        }
        printf("\n");
        all = (Errors){all.cycles + e->cycles, all.bias + e->bias,
                       all.total + e->total, all.tile + e->tile, all.n + e->n};
    }
    double n = all.n ? all.n : 1;
    printf("  %-24s %4d %7.2f %+7.2f %7.1f %7.1f\n", "all", all.n,
           all.cycles / n, all.bias / n, all.total / n, all.tile / n);
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
    LpErr e = {0};
    const char *path = argc > 1 ? argv[1] : "spec/fidelity.csv";
    if (lp_schema_init(&e) != LP_OK)
        give_up(&e);
    bool quiet = argc > 2 && !strcmp(argv[2], "-q");
    bool first = run(path, "ipu1", "mk1", quiet);
    bool second = run(path, "ipu2", "mk2", quiet);
    return first && second ? 0 : 1;
}

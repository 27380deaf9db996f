/* Gradients of recurrent layers that are sums over steps: one product for each
 * chunk of steps and weight, added up (recurrent_back.h).
 *
 * With 1,024 gates, 256 states and 2,048 rows the product for the weights takes
 * 8.7 ms in chunks of 128 rows, 9.8 of 256, 12.7 in one piece (one thread, its
 * memory shared with others). Each chunk reads and writes the sum: that pays
 * while the sum stays in the cache too, else the sequence is one chunk. */
#include <string.h>

#include "src/kernel/nn/nn.h"
#include "src/kernel/nn/recurrent_back.h"

enum { CHUNK = 1 << 19, SUM = 1 << 20, LEAST_ROWS = 128 }; /* bytes; rows */

static int64_t chunk_rows(const LpRnn *r)
{
    return r->chunk * r->batch;
}

/* Rows of the gradient of the input, or of its table. */
static int64_t input_rows(const LpRnn *r)
{
    return r->table ? r->table : chunk_rows(r);
}

static bool split(const LpRnn *r)
{
    return r->chunk < r->steps;
}

/* LSTM and RNN add both biases: their gradients are the same. */
static bool same_biases(const LpRnn *r)
{
    return r->kind != LP_RNN_GRU;
}

/* ---- preparation --------------------------------------------------------- */
static int64_t choose_chunk(const LpRnn *r)
{
    int64_t row = r->rows * (int64_t)r->size;
    int64_t in = r->table ? 0 : r->in, wide = in > r->out ? in : r->out;
    if (r->projects || row * wide > SUM)
        return r->steps;
    for (int64_t n = r->steps - 1; n > 0; n--) {
        int64_t k = n * r->batch;
        if (k < LEAST_ROWS)
            break;
        if (r->steps % n == 0 && k * row <= CHUNK &&
            lp_product_library(r->t, r->rows, r->out, k) &&
            lp_product_library(r->t, r->rows, r->in, k))
            return n;
    }
    return r->steps;
}

LpStatus lp_rnn_plan_sums(LpRnn *r, LpErr *e)
{
    r->chunk = choose_chunk(r);
    int64_t all = r->steps * r->batch, n = chunk_rows(r), in = input_rows(r);
    int add = split(r) ? LP_PRODUCT_ADD : 0;
    int repeat = split(r) && !r->table ? LP_PRODUCT_REPEAT : 0;
    if (lp_rnn_wants(r, LP_RNN_X))
        LP_TRY(lp_rnn_product(r, LP_RNN_FOR_X, in, r->in, r->rows, false, false,
                              repeat, e));
    if (lp_rnn_wants(r, LP_RNN_W_IH))
        LP_TRY(lp_rnn_product(r, LP_RNN_FOR_W_IH, r->rows, r->in, in, true,
                              false, r->table ? 0 : add, e));
    if (lp_rnn_wants(r, LP_RNN_W_HH))
        LP_TRY(lp_rnn_product(r, LP_RNN_FOR_W_HH, r->rows, r->out, n, true,
                              false, add, e));
    if (lp_rnn_wants(r, LP_RNN_W_HR))
        LP_TRY(lp_rnn_product(r, LP_RNN_FOR_W_HR, r->out, r->hidden, all, true,
                              false, 0, e));
    const LpProduct *x = &r->product[LP_RNN_FOR_X];
    lp_rnn_space(r, LP_RNN_D_X, n * r->rows);
    r->space[LP_RNN_D_H] = r->space[LP_RNN_D_X];
    if (r->kind == LP_RNN_GRU)
        lp_rnn_space(r, LP_RNN_D_H, n * r->rows);
    lp_rnn_space(r, LP_RNN_SUMS, r->table * r->rows);
    lp_rnn_space(r, LP_RNN_BEFORE,
                 lp_rnn_wants(r, LP_RNN_W_HH) ? n * r->out : 0);
    lp_rnn_space(r, LP_RNN_D_OUTPUT, r->projects ? all * r->out : 0);
    lp_rnn_space(r, LP_RNN_STATE,
                 lp_rnn_wants(r, LP_RNN_W_HR) ? all * r->hidden : 0);
    lp_rnn_space(r, LP_RNN_PACKED_IH, (int64_t)(x->packed_bytes / r->size));
    lp_rnn_space(r, LP_RNN_BIAS, r->rows);
    return LP_OK;
}

/* ---- sums ---------------------------------------------------------------- */
static void clear(const LpRnn *r, const LpRnnBack *a, int role, int64_t n)
{
    if (lp_rnn_wants(r, role))
        memset(lp_rnn_result(r, a, role), 0, (size_t)n * r->size);
}

LpStatus lp_rnn_start_sums(const LpRnn *r, LpRnnBack *a, LpErr *e)
{
    a->ih = lp_rnn_operand(r, a->in, LP_RNN_W_IH);
    memset(lp_rnn_scratch(r, a, LP_RNN_SUMS), 0,
           (size_t)(r->table * r->rows) * r->size);
    if (!split(r))
        return LP_OK;
    clear(r, a, LP_RNN_W_IH, r->rows * r->in);
    clear(r, a, LP_RNN_W_HH, r->rows * r->out);
    clear(r, a, LP_RNN_B_IH, r->rows);
    clear(r, a, LP_RNN_B_HH, r->rows);
    if (!lp_rnn_wants(r, LP_RNN_X))
        return LP_OK;
    return lp_product_weights(&r->product[LP_RNN_FOR_X], a->ih,
                              lp_rnn_scratch(r, a, LP_RNN_PACKED_IH), a->inner,
                              &a->ih, e);
}

/* result += left right (or =, where the sequence is one chunk). */
static LpStatus product(const LpRnn *r, const LpRnnBack *a, int i, int role,
                        const void *left, const void *right, int64_t at,
                        LpErr *e)
{
    if (!lp_rnn_wants(r, role))
        return LP_OK;
    return lp_product_run(&r->product[i], left, right,
                          lp_rnn_at(r, lp_rnn_result(r, a, role), at), a->inner,
                          e);
}

/* Sums of x [n, rows of weights], whose columns are split over threads: by
 * indices, where `at` is not NULL, to what `sum` holds; else of all rows. */
static void columns(const LpRnn *r, int64_t n, const void *x, const int64_t *at,
                    void *sum)
{
    enum { WIDE = 128 };
    int64_t blocks = (r->rows + WIDE - 1) / WIDE;
    int width = n * r->rows < 32768 ? 1 : r->threads;
    int64_t each = (blocks + width - 1) / width * WIDE;
#pragma omp parallel for num_threads(width) schedule(static) if (width > 1)
    for (int i = 0; i < width; i++) {
        int64_t a = i * each, b = a + each < r->rows ? a + each : r->rows;
        if (a < b && at)
            r->loops->scatter(n, r->rows, a, b, x, at, sum);
        else if (a < b)
            r->loops->columns(n, r->rows, a, b, x, sum);
    }
}

/* Adds the rows of x to the gradient of a bias. */
static void bias(const LpRnn *r, const LpRnnBack *a, int role, int64_t n,
                 const void *x)
{
    void *sum = lp_rnn_result(r, a, role);
    void *part = lp_rnn_scratch(r, a, LP_RNN_BIAS);
    columns(r, n, x, NULL, split(r) ? part : sum);
    if (split(r))
        r->loops->add(r->rows, part, sum, sum);
}

/* Of both biases that are the same the input's is summed, if it is wanted. */
static bool copies_bias(const LpRnn *r)
{
    return same_biases(r) && lp_rnn_wants(r, LP_RNN_B_IH) &&
           lp_rnn_wants(r, LP_RNN_B_HH);
}

static LpStatus of_input(const LpRnn *r, const LpRnnBack *a, const void *dx,
                         int64_t row, LpErr *e)
{
    const void *x = lp_rnn_operand(r, a->in, LP_RNN_X);
    LP_TRY(product(r, a, LP_RNN_FOR_X, LP_RNN_X, dx, a->ih, row * r->in, e));
    LP_TRY(product(r, a, LP_RNN_FOR_W_IH, LP_RNN_W_IH, dx,
                   lp_rnn_at(r, x, row * r->in), 0, e));
    if (lp_rnn_wants(r, LP_RNN_B_IH))
        bias(r, a, LP_RNN_B_IH, input_rows(r), dx);
    return LP_OK;
}

LpStatus lp_rnn_add_chunk(const LpRnn *r, const LpRnnBack *a, LpErr *e)
{
    const char *dx = lp_rnn_scratch(r, a, LP_RNN_D_X);
    const char *dh = lp_rnn_scratch(r, a, LP_RNN_D_H);
    int64_t n = chunk_rows(r), row = a->place * r->batch;
    if (r->table)
        columns(r, n, dx, a->at + row, lp_rnn_scratch(r, a, LP_RNN_SUMS));
    else
        LP_TRY(of_input(r, a, dx, row, e));
    if (lp_rnn_wants(r, LP_RNN_B_HH) && !copies_bias(r))
        bias(r, a, LP_RNN_B_HH, n, dh);
    return product(r, a, LP_RNN_FOR_W_HH, LP_RNN_W_HH, dh,
                   lp_rnn_scratch(r, a, LP_RNN_BEFORE), 0, e);
}

LpStatus lp_rnn_finish_sums(const LpRnn *r, const LpRnnBack *a, LpErr *e)
{
    if (r->table)
        LP_TRY(of_input(r, a, lp_rnn_scratch(r, a, LP_RNN_SUMS), 0, e));
    if (copies_bias(r))
        memcpy(lp_rnn_result(r, a, LP_RNN_B_HH),
               lp_rnn_result(r, a, LP_RNN_B_IH), (size_t)r->rows * r->size);
    if (!lp_rnn_wants(r, LP_RNN_W_HR))
        return LP_OK;
    char *state = lp_rnn_scratch(r, a, LP_RNN_STATE);
    r->loops->output(r->steps * r->batch, r->hidden, a->gates, a->cells, state);
    return product(r, a, LP_RNN_FOR_W_HR, LP_RNN_W_HR,
                   lp_rnn_scratch(r, a, LP_RNN_D_OUTPUT), state, 0, e);
}

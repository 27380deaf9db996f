/* Operators (domain spec.odd) that do what a library should not, as an
 * attribute says, one that converts, and one whose cost tells what it is
 * asked with. */
#include <lupine/custom_op.h>

/* ---- To: x in another type ------------------------------------------ */
static int infer_to(lupine_call *c)
{
    c->out[0].type = c->in[0].type;
    c->out[0].type.dtype = (int32_t)c->attr[0].ints[0];
    return 0;
}

static int copy(lupine_call *c)
{
    for (int64_t i = 0; i < c->in[0].n; i++)
        lupine_store(&c->out[0], i, lupine_load(&c->in[0], i));
    return 0;
}

/* ---- Strange -------------------------------------------------------- */
static int is(const lupine_call *c, const char *what)
{
    return strcmp(c->attr[0].strings[0], what) == 0;
}

static int infer_strange(lupine_call *c)
{
    static int calls;
    c->out[0].type = c->in[0].type;
    if (is(c, "rank"))
        c->out[0].type.rank = 99;
    if (is(c, "negative rank"))
        c->out[0].type.rank = -1;
    if (is(c, "size"))
        c->out[0].type.shape[0] = -5;
    if (is(c, "huge"))
        for (int i = 0; i < LUPINE_MAX_RANK; i++) {
            c->out[0].type.shape[i] = INT64_MAX;
            c->out[0].type.rank = LUPINE_MAX_RANK;
        }
    if (is(c, "dtype"))
        c->out[0].type.dtype = 77;
    if (is(c, "fickle"))
        c->out[0].type.shape[0] += calls++;
    if (is(c, "silent"))
        return 17;
    return is(c, "types") ? lupine_fail(c, "%s of %d", "types", 3) : 0;
}

static int run_strange(lupine_call *c)
{
    if (is(c, "long")) {
        memset(c->error, 'x', LUPINE_ERROR_BYTES);
        return -1;
    }
    if (is(c, "run") && lupine_load(&c->in[0], 0) < 0)
        return lupine_fail(c, "negative");
    return copy(c);
}

static int grad_strange(lupine_call *c)
{
    return lupine_fail(c, "no way back from %g", lupine_load(&c->in[0], 0));
}

static void cost_strange(lupine_cost *c)
{
    int dear = strcmp(c->attr[0].strings[0], "dear") == 0;
    c->cycles = dear ? INT64_MAX : INT64_MIN;
    c->bytes = INT64_MIN;
}

/* ---- Priced: the sum of a vector, as a matrix of one element -------- */
static int infer_priced(lupine_call *c)
{
    c->out[0].type.dtype = c->in[0].type.dtype;
    c->out[0].type.rank = 2;
    c->out[0].type.shape[0] = c->out[0].type.shape[1] = 1;
    return 0;
}

static int run_priced(lupine_call *c)
{
    double sum = 0;
    for (int64_t i = 0; i < c->in[0].n; i++)
        sum += lupine_load(&c->in[0], i);
    lupine_store(&c->out[0], 0, sum);
    return 0;
}

static int grad_priced(lupine_call *c)
{
    for (int64_t i = 0; i < c->in[0].n; i++)
        lupine_store(&c->in_grad[0], i, lupine_load(&c->out_grad[0], 0));
    return 0;
}

static void cost_priced(lupine_cost *c)
{
    c->cycles = 100000 + 1000 * c->in[0].rank + 100 * c->out[0].rank;
    c->cycles += c->gradient ? 50000 : 0;
}

static const lupine_attr_spec dtype[] = {{"dtype", LUPINE_INT, NULL}};
static const lupine_attr_spec what[] = {{"what", LUPINE_STRING, NULL}};
static const lupine_op ops[] = {
    {"spec.odd", "To", 1, 1, 1, dtype, 1, infer_to, copy, NULL, NULL},
    {"spec.odd", "Strange", 1, 1, 1, what, 1, infer_strange, run_strange,
     grad_strange, cost_strange},
    {"spec.odd", "Priced", 1, 1, 1, NULL, 0, infer_priced, run_priced,
     grad_priced, cost_priced}};
LUPINE_OPS(ops)

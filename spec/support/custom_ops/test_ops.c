/* The operators of PopTorch's own tests of attributes (domain test.poptorch),
 * for numbers of any type. */
#include <lupine/custom_op.h>

/* ---- sums with attributes ------------------------------------------- */
static int same(lupine_call *c)
{
    c->out[0].type = c->in[0].type;
    return 0;
}

/* x plus the attribute, a number or one for each element */
static int add(lupine_call *c)
{
    const lupine_attr *a = &c->attr[0];
    if (a->n != 1 && a->n != c->in[0].n)
        return lupine_fail(c, "vec has %d numbers for %d elements", (int)a->n,
                           (int)c->in[0].n);
    for (int64_t i = 0; i < c->in[0].n; i++) {
        int64_t k = a->n == 1 ? 0 : i;
        double more = a->floats ? a->floats[k] : (double)a->ints[k];
        lupine_store(&c->out[0], i, lupine_load(&c->in[0], i) + more);
    }
    return 0;
}

static int add_and_multiply(lupine_call *c)
{
    add(c);
    for (int64_t i = 0; i < c->in[0].n; i++)
        lupine_store(&c->out[0], i,
                     lupine_load(&c->out[0], i) * c->attr[1].floats[0]);
    return 0;
}

static const lupine_attr_spec scalar_float[] = {{"scalar", LUPINE_FLOAT, NULL}};
static const lupine_attr_spec scalar_int[] = {{"scalar", LUPINE_INT, NULL}};
static const lupine_attr_spec vec_float[] = {{"vec", LUPINE_FLOATS, NULL}};
static const lupine_attr_spec vec_int[] = {{"vec", LUPINE_INTS, NULL}};
static const lupine_attr_spec both[] = {{"vec", LUPINE_FLOATS, NULL},
                                        {"scalar", LUPINE_FLOAT, "1.0"}};

/* ---- reductions ----------------------------------------------------- */
static int scalars(lupine_call *c)
{
    for (int32_t i = 0; i < c->n_in; i++) {
        c->out[i].type.dtype = c->in[i].type.dtype;
        c->out[i].type.rank = 0;
    }
    return 0;
}

static int reduce(lupine_call *c)
{
    if (c->attr[0].n != c->n_in)
        return lupine_fail(c, "one reduction for each input");
    for (int32_t k = 0; k < c->n_in; k++) {
        const char *how = c->attr[0].strings[k];
        double sum = 0;
        for (int64_t i = 0; i < c->in[k].n; i++)
            sum += lupine_load(&c->in[k], i);
        if (strcmp(how, "mean") == 0)
            sum /= (double)c->in[k].n;
        else if (strcmp(how, "sum") != 0)
            return lupine_fail(c, "'%s' is neither sum nor mean", how);
        lupine_store(&c->out[k], 0, sum);
    }
    return 0;
}

static const lupine_attr_spec reduction[] = {
    {"reduction", LUPINE_STRING, "\"sum\""}};
static const lupine_attr_spec reductions[] = {
    {"reductions", LUPINE_STRINGS, NULL}};

/* ---- the table ------------------------------------------------------ */
#define OP(name, inputs, attrs, n_attrs, infer, run)                           \
    {                                                                          \
        "test.poptorch", name, 1, inputs, inputs, attrs, n_attrs, infer, run,  \
            NULL, NULL                                                         \
    }

static const lupine_op ops[] = {
    OP("AddScalarFloat", 1, scalar_float, 1, same, add),
    OP("AddScalarInt", 1, scalar_int, 1, same, add),
    OP("AddScalarVecFloat", 1, vec_float, 1, same, add),
    OP("AddScalarVecInt", 1, vec_int, 1, same, add),
    OP("AddVecScalarMulFloat", 1, both, 2, same, add_and_multiply),
    OP("ReduceOp", 1, reduction, 1, scalars, reduce),
    OP("ThreeReduceOp", 3, reductions, 1, scalars, reduce)};
LUPINE_OPS(ops)

/* ManyAttributeOp of test.poptorch: takes attributes of every type, two of
 * most. It adds 1 to x if each of them has the value that PopTorch's tests give
 * it, else it gives x.
 *
 *   cc -O2 -shared -fPIC -I include -o libmany_attributes.so \
 *       examples/custom_op/many_attributes.c
 */
#include <lupine/custom_op.h>

static const lupine_attr_spec attrs[] = {
    {"float_one", LUPINE_FLOAT, NULL},
    {"float_minus_two", LUPINE_FLOAT, NULL},
    {"int_zero", LUPINE_INT, NULL},
    {"int_minus_five", LUPINE_INT, NULL},
    {"floats_one_two_three", LUPINE_FLOATS, NULL},
    {"floats_minus_one_two_three", LUPINE_FLOATS, NULL},
    {"ints_one_two_three", LUPINE_INTS, NULL},
    {"ints_minus_one_two_three", LUPINE_INTS, NULL},
    {"a_string", LUPINE_STRING, NULL},
    {"strs", LUPINE_STRINGS, NULL}};
enum { N_ATTRS = sizeof attrs / sizeof *attrs };

static int infer(lupine_call *c)
{
    c->out[0].type = c->in[0].type;
    return 0;
}

/* 1, 2, 3 times the sign */
static int floats_are(const lupine_attr *a, float sign)
{
    return a->n == 3 && a->floats[0] == sign && a->floats[1] == 2 * sign &&
           a->floats[2] == 3 * sign;
}

static int ints_are(const lupine_attr *a, int64_t sign)
{
    return a->n == 3 && a->ints[0] == sign && a->ints[1] == 2 * sign &&
           a->ints[2] == 3 * sign;
}

static int strings_are(const lupine_attr *a)
{
    static const char *const want[] = {"\x01", "\x02", "\x03"};
    int32_t same = 0;
    while (same < a->n && same < 3 && !strcmp(a->strings[same], want[same]))
        same++;
    return a->n == 3 && same == 3;
}

static int all_right(const lupine_attr *a)
{
    return a[0].floats[0] == 1 && a[1].floats[0] == -2 && a[2].ints[0] == 0 &&
           a[3].ints[0] == -5 && floats_are(&a[4], 1) &&
           floats_are(&a[5], -1) && ints_are(&a[6], 1) && ints_are(&a[7], -1) &&
           !strcmp(a[8].strings[0],
                   "string with quotes and slash \" ' \\ end") &&
           strings_are(&a[9]);
}

static int run(lupine_call *c)
{
    double more = all_right(c->attr) ? 1 : 0;
    for (int64_t i = 0; i < c->in[0].n; i++)
        lupine_store(&c->out[0], i, lupine_load(&c->in[0], i) + more);
    return 0;
}

static const lupine_op ops[] = {{"test.poptorch", "ManyAttributeOp", 1, 1, 1,
                                 attrs, N_ATTRS, infer, run, NULL, NULL}};
LUPINE_OPS(ops)

/* LeakyRelu of com.acme: x, or alpha x where x is negative. The same operator
 * stands in the domain custom.ops, as another example of the documentation has
 * it.
 *
 *   cc -O2 -shared -fPIC -I include -o libleaky_relu.so \
 *       examples/custom_op/leaky_relu.c
 */
#include <lupine/custom_op.h>

static int infer(lupine_call *c)
{
    if (!lupine_is_float(c->in[0].type.dtype))
        return lupine_fail(c, "x must be a float");
    c->out[0].type = c->in[0].type;
    return 0;
}

static int run(lupine_call *c)
{
    double alpha = c->attr[0].floats[0];
    for (int64_t i = 0; i < c->in[0].n; i++) {
        double x = lupine_load(&c->in[0], i);
        lupine_store(&c->out[0], i, x < 0 ? alpha * x : x);
    }
    return 0;
}

static int grad(lupine_call *c)
{
    double alpha = c->attr[0].floats[0];
    for (int64_t i = 0; i < c->in[0].n; i++) {
        double dy = lupine_load(&c->out_grad[0], i);
        double slope = lupine_load(&c->in[0], i) < 0 ? alpha : 1;
        lupine_store(&c->in_grad[0], i, slope * dy);
    }
    return 0;
}

static const lupine_attr_spec attrs[] = {{"alpha", LUPINE_FLOAT, "0.01"}};
static const lupine_op ops[] = {
    {"com.acme", "LeakyRelu", 1, 1, 1, attrs, 1, infer, run, grad, NULL},
    {"custom.ops", "LeakyRelu", 1, 1, 1, attrs, 1, infer, run, grad, NULL}};
LUPINE_OPS(ops)

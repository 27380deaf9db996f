/* Cube of com.acme: two outputs of two inputs, x^3 + bias and x^3, with their
 * gradients. Any floating type.
 *
 *   cc -O2 -shared -fPIC -I include -o libcube.so examples/custom_op/cube.c
 */
#include <lupine/custom_op.h>

static int infer(lupine_call *c)
{
    const lupine_type *x = &c->in[0].type, *bias = &c->in[1].type;
    if (!lupine_is_float(x->dtype) || !lupine_same_type(x, bias))
        return lupine_fail(c, "x and bias must be floats of one size");
    c->out[0].type = c->out[1].type = *x;
    return 0;
}

static int run(lupine_call *c)
{
    for (int64_t i = 0; i < c->in[0].n; i++) {
        double x = lupine_load(&c->in[0], i), cube = x * x * x;
        lupine_store(&c->out[0], i, cube + lupine_load(&c->in[1], i));
        lupine_store(&c->out[1], i, cube);
    }
    return 0;
}

/* dx = 3 x^2 (dy0 + dy1), dbias = dy0 */
static int grad(lupine_call *c)
{
    for (int64_t i = 0; i < c->in[0].n; i++) {
        double x = lupine_load(&c->in[0], i);
        double first = lupine_load(&c->out_grad[0], i);
        double both = first + lupine_load(&c->out_grad[1], i);
        if (c->in_grad[0].data)
            lupine_store(&c->in_grad[0], i, 3 * x * x * both);
        if (c->in_grad[1].data)
            lupine_store(&c->in_grad[1], i, first);
    }
    return 0;
}

/* Three multiplications or additions of two elements a cycle and worker. */
static void cost(lupine_cost *c)
{
    int64_t n = 1;
    for (int32_t i = 0; i < c->in[0].rank; i++)
        n *= c->in[0].shape[i];
    c->cycles = 3 * (n / c->tiles + 1);
}

static const lupine_op ops[] = {
    {"com.acme", "Cube", 1, 2, 2, NULL, 0, infer, run, grad, cost}};
LUPINE_OPS(ops)

/* Measured on two cores with AVX-512: waking a sleeping thread and waiting for
 * it takes 20 to 30 microseconds, 2^21 multiply-adds of a float32 product or
 * convolution take 25 to 35 on one thread. Reading or writing an element of
 * memory takes the time of some hundred multiply-adds of a product at most
 * (functions such as exp included), a number that a product reads that of ten
 * or so: of a vector with a matrix that is all. */
#include "src/ops/width.h"

#include "src/kernel/copy/copy.h"

static const double work_min = 1 << 21, work_element = 128, work_read = 8;

int lp_width_of_copy(double elements, int width)
{
    return elements * work_element < work_min ? 1 : width;
}

static double elements(const LpDesc *d, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (d[i].dtype != LP_DT_NONE && !d[i].is_imm)
            sum += (double)lp_desc_numel(&d[i]);
    return sum;
}

int lp_width_of(const LpKernelReq *r, int width)
{
    if (width <= 1)
        return width;
    if (r->op->work)
        return r->op->work(r) + work_read * elements(r->in, r->n_in) < work_min
                   ? 1
                   : width;
    return lp_width_of_copy(
        elements(r->in, r->n_in) + elements(r->out, r->n_out), width);
}

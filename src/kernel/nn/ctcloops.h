/* One sample's CTC loss and its gradient (ctc_loss_kernel.c), compiled once per
 * instruction set (simd_ctc.c) and chosen once by the CPU. */
#ifndef LP_KERNEL_NN_CTCLOOPS_H
#define LP_KERNEL_NN_CTCLOOPS_H

#include "src/kernel/loops/loops.h"

/* Step t's log-probabilities of the classes begin at t * stride; rows of alpha
 * are `row` places apart, of which the first `places` are used: label[s] is
 * the class of place s, and any class up to lp_ctc_wide of them. */
typedef struct LpCtcSample {
    int64_t steps, stride, classes, places, row;
    int32_t blank;
    const int32_t *label;
} LpCtcSample;

/* Places that the loops go through: whole vectors. */
static inline int64_t lp_ctc_wide(int64_t places)
{
    return (places + 15) / 16 * 16;
}

/* Elements of work; what `along` needs beside. */
static inline int64_t lp_ctc_work(int64_t places, int64_t classes)
{
    return 5 * lp_ctc_wide(places) + 4 + (classes + 15) / 16 * 16;
}
static inline int64_t lp_ctc_work_along(int64_t steps, int64_t places)
{
    return (steps + 2) * lp_ctc_wide(places) + 4;
}

/* forward: the loss. backward: false: no alignment fits, nothing is written;
 * g: the loss's gradient. along: the derivative of backward's result along v,
 * a change of logp. */
#define LP_CTC_LOOPS(T)                                                        \
    double (*forward)(const LpCtcSample *x, const T *logp, T *alpha, T *work); \
    bool (*backward)(const LpCtcSample *x, const T *logp, const T *alpha, T g, \
                     T *dlogp, T *work);                                       \
    bool (*along)(const LpCtcSample *x, const T *logp, const T *alpha,         \
                  const T *v, T g, T *out, T *work);

typedef struct LpCtcLoops {
    struct {
        LP_CTC_LOOPS(float)
    } f32;
    struct {
        LP_CTC_LOOPS(double)
    } f64;
} LpCtcLoops;
typedef const LpCtcLoops LpCtcLoopsOf[1];
LP_SIMD_EXTERN(LpCtcLoopsOf, lp_ctc);

#endif

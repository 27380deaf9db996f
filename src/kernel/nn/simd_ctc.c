/* The loops of ctcloops.h for one instruction set: compiled once for each,
 * with LP_SIMD its name. A selection that compares with NaN takes the other
 * operand, so that sums of exponentials let a NaN through. */
#include <math.h>
#include <string.h>

#include "src/kernel/loops/simd_math.h"
#include "src/kernel/nn/ctcloops.h"

#define T float
#define F(name) name##_f32
#define EXP(x) exp_f32(x)
#define LOG(x) log_f32(x)
#define TINY -80
#include "src/kernel/nn/ctcloops_t.h"
#undef T
#undef F
#undef EXP
#undef LOG
#undef TINY

#define T double
#define F(name) name##_f64
#define EXP(x) exp(x)
#define LOG(x) log(x)
#define TINY -700
#include "src/kernel/nn/ctcloops_t.h"

LpCtcLoopsOf LP_SIMD_NAME(lp_ctc) = {{{forward_f32, backward_f32, along_f32},
                                      {forward_f64, backward_f64, along_f64}}};

/* The loops of gridloops.h for one instruction set: compiled once for each,
 * with LP_SIMD its name. */
#include <math.h>

#include "src/kernel/attrs.h"
#include "src/kernel/nn/gridloops.h"

#define T float
#define F(name) name##_f32
#define FLOOR floorf
#define ROUND rintf
#define ABS fabsf
#include "src/kernel/nn/gridloops_t.h"
#undef T
#undef F
#undef FLOOR
#undef ROUND
#undef ABS

#define T double
#define F(name) name##_f64
#define FLOOR floor
#define ROUND rint
#define ABS fabs
#include "src/kernel/nn/gridloops_t.h"

LpGridLoopsOf LP_SIMD_NAME(lp_grid) = {
    {{bytes_f32, plan_f32, sample_f32, scatter_f32, slopes_f32},
     {bytes_f64, plan_f64, sample_f64, scatter_f64, slopes_f64}}};

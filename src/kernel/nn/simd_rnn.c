/* The loops of rnnloops.h for one instruction set (LP_SIMD). */
#include "src/kernel/loops/simd_both.h"
#include "src/kernel/nn/rnnloops.h"

#define T float
#define F(name) name##_f32
#include "src/kernel/nn/rnnloops_t.h"
#undef T
#undef F

#define T double
#define F(name) name##_f64
#include "src/kernel/nn/rnnloops_t.h"

#define TABLE(t)                                                               \
    {                                                                          \
        .forward = {lstm_forward_##t, gru_forward_##t, tanh_forward_##t,       \
                    relu_forward_##t},                                         \
        .backward = {lstm_backward_##t, gru_backward_##t, tanh_backward_##t,   \
                     relu_backward_##t},                                       \
        .output = output_##t, .add = add_##t, .scatter = scatter_##t,          \
        .columns = columns_##t,                                                \
    }
LpRnnLoopsOf LP_SIMD_NAME(lp_rnn) = {TABLE(f32), TABLE(f64)};

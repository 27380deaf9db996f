/* Preparation of the neural-network kernels; each is the `prepare` of the
 * operator it is named after. What a kernel reads of attributes is the
 * canonical form its shape rule leaves. */
#ifndef LP_KERNEL_NN_NN_H
#define LP_KERNEL_NN_NN_H

#include "src/kernel/loops/fused.h"
#include "src/kernel/nn/conv_steps.h"

/* mm [m, k] [k, n] and bmm [b, m, k] [b, k, n], any strides, any type. */
LpPrepare lp_mm_prepare;
double lp_mm_work(const LpKernelReq *r);
/* Runs the kernel of an mm, whose result is contiguous. *told: `then` (tiles.h)
 * was told of the result; if not, it is whole in memory. */
struct LpGemmThen;
LpStatus lp_mm_run_then(const LpKernel *k, void *const *in, void *const *out,
                        const struct LpGemmThen *then, bool *told, void *work,
                        const LpRunCtx *rc, LpErr *e);

/* lp_mm_prepare itself makes a result that rounds at random, part by part. */
bool lp_mm_rounds(const LpKernelReq *r);
/* What lp_mm_run_then needs of a `then` with strips (LpGemmThen.strip), which
 * it then tells for certain; 0: it takes none. The result has no gaps. */
size_t lp_mm_strip(const LpKernel *k);

/* A convolution from `src` (the larger side) to `dst`; a transposed one is
 * the same with the sides exchanged. Attributes hold n_spatial entries each,
 * padding twice as many (before …, after …). */
typedef struct LpConvGeom {
    int n_spatial;
    int64_t n, groups, c_src, c_dst; /* channels of both sides, all groups */
    int64_t src[3], dst[3], kernel[3];
    int64_t stride[3], dilation[3], pad_l[3], pad_r[3];
} LpConvGeom;

/* What comes behind a convolution. Its sums meet `steps` first. What they make
 * is told of, elements from … to - 1 of the result in the order in which they
 * lie, by the thread that made them: they are at `made`, which its cache still
 * has and which may be outside of the result. */
enum { LP_CONV_AHEAD = 4 };
typedef struct LpConvThen {
    LpConvSteps steps;
    /* NULL: nothing is told of */
    void (*run)(const struct LpConvThen *t, const float *made, int64_t from,
                int64_t to, int thread);
    const void *with;
    int64_t first; /* to be added to numbers of elements: of a part */
    /* what it reads or writes and lies as the result does */
    int n_ahead;
    const float *ahead[LP_CONV_AHEAD];
} LpConvThen;

LpPrepare lp_conv_prepare, lp_conv_input_prepare, lp_conv_weight_prepare;
/* Whether the prepared kernel of a convolution takes a `then`; it is run so
 * then. Without steps' or `then`'s, out is the result. */
bool lp_conv_tells(const LpKernel *k);
LpStatus lp_conv_run_then(const LpKernel *k, void *const *in, void *out,
                          const LpConvThen *then, void *work, LpErr *e);
double lp_conv_work(const LpKernelReq *r);
double lp_conv_input_work(const LpKernelReq *r);
double lp_conv_weight_work(const LpKernelReq *r);

LpPrepare lp_max_pool_prepare, lp_adaptive_max_pool_prepare,
    lp_max_pool_scatter_prepare, lp_max_pool_gather_prepare,
    lp_avg_pool_prepare, lp_avg_pool_back_prepare, lp_adaptive_avg_pool_prepare,
    lp_adaptive_avg_pool_back_prepare;

LpPrepare lp_layer_norm_prepare, lp_layer_norm_back_prepare,
    lp_group_norm_prepare, lp_group_norm_back_prepare, lp_batch_norm_prepare,
    lp_batch_norm_back_prepare;

LpPrepare lp_softmax_prepare, lp_log_softmax_prepare, lp_softmax_back_prepare,
    lp_log_softmax_back_prepare;

LpPrepare lp_resample_prepare, lp_resample_back_prepare;
LpPrepare lp_grid_prepare, lp_grid_back_prepare;

/* probs, lengths; blank, beam_width, top_paths */
LpPrepare lp_ctc_prepare;
LpPrepare lp_ctc_loss_prepare, lp_ctc_loss_back_prepare;
LpPrepare lp_nll_prepare, lp_nll_back_prepare, lp_identity_loss_prepare;
/* The sum or mean of a chain's only result, of float32 or float64, which
 * reaches no memory; the bits are those of both one after the other. */
LpStatus lp_identity_loss_of_chain(const LpFusedReq *r, const char *reduction,
                                   LpKernel *k, LpErr *e);

LpPrepare lp_dropout_prepare;

/* attention.c */
LpPrepare lp_attention_prepare, lp_attention_back_prepare;
double lp_attention_work(const LpKernelReq *r);
double lp_attention_back_work(const LpKernelReq *r);
/* attention_random.c */
LpPrepare lp_attention_random_prepare, lp_attention_random_back_prepare;
int lp_attention_sites(const LpType *const *in, const LpAttr *attr);
int lp_attention_back_sites(const LpType *const *in, const LpAttr *attr);

/* recurrent.c, recurrent_back.c */
LpPrepare lp_rnn_prepare, lp_rnn_back_prepare;

#endif

/* The deep neural network library (oneDNN 2.6), as the rest of the project
 * sees it. Every call of the library stands in dnn.c; no other file includes
 * its headers.
 *
 * A primitive is created once for given layouts and a thread width, and then
 * run on pointers. It owns nothing of its operands; its scratch memory is
 * given to each run. Its bits depend on the layouts and on the width fixed at
 * creation only. One primitive is not run by two threads at once: it keeps
 * the handles of its operands.
 *
 * Typical use of a layout of the library's own choice (a packed weight):
 *
 *     lp_dnn_any(LP_F32, 2, shape, &d.weights);
 *     lp_dnn_matmul_new(&d, &mm, e);
 *     const LpDnnLayout *packed = lp_dnn_layout(mm, LP_DNN_WEIGHTS);
 *     lp_dnn_reorder_new(&plain, packed, threads, &pack, e);
 *     … allocate packed->bytes, run `pack` once, run `mm` often. */
#ifndef LP_KERNEL_PRODUCT_DNN_H
#define LP_KERNEL_PRODUCT_DNN_H

#include "src/ir/op.h"

/* An opaque layout; plain data, may be copied and kept. */
#define LP_DNN_BLOB 704
typedef struct LpDnnLayout {
    size_t bytes; /* of a buffer in this layout, padding included */
    _Alignas(8) unsigned char blob[LP_DNN_BLOB];
} LpDnnLayout;

/* Whether the library computes with this type on this CPU at its own speed. */
bool lp_dnn_native(LpDtype t);

/* `strides` in elements; NULL: contiguous. A dimension of a batch that is
 * broadcast has size 1. */
LpStatus lp_dnn_plain(LpDtype t, int ndim, const int64_t *shape,
                      const int64_t *strides, LpDnnLayout *out, LpErr *e);
LpStatus lp_dnn_any(LpDtype t, int ndim, const int64_t *shape, LpDnnLayout *out,
                    LpErr *e);
/* N-C-spatial with channels in blocks (LpDesc.block); block is 8 or 16 and
 * divides shape[1]. */
LpStatus lp_dnn_blocked(LpDtype t, int ndim, const int64_t *shape, int block,
                        LpDnnLayout *out, LpErr *e);
bool lp_dnn_layout_eq(const LpDnnLayout *a, const LpDnnLayout *b);

typedef enum { LP_DNN_SRC, LP_DNN_WEIGHTS, LP_DNN_DST, LP_DNN_N_ARGS } LpDnnArg;

typedef struct LpDnnPrim LpDnnPrim; /* owned by who made it */

/* dst[b, m, n] = src[b, m, k] weights[b, k, n], b optional. A large one runs in
 * parts of its rows: of the layouts only that of the weights is whole. */
typedef struct LpDnnMatmul {
    LpDnnLayout src, weights, dst;
    bool add; /* += */
    int threads;
} LpDnnMatmul;
LpStatus lp_dnn_matmul_new(const LpDnnMatmul *d, LpDnnPrim **out, LpErr *e);

/* Is a product of some hundred rows with float32 weights in rows that lie `row`
 * elements apart much quicker if these lie LP_DNN_APART more apart? Weights in
 * a free layout do. */
bool lp_dnn_clashes(int64_t row);
enum { LP_DNN_APART = 16 };

typedef enum {
    LP_DNN_FORWARD,         /* writes DST */
    LP_DNN_BACKWARD_DATA,   /* reads DST (its gradient), writes SRC */
    LP_DNN_BACKWARD_WEIGHTS /* reads SRC, DST; writes WEIGHTS */
} LpDnnPass;

typedef enum {
    LP_DNN_DIRECT,
    LP_DNN_WINOGRAD, /* 3x3, stride 1; LP_E_NOT_IMPLEMENTED elsewhere */
} LpDnnConvAlg;

/* src [N, C, spatial], weights [G, O/G, C/G, spatial] (without G when groups
 * is 1), dst [N, O, spatial]; 1 to 3 spatial dimensions. Dilation 1 is dense.
 * The order of weight axes holds for every pass. */
typedef struct LpDnnConv {
    LpDnnPass pass;
    LpDnnConvAlg alg;
    int n_spatial;
    int64_t stride[3], dilation[3], pad_l[3], pad_r[3];
    LpDnnLayout src, weights, dst;
    int threads;
} LpDnnConv;
LpStatus lp_dnn_conv_new(const LpDnnConv *d, LpDnnPrim **out, LpErr *e);

/* Copies SRC into DST in another layout. */
LpStatus lp_dnn_reorder_new(const LpDnnLayout *from, const LpDnnLayout *to,
                            int threads, LpDnnPrim **out, LpErr *e);

/* The layouts a primitive works on (borrowed; answers a wish for any). */
const LpDnnLayout *lp_dnn_layout(const LpDnnPrim *p, LpDnnArg arg);
/* The library has only its reference loops for these layouts: a hundred times
 * slower than code of its own for the CPU. */
bool lp_dnn_is_reference(const LpDnnPrim *p);
/* Scratch a run needs, 64-byte aligned. */
size_t lp_dnn_work_bytes(const LpDnnPrim *p);
LpStatus lp_dnn_run(LpDnnPrim *p, void *const args[LP_DNN_N_ARGS], void *work,
                    LpErr *e);
void lp_dnn_free(LpDnnPrim *p); /* NULL is fine */

#endif

/* What an operation costs on an IPU: cycles, memory and code, as pure functions
 * of numbers. No graph and no tensor is known here; a caller gives an operation
 * kind, element types, counts and shapes.
 *
 * Units. Cycles are tile clocks. Bytes named `tile` are those of the fullest
 * tile. "Elements" are logical elements over the whole IPU unless a name says
 * `tile`. A multiply-accumulate counts as two flops. Every function returns by
 * value and cannot fail: a size of zero costs nothing.
 *
 * Method. An operation is a row of steps. A step is an exchange, a sync and a
 * compute set; its compute time is that of the slowest tile, where six workers
 * share the pipeline: 6 * (longest worker) + supervisor. The formulas are the
 * performance estimates that PopLibs publishes (PL = github graphcore/poplibs,
 * August 2023), the planner included. spec/tools/fidelity.c compares the
 * result with the cycles recorded in PopLibs' own regression files.
 *
 * These are estimates of aligned fast paths. Not modelled: bank conflicts,
 * instruction fetch, the skew of tiles within a sync. */
#ifndef LP_COST_COST_H
#define LP_COST_COST_H

#include "runtime/arch/chip.h"
#include "runtime/arch/system.h"
#include "src/base/checked.h"

#include <stdbool.h>
#include <stdint.h>

/* --- results ----------------------------------------------------------- */

/* Which codelets an operation places on its tiles. A codelet's code is held
 * once by a tile however many vertices use it, so sets are united, not added.
 * Member ids are private to runtime/cost. */
typedef struct LpCodeletSet {
    uint64_t w[5];
} LpCodeletSet;

/* Vertices of one codelet, over all tiles. */
typedef struct LpVertices {
    int id; /* private to runtime/cost; equal for equal names */
    int64_t n;
    int64_t edges;           /* regions of memory that their fields point to */
    int64_t tile_bytes;      /* state of a tile's */
    int64_t edge_tile_bytes; /* of that, pointers */
    int64_t cyc, idle_cyc; /* of all tiles together; of these, threads that have
                              nothing to do */
} LpVertices;

enum { LP_VERTEX_KINDS = 16, LP_VERTEX_OTHERS = 1 << 20 };

typedef struct LpVertexName {
    char text[80];
} LpVertexName;

LpVertexName lp_vertex_name(int id); /* as PopLibs calls the vertex */

typedef struct LpCost {
    int64_t compute_cyc, exchange_cyc, sync_cyc;
    int64_t flops;
    int64_t temp_tile_bytes;        /* scratch beyond operands and results */
    int64_t early_tile_bytes;       /* of that, gone when results appear */
    int64_t temp_all_bytes;         /* of all tiles; 0: of `tiles` such tiles */
    int64_t interleaved_tile_bytes; /* of that, wanted in region 1 */
    int64_t apart_tile_bytes;       /* the lesser of two operands that must not
                                       lie in one element of the memory */
    int64_t steps;                  /* of its program, those of a loop once */
    int64_t vertex_bytes;           /* vertex state of a tile */
    int64_t exchange_code_bytes;    /* of a tile */
    int64_t code_bytes;             /* of `codelets`, held by each tile */
    LpCodeletSet codelets;
    int tiles; /* used by the widest step */
    int64_t compute_sets;
    int n_vertices; /* codelets; of too many the last is of others */
    LpVertices vertices[LP_VERTEX_KINDS];
} LpCost;

/* `next` runs after *c: cycles, flops, steps, vertices and exchange code add,
 * scratch and tiles take the greater, codelets unite. */
void lp_cost_add(LpCost *c, LpCost next);

/* Scratch over all tiles. */
static inline int64_t lp_cost_temp_bytes(const LpCost *c)
{
    return c->temp_all_bytes ? c->temp_all_bytes
                             : c->temp_tile_bytes * c->tiles;
}

/* What of it is gone when the results are written, over all tiles. */
static inline int64_t lp_cost_early_bytes(const LpCost *c)
{
    int64_t early = c->early_tile_bytes * c->tiles;
    int64_t all = lp_cost_temp_bytes(c);
    return early < all ? early : all;
}

/* The same steps run `times` times in a loop: cycles and flops multiply. */
LpCost lp_cost_repeat(LpCost c, int64_t times);

/* It is there and does not run. */
void lp_cost_not_run(LpCost *c);

/* A vertex on each of `tiles` tiles that the library knows nothing of. */
LpCost lp_cost_custom(int64_t cyc, int64_t tile_bytes, int tiles);

/* compute + exchange + sync */
static inline int64_t lp_cost_cyc(const LpCost *c)
{
    return lp_add_sat(lp_add_sat(c->compute_cyc, c->exchange_cyc), c->sync_cyc);
}

/* --- what every function needs ----------------------------------------- */

typedef enum {
    LP_COST_HALF,  /* float16 */
    LP_COST_FLOAT, /* float32 */
    LP_COST_INT,   /* int32, uint32 and narrower integers, bool */
    LP_COST_N_TYPES
} LpCostType;

int lp_cost_type_bytes(LpCostType t); /* 2, 4, 4 */

typedef struct LpPlanCache LpPlanCache;

typedef struct LpCostCtx {
    const LpChip *chip;
    int tiles;           /* available to the operation; 0 = all of the chip */
    double proportion;   /* availableMemoryProportion, of a tile; 0 = least */
    LpCostType partials; /* HALF or FLOAT */
    bool stable_norm;    /* statistics take a pass for the mean before */
    int64_t host_sync;   /* cycles of a sync with the host */
    LpPlanCache *cache;  /* borrowed; NULL plans every shape anew */
} LpCostCtx;

/* All tiles, proportion 0.6, float partials, no cache: PopLibs' defaults. */
LpCostCtx lp_cost_ctx(const LpChip *chip);

/* Plans by shape, chip and options. NULL when memory is short (which a context
 * takes as no cache). Not for use by two threads at once. */
LpPlanCache *lp_plan_cache_new(void);
void lp_plan_cache_free(LpPlanCache *c); /* takes NULL */
int64_t lp_plan_cache_hits(const LpPlanCache *c);

/* --- elementwise ------------------------------------------------------- */

typedef enum {
#define EW(op, ...) LP_EW_##op,
#include "runtime/cost/elementwise.def"
#undef EW
    LP_N_EW
} LpEwOp;

typedef enum {
    LP_EW_UNARY,
    LP_EW_UNARY_INPLACE,
    LP_EW_BINARY,
    LP_EW_BINARY_INPLACE,
    LP_EW_SCALAR /* tensor op scalar */
} LpEwForm;

/* One supervisor vertex over n elements of one tile. */
int64_t lp_ew_tile_cyc(const LpChip *chip, LpEwOp op, LpEwForm form,
                       LpCostType t, int64_t n_tile);

/* Over n elements, evenly spread. */
LpCost lp_cost_elementwise(const LpCostCtx *x, LpEwOp op, LpEwForm form,
                           LpCostType t, int64_t n);

/* Against n elements, an operand of `row` elements, each for `inner`
 * neighbours: inner is 1 for a bias over the last dimension, the length of a
 * row for one value a row. The operand is sent to the tiles first. */
LpCost lp_cost_broadcast(const LpCostCtx *x, LpEwOp op, LpCostType t, int64_t n,
                         int64_t row, int64_t inner);

/* y += a * x; `mixed` when the types of x and y differ. */
LpCost lp_cost_scaled_add(const LpCostCtx *x, LpCostType t, int64_t n,
                          bool mixed);
LpCost lp_cost_cast(const LpCostCtx *x, LpCostType from, LpCostType to,
                    int64_t n);
LpCost lp_cost_fill(const LpCostCtx *x, LpCostType t, int64_t n);

/* Rearranges n elements of which `run` neighbours stay together: exchange and a
 * local copy, element by element where a run is shorter than a vector; such
 * elements are sent in groups as long as those of channels. */
LpCost lp_cost_copy(const LpCostCtx *x, LpCostType t, int64_t n, int64_t run);

/* `count` independent problems of `elems` elements and `macs` multiplications
 * each, which PopLibs has no operation for (factorisations, eigenvalues): each
 * is sent to one tile and worked there by one thread of scalar code, beside a
 * copy of itself. Problems run at once on different tiles. */
LpCost lp_cost_serial(const LpCostCtx *x, LpCostType t, int64_t count,
                      int64_t elems, int64_t macs);

/* --- reductions -------------------------------------------------------- */

typedef enum {
    LP_RED_ADD,
    LP_RED_SQUARE_ADD,
    LP_RED_MAX,
    LP_RED_MIN,
    LP_RED_MUL,
    LP_RED_LOGADD,
    LP_RED_AND,
    LP_RED_OR,
    LP_N_RED
} LpRedOp;

/* Over the dimensions whose bits are set in `reduced` (bit i: shape[i]). The
 * tensor lies on the tiles in order. Sums of halves keep partials of the
 * context's type between tiles. */
LpCost lp_cost_reduce(const LpCostCtx *x, LpRedOp op, LpCostType t,
                      const int64_t *shape, int rank, uint32_t reduced);

/* --- matrix products and convolutions ---------------------------------- */

typedef enum {
    LP_PASS_NONE, /* inference, or a product by itself */
    LP_PASS_FWD,  /* training: forward */
    LP_PASS_BWD,  /* gradient of the input: re-lays the weights */
    LP_PASS_WU    /* gradient of the weights: re-lays inputs, gradients, result
                   */
} LpConvPass;

typedef enum {
    LP_CONV_AMP,
    LP_CONV_HMAC,
    LP_CONV_OUTER,
    LP_CONV_VMAC,
    LP_CONV_SLIC
} LpConvMethod;

/* C[g,m,n] = A[g,m,k] B[g,k,n] */
typedef struct LpMatmulShape {
    int64_t groups, m, k, n;
} LpMatmulShape;

/* Shapes of the forward pass whatever pass is asked. Channels are per group;
 * unused dimensions have input 1, kernel 1, stride 1, dilation 1, padding 0. */
typedef struct LpConvShape {
    int64_t groups, batch, in, out; /* in, out: channels of one group */
    int64_t field[3], kernel[3], stride[3], dilation[3];
    int64_t pad_lower[3], pad_upper[3];
} LpConvShape;

int64_t lp_conv_out_dim(const LpConvShape *s, int dim); /* 0 when empty */

typedef struct LpSplit {
    int64_t groups, batch, rows, cols, in, out, kernel; /* parallel */
    int64_t serial_in, serial_out;                      /* of the loop */
} LpSplit;

typedef struct LpPlan {
    LpConvMethod method;
    bool joint;      /* a split shared with the other passes of the layer */
    bool swapped;    /* the operands changed places */
    bool expanded;   /* kernel columns were folded into input channels */
    bool has_kernel; /* more than one weight position on a tile's field */
    bool direct;     /* a tile's sums are whole, of the result's type */
    bool resident;   /* its larger operand was laid out for it, one tile each */
    bool fits;       /* temp_bytes <= bound_bytes; if nothing does, the least */
    LpSplit split;
    int64_t in_group, out_group; /* channels that lie together */
    int64_t tiles;               /* product of the parallel splits */
    int64_t in_cyc, weight_cyc, partial_cyc; /* exchange */
    int64_t transform_exchange_cyc, transform_cyc;
    int64_t tile_cyc, reduce_cyc, serial_cyc, sync_cyc; /* all over the loop */
    int64_t total_cyc;
    int64_t layout_cyc; /* weighed in the choice beside total_cyc, not paid */
    int64_t interleaved_bytes; /* of a tile, wanted in region 1 */
    int64_t input_bytes, weight_bytes, partial_bytes; /* a tile, one loop turn
                                                       */
    int64_t temp_bytes, bound_bytes;                  /* a tile */
    int64_t exchange_code_bytes;                      /* a tile */
    int64_t vertices, edges; /* a tile, regions of one vertex */
    int64_t steps;           /* of its program, those of the loop once */
    int64_t flops;
} LpPlan;

LpPlan lp_plan_matmul(const LpCostCtx *x, LpCostType t, LpMatmulShape s,
                      LpConvPass pass);
LpPlan lp_plan_conv(const LpCostCtx *x, LpCostType t, const LpConvShape *s,
                    LpConvPass pass);

/* s is the product itself (for BWD and WU too: give the gradient's m, k, n);
 * `pass` names the re-layouts that are charged. */
LpCost lp_cost_matmul(const LpCostCtx *x, LpCostType t, LpMatmulShape s,
                      LpConvPass pass);
LpCost lp_cost_conv(const LpCostCtx *x, LpCostType t, const LpConvShape *s,
                    LpConvPass pass);
LpCost lp_plan_cost(const LpCostCtx *x, LpCostType t, const LpPlan *p);

/* --- compositions ------------------------------------------------------ */

LpCost lp_cost_softmax(const LpCostCtx *x, LpCostType t, int64_t rows,
                       int64_t cols);
LpCost lp_cost_softmax_grad(const LpCostCtx *x, LpCostType t, int64_t rows,
                            int64_t cols);

/* Group, layer, instance and batch normalisation of n elements: statistics
 * over `n_stats` sets, `chans` parameters (0: none). `inference` uses given
 * statistics. */
LpCost lp_cost_norm(const LpCostCtx *x, LpCostType t, int64_t n,
                    int64_t n_stats, int64_t chans, bool inference);
LpCost lp_cost_norm_grad(const LpCostCtx *x, LpCostType t, int64_t n,
                         int64_t n_stats, int64_t chans);

/* `count` systems of n equations with k right-hand sides each. */
typedef struct LpTriangular {
    int64_t count, n, k;
    bool upper, unit; /* unit: ones on the diagonal */
} LpTriangular;

LpCost lp_cost_triangular(const LpCostCtx *x, LpCostType t,
                          const LpTriangular *s);

/* A recurrent layer, a loop over `steps`. Gates: 4 LSTM, 3 GRU, 1 plain. */
typedef struct LpRnnShape {
    int64_t steps, batch, in, hidden;
    int gates;
} LpRnnShape;

/* FWD keeps what the gradient needs, NONE does not; the gradient takes inputs
 * and weights together. */
LpCost lp_cost_rnn(const LpCostCtx *x, LpCostType t, const LpRnnShape *s,
                   LpConvPass pass);
LpCost lp_cost_rnn_grad(const LpCostCtx *x, LpCostType t, const LpRnnShape *s);

/* Depth, height, width; `out`: of the results. Unused dimensions are 1. */
typedef struct LpPoolShape {
    int64_t batch, chans;
    int64_t field[3], out[3], kernel[3], stride[3];
} LpPoolShape;

LpCost lp_cost_pool(const LpCostCtx *x, LpRedOp op, LpCostType t,
                    const LpPoolShape *s);
LpCost lp_cost_pool_grad(const LpCostCtx *x, LpRedOp op, LpCostType t,
                         const LpPoolShape *s);

/* --- look-ups ---------------------------------------------------------- */

/* Rows of a [rows, cols] dictionary by `count` indices. */
typedef struct LpLookup {
    int64_t rows, cols, count;
    bool trained; /* placed for the update as well */
} LpLookup;

LpCost lp_cost_lookup(const LpCostCtx *x, LpCostType t, const LpLookup *l);
LpCost lp_cost_lookup_add(const LpCostCtx *x, LpCostType t, const LpLookup *l);

/* `count` of `rows` consecutive rows at an offset known at run time. */
LpCost lp_cost_dynamic_slice(const LpCostCtx *x, LpCostType t, int64_t rows,
                             int64_t cols, int64_t count);

/* --- random numbers ---------------------------------------------------- */

typedef enum {
    LP_RND_UNIFORM,
    LP_RND_NORMAL,
    LP_RND_TRUNCATED_NORMAL,
    LP_RND_BERNOULLI,
    LP_RND_DROPOUT,
    LP_N_RND
} LpRndOp;

LpCost lp_cost_random(const LpCostCtx *x, LpRndOp op, LpCostType t, int64_t n);

/* --- data between tiles, IPUs and the host ----------------------------- */

/* Cycles in which a tile receives `in` and sends `out` bytes; `pair`: both
 * tiles of a bus receive the same data. Without sync. */
int64_t lp_exchange_cyc(const LpChip *chip, int64_t in_bytes, int64_t out_bytes,
                        bool pair);

/* One internal exchange of n elements over the tiles, with its sync; `run`
 * neighbours of the source stay together. */
LpCost lp_cost_exchange(const LpCostCtx *x, LpCostType t, int64_t n,
                        int64_t run);

typedef enum {
    LP_COLL_ALL_REDUCE,
    LP_COLL_REDUCE_SCATTER,
    LP_COLL_ALL_GATHER,
    LP_COLL_BROADCAST,
    LP_N_COLL
} LpCollective;

/* `bytes` from one IPU to another of the same replica. */
LpCost lp_cost_ipu_copy(const LpCostCtx *x, const LpSystem *sys, int from,
                        int to, int64_t bytes);

/* `bytes` an IPU over `replicas`, each of ipus_per_replica IPUs, all IPUs of a
 * replica at once with their peers. */
LpCost lp_cost_collective(const LpCostCtx *x, const LpSystem *sys,
                          LpCollective kind, LpCostType t, int64_t bytes,
                          int replicas, int ipus_per_replica);

/* `bytes` of one IPU while `n_ipus` of its machine do the same. */
LpCost lp_cost_host_io(const LpCostCtx *x, const LpSystem *sys, int64_t bytes,
                       int n_ipus);
LpCost lp_cost_streaming(const LpCostCtx *x, const LpSystem *sys, int64_t bytes,
                         int64_t other, int n_ipus);

/* --- memory ------------------------------------------------------------ */

typedef struct LpTileMap {
    int tiles;          /* that hold anything */
    int64_t tile_elems; /* of the fullest tile */
    int64_t tile_bytes;
} LpTileMap;

/* n elements spread evenly in grains of `grain` elements (at least 1). */
LpTileMap lp_tile_map(const LpCostCtx *x, LpCostType t, int64_t n,
                      int64_t grain);

/* Code of an exchange in which a tile sends and receives so many runs. */
int64_t lp_exchange_code_bytes(const LpChip *chip, int64_t sent,
                               int64_t received);

/* Code that runs so many steps, and calls of such code. */
int64_t lp_control_code_bytes(const LpChip *chip, int64_t steps, int64_t calls);

/* Code and headers of the packets in which `bytes` of so many tiles leave the
 * chip or come. */
int64_t lp_packets_code_bytes(const LpChip *chip, int64_t bytes, int tiles);

int64_t lp_codelet_set_bytes(const LpCodeletSet *s);
int64_t lp_stack_bytes(const LpChip *chip);

/* What a tile must have: `used` bytes of which `interleaved` want region 1 and
 * `apart` another element of the memory than what is read with it. Gaps count:
 * whatever stands in region 1 lies past region 0. */
int64_t lp_tile_with_gaps(const LpChip *chip, int64_t used, int64_t interleaved,
                          int64_t apart);

#endif

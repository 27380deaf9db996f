/* Shared by the files of runtime/cost alone: small arithmetic and the codelet
 * ids. */
#ifndef LP_COST_UNITS_H
#define LP_COST_UNITS_H

#include "runtime/cost/cost.h"

#include "src/base/checked.h"

static inline int64_t div_up(int64_t a, int64_t b)
{
    return a <= 0 ? 0 : (a - 1) / b + 1;
}

/* The least split past p whose share of u is smaller; past u when none. */
static inline int64_t next_split(int64_t u, int64_t p)
{
    int64_t size = div_up(u, p);
    return size <= 1 ? u + 1 : div_up(u, size - 1);
}

/* Elements of a 64-bit vector. */
static inline int64_t vec_elems(const LpChip *chip, LpCostType t)
{
    return chip->data_path_bytes / lp_cost_type_bytes(t);
}

/* Tiles an operation may use. */
static inline int64_t ctx_tiles(const LpCostCtx *x)
{
    return x->tiles > 0 && x->tiles < x->chip->tiles ? x->tiles
                                                     : x->chip->tiles;
}

/* Codelets beside the elementwise ones. */
typedef enum {
#define CODELET(name, bytes, title) LP_CODELET_##name,
#define PRODUCT(name, bytes, title)                                            \
    CODELET(name, bytes, title)                                                \
    CODELET(name##_wide, bytes, title)
#include "runtime/cost/codelets.def"
#undef PRODUCT
#undef CODELET
    LP_N_CODELETS
} CodeletId;

/* Adds a codelet, for one element type, to the cost's set. */
void cost_codelet(LpCost *c, CodeletId id, LpCostType t);
void cost_ew_codelet(LpCost *c, LpEwOp op, LpEwForm form, LpCostType t);

int codelet_id(CodeletId id, LpCostType t);
int ew_codelet_id(LpEwOp op, LpEwForm form, LpCostType t);

/* Vertices of a codelet: n on each of so many tiles, in cyc cycles of a tile,
 * of which so many pass while threads have nothing to do (as cycles of all
 * threads together). `edges`: regions that the fields of one point to;
 * `scalars`: its other fields; list_bytes: work lists of all n. */
typedef struct Vertices {
    int id; /* codelet_id, ew_codelet_id */
    int64_t tiles, n;
    int64_t edges, scalars, list_bytes;
    int64_t cyc, idle_cyc;
} Vertices;

#define NO_VERTICES ((Vertices){0})

/* Their cycles, their state, and that they are there; their codelet is counted
 * with cost_codelet. */
void cost_vertices(LpCost *c, Vertices v);

/* Counts one step: an exchange, its sync and the compute set of the vertices,
 * if there are any. */
void cost_step(const LpCostCtx *x, LpCost *c, int64_t exchange_cyc, Vertices v);
void cost_sync(const LpCostCtx *x, LpCost *c, int64_t steps);

/* What is idle of cyc cycles where n items are dealt to the workers. */
static inline int64_t idle_cyc(const LpChip *chip, int64_t cyc, int64_t n)
{
    int64_t w = chip->workers, most = div_up(n, w) * w;
    return most ? (int64_t)((double)cyc * (double)(most - n) / (double)most)
                : 0;
}

/* --- tile kernels (kernels.c): cycles of one vertex on one tile ----------- */

LpAmpMode amp_mode(LpCostType t, LpCostType partials);

/* Input and output channels of a vertex, the latter in groups. */
typedef struct AmpChans {
    int64_t in, out, out_group;
} AmpChans;

/* m rows, kernel 1x1. */
int64_t amp_gemm_cyc(const LpChip *chip, LpAmpMode mode, int64_t m, AmpChans k);

/* What such a vertex spends at least on one in-group and n output channels,
 * passes of the units alone. */
int64_t amp_block_cyc(const LpChip *chip, LpAmpMode mode, int64_t m, int64_t n);

/* `rows` rows of `len` outputs under kernel_rows x kernel_cols weights, of
 * which `pack` rows at once make up for missing input channels. */
typedef struct AmpConv {
    int64_t rows, len, kernel_rows, kernel_cols;
    int pack;
} AmpConv;

int64_t amp_conv_cyc(const LpChip *chip, LpAmpMode mode, AmpConv c, AmpChans k);
int64_t amp_conv_block_cyc(const LpChip *chip, LpAmpMode mode, AmpConv c,
                           int64_t n);

/* m rows of `in` input channels, k of them together, x n output channels. */
int64_t hmac_cyc(const LpChip *chip, LpCostType t, int64_t m, int64_t in,
                 int64_t k, int64_t n);

/* m columns x n channels, `group` of them together (0: a vector). */
int64_t outer_cyc(const LpChip *chip, LpCostType t, int64_t m, int64_t n,
                  int64_t group);

/* Depthwise, four groups at once: `results` under each row of the kernel, all
 * together, of `taps` inputs each; m results, `in` channels a group. */
int64_t vmac_cyc(int64_t results, int64_t taps, int64_t m, int64_t fours,
                 int64_t in);

/* Groups of together four channels, kernels in parts of 1 x 4. */
int64_t slic_cyc(int64_t rows, int64_t len, int64_t groups, int64_t parts,
                 int stride);

/* Sum of `depth` partials for n outputs. */
int64_t reduce_partials_cyc(const LpChip *chip, LpCostType partials,
                            LpCostType out, int64_t n, int64_t depth);
int64_t scaled_add_cyc(const LpChip *chip, LpCostType t, int64_t n, bool mixed);
int64_t copy_cyc(const LpChip *chip, LpCostType t, int64_t n, bool transpose);

/* Transpositions of `blocks` blocks on a tile. */
typedef struct Block {
    int64_t rows, cols;
} Block;
int64_t transpose_cyc(LpCostType t, int64_t blocks, Block b);

/* n elements spread over `tiles`, in blocks whose groups change places. */
int64_t regroup_cyc(const LpChip *chip, LpCostType t, int64_t n, int64_t tiles,
                    Block b);

/* dynamicSlice of one region of `elems`. */
int64_t slice_cyc(const LpChip *chip, LpCostType t, int64_t elems);

/* Stages of a reduction over `depth` tiles: the ways of each, whose product
 * is at least depth; gives their number (1 to 3). */
int reduce_stages(int64_t depth, int64_t ways[3]);

#endif

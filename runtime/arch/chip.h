/* What an IPU is: the figures that the cost and memory formulas need, one
 * record a generation. The values, each with its source, stand in chips.def.
 * Records are constants: nothing here is owned, freed or changed. */
#ifndef LP_ARCH_CHIP_H
#define LP_ARCH_CHIP_H

#include <stddef.h>
#include <stdint.h>

/* Hardware worker contexts of a tile, of every chip; the vertices' assembly is
 * written for as many. */
enum { LP_WORKERS = 6 };

/* The modes of the matrix unit (AMP): type of the data, type of the partials.
 */
typedef enum {
    LP_AMP_F16_F16,
    LP_AMP_F16_F32,
    LP_AMP_F32_F32,
    LP_N_AMP
} LpAmpMode;

typedef struct LpAmp {
    int units;          /* accumulating units that work at once; 0 = no mode */
    int in_elems;       /* elements each unit takes in a cycle */
    int in_group;       /* input channels a loaded weight block covers */
    int row_cyc;        /* cycles a worker spends on one row of one in_group */
    int coeff_bytes;    /* weight bytes held by one unit */
    int rows[4];        /* worker cycles for 0..3 rows; more add row_cyc */
    int zero_cyc[2];    /* where partials are not added to: [0] + [1] * rows */
    int kernel_rows[4]; /* worker cycles for 0..3 results of a piece of row */
} LpAmp;

typedef struct LpChip {
    const char *version; /* "ipu1", "ipu2", "ipu21" */
    const char *name;
    int tiles;
    int workers;           /* hardware worker contexts of a tile */
    int tiles_per_bus;     /* neighbours that share an exchange bus */
    int64_t tile_bytes;    /* SRAM of a tile */
    int64_t region0_bytes; /* standard memory: the only one that holds code */
    int64_t region1_bytes; /* interleaved memory: 128-bit access */
    int64_t memory_element_bytes; /* of which a cycle has one access */
    double clock_hz;
    int data_path_bytes;    /* a vector of the worker's arithmetic */
    int instruction_bytes;  /* one instruction of the memory image */
    int exchange_bytes_cyc; /* bytes a cycle that a tile receives, or sends */
    int memcpy_bytes_cyc;   /* bytes a cycle of a local copy */
    int coeff_bytes_cyc;    /* weight load into the AMP, 64-bit loads */
    int step_cyc;           /* of a sync: twice the longest delay to a tile */
    int global_sync_cyc;    /* sync over several IPUs; 0 = by the hop model */
    int host_sync_cyc;      /* sync with the host, its waiting left out */
    double hop_s;           /* latency of a sync hop between IPUs */
    int worker_stack_bytes; /* stack of one worker */
    int supervisor_stack_bytes;
    LpAmp amp[LP_N_AMP];
} LpChip;

extern const char *const lp_chip_versions[]; /* with NULL at the end */

/* The record of a generation, NULL when the version is not known. */
const LpChip *lp_chip_find(const char *version);

/* Cycles of a sync over n_ipus IPUs (0 for a single one). */
int64_t lp_chip_global_sync_cyc(const LpChip *chip, int n_ipus);

/* Multiply-accumulates a cycle of one tile's AMP; 0 without the mode. */
int lp_chip_amp_macs(const LpChip *chip, LpAmpMode mode);

#endif

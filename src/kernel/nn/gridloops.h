/* Values of pictures at coordinates (grid_kernel.c), compiled once per
 * instruction set (simd_grid.c) and chosen once by the CPU. */
#ifndef LP_KERNEL_NN_GRIDLOOPS_H
#define LP_KERNEL_NN_GRIDLOOPS_H

#include "src/kernel/loops/loops.h"

enum { LP_GRID_BLOCK = 64, LP_GRID_AXES = 3, LP_GRID_TAPS = 4 };

/* Coordinate i of a point speaks of axis i, whose neighbours lie `step` apart:
 * the last dimension comes first. A corner is a tap of each axis. */
typedef struct LpGrid {
    int axes, taps, corners;
    int mode, padding; /* LpGridMode, LpGridPadding of kernel/attrs.h */
    bool align;
    int64_t n, channels, plane,
        points; /* elements of a plane; points of one n */
    int64_t size[LP_GRID_AXES], step[LP_GRID_AXES];
} LpGrid;

/* Up to LP_GRID_BLOCK points: plan() writes into `work`, which the others read,
 * where the corners lie and what they weigh, and by `slopes` how that changes
 * with each coordinate. sample: y = values of a plane; scatter: its adjoint,
 * added to dx; slopes: adds to sum[axis][point] what the gradient g of y gives
 * each coordinate. */
#define LP_GRID_LOOPS(T)                                                       \
    size_t (*bytes)(const LpGrid *g);                                          \
    void (*plan)(const LpGrid *g, const T *grid, int m, bool slopes,           \
                 void *work);                                                  \
    void (*sample)(const LpGrid *g, int m, const void *work, const T *x,       \
                   T *y);                                                      \
    void (*scatter)(const LpGrid *g, int m, const void *work, const T *dy,     \
                    T *dx);                                                    \
    void (*slopes)(const LpGrid *g, int m, const void *work, const T *x,       \
                   const T *dy, T *sum);

typedef struct LpGridLoops {
    struct {
        LP_GRID_LOOPS(float)
    } f32;
    struct {
        LP_GRID_LOOPS(double)
    } f64;
} LpGridLoops;
typedef const LpGridLoops LpGridLoopsOf[1];
LP_SIMD_EXTERN(LpGridLoopsOf, lp_grid);

#endif

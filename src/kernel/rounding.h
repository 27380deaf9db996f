/* Rounding at random: a number between two neighbours of a half type becomes
 * the upper one with the probability that makes the expected value exact;
 * numbers that the type has stay. What rounds so is a step's nodes with a site
 * (LpNumerics.stochastic). Every kernel computes half types in float32, so that
 * there is one place that rounds: around any kernel, whose operands and results
 * are then float32 (lp_prepare), and after each node of a chain (fused.h).
 *
 * Site, number of the result and run give a stream, of which 32 elements of the
 * result have four blocks: element i the word i / 16 * 2 + i % 2 of block i % 8
 * / 2. Two share a word, i and i + 8; each draws its own half of it, which is
 * as many bits as a normal number loses, and smaller ones the other half below
 * it. So bits are the same on any number of threads, in any layout of memory,
 * alone or in a chain, and when a result is made again. */
#ifndef LP_KERNEL_ROUNDING_H
#define LP_KERNEL_ROUNDING_H

#include "src/base/random.h"
#include "src/ir/op.h"

/* The stream of one result in one run. */
LpRandom lp_rounding_stream(const LpRunCtx *rc, uint64_t site, int result);

/* Rounds x[0 … n), elements at, at + 1, … of a result, to numbers of `to`, a
 * half type. What is not finite stays; beyond the largest number of the type
 * the nearest is taken, so that no number becomes infinite that would not
 * otherwise. */
void lp_store_at_random(const LpRandom *r, LpDtype to, uint64_t at, int64_t n,
                        const float *x, uint16_t *out);
/* The same in place, in float32. */
void lp_round_at_random(const LpRandom *r, LpDtype to, uint64_t at, int64_t n,
                        float *x);

/* The same of `planes` ones that alternate, as channels in a block of an image
 * do: x[n][planes], of which plane i has elements at + i apart, and those after
 * it. `work`: as many numbers. */
void lp_round_planes_at_random(const LpRandom *r, LpDtype to, uint64_t at,
                               int64_t apart, int64_t planes, int64_t n,
                               float *x, float *work);

/* Does the call round at random? */
bool lp_call_rounds(const LpKernelReq *r);

/* What op->prepare does; numerics are seen to. For nodes of steps. */
LpStatus lp_prepare(const LpKernelReq *r, LpKernel *k, LpErr *e);

#endif

/* One process: its buffers are all there are, and are summed at once. */
#include "runtime/exec/comm.h"

static LpStatus agree(const LpComm *c, uint64_t mine, bool *same, LpErr *e)
{
    (void)c, (void)mine, (void)e;
    *same = true;
    return LP_OK;
}

static LpStatus start(const LpComm *c, const LpReduction *r, LpErr *e)
{
    (void)c, (void)e;
    int64_t size = lp_group_size(r->group, r->n_local);
    int64_t stride = lp_group_stride(r->group, r->n_local);
    for (int64_t g = 0; g < r->n_local / size; g++) {
        LpSumRounding how = r->rounding;
        how.rc.replica = (uint32_t)g;
        lp_sum_buffers(r->dtype,
                       r->local + lp_group_first(r->group, r->n_local, g), size,
                       stride, r->n, &how);
    }
    return LP_OK;
}

static LpStatus wait(const LpComm *c, const LpReduction *r, LpErr *e)
{
    (void)c, (void)r, (void)e;
    return LP_OK;
}

const LpComm *lp_comm_alone(void)
{
    static const LpComm alone = {
        .size = 1, .agree = agree, .start = start, .wait = wait};
    return &alone;
}

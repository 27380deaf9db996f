/* The table of strategies, and the rule that is the same for all. */
#include "src/passes/ipu/strategy.h"

#include <inttypes.h>
#include <string.h>

static const LpStrategyOps *const strategies[] = {
#define STRATEGY(name) &lp_strategy_##name,
#include "src/passes/ipu/strategies.def"
#undef STRATEGY
};

const char *const lp_strategy_names[] = {
#define STRATEGY(name) #name,
#include "src/passes/ipu/strategies.def"
#undef STRATEGY
    NULL};

const LpStrategyOps *lp_strategy_find(const char *name)
{
    for (size_t i = 0; lp_strategy_names[i]; i++)
        if (!strcmp(lp_strategy_names[i], name))
            return strategies[i];
    return NULL;
}

LpStatus lp_ipus_reserved(int highest, int64_t replicas, bool hardware,
                          bool round, int64_t *reserved, int64_t *need,
                          LpErr *e)
{
    int64_t per_replica = highest + 1, rounded = 1;
    LP_FAIL_IF(per_replica > LP_MAX_IPUS || replicas > LP_MAX_IPUS ||
                   per_replica * replicas > LP_MAX_IPUS,
               e, LP_E_POPTORCH,
               "the model needs %" PRId64 " IPUs (%" PRId64 " x %" PRId64
               " replicas), one process can use %d: spread the replicas over "
               "processes (Options.Distributed)",
               per_replica * replicas, per_replica, replicas, LP_MAX_IPUS);
    *reserved = *need = per_replica * replicas;
    while (rounded < *need)
        rounded *= 2;
    if (!hardware || *need == 0 || rounded == *need)
        return LP_OK;
    LP_FAIL_IF(!round, e, LP_E_POPTORCH,
               "the model needs %" PRId64 " IPUs, which is no power of two: "
               "%" PRId64 " would have to be reserved; place it on another "
               "number of IPUs or allow that with "
               "options:autoRoundNumIPUs(true)",
               *need, rounded);
    *reserved = rounded;
    return LP_OK;
}

/* The table of strategies, and the rule that is the same for all. */
#include "src/passes/ipu/strategy.h"

#include <inttypes.h>
#include <stdio.h>
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

LpPlaceName lp_place_name(const LpBlockLocation *p)
{
    LpPlaceName n;
    const LpOrigin *o = p->origin;
    bool in_block = *o->block != '\0';
    snprintf(n.text, sizeof n.text, "operator %.40s (%.60s:%d)%s%.60s%s",
             p->node->op->name, o->file, (int)o->line,
             in_block ? " of block '" : "", o->block, in_block ? "'" : "");
    return n;
}

LpStatus lp_ipus_reserve(LpIpuPlan *p, int64_t ipus)
{
    int64_t replicas = p->replicas, rounded = 1;
    if (replicas > LP_MAX_IPUS || ipus * replicas > LP_MAX_IPUS)
        return lp_fail_hint(p->err, LP_E_POPTORCH, "processes",
                            "the model needs %.0f IPUs (%" PRId64 " x %" PRId64
                            " replicas), one process can use %d",
                            (double)ipus * (double)replicas, ipus, replicas,
                            LP_MAX_IPUS);
    p->reserved_ipus = ipus * replicas;
    while (rounded < p->reserved_ipus)
        rounded *= 2;
    if (!p->o.power_of_two || ipus == 0 || rounded == p->reserved_ipus)
        return LP_OK;
    if (!p->o.round_ipus)
        return lp_fail_hint(p->err, LP_E_POPTORCH, "round_ipus",
                            "the model needs %" PRId64
                            " IPUs, which is no power of two: %" PRId64
                            " would have to be reserved",
                            p->reserved_ipus, rounded);
    p->reserved_ipus = rounded;
    return LP_OK;
}

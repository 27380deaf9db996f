/* The table of strategies. */
#include "src/passes/ipu/strategy.h"

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

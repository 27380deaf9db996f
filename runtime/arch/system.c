/* The table of machines and the routes that follow from it. */
#include "runtime/arch/system.h"

#include <string.h>

#define SYSTEM(...) {__VA_ARGS__},
static const LpSystem systems[] = {
#include "runtime/arch/systems.def"
};
#undef SYSTEM

const LpSystem *lp_system_find(const char *chip_version)
{
    for (size_t i = 0; chip_version && i < sizeof systems / sizeof *systems;
         i++)
        if (!strcmp(systems[i].chip, chip_version))
            return &systems[i];
    return NULL;
}

double lp_system_path_bps(const LpSystem *s, int from, int to)
{
    if (from / s->ipus_machine == to / s->ipus_machine)
        return s->link_bps;
    if (from / s->ipus_rack == to / s->ipus_rack || s->gateway_bps <= 0)
        return s->ladder_bps;
    /* a rack's gateway is shared by the IPUs of the machine */
    double share = s->gateway_bps / s->ipus_machine;
    return share < s->ladder_bps ? share : s->ladder_bps;
}

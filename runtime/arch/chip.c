/* The table of chips and the few figures that follow from it. */
#include "runtime/arch/chip.h"

#include <math.h>
#include <string.h>

#define CHIP(id, ...) {.version = #id, __VA_ARGS__},
static const LpChip chips[] = {
#include "runtime/arch/chips.def"
};
#undef CHIP

#define CHIP(id, ...) #id,
const char *const lp_chip_versions[] = {
#include "runtime/arch/chips.def"
    NULL};
#undef CHIP

const LpChip *lp_chip_find(const char *version)
{
    for (size_t i = 0; version && i < sizeof chips / sizeof *chips; i++)
        if (!strcmp(chips[i].version, version))
            return &chips[i];
    return NULL;
}

int64_t lp_chip_global_sync_cyc(const LpChip *chip, int n_ipus)
{
    if (n_ipus <= 1)
        return 0;
    if (chip->global_sync_cyc)
        return chip->global_sync_cyc;
    int hops = 1 + n_ipus / 4; /* PL poplibs_test/Util setGlobalSyncLatency */
    return (int64_t)ceil(chip->hop_s * chip->clock_hz * hops * 2 - 1e-9);
}

int lp_chip_amp_macs(const LpChip *chip, LpAmpMode mode)
{
    return chip->amp[mode].units * chip->amp[mode].in_elems;
}

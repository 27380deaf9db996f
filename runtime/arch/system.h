/* How IPUs are joined: links, machines, host and streaming memory. Values and
 * sources in systems.def; bandwidths are bytes a second in one direction. */
#ifndef LP_ARCH_SYSTEM_H
#define LP_ARCH_SYSTEM_H

#include <stddef.h>

typedef struct LpSystem {
    const char *name;       /* "c2", "m2000", "bow2000" */
    const char *chip;       /* LpChip.version */
    int ipus_machine;       /* IPUs of one machine (or card) */
    double link_bps;        /* IPU to neighbour inside the machine */
    double ladder_bps;      /* IPU to its peer in the next machine */
    double ring_bps;        /* IPU's share in a ring over machines */
    double gateway_bps;     /* machine to machine over racks; 0 = none */
    int ipus_rack;          /* reached without the gateway */
    double host_bps;        /* machine to host */
    double stream_bps;      /* machine to streaming memory; 0 = none */
    double stream_both_bps; /* both ways at once, together */
    double stream_bytes;    /* that it has, of a machine; 0 = as the host */
} LpSystem;

/* By the version of the chip, NULL when not known. */
const LpSystem *lp_system_find(const char *chip_version);

/* Bandwidth of the slowest resource on the way between two IPUs. */
double lp_system_path_bps(const LpSystem *s, int from, int to);

#endif

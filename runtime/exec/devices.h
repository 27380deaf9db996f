/* The IPUs of the simulated machine, which all processes of a user share.
 *
 * A table, one file in a folder that only its user may enter, has a record of
 * 256 bytes an IPU. Who holds IPUs has a lock on the bytes of their records: a
 * group is taken as a whole or not at all, and a process that ends, however it
 * does, has given back what it held. Whether an IPU is free, the locks say; who
 * has it, only the records, for messages. */
#ifndef LP_RUNTIME_EXEC_DEVICES_H
#define LP_RUNTIME_EXEC_DEVICES_H

#include <sys/types.h>

#include "src/base/status.h"

#define LP_MOST_MACHINE_IPUS 4096
#define LP_IPU_RECORD 256 /* bytes */

typedef struct LpMachine LpMachine;

/* Who holds an IPU. */
typedef struct LpHolder {
    int64_t pid;                /* 0: not known */
    int64_t first, count;       /* the IPUs taken with it; 0, 0: not known */
    char script[LP_IPU_RECORD]; /* "" : not known; no control characters */
} LpHolder;

/* The table in a folder, both made if they are missing; one reference of what
 * this process has open already. OSError for a folder that others may enter. */
LpStatus lp_machine_open(const char *folder, LpMachine **out, LpErr *e);
LpMachine *lp_machine_retain(LpMachine *m);
void lp_machine_release(LpMachine *m);           /* NULL is fine */
const char *lp_machine_path(const LpMachine *m); /* of the table; borrowed */

/* Takes IPUs first .. first + count - 1, all or none: *taken. `script` is what
 * the table says of who has them. */
LpStatus lp_ipus_take(LpMachine *m, int64_t first, int64_t count,
                      const char *script, bool *taken, LpErr *e);
/* Nothing in a process that was forked since: they are its parent's. */
void lp_ipus_give_back(LpMachine *m, int64_t first, int64_t count);
/* *held: whether somebody has it, this process included. */
LpStatus lp_ipu_holder(LpMachine *m, int64_t ipu, bool *held, LpHolder *out,
                       LpErr *e);

/* What a record says; false for what is none. */
bool lp_ipu_record_read(const char *bytes, size_t n, LpHolder *out);

/* Sleeps; KeyboardInterrupt on Ctrl-C. */
LpStatus lp_devices_sleep(double seconds, LpErr *e);

#endif

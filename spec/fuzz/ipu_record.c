/* Fuzz target: a record of the table of IPUs, which other processes write, is
 * read or refused; what it gives is fit to be printed. */
#include <string.h>

#include "runtime/exec/devices.h"
#include "spec/fuzz/harness/lua.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LpHolder h;
    char record[LP_IPU_RECORD];
    /* The input as it is, and as the start of a whole record. */
    bool read = lp_ipu_record_read((const char *)data, size, &h);
    if (read && size != sizeof record)
        __builtin_trap();
    memset(record, ' ', sizeof record);
    record[sizeof record - 1] = '\n';
    memcpy(record, data, size < sizeof record - 1 ? size : sizeof record - 1);
    if (!lp_ipu_record_read(record, sizeof record, &h))
        return 0;
    if (h.first < 0 || h.first >= LP_MOST_MACHINE_IPUS || h.count < 1 ||
        h.count > LP_MOST_MACHINE_IPUS || h.pid < 0 ||
        !memchr(h.script, 0, sizeof h.script))
        __builtin_trap();
    for (const char *p = h.script; *p; p++)
        if ((unsigned char)*p < ' ')
            __builtin_trap();
    return 0;
}

/* Where forward may mark host I/O to overlap with computing. */
#ifndef LP_PASSES_HOST_IO_H
#define LP_PASSES_HOST_IO_H

#include "src/ir/step.h"

/* Ways and modes that some mark asks for; not those of no overlap. */
typedef struct LpHostIo {
    bool input[2], output[2]; /* along the accumulation, device iterations */
} LpHostIo;

/* Of a traced step that is not complete: each mark for inputs must be the only
 * use of an input, each mark for outputs make one that is returned once. */
LpStatus lp_check_host_io(const LpStep *s, LpHostIo *io, LpErr *e);

#endif

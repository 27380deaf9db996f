/* Requests of kernels as a graph's types say them: all operands and results
 * dense. Who lowers nodes puts in what it knows of their memory. */
#ifndef LP_OPS_REQUEST_H
#define LP_OPS_REQUEST_H

#include "src/ir/graph.h"

/* Of an operand: a hole, a number, or dense memory. */
LpDesc lp_desc_of_operand(const LpGraph *g, LpVal v);

/* Of a node, for no thread yet; `desc` has room for its operands and results.
 */
LpKernelReq lp_req_of_node(const LpGraph *g, const LpGraphNode *n,
                           LpDesc *desc);

#endif

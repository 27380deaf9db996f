/* Pieces of the text form for those who show parts of a graph; the checks of
 * single calls that the parser and the verifier share. */
#ifndef LP_IR_TEXT_H
#define LP_IR_TEXT_H

#include "src/base/buf.h"
#include "src/ir/graph.h"
#include "src/ir/schema.h"

/* One node without a newline. Reads nothing that the graph does not have, so
 * a faulty one can be shown. */
void lp_text_node(LpBuf *b, const LpGraph *g, LpNodeId id);
void lp_text_graph(LpBuf *b, const LpGraph *g);
void lp_text_string(LpBuf *b, const char *s); /* quoted */
void lp_text_type(LpBuf *b, const LpType *t);
/* Owned; NULL when memory was short for any part of it. */
char *lp_text_take(LpBuf *b, LpErr *e);

/* Is `op` an operation of g, and may it have these operands (existing
 * values, immediates, holes)? */
LpStatus lp_check_operands(const LpGraph *g, const LpOp *op, const LpVal *in,
                           size_t n_in, LpErr *e);
/* The kinds of the attributes are those of the operator's form. */
LpStatus lp_check_attrs(const LpOp *op, const LpAttr *attr, LpErr *e);
/* Runs the shape rule: makes `attr` canonical, fills out[0..*n_out-1] (room
 * for LP_MAX_LIST). Lists are in `arena`. */
LpStatus lp_graph_infer(const LpGraph *g, const LpOp *op, const LpVal *in,
                        size_t n_in, LpAttr *attr, LpType *out, int *n_out,
                        LpArena *arena, LpErr *e);

#endif

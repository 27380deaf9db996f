/* Where a node comes from, for messages: operator, module, line. */
#include <stdio.h>

#include "src/passes/host/lower_impl.h"

const char *lp_place_text(const LpGraph *g, const LpGraphNode *n,
                          char to[LP_WHERE])
{
    const LpOrigin *o = &g->origin[n->origin];
    int at = snprintf(to, LP_WHERE, "%s", lp_node_title(n));
    const char *half = o->update     ? ", the update"
                       : o->backward ? ", backward"
                                     : "";
    const char *after = o->backward && !o->update ? "," : "";
    if (*o->scope && at < LP_WHERE)
        at += snprintf(to + at, (size_t)(LP_WHERE - at), "%s%s of %s", half,
                       after, o->scope);
    else if (*half && at < LP_WHERE)
        at += snprintf(to + at, (size_t)(LP_WHERE - at), "%s", half);
    if (*o->file && at < LP_WHERE)
        snprintf(to + at, (size_t)(LP_WHERE - at), " (%s:%d)", o->file,
                 (int)o->line);
    return to;
}

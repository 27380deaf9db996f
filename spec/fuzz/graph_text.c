/* Fuzz target: the text form of graphs. */
#include "spec/fuzz/harness/text.h"
#include "src/ir/graph.h"

static char *reprint(const char *text, LpErr *e)
{
    LpGraph *g = NULL;
    char *s = NULL;
    if (lp_graph_parse(text, &g, e) != LP_OK)
        return NULL;
    if (lp_graph_verify(g, e) == LP_OK)
        s = lp_graph_print(g, e);
    lp_graph_free(g);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return lp_fuzz_text(reprint, data, size);
}

/* Fuzz target: the text form of graphs. The print of what parses and is sound
 * parses again and prints the same. */
#include <stdbool.h>
#include <string.h>

#include "spec/fuzz/harness/lua.h"
#include "src/base/mem.h"
#include "src/ir/graph.h"
#include "src/ir/schema.h"

static char *printed(const char *text, LpErr *e)
{
    LpGraph *g = NULL;
    if (lp_graph_parse(text, &g, e) != LP_OK) {
        if (!e->msg[0])
            __builtin_trap();
        return NULL;
    }
    bool sound = lp_graph_verify(g, e) == LP_OK;
    char *s = sound ? lp_graph_print(g, e) : NULL;
    lp_graph_free(g);
    if (!s == sound || (!sound && !e->msg[0]))
        __builtin_trap();
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LpErr e = {0};
    char *text = lp_alloc(size + 1);
    if (!text || lp_schema_init(&e) != LP_OK)
        __builtin_trap();
    memcpy(text, data, size);
    text[size] = '\0';
    char *once = printed(text, &e);
    char *twice = once ? printed(once, &e) : NULL;
    if (once && (!twice || strcmp(once, twice) != 0))
        __builtin_trap();
    lp_free(once);
    lp_free(twice);
    lp_free(text);
    return 0;
}

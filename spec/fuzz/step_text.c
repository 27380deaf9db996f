/* Fuzz target: the text form of steps. */
#include "spec/fuzz/harness/text.h"
#include "src/ir/step.h"

static char *reprint(const char *text, LpErr *e)
{
    LpStep *s = NULL;
    if (lp_step_parse(text, &s, e) != LP_OK)
        return NULL;
    char *out = lp_step_print(s, e);
    lp_step_release(s);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return lp_fuzz_text(reprint, data, size);
}

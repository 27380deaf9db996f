/* Fuzz targets for text forms: what is printed of a text that parses, parses
 * again and prints the same. */
#ifndef LP_SPEC_FUZZ_TEXT_H
#define LP_SPEC_FUZZ_TEXT_H

#include <stdbool.h>
#include <string.h>

#include "spec/fuzz/harness/lua.h"
#include "src/base/mem.h"
#include "src/ir/schema.h"

/* The print of what `text` says, owned; NULL, with `e` filled, if it is
 * refused. */
typedef char *(*LpFuzzReprint)(const char *text, LpErr *e);

static inline char *lp_fuzz_once(LpFuzzReprint reprint, const char *text)
{
    LpErr e = {0};
    char *s = reprint(text, &e);
    if (!s == (e.code == LP_OK) || (!s && !e.msg[0]))
        __builtin_trap();
    return s;
}

static inline int lp_fuzz_text(LpFuzzReprint reprint, const uint8_t *data,
                               size_t size)
{
    LpErr e = {0};
    char *text = lp_alloc(size + 1);
    if (!text || lp_schema_init(&e) != LP_OK)
        __builtin_trap();
    memcpy(text, data, size);
    text[size] = '\0';
    char *once = lp_fuzz_once(reprint, text);
    char *twice = once ? lp_fuzz_once(reprint, once) : NULL;
    if (once && (!twice || strcmp(once, twice) != 0))
        __builtin_trap();
    lp_free(once);
    lp_free(twice);
    lp_free(text);
    return 0;
}

#endif

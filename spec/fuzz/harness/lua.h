/* Fuzz targets for readers written in Lua. A target is one line:
 *   LP_FUZZ_LUA("… return function(bytes) … end")
 * The chunk's function is called with each input and must return; an error
 * ends the run. It is for the function to catch the errors that a reader may
 * raise (harness.refused, see lua.c). */
#ifndef LP_SPEC_FUZZ_LUA_H
#define LP_SPEC_FUZZ_LUA_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int lp_fuzz_lua(const char *chunk, const uint8_t *data, size_t size);
/* Collects garbage, so that what is left over can be counted. */
void lp_fuzz_collect(void);

#define LP_FUZZ_LUA(chunk)                                                     \
    int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)               \
    {                                                                          \
        return lp_fuzz_lua(chunk, data, size);                                 \
    }

#endif

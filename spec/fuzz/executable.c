/* Fuzz target: executables. The input is the texts of a file, as
 * harness/executable.lua has them, which gets the hash that is right. */
#include "spec/fuzz/harness/lua.h"

LP_FUZZ_LUA("return dofile('spec/fuzz/harness/executable.lua')")

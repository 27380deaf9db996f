/* Runs a fuzz target over files: replaces libFuzzer where only a corpus is to
 * be run again. Usage: TARGET FILE... Prints the number of files; exits with 1
 * if one cannot be read or a block of memory is left over. The first file runs
 * twice: what is made once for all is no leftover. */
#include <stdio.h>

#include "spec/fuzz/harness/lua.h"
#include "src/base/mem.h"

static uint8_t bytes[1 << 20];

static int run(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return 1;
    }
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    lp_fuzz_collect();
    int64_t before = lp_mem_live();
    LLVMFuzzerTestOneInput(bytes, n);
    lp_fuzz_collect();
    if (lp_mem_live() <= before)
        return 0;
    printf("%s: blocks left over\n", path);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        FILE *f = fopen(argv[1], "rb");
        size_t n = f ? fread(bytes, 1, sizeof bytes, f) : 0;
        LLVMFuzzerTestOneInput(bytes, n);
        if (f)
            fclose(f);
    }
    for (int i = 1; i < argc; i++)
        if (run(argv[i]))
            return 1;
    printf("%d files\n", argc - 1);
    return 0;
}

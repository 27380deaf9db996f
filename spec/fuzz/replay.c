/* Runs a fuzz target over files: replaces libFuzzer where only a corpus is to
 * be run again. Usage: TARGET FILE... Prints the number of files; exits with 1
 * if one cannot be read or a block of memory is left over. */
#include <stdint.h>
#include <stdio.h>

#include "src/base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t bytes[1 << 20];

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f) {
            perror(argv[i]);
            return 1;
        }
        size_t n = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        int64_t before = lp_mem_live();
        LLVMFuzzerTestOneInput(bytes, n);
        if (lp_mem_live() > before) {
            printf("%s: blocks left over\n", argv[i]);
            return 1;
        }
    }
    printf("%d files\n", argc - 1);
    return 0;
}

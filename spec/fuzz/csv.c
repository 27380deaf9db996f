/* Fuzz target: CSV files. The first byte is the delimiter; every column is
 * read as numbers, and each cell must be text that ends where it says. */
#include <string.h>

#include "spec/fuzz/harness/file.h"
#include "spec/fuzz/harness/lua.h"
#include "src/io/csv.h"

static void columns(const LpCsv *c)
{
    for (int64_t i = 0; i < c->columns; i++) {
        LpTensor *t = NULL;
        LpErr e = {0};
        if (lp_csv_numbers(c, i % 2 % (c->rows + 1), i, &t, &e) != LP_OK &&
            !e.msg[0])
            __builtin_trap();
        lp_tensor_release(t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LpCsv c = {0};
    LpErr e = {0};
    if (size == 0)
        return 0;
    LpStatus s =
        lp_csv_read(lp_fuzz_file(data + 1, size - 1), (char)data[0], &c, &e);
    if (s != LP_OK && !e.msg[0])
        __builtin_trap();
    for (size_t i = 0; s == LP_OK && i < c.n_cells; i++)
        if (c.cells[i].p[c.cells[i].n] != '\0')
            __builtin_trap();
    if (s == LP_OK && c.n_cells != (size_t)(c.rows * c.columns))
        __builtin_trap();
    if (s == LP_OK)
        columns(&c);
    lp_csv_fini(&c);
    return 0;
}

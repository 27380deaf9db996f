/* Tables of text: CSV files. */
#ifndef LP_IO_CSV_H
#define LP_IO_CSV_H

#include "src/io/file.h"

/* A field: its text lies in the table's buffer. */
typedef struct LpCsvCell {
    const char *p; /* terminated */
    size_t n;
    bool quoted;
} LpCsvCell;

/* Rows of equal length. Zero-initialised is empty; owns its buffers. */
typedef struct LpCsv {
    char *text;
    LpCsvCell *cells; /* row after row */
    size_t n_cells, cap;
    int64_t rows, columns;
} LpCsv;

/* Reads the file as the caller's `out`, which it finishes also after a
 * failure. ValueError names the line. */
LpStatus lp_csv_read(const char *path, char delimiter, LpCsv *out, LpErr *e);
void lp_csv_fini(LpCsv *c);

/* Rows from `first` on of a column as numbers: int64 if all are whole numbers,
 * float64 if all are numbers (an empty field is NaN, as are "nan" and "NA");
 * *out stays NULL if one is neither. */
LpStatus lp_csv_numbers(const LpCsv *c, int64_t first, int64_t column,
                        LpTensor **out, LpErr *e);

#endif

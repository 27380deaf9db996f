/* Reading the notation of forms, piece by piece; inside src/ir. A reader stands
 * in one line; what it keeps lives in its arena. Failures are mistakes in a
 * record: LP_E_INTERNAL with the operator, the form and the place. */
#ifndef LP_IR_SCHEMA_READ_H
#define LP_IR_SCHEMA_READ_H

#include "src/base/mem.h"
#include "src/ir/schema.h"

typedef struct LpFormReader {
    LpOp *op;
    const char *p;     /* cursor; the line ends at '\n' or NUL */
    const LpForm *own; /* first form of op; NULL while parsing it */
    LpForm *f;
    LpArena *arena;
    LpErr *err;
} LpFormReader;

#define LP_FR_MEMORY(s)                                                        \
    lp_fail((s)->err, LP_E_MEMORY, "out of memory while reading operator forms")

bool lp_fr_at_end(const LpFormReader *s);
void lp_fr_blanks(LpFormReader *s);
LpStatus lp_fr_wrong(LpFormReader *s, const char *what);
bool lp_fr_accept(LpFormReader *s, char c);
bool lp_fr_is_word(char c);
int lp_fr_word(LpFormReader *s, const char **w);
bool lp_fr_word_is(const char *w, int n, const char *s);
char *lp_fr_copy(LpFormReader *s, const char *w, int n);
LpStatus lp_fr_name(LpFormReader *s, const char **out);
LpStatus lp_fr_type(LpFormReader *s, LpFormArg *a);
LpStatus lp_fr_constant(LpFormReader *s, const LpFormArg *a, LpAttr *out);

#endif

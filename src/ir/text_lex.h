/* Tokens of the text form (grammar: text.c). */
#ifndef LP_IR_TEXT_LEX_H
#define LP_IR_TEXT_LEX_H

#include "src/base/mem.h"
#include "src/base/status.h"
#include "src/tensor/dtype.h"

typedef enum {
    LP_TOK_END,
    LP_TOK_LINE, /* end of a line */
    LP_TOK_WORD,
    LP_TOK_LABEL,  /* text without the % */
    LP_TOK_NUMBER, /* INT or FLOAT */
    LP_TOK_STRING, /* text without quotes and escapes */
    LP_TOK_ARROW,
    LP_TOK_SIGN, /* one of ( ) [ ] { } , : = */
} LpTokKind;

typedef struct LpToken {
    LpTokKind kind;
    char sign;
    int line, column; /* from 1 */
    const char *from; /* as written, `len` bytes */
    size_t len;
    const char *text; /* WORD, LABEL, STRING: terminated, in the arena */
    LpScalar number;
} LpToken;

typedef struct LpLexer {
    const char *p, *line_start;
    int line;
    LpToken t;      /* the current token */
    LpArena *arena; /* texts */
    LpErr *err;
} LpLexer;

/* Reads the first token. */
LpStatus lp_lex_init(LpLexer *x, const char *text, LpArena *arena, LpErr *e);
/* Reads the next token into x->t. */
LpStatus lp_lex_next(LpLexer *x);
/* "line 3, column 5: expected WHAT, found 'x'"; returns LP_E_PARSE. */
LpStatus lp_lex_expected(LpLexer *x, const char *what);
/* The same place, any message. */
LpStatus lp_lex_fail(LpLexer *x, const LpToken *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static inline bool lp_lex_sign(const LpLexer *x, char c)
{
    return x->t.kind == LP_TOK_SIGN && x->t.sign == c;
}

#endif

/* The lexer of the text form. Reads outside data: any byte may come; numbers
 * are checked, words and strings are bounded by the text alone. */
#include "src/ir/text_lex.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

LpStatus lp_lex_fail(LpLexer *x, const LpToken *at, const char *fmt, ...)
{
    char msg[sizeof x->err->msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return lp_fail(x->err, LP_E_PARSE, "line %d, column %d: %s", at->line,
                   at->column, msg);
}

LpStatus lp_lex_expected(LpLexer *x, const char *what)
{
    const LpToken *t = &x->t;
    char show[40];
    size_t n = 0;
    if (t->kind == LP_TOK_END || t->kind == LP_TOK_LINE)
        return lp_lex_fail(x, t, "expected %s, found the end of the %s", what,
                           t->kind == LP_TOK_END ? "text" : "line");
    for (; n < t->len && n < sizeof show - 1; n++)
        show[n] = t->from[n] >= ' ' && t->from[n] < 127 ? t->from[n] : '?';
    show[n] = '\0';
    return lp_lex_fail(x, t, "expected %s, found '%s'", what, show);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
}

static LpStatus keep(LpLexer *x, const char *s, size_t n)
{
    char *p = lp_arena_alloc(x->arena, n + 1);
    LP_FAIL_IF(!p, x->err, LP_E_MEMORY, "out of memory");
    memcpy(p, s, n);
    p[n] = '\0';
    x->t.text = p;
    return LP_OK;
}

/* ---- numbers ------------------------------------------------------------- */
static LpStatus hex(LpLexer *x)
{
    char *end;
    errno = 0;
    uint64_t u = strtoull(x->p, &end, 16);
    if (errno || end == x->p + 2 || is_word(*end))
        return lp_lex_fail(x, &x->t,
                           "a hexadecimal number has 1 to 16 digits after 0x");
    x->p = end;
    x->t.number = lp_int((int64_t)u);
    return LP_OK;
}

static LpStatus number(LpLexer *x)
{
    char s[64];
    size_t n = 0;
    bool real = false;
    const char *p = x->p;
    if (p[0] == '0' && p[1] == 'x')
        return hex(x);
    for (; is_word(*p) || *p == '.' || *p == '-' || *p == '+'; p++) {
        if ((*p == '-' || *p == '+') && n > 0 && s[n - 1] != 'e')
            break;
        if (n == sizeof s - 1)
            return lp_lex_fail(x, &x->t, "a number has at most 63 characters");
        real |= !is_digit(*p) && !(*p == '-' && n == 0);
        s[n++] = *p;
    }
    s[n] = '\0';
    char *end;
    errno = 0;
    if (real)
        x->t.number = lp_float(strtod(s, &end));
    else
        x->t.number = lp_int(strtoll(s, &end, 10));
    if (*end || end == s || strpbrk(s, "xXpP"))
        return lp_lex_fail(x, &x->t, "'%s' is no number", s);
    if (errno && !real)
        return lp_lex_fail(x, &x->t, "%s does not fit in 64 bits", s);
    x->p = p;
    return LP_OK;
}

/* `inf` and `nan` are numbers; so is nan(0x…), which gives the bits. */
static LpStatus word_number(LpLexer *x)
{
    bool nan = x->t.text[0] == 'n';
    uint64_t bits = nan ? 0x7ff8000000000000u : 0x7ff0000000000000u;
    if (nan && strncmp(x->p, "(0x", 3) == 0) {
        x->p++;
        LP_TRY(hex(x));
        bits = (uint64_t)x->t.number.i;
        if (*x->p != ')' ||
            (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u ||
            !(bits & 0x000fffffffffffffu))
            return lp_lex_fail(x, &x->t, "nan(0x…) takes the bits of a NaN");
        x->p++;
    }
    x->t.kind = LP_TOK_NUMBER;
    x->t.number.kind = LP_KIND_FLOAT;
    memcpy(&x->t.number.f, &bits, sizeof bits);
    return LP_OK;
}

/* ---- strings ------------------------------------------------------------- */
static int hex_digit(char c)
{
    return is_digit(c)            ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The character after a backslash; 0 if there is no such escape. */
static char escape(const char **p)
{
    static const char from[] = "\"\\ntr", to[] = "\"\\\n\t\r";
    const char *at = **p ? strchr(from, **p) : NULL;
    if (at) {
        ++*p;
        return to[at - from];
    }
    if (**p != 'x' || hex_digit((*p)[1]) < 0 || hex_digit((*p)[2]) < 0)
        return 0;
    char c = (char)(hex_digit((*p)[1]) * 16 + hex_digit((*p)[2]));
    *p += 3;
    return c;
}

static LpStatus string(LpLexer *x)
{
    const char *p = x->p + 1;
    size_t n = 0;
    while (p[n] && p[n] != '"' && p[n] != '\n')
        n += p[n] == '\\' && p[n + 1] ? 2 : 1;
    if (p[n] != '"')
        return lp_lex_fail(x, &x->t, "the string has no end on this line");
    char *out = lp_arena_alloc(x->arena, n + 1);
    LP_FAIL_IF(!out, x->err, LP_E_MEMORY, "out of memory");
    x->t.text = out;
    while (*p != '"') {
        if (*p != '\\') {
            *out++ = *p++;
            continue;
        }
        p++;
        if (!(*out++ = escape(&p)))
            return lp_lex_fail(x, &x->t,
                               "escapes are \\\" \\\\ \\n \\t \\r \\xHH (not "
                               "\\x00)");
    }
    *out = '\0';
    x->p = p + 1;
    return LP_OK;
}

/* ---- tokens -------------------------------------------------------------- */
static LpStatus word(LpLexer *x, LpTokKind kind)
{
    const char *s = x->p;
    while (is_word(*x->p))
        x->p++;
    x->t.kind = kind;
    if (x->p == s)
        return lp_lex_fail(x, &x->t, "%% needs letters, digits or _ after it");
    LP_TRY(keep(x, s, (size_t)(x->p - s)));
    if (kind == LP_TOK_WORD &&
        (strcmp(x->t.text, "inf") == 0 || strcmp(x->t.text, "nan") == 0))
        return word_number(x);
    return LP_OK;
}

static LpStatus read_token(LpLexer *x)
{
    char c = *x->p;
    if (c == '\0')
        x->t.kind = LP_TOK_END;
    else if (c == '\n') {
        x->t.kind = LP_TOK_LINE;
        x->p++;
    } else if (c == '"') {
        x->t.kind = LP_TOK_STRING;
        return string(x);
    } else if (c == '%') {
        x->p++;
        return word(x, LP_TOK_LABEL);
    } else if (strncmp(x->p, "->", 2) == 0) {
        x->t.kind = LP_TOK_ARROW;
        x->p += 2;
    } else if (strncmp(x->p, "-inf", 4) == 0 && !is_word(x->p[4])) {
        x->t.kind = LP_TOK_NUMBER;
        x->t.number = lp_float(-__builtin_inf());
        x->p += 4;
    } else if (is_digit(c) || c == '-') {
        x->t.kind = LP_TOK_NUMBER;
        return number(x);
    } else if (is_word(c)) {
        return word(x, LP_TOK_WORD);
    } else if (strchr("()[],:={}", c)) {
        x->t.kind = LP_TOK_SIGN;
        x->t.sign = c;
        x->p++;
    } else {
        x->t.len = 1;
        x->t.kind = LP_TOK_SIGN;
        return lp_lex_expected(x, "a word, a number, a value or a sign");
    }
    return LP_OK;
}

LpStatus lp_lex_next(LpLexer *x)
{
    if (x->t.kind == LP_TOK_LINE) {
        x->line++;
        x->line_start = x->p;
    }
    while (*x->p == ' ' || *x->p == '\t' || *x->p == '\r')
        x->p++;
    if (*x->p == '#')
        x->p += strcspn(x->p, "\n");
    x->t = (LpToken){.from = x->p,
                     .line = x->line,
                     .column = (int)(x->p - x->line_start) + 1};
    LP_TRY(read_token(x));
    x->t.len = (size_t)(x->p - x->t.from);
    return LP_OK;
}

LpStatus lp_lex_init(LpLexer *x, const char *text, LpArena *arena, LpErr *e)
{
    *x = (LpLexer){.p = text,
                   .line_start = text,
                   .line = 1,
                   .arena = arena,
                   .err = e,
                   .t.kind = LP_TOK_WORD};
    return lp_lex_next(x);
}

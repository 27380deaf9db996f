/* Text in Unicode: core.text_map over utf8proc (normal forms, lower case) and
 * core.regex over PCRE2, for tokenizers. Offsets are bytes, from 1; all text is
 * UTF-8, and what is not is refused. A pattern has a limit of steps, so that
 * none runs for ever. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include <utf8proc.h>

#include "src/base/checked.h"
#include "src/base/mem.h"
#include "src/bind/box.h"
#include "src/bind/module.h"

enum {
    STEPS = 10 << 20, /* of backtracking, a match */
    HEAP_KB = 64 << 10
};

/* ---- normal forms -------------------------------------------------------- */
enum { FOLD_LOWER = -1 };

static const struct {
    const char *name;
    int options;
} forms[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
    {"lower", FOLD_LOWER},
};

/* Code points of a text in a form: their number, or an error of utf8proc. */
static utf8proc_ssize_t points_of(const char *s, size_t n, int options,
                                  utf8proc_int32_t *into, size_t room)
{
    const utf8proc_uint8_t *p = (const utf8proc_uint8_t *)s;
    if (options != FOLD_LOWER)
        return utf8proc_decompose(p, (utf8proc_ssize_t)n, into,
                                  (utf8proc_ssize_t)room,
                                  (utf8proc_option_t)options);
    size_t count = 0;
    for (size_t at = 0; at < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t k =
            utf8proc_iterate(p + at, (utf8proc_ssize_t)(n - at), &c);
        if (k < 0)
            return k;
        at += (size_t)k;
        bool dotted = c == 0x130; /* the one that becomes two */
        if (count + dotted < room) {
            into[count] = dotted ? 'i' : utf8proc_tolower(c);
            if (dotted)
                into[count + 1] = 0x307;
        }
        count += 1 + (size_t)dotted;
    }
    return (utf8proc_ssize_t)count;
}

static int form_of(lua_State *L, int i)
{
    const char *name = luaL_checkstring(L, i);
    for (size_t k = 0; k < sizeof forms / sizeof forms[0]; k++)
        if (strcmp(name, forms[k].name) == 0)
            return forms[k].options;
    return luaL_argerror(L, i, "NFC, NFD, NFKC, NFKD or lower");
}

static bool is_ascii(const char *s, size_t n)
{
    unsigned char all = 0;
    for (size_t i = 0; i < n; i++)
        all |= (unsigned char)s[i];
    return all < 128;
}

static int not_utf8(lua_State *L)
{
    return lp_raise(L, LP_E_VALUE, "the text is not UTF-8");
}

/* (text, form) -> text */
static int text_map(lua_State *L)
{
    size_t n, bytes;
    const char *s = luaL_checklstring(L, 1, &n);
    int options = form_of(L, 2);
    if (options != FOLD_LOWER && is_ascii(s, n)) {
        lua_settop(L, 1);
        return 1;
    }
    LpBox *text = lp_new_text(L);
    utf8proc_ssize_t count = points_of(s, n, options, NULL, 0);
    if (count < 0)
        return not_utf8(L);
    if (!lp_mul_size((size_t)count + 1, sizeof(utf8proc_int32_t), &bytes) ||
        !(text->p = lp_alloc(bytes)))
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    count = points_of(s, n, options, text->p, (size_t)count);
    if (count >= 0)
        count = utf8proc_reencode(
            text->p, count,
            (utf8proc_option_t)(options == FOLD_LOWER ? 0 : options));
    if (count < 0)
        return not_utf8(L);
    lua_pushlstring(L, text->p, (size_t)count);
    return 1;
}

/* ---- patterns ------------------------------------------------------------ */
typedef struct Regex {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
} Regex;

static const char regex_type[] = "lupine.regex";

static void *own_alloc(PCRE2_SIZE n, LP_UNUSED void *data)
{
    return lp_alloc(n);
}

static void own_free(void *p, LP_UNUSED void *data)
{
    lp_free(p);
}

static int regex_gc(lua_State *L)
{
    Regex *r = lua_touserdata(L, 1);
    pcre2_match_data_free(r->match);
    pcre2_match_context_free(r->limits);
    pcre2_code_free(r->code);
    *r = (Regex){0};
    return 0;
}

/* Fills the regex; the number of PCRE2's error, 0 without one. The contexts
 * that it is made with are done with at the end. */
static int compile(Regex *r, const char *s, size_t n, PCRE2_SIZE *at)
{
    int code = PCRE2_ERROR_NOMEMORY;
    pcre2_general_context *own =
        pcre2_general_context_create(own_alloc, own_free, NULL);
    pcre2_compile_context *how = own ? pcre2_compile_context_create(own) : NULL;
    if (how)
        r->code = pcre2_compile((PCRE2_SPTR)s, n,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                                &code, at, how);
    if (r->code) {
        pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* or interpreted */
        r->match = pcre2_match_data_create_from_pattern(r->code, own);
        r->limits = pcre2_match_context_create(own);
        code = r->match && r->limits ? 0 : PCRE2_ERROR_NOMEMORY;
    }
    if (r->limits) {
        pcre2_set_match_limit(r->limits, STEPS);
        pcre2_set_heap_limit(r->limits, HEAP_KB);
    }
    pcre2_compile_context_free(how);
    pcre2_general_context_free(own);
    return code;
}

/* (pattern) -> regex */
static int regex_new(lua_State *L)
{
    size_t n;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR why[160] = "";
    const char *s = luaL_checklstring(L, 1, &n);
    Regex *r = lua_newuserdatauv(L, sizeof *r, 0);
    *r = (Regex){0};
    luaL_setmetatable(L, regex_type);
    int code = compile(r, s, n, &at);
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    if (code) {
        pcre2_get_error_message(code, why, sizeof why);
        return lp_raise(L, LP_E_VALUE, "pattern, byte %zu: %s", at + 1,
                        (const char *)why);
    }
    return 1;
}

/* The next match from `at` on: its bounds, or false. Raises beyond limits. */
static bool next_match(lua_State *L, Regex *r, const char *s, size_t n,
                       size_t at, size_t bound[2])
{
    uint32_t options = at ? PCRE2_NO_UTF_CHECK : 0;
    int code = pcre2_match(r->code, (PCRE2_SPTR)s, n, at, options, r->match,
                           r->limits);
    if (code == PCRE2_ERROR_NOMATCH)
        return false;
    if (code <= PCRE2_ERROR_UTF8_ERR1 && code >= PCRE2_ERROR_UTF8_ERR21)
        not_utf8(L);
    if (code == PCRE2_ERROR_NOMEMORY)
        lp_raise(L, LP_E_MEMORY, "out of memory");
    if (code < 0)
        lp_raise(L, LP_E_RUNTIME,
                 "pattern: matching took more than %d steps or %d KB", STEPS,
                 HEAP_KB);
    PCRE2_SIZE *v = pcre2_get_ovector_pointer(r->match);
    bound[0] = v[0];
    bound[1] = v[1];
    return v[0] <= v[1]; /* \K may end before it begins */
}

static size_t next_point(const char *s, size_t n, size_t at)
{
    do
        at++;
    while (at < n && ((unsigned char)s[at] & 0xC0) == 0x80);
    return at;
}

/* (text) -> list of first and last byte of each match, which is not empty */
static int regex_find_all(lua_State *L)
{
    size_t n, at = 0, m[2];
    lua_Integer count = 0;
    Regex *r = luaL_checkudata(L, 1, regex_type);
    const char *s = luaL_checklstring(L, 2, &n);
    lua_newtable(L);
    while (at <= n && next_match(L, r, s, n, at, m)) {
        if (m[1] > m[0]) {
            lua_pushinteger(L, (lua_Integer)m[0] + 1);
            lua_rawseti(L, -2, ++count);
            lua_pushinteger(L, (lua_Integer)m[1]);
            lua_rawseti(L, -2, ++count);
        }
        at = m[1] > m[0] ? m[1] : next_point(s, n, m[1]);
    }
    return 1;
}

/* (text) -> list of the matches and of what lies between them, none empty */
static int regex_pieces(lua_State *L)
{
    size_t n, at = 0, from = 0, m[2];
    lua_Integer count = 0;
    Regex *r = luaL_checkudata(L, 1, regex_type);
    const char *s = luaL_checklstring(L, 2, &n);
    lua_newtable(L);
    while (at <= n && next_match(L, r, s, n, at, m)) {
        if (m[1] > m[0]) {
            if (m[0] > from) {
                lua_pushlstring(L, s + from, m[0] - from);
                lua_rawseti(L, -2, ++count);
            }
            lua_pushlstring(L, s + m[0], m[1] - m[0]);
            lua_rawseti(L, -2, ++count);
            from = m[1];
        }
        at = m[1] > m[0] ? m[1] : next_point(s, n, m[1]);
    }
    if (from < n) {
        lua_pushlstring(L, s + from, n - from);
        lua_rawseti(L, -2, ++count);
    }
    return 1;
}

static const luaL_Reg regex_methods[] = {
    {"__gc", regex_gc},
    {"find_all", regex_find_all},
    {"pieces", regex_pieces},
    {NULL, NULL},
};

static const luaL_Reg functions[] = {
    {"text_map", text_map},
    {"regex", regex_new},
    {NULL, NULL},
};

void lp_bind_text(lua_State *L)
{
    luaL_newmetatable(L, regex_type);
    luaL_setfuncs(L, regex_methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_setfuncs(L, functions, 0);
}

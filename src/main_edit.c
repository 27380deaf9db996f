/* The terminal side of the read-eval-print loop: line editing by libedit,
 * and what Lua's library lacks for the rest (lua/lupine/repl.lua).
 *
 * libedit's wide interface is used: with it keys beyond ASCII work. It knows
 * no bracketed paste: mode 2004 is switched on while a line is read, and the
 * function bound to ESC[200~ takes everything up to ESC[201~ as text, so that
 * tabs do not complete and newlines do not run anything. All lines of a paste
 * but the last are kept in `head`; the last stays in the editor.
 *
 * libedit's own signal handling sends a signal on to the whole process group;
 * it stays off, and the character reader here looks at flags instead. Lua
 * never raises through libedit: callbacks use protected calls. */
#include "src/main.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include <histedit.h>

#include <lauxlib.h>

#include "src/base/interrupt.h"
#include "src/base/mem.h"

#define HISTORY_SIZE 5000

struct Text {
    char *p; /* not terminated */
    size_t n, cap;
};

/* One per process, as the terminal is, and as libedit's callbacks need. */
static struct {
    EditLine *el; /* NULL unless interactive */
    HistoryW *history;
    lua_State *L; /* the caller of readline; its slot 2 is complete() */
    wchar_t prompt[64];
    struct Text head; /* lines pasted before the one under edit */
    struct sigaction old_int;
} term;

static volatile sig_atomic_t resized, continued;

static void on_signal(int sig)
{
    *(sig == SIGINT     ? &lp_interrupt_flag
      : sig == SIGWINCH ? &resized
                        : &continued) = 1;
}

/* --- text ------------------------------------------------------------------
 */

/* Without memory characters are lost, nothing else. */
static void add_byte(struct Text *t, char c)
{
    if (LP_GROW(t->p, t->cap, t->n))
        t->p[t->n++] = c;
}

static void add_wide(struct Text *t, const wchar_t *s, const wchar_t *end)
{
    for (; s < end; s++) {
        char mb[MB_LEN_MAX];
        mbstate_t state = {0};
        size_t n = wcrtomb(mb, *s, &state);
        for (size_t i = 0; n != (size_t)-1 && i < n; i++)
            add_byte(t, mb[i]);
    }
}

static void fini_text(struct Text *t)
{
    lp_free(t->p);
    *t = (struct Text){0};
}

/* Multibyte to at most n - 1 wide characters; bad bytes become '?'. */
static void widen(wchar_t *out, size_t n, const char *s, size_t len)
{
    mbstate_t state = {0};
    size_t i = 0;
    while (len > 0 && i + 1 < n) {
        size_t r = mbrtowc(&out[i], s, len, &state);
        if (r == 0 || r > len) {
            out[i] = L'?';
            memset(&state, 0, sizeof state);
            r = 1;
        }
        s += r;
        len -= r;
        i++;
    }
    out[i] = L'\0';
}

static void insert(EditLine *el, const char *s, size_t len)
{
    wchar_t part[256];
    while (len > 0) { /* parts end where a character does */
        size_t n = len < 200 ? len : 200;
        while (n < len && n > 190 && (s[n] & 0xc0) == 0x80)
            n--;
        widen(part, 256, s, n);
        el_winsertstr(el, part);
        s += n;
        len -= n;
    }
}

/* --- libedit's callbacks ---------------------------------------------------
 */

static wchar_t *get_prompt(EditLine *el)
{
    (void)el;
    return term.prompt;
}

/* One byte: 1; 0 at the end of input; -1 on Ctrl-C or failure. */
static int get_byte(EditLine *el, char *c)
{
    for (;;) {
        ssize_t n = read(STDIN_FILENO, c, 1);
        if (n >= 0)
            return (int)n;
        if (errno != EINTR || lp_interrupt_raised())
            return -1;
        if (resized) {
            resized = 0;
            el_resize(el); /* it keeps the cursor, beyond a smaller screen */
            fputs("\r\033[J", stdout);
            el_wset(el, EL_REFRESH);
        }
        if (continued) {
            continued = 0;
            el_wset(el, EL_PREP_TERM, 1);
            el_wset(el, EL_REFRESH);
        }
    }
}

static int get_char(EditLine *el, wchar_t *out)
{
    mbstate_t state = {0};
    char c;
    int n;
    while ((n = get_byte(el, &c)) == 1) {
        size_t r = mbrtowc(out, &c, 1, &state);
        if (r == (size_t)-1) /* no character: forget what was collected */
            memset(&state, 0, sizeof state);
        else if (r != (size_t)-2)
            return 1;
    }
    return n;
}

/* A line of the paste is complete: it leaves the editor for `head` and the
 * screen. */
static void end_pasted_line(EditLine *el)
{
    const LineInfoW *info = el_wline(el);
    size_t from = term.head.n;
    int before = (int)(info->cursor - info->buffer);
    int after = (int)(info->lastchar - info->cursor);
    add_wide(&term.head, info->buffer, info->lastchar);
    printf("\r\033[K%ls%.*s\n", term.prompt, (int)(term.head.n - from),
           term.head.p + from);
    add_byte(&term.head, '\n');
    el_cursor(el, after);
    el_wdeletestr(el, before + after);
}

static unsigned char on_paste(EditLine *el, int key)
{
    static const char end[] = "\033[201~";
    struct Text line = {0};
    size_t matched = 0;
    char c, last = 0;
    (void)key;
    while (matched < sizeof end - 1 && get_byte(el, &c) == 1) {
        if (c == end[matched]) {
            matched++;
            continue;
        }
        for (size_t i = 0; i < matched; i++)
            add_byte(&line, end[i]);
        matched = 0;
        if (c == '\r' || (c == '\n' && last != '\r')) {
            insert(el, line.p, line.n);
            line.n = 0;
            end_pasted_line(el);
        } else if (c != '\n') {
            add_byte(&line, c);
        }
        last = c;
    }
    insert(el, line.p, line.n);
    fini_text(&line);
    fflush(stdout);
    return lp_interrupt_raised() ? CC_ERROR : CC_REDISPLAY;
}

/* (text) -> complete(text); slot 1 is a light userdata. */
static int call_complete(lua_State *L)
{
    const struct Text *t = lua_touserdata(L, 1);
    lua_pushvalue(L, 2);
    lua_pushlstring(L, t->p ? t->p : "", t->n);
    lua_call(L, 1, 2);
    if (!lua_isstring(L, -2))
        luaL_error(L, "no completion");
    return 2;
}

/* More has come than was read: of a paste, which terminals without mode 2004 do
 * not mark. */
static bool is_pasting(void)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    return poll(&in, 1, 0) > 0;
}

/* complete(text before the cursor) -> text to insert, list to show or nil. A
 * tab in the middle of a paste is a tab. */
static unsigned char on_tab(EditLine *el, int key)
{
    if (is_pasting()) {
        insert(el, "\t", 1);
        return CC_REFRESH;
    }
    lua_State *L = term.L;
    struct Text before = {0};
    unsigned char result = CC_ERROR;
    const LineInfoW *info = el_wline(el);
    (void)key;
    add_wide(&before, info->buffer, info->cursor);
    lua_pushcfunction(L, call_complete);
    lua_pushlightuserdata(L, &before);
    lua_pushvalue(L, 2);
    if (lua_pcall(L, 2, 2, 0) == LUA_OK) {
        size_t n;
        const char *s = lua_tolstring(L, -2, &n);
        insert(el, s, n);
        result = n ? CC_REFRESH : CC_ERROR;
        if (lua_isstring(L, -1)) {
            printf("\n%s\n", lua_tostring(L, -1));
            fflush(stdout);
            result = CC_REDISPLAY;
        }
    }
    lua_settop(L, 2);
    fini_text(&before);
    return result;
}

static bool open_editor(void)
{
    HistEventW event;
    term.el = el_init("lupine", stdin, stdout, stderr);
    term.history = term.el ? history_winit() : NULL;
    if (!term.history) {
        if (term.el)
            el_end(term.el);
        term.el = NULL;
        return false;
    }
    EditLine *el = term.el;
    history_w(term.history, &event, H_SETSIZE, HISTORY_SIZE);
    history_w(term.history, &event, H_SETUNIQUE, 1);
    el_wset(el, EL_PROMPT, get_prompt);
    el_wset(el, EL_EDITOR, L"emacs");
    el_wset(el, EL_SIGNAL, 0);
    el_wset(el, EL_HIST, history_w, term.history);
    el_wset(el, EL_GETCFN, get_char);
    el_wset(el, EL_ADDFN, L"lupine-complete", L"Complete a name", on_tab);
    el_wset(el, EL_BIND, L"\t", L"lupine-complete", NULL);
    el_wset(el, EL_ADDFN, L"lupine-paste", L"Take pasted text", on_paste);
    el_wset(el, EL_BIND, L"\\e[200~", L"lupine-paste", NULL);
    el_wset(el, EL_BIND, L"^R", L"em-inc-search-prev", NULL);
    el_source(el, NULL); /* the user's own bindings: ~/.editrc */

    struct sigaction act = {.sa_handler = on_signal};
    sigemptyset(&act.sa_mask);
    sigaction(SIGINT, &act, &term.old_int);
    sigaction(SIGWINCH, &act, NULL);
    sigaction(SIGCONT, &act, NULL);
    return true;
}

void lp_host_close_terminal(void)
{
    if (!term.el)
        return;
    history_wend(term.history);
    el_end(term.el);
    term.el = NULL;
    fini_text(&term.head);
    sigaction(SIGINT, &term.old_int, NULL);
    signal(SIGWINCH, SIG_DFL);
    signal(SIGCONT, SIG_DFL);
}

/* --- what Lua gets ---------------------------------------------------------
 */

static int push_end(lua_State *L, const char *why)
{
    lua_pushnil(L);
    lua_pushstring(L, why);
    return 2;
}

static int read_plain(lua_State *L, const char *prompt)
{
    char *line = NULL;
    size_t cap = 0;
    struct sigaction old, act = {.sa_handler = on_signal}; /* reads return */
    bool catches = isatty(STDIN_FILENO);
    sigemptyset(&act.sa_mask);
    lp_interrupt_clear();
    if (catches)
        sigaction(SIGINT, &act, &old);
    fputs(prompt, stdout);
    fflush(stdout);
    /* A signal just before a read would not end it: wait in short turns. */
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    while (catches && !lp_interrupt_raised() && poll(&in, 1, 100) <= 0)
        continue;
    ssize_t n = lp_interrupt_raised() ? -1 : getline(&line, &cap, stdin);
    if (catches)
        sigaction(SIGINT, &old, NULL);
    bool interrupted = lp_interrupt_raised();
    lp_interrupt_clear();
    if (n > 0 && line[n - 1] == '\n')
        n--;
    if (n >= 0) /* the loop ends with the process if memory is that short */
        lua_pushlstring(L, line, (size_t)n);
    free(line);
    if (n >= 0)
        return 1;
    fputs("\n", stdout);
    clearerr(stdin); /* of EINTR */
    return push_end(L, interrupted ? "interrupted" : "end");
}

static int read_edited(lua_State *L, const char *prompt)
{
    int n = 0;
    widen(term.prompt, sizeof term.prompt / sizeof *term.prompt, prompt,
          strlen(prompt));
    term.L = L;
    term.head.n = 0;
    lp_interrupt_clear();
    /* Before the prompt: what is typed at once is a key, not of a line. */
    el_wset(term.el, EL_PREP_TERM, 1);
    fputs("\033[?2004h", stdout);
    fflush(stdout);
    const wchar_t *line = el_wgets(term.el, &n);
    fputs("\033[?2004l", stdout);
    bool interrupted = lp_interrupt_raised();
    lp_interrupt_clear();
    if (line && n > 0 && !interrupted)
        add_wide(&term.head, line, line + n - (line[n - 1] == L'\n'));
    else
        fputs(interrupted ? "^C\n" : "\n", stdout);
    fflush(stdout);
    if (interrupted)
        return push_end(L, "interrupted");
    if (!line || n <= 0)
        return push_end(L, "end");
    lua_pushlstring(L, term.head.p ? term.head.p : "", term.head.n);
    return 1;
}

/* readline(prompt, complete) -> text, or nil and "end" or "interrupted". A
 * paste gives several lines at once. */
static int term_readline(lua_State *L)
{
    const char *prompt = luaL_checkstring(L, 1);
    if (!term.el)
        return read_plain(L, prompt);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_settop(L, 2);
    return read_edited(L, prompt);
}

/* remember(text): adds to the history that the editor offers. */
static int term_remember(lua_State *L)
{
    size_t n;
    const char *s = luaL_checklstring(L, 1, &n);
    HistEventW event;
    if (!term.el)
        return 0;
    wchar_t *w = lua_newuserdatauv(L, (n + 1) * sizeof *w, 0);
    widen(w, n + 1, s, n);
    history_w(term.history, &event, H_ENTER, w);
    return 0;
}

/* call(f, …) -> true, results… or false, error value. */
static int term_call(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    bool ok = lp_host_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    lua_pushboolean(L, ok);
    lua_insert(L, 1);
    return lua_gettop(L);
}

/* report(error value): prints it as the host prints uncaught errors. */
static int term_report(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    lp_host_report(L, NULL);
    return 0;
}

/* private_file(path) -> true, or nil and a message. Makes the folders and the
 * file that are missing, for their owner alone. */
static int term_private_file(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    for (const char *p = path; (p = strchr(p + 1, '/')) != NULL;) {
        lua_pushlstring(L, path, (size_t)(p - path));
        mkdir(lua_tostring(L, -1), 0700); /* open tells if that failed */
        lua_pop(L, 1);
    }
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return luaL_fileresult(L, 0, path);
    close(fd);
    lua_pushboolean(L, 1);
    return 1;
}

/* files(pattern) -> list of paths, folders with a final slash. */
static int term_files(lua_State *L)
{
    glob_t g;
    lua_settop(L, 1);
    const char *pattern = luaL_checkstring(L, 1);
    lua_newtable(L);
    if (glob(pattern, GLOB_MARK | GLOB_TILDE, NULL, &g) != 0)
        return 1;
    for (size_t i = 0; i < g.gl_pathc && i < 1000; i++) {
        lua_pushstring(L, g.gl_pathv[i]);
        lua_rawseti(L, 2, (lua_Integer)i + 1);
    }
    globfree(&g);
    return 1;
}

void lp_host_push_terminal(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"readline", term_readline},
        {"remember", term_remember},
        {"call", term_call},
        {"report", term_report},
        {"traceback", lp_host_set_traceback},
        {"private_file", term_private_file},
        {"files", term_files},
        {NULL, NULL},
    };
    const char *type = getenv("TERM");
    bool interactive = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && type &&
                       *type && strcmp(type, "dumb") != 0;
    luaL_newlib(L, functions);
    lua_pushboolean(L, interactive && open_editor());
    lua_setfield(L, -2, "interactive");
}

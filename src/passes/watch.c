/* What LUPINE_DUMP and LUPINE_VERIFY ask for, looked at after every pass: the
 * text of the graph on standard error, and the verifier, which runs in
 * sanitized builds anyway. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/passes/pass.h"

/* Stages of the compile road that leave a graph, besides the passes. */
static const char *const others[] = {"trace", "sweep", NULL};

static bool listed(const char *const *list, const char *name, size_t n)
{
    while (*list && (strlen(*list) != n || strncmp(*list, name, n) != 0))
        list++;
    return *list != NULL;
}

static bool known(const char *name, size_t n)
{
    return listed(others, name, n) || listed(lp_pass_names, name, n) ||
           listed(lp_host_pass_names, name, n) ||
           (n == 3 && strncmp(name, "all", n) == 0);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *dump; /* names with commas between, or NULL */
static bool checks;

static void ask(void)
{
    static const char *const verify[] = {"0", "1", NULL};
    checks = lp_env_choice("LUPINE_VERIFY", verify) == 1;
#ifdef __SANITIZE_ADDRESS__
    checks = true;
#endif
    dump = getenv("LUPINE_DUMP");
    for (const char *s = dump; s && *s; s += strspn(s, ",")) {
        size_t n = strcspn(s, ",");
        if (!known(s, n))
            lp_log(LP_LOG_WARN,
                   "LUPINE_DUMP=%.*s: known are all, trace, sweep and the "
                   "names of passes (core.passes())",
                   (int)n, s);
        s += n;
    }
}

/* Is `pass` among the names of LUPINE_DUMP? */
static bool asked(const char *pass)
{
    bool yes = false;
    for (const char *s = dump; s && *s; s += strspn(s, ",")) {
        size_t n = strcspn(s, ",");
        yes |= (strlen(pass) == n && strncmp(s, pass, n) == 0) ||
               (n == 3 && strncmp(s, "all", n) == 0);
        s += n;
    }
    return yes;
}

LpStatus lp_pass_verify(const char *pass, const LpGraph *g, LpErr *e)
{
    LpStatus st = lp_graph_verify(g, e);
    if (st != LP_OK)
        lp_err_context(e, "after pass %s", pass);
    return st;
}

LpStatus lp_pass_done(const char *pass, const LpGraph *g, LpErr *e)
{
    pthread_once(&once, ask);
    if (g && asked(pass)) {
        char *text = lp_graph_print(g, e);
        if (!text)
            return LP_E_MEMORY;
        fprintf(stderr, "# after %s\n%s\n", pass, text);
        lp_free(text);
    }
    return g && checks ? lp_pass_verify(pass, g, e) : LP_OK;
}

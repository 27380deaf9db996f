/* Levels, the sink, and one lock around it. */
#include "src/base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    LpLogLevel level;
} names[] = {
    {"trace", LP_LOG_TRACE}, {"debug", LP_LOG_DEBUG}, {"info", LP_LOG_INFO},
    {"warn", LP_LOG_WARN},   {"err", LP_LOG_ERR},     {"off", LP_LOG_OFF},
};
enum { N_NAMES = sizeof names / sizeof *names };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int current = LP_LOG_WARN;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static LpLogSink sink; /* NULL: stderr; guarded by lock, as sink_user */
static void *sink_user;

static void start(void)
{
    LpLogLevel level;
    const char *s = getenv("LUPINE_LOG_LEVEL");
    if (!s || !*s)
        return;
    if (lp_log_level_find(s, &level))
        atomic_store(&current, (int)level);
    else
        fprintf(stderr,
                "[lupine:warn] LUPINE_LOG_LEVEL=%s: known are trace, debug, "
                "info, warn, err, off\n",
                s);
}

LpLogLevel lp_log_level(void)
{
    pthread_once(&once, start);
    return (LpLogLevel)atomic_load_explicit(&current, memory_order_relaxed);
}

void lp_log_set_level(LpLogLevel level)
{
    pthread_once(&once, start);
    atomic_store(&current, (int)level);
}

const char *lp_log_level_name(LpLogLevel level)
{
    for (int i = 0; i < N_NAMES; i++)
        if (names[i].level == level)
            return names[i].name;
    return "critical";
}

bool lp_log_level_find(const char *name, LpLogLevel *level)
{
    for (int i = 0; i < N_NAMES; i++)
        if (strcasecmp(names[i].name, name) == 0) {
            *level = names[i].level;
            return true;
        }
    return false;
}

void lp_log_set_sink(LpLogSink new_sink, void *user)
{
    pthread_mutex_lock(&lock);
    sink = new_sink;
    sink_user = user;
    pthread_mutex_unlock(&lock);
}

void lp_log(LpLogLevel level, const char *fmt, ...)
{
    if (level < lp_log_level() || level >= LP_LOG_OFF)
        return;
    char line[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&lock);
    if (sink)
        sink(sink_user, level, line);
    else
        fprintf(stderr, "[lupine:%s] %s\n", lp_log_level_name(level), line);
    pthread_mutex_unlock(&lock);
}

int lp_env_choice(const char *name, const char *const *known)
{
    const char *s = getenv(name);
    char list[128] = "";
    if (!s || !*s)
        return 0;
    for (int i = 0; known[i]; i++) {
        size_t n = strlen(list);
        if (strcmp(s, known[i]) == 0)
            return i;
        snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", known[i]);
    }
    lp_log(LP_LOG_WARN, "%s=%s: known are %s", name, s, list);
    return 0;
}

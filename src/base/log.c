/* Levels, the sink, and one lock around it. */
#include "src/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

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
/* guarded by lock */
static LpLogSink sink; /* NULL: to `stream` */
static void *sink_user;
static FILE *stream; /* NULL: stderr */
static FILE *copy;   /* gets each line, too */

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

/* Of spdlog's names and colours, by level. */
static void put_named(FILE *f, const char *who, LpLogLevel level,
                      const char *line)
{
    static const char *const name[] = {"trace", "debug", "info", "warning",
                                       "error"};
    static const char *const colour[] = {"90", "36", "37", "1;33", "1;31"};
    bool tty = isatty(fileno(f));
    struct timespec t;
    struct tm day;
    char clock_time[16] = "";
    clock_gettime(CLOCK_REALTIME, &t);
    if (localtime_r(&t.tv_sec, &day))
        strftime(clock_time, sizeof clock_time, "%H:%M:%S", &day);
    fprintf(f, "%s%s%s[%s.%03d] [%s] [%s] %s%s\n", tty ? "\033[" : "",
            tty ? colour[level] : "", tty ? "m" : "", clock_time,
            (int)(t.tv_nsec / 1000000), who, name[level], line,
            tty ? "\033[0m" : "");
}

static void put(FILE *f, const char *who, LpLogLevel level, const char *line)
{
    if (who)
        put_named(f, who, level, line);
    else
        fprintf(f, "[lupine:%s] %s\n", lp_log_level_name(level), line);
    fflush(f); /* a child process must not write it again */
}

/* One line, of the logger `who` (NULL: lupine's own), to whoever gets it. */
static void emit(const char *who, LpLogLevel level, const char *line)
{
    pthread_mutex_lock(&lock);
    if (sink)
        sink(sink_user, level, line);
    else
        put(stream ? stream : stderr, who, level, line);
    if (copy)
        put(copy, who, level, line);
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
    emit(NULL, level, line);
}

void lp_log_as(const char *who, LpLogLevel level, const char *line)
{
    if (level >= lp_log_level() && level < LP_LOG_OFF)
        emit(who, level, line);
}

/* Opens a file in place of *f, or, without one, puts `other` there. */
static LpStatus reopen(FILE **f, const char *path, const char *mode,
                       FILE *other, LpErr *e)
{
    FILE *new = path ? fopen(path, mode) : other;
    LP_FAIL_IF(path && !new, e, LP_E_OS, "%s: the log cannot go there: %s",
               path, strerror(errno));
    pthread_mutex_lock(&lock);
    if (*f && *f != stdout)
        fclose(*f);
    *f = new;
    pthread_mutex_unlock(&lock);
    return LP_OK;
}

LpStatus lp_log_to(const char *where, LpErr *e)
{
    bool out = strcmp(where, "stdout") == 0;
    bool file = !out && strcmp(where, "stderr") != 0;
    return reopen(&stream, file ? where : NULL, "we", out ? stdout : NULL, e);
}

LpStatus lp_log_copy(const char *path, LpErr *e)
{
    return reopen(&copy, path, "ae", NULL, e);
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

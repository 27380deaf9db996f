/* The log: one level, one sink, stderr by default. Levels are spdlog's
 * numbers, which PopTorch's and PopART's logging use (5, critical, has no
 * message of ours). LUPINE_LOG_LEVEL=trace|debug|info|warn|err|off sets the
 * level at the start; it is `warn` otherwise. Any thread may log. */
#ifndef LP_BASE_LOG_H
#define LP_BASE_LOG_H

#include <stdbool.h>

#include "src/base/status.h"

typedef enum {
    LP_LOG_TRACE = 0,
    LP_LOG_DEBUG = 1,
    LP_LOG_INFO = 2,
    LP_LOG_WARN = 3,
    LP_LOG_ERR = 4,
    LP_LOG_OFF = 6
} LpLogLevel;

LpLogLevel lp_log_level(void);
void lp_log_set_level(LpLogLevel level);

/* "trace", … "err", "off"; finding returns false for an unknown name. */
const char *lp_log_level_name(LpLogLevel level);
bool lp_log_level_find(const char *name, LpLogLevel *level);

/* One line, without the newline; cut at about 2,000 bytes. */
void lp_log(LpLogLevel level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The same of another logger, whole, as PopTorch's and PopART's loggers write:
 * "[13:05:09.125] [who] [warning] line", coloured on a terminal. */
void lp_log_as(const char *who, LpLogLevel level, const char *line);

/* Where lines go: "stderr", as at the start, "stdout", or else a file, which is
 * emptied. OSError if it cannot be opened; the log then stays where it is. */
LpStatus lp_log_to(const char *where, LpErr *e);
/* A file that gets each line as well, behind what it has; NULL: none. */
LpStatus lp_log_copy(const char *path, LpErr *e);

/* Which of the texts, ended by NULL, an environment variable is. 0, the first,
 * if it is not set or empty, or none of them, which is told. */
int lp_env_choice(const char *name, const char *const *known);

/* A sink gets each line that passes the level, one at a time, on the thread
 * that logged it; it must not log. NULL restores the stream. */
typedef void (*LpLogSink)(void *user, LpLogLevel level, const char *line);
void lp_log_set_sink(LpLogSink sink, void *user);

#endif

/* Walking over what a plan says of itself (report.def): each field goes to a
 * sink, which makes a Lua table, JSON or whatever else of it. */
#ifndef LP_RUNTIME_REPORT_WALK_H
#define LP_RUNTIME_REPORT_WALK_H

#include "runtime/report/report.h"

typedef enum {
    LP_TREE_GROUP, /* fields by name */
    LP_TREE_LIST,  /* entries in order */
    LP_TREE_MAP    /* entries by number, from 0 */
} LpTreeKind;

typedef enum {
    LP_FIELD_INT,
    LP_FIELD_NUM,
    LP_FIELD_BOOL,
    LP_FIELD_TEXT,
    LP_FIELD_INTS,
    LP_FIELD_NAMED,
    LP_FIELD_LIST,
    LP_FIELD_MAP
} LpFieldKind;

/* A field's name, or (NULL) the number of an entry. */
typedef struct LpReportKey {
    const char *name;
    int64_t nr;
} LpReportKey;

typedef struct LpReportValue {
    LpFieldKind kind; /* INT, NUM, BOOL or TEXT */
    int64_t i;
    double f;
    const char *s;
} LpReportValue;

typedef struct LpReportSink {
    void *ctx;
    void (*begin)(void *ctx, LpReportKey key, LpTreeKind kind);
    void (*end)(void *ctx);
    void (*value)(void *ctx, LpReportKey key, LpReportValue v);
} LpReportSink;

/* What is walked: the report, every node, or memory over time; of the report
 * all but the schedule, or that alone. The root has no name. Schedules must be
 * whole (lp_ipu_expand). */
typedef enum {
    LP_WALK_REPORT,
    LP_WALK_NODES,
    LP_WALK_LIVENESS,
    LP_WALK_FIGURES,
    LP_WALK_SCHEDULE
} LpWalkWhat;
LpStatus lp_report_walk(const LpIpuPlan *p, LpWalkWhat what,
                        const LpReportSink *sink, LpErr *e);

/* All of it as one JSON object {"report": …, "plan": …, "liveness": …}: owned,
 * freed with lp_free. Numbers that JSON lacks are null. */
char *lp_report_json(const LpIpuPlan *p, LpErr *e);

/* report.def as a table; NULL at the end. */
typedef struct LpReportField {
    const char *group; /* in its own row, else NULL: that of the row above */
    const char *name;  /* NULL in the group's row */
    LpFieldKind kind;
    const char *of; /* LIST, MAP: the group of the entries; else NULL */
    const char *unit, *doc;
} LpReportField;
extern const LpReportField lp_report_fields[];

#endif

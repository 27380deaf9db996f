/* report.def as a table, for documentation. */
#include "runtime/report/walk.h"

/* GROUP opens the group's name for the fields that follow: a row of its own,
 * then theirs, with the name of the last group above. */
#define GROUP(name, type, doc) {#name, NULL, LP_FIELD_LIST, NULL, "", doc},
#define END(name)
#define WHEN(condition)
#define FIELD(name, kind, of, unit, doc) {NULL, #name, kind, of, unit, doc},
#define INT(name, unit, value, doc) FIELD(name, LP_FIELD_INT, NULL, unit, doc)
#define NUM(name, unit, value, doc) FIELD(name, LP_FIELD_NUM, NULL, unit, doc)
#define BOOL(name, unit, value, doc) FIELD(name, LP_FIELD_BOOL, NULL, unit, doc)
#define TEXT(name, unit, value, doc) FIELD(name, LP_FIELD_TEXT, NULL, unit, doc)
#define INTS(name, unit, n, value, doc)                                        \
    FIELD(name, LP_FIELD_INTS, NULL, unit, doc)
#define NAMED(name, unit, n, key, value, doc)                                  \
    FIELD(name, LP_FIELD_NAMED, NULL, unit, doc)
#define LIST(name, group, n, entry, keep, doc)                                 \
    FIELD(name, LP_FIELD_LIST, #group, "", doc)
#define MAP(name, group, n, entry, keep, doc)                                  \
    FIELD(name, LP_FIELD_MAP, #group, "", doc)

const LpReportField lp_report_fields[] = {
#include "runtime/report/report.def"
    {NULL, NULL, LP_FIELD_INT, NULL, NULL, NULL},
};

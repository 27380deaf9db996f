/* The sink that writes JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/report/walk.h"
#include "src/ir/text.h"

enum { DEEPEST = 16 }; /* report.def nests five levels */

typedef struct Json {
    LpBuf b;
    LpTreeKind kind[DEEPEST]; /* of what is open */
    bool first[DEEPEST];      /* nothing stands in it yet */
    int depth;
} Json;

static void string(LpBuf *b, const char *s)
{
    lp_buf_str(b, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            lp_buf_fmt(b, "\\%c", c);
        else if (c < 0x20)
            lp_buf_fmt(b, "\\u%04x", c);
        else
            lp_buf_add(b, s, 1);
    }
    lp_buf_str(b, "\"");
}

/* Also of a whole number it is a float, so that it is read as one. */
static void number(LpBuf *b, double f)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", f);
    lp_buf_fmt(b, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static void key(Json *j, LpReportKey k)
{
    LpBuf *b = &j->b;
    if (j->depth == 0)
        return;
    if (!j->first[j->depth])
        lp_buf_str(b, ",");
    j->first[j->depth] = false;
    if (j->kind[j->depth] == LP_TREE_LIST)
        return;
    if (k.name)
        string(b, k.name);
    else
        lp_buf_fmt(b, "\"%" PRId64 "\"", k.nr);
    lp_buf_str(b, ":");
}

static void begin(void *ctx, LpReportKey k, LpTreeKind kind)
{
    Json *j = ctx;
    key(j, k);
    lp_buf_str(&j->b, kind == LP_TREE_LIST ? "[" : "{");
    j->depth++;
    j->kind[j->depth] = kind;
    j->first[j->depth] = true;
}

static void end(void *ctx)
{
    Json *j = ctx;
    lp_buf_str(&j->b, j->kind[j->depth] == LP_TREE_LIST ? "]" : "}");
    j->depth--;
}

static void value(void *ctx, LpReportKey k, LpReportValue v)
{
    Json *j = ctx;
    key(j, k);
    if (v.kind == LP_FIELD_TEXT)
        string(&j->b, v.s);
    else if (v.kind == LP_FIELD_BOOL)
        lp_buf_str(&j->b, v.i ? "true" : "false");
    else if (v.kind == LP_FIELD_INT)
        lp_buf_fmt(&j->b, "%" PRId64, v.i);
    else if (isfinite(v.f))
        number(&j->b, v.f);
    else
        lp_buf_str(&j->b, "null");
}

char *lp_report_json(const LpIpuPlan *p, LpErr *e)
{
    Json j = {0};
    LpReportSink sink = {.ctx = &j, .begin = begin, .end = end, .value = value};
    static const char *const head[] = {[LP_WALK_REPORT] = "{\"report\":",
                                       [LP_WALK_NODES] = ",\n\"plan\":",
                                       [LP_WALK_LIVENESS] = ",\n\"liveness\":"};
    LpStatus s = LP_OK;
    for (int w = 0; w <= LP_WALK_LIVENESS && s == LP_OK; w++) {
        lp_buf_str(&j.b, head[w]);
        s = lp_report_walk(p, (LpWalkWhat)w, &sink, e);
    }
    lp_buf_str(&j.b, "}\n");
    char *text = lp_text_take(&j.b, e);
    if (s == LP_OK)
        return text;
    lp_free(text); /* half of it */
    return NULL;
}

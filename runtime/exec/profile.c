/* Counters of a program: a row per instruction and per part of the loop,
 * filled by the executor's laps and by the team's watch of parallel sections.
 */
#include "runtime/exec/profile.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LABEL 96 /* characters of a fused chain's name */

static struct {
    unsigned session, count;
    LpProfile *list;
    LpProfile *running;
    int64_t run_ns;
} now;

const char *lp_profile_part_name(LpProfilePart p)
{
    static const char *const name[LP_N_PARTS] = {"executor", "pack", "forward",
                                                 "backward", "update"};
    return name[p];
}

int64_t lp_profile_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- sessions ----------------------------------------------------------- */
void lp_profile_begin(void)
{
    while (now.list) {
        LpProfile *p = now.list;
        now.list = p->next;
        lp_profile_release(p);
    }
    now.session = ++now.count;
    now.run_ns = 0;
}

void lp_profile_end(void)
{
    now.session = 0;
}

unsigned lp_profile_session(void)
{
    return now.session;
}

const LpProfile *lp_profile_list(void)
{
    return now.list;
}

int64_t lp_profile_run_ns(void)
{
    return now.run_ns;
}

/* ---- names -------------------------------------------------------------- */
static const char *name_of(const LpWork *w)
{
    return lp_node_title(&w->g->node[w->node]);
}

/* "a+b+c", with how often one comes in a row; cut where it gets long. */
static const char *chain_label(LpProfile *p, const LpInstr *in)
{
    char text[LABEL + 64];
    size_t at = 0;
    for (uint32_t i = 0; i < in->n_work;) {
        const char *name = name_of(&in->work[i]);
        uint32_t from = i;
        while (i < in->n_work && name_of(&in->work[i]) == name)
            i++;
        if (at + strlen(name) + 16 > LABEL) {
            snprintf(text + at, sizeof text - at, "+%u more",
                     in->n_work - from);
            break;
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s",
                               from ? "+" : "", name);
        if (i - from > 1)
            at +=
                (size_t)snprintf(text + at, sizeof text - at, "*%u", i - from);
    }
    return lp_arena_strdup(&p->mem, text);
}

static bool name_place(LpProfile *p, const LpGraph *g, LpNodeId node,
                       LpProfileSource *to)
{
    const LpOrigin *o = &g->origin[g->node[node].origin];
    to->op = lp_arena_strdup(&p->mem, lp_node_title(&g->node[node]));
    to->file = lp_arena_strdup(&p->mem, o->file);
    to->scope = lp_arena_strdup(&p->mem, o->scope);
    to->line = o->line;
    return to->op && to->file && to->scope;
}

static LpProfilePart part_of(const LpGraph *g, LpNodeId node, bool update)
{
    if (update)
        return LP_PART_UPDATE;
    return node != LP_NO_NODE && g->origin[g->node[node].origin].backward
               ? LP_PART_BACKWARD
               : LP_PART_FORWARD;
}

static bool name_instr(LpProfile *p, const LpGraph *g, const LpCode *c,
                       size_t i, bool update, LpProfileRow *r)
{
    const LpInstr *in = &c->instr[i];
    /* a copy belongs to what comes next */
    LpNodeId node = in->node;
    for (size_t k = i; node == LP_NO_NODE && k < c->n; k++)
        node = c->instr[k].node;
    uint32_t n = in->n_work ? in->n_work : node != LP_NO_NODE;
    LpProfileSource *place = lp_arena_calloc(&p->mem, (n + 1) * sizeof *place);
    if (!place)
        return false;
    *r = (LpProfileRow){.part = part_of(g, node, update),
                        .place = place,
                        .n_place = n,
                        .threads = in->kernel->threads,
                        .bytes = in->bytes};
    for (uint32_t k = 0; k < n; k++) {
        bool own = k < in->n_work;
        if (!name_place(p, own ? in->work[k].g : g,
                        own ? in->work[k].node : node, &place[k]))
            return false;
        place[k].flops = own ? in->work[k].flops : 0;
        r->flops += (double)place[k].flops;
        if (!own)
            place[k].op = "copy";
    }
    r->label = in->op       ? lp_arena_strdup(&p->mem, in->op->name)
               : in->n_work ? chain_label(p, in)
                            : "copy";
    return r->label != NULL;
}

static bool name_pack(LpProfile *p, const LpProgram *g, size_t i,
                      LpProfileRow *r)
{
    const LpPackedWeights *d = &g->packed[i];
    char text[LABEL];
    snprintf(text, sizeof text, "pack %s", g->step->var[d->var].name);
    *r = (LpProfileRow){.label = lp_arena_strdup(&p->mem, text),
                        .part = LP_PART_PACK,
                        .threads = d->pack->threads,
                        .bytes = d->bytes + lp_program_var_bytes(g, d->var)};
    return r->label != NULL;
}

static bool name_rows(LpProfile *p, const LpProgram *g)
{
    static const char *const own[LP_PROFILE_OWN] = {
        "loop of the step", "keep buffers", "zero accumulators",
        "inputs and outputs", "sum over replicas"};
    for (uint32_t i = 0; i < LP_PROFILE_OWN; i++)
        p->row[i] = (LpProfileRow){.label = own[i], .threads = 1};
    for (size_t i = 0; i < g->n_packed; i++)
        if (!name_pack(p, g, i, &p->row[p->pack + i]))
            return false;
    for (size_t i = 0; i < g->micro.n; i++)
        if (!name_instr(p, g->micro_graph.g, &g->micro, i, false,
                        &p->row[p->micro + i]))
            return false;
    for (size_t i = 0; i < g->update.n; i++)
        if (!name_instr(p, g->update_graph.g, &g->update, i, true,
                        &p->row[p->update + i]))
            return false;
    return true;
}

/* ---- profiles ----------------------------------------------------------- */
static void keep(LpProfile *p, LpProfileEvents *list, LpProfileEvent v)
{
    if (list->n < LP_PROFILE_EVENTS && LP_GROW(list->at, list->cap, list->n))
        list->at[list->n++] = v;
    else
        p->dropped++;
}

/* The row follows with its lap. */
static void section(void *ctx, const LpTeamTime *time, int n)
{
    LpProfile *p = ctx;
    for (int i = 0; i < n; i++)
        keep(p, &p->sections,
             (LpProfileEvent){.start = time[i].start,
                              .ns = time[i].stop - time[i].start,
                              .who = i});
}

static LpStatus new_profile(const LpProgram *g, LpProfile **out, LpErr *e)
{
    LpProfile *p = lp_calloc(1, sizeof *p);
    LP_FAIL_IF(!p, e, LP_E_MEMORY, "out of memory");
    p->refs = 1;
    p->session = now.session;
    p->trains = g->step->update != NULL;
    p->watch = (LpTeamWatch){lp_profile_clock, section, p};
    p->pack = LP_PROFILE_OWN;
    p->micro = p->pack + (uint32_t)g->n_packed;
    p->update = p->micro + (uint32_t)g->micro.n;
    p->n_row = p->update + g->update.n;
    p->row = lp_arena_calloc(&p->mem, p->n_row * sizeof *p->row);
    if (!p->row || !name_rows(p, g)) {
        lp_profile_release(p);
        return lp_no_memory(e);
    }
    if (now.session) {
        p->refs++;
        p->next = now.list;
        now.list = p;
    }
    *out = p;
    return LP_OK;
}

void lp_profile_release(LpProfile *p)
{
    if (!p || --p->refs > 0)
        return;
    lp_arena_fini(&p->mem);
    lp_free(p->rows.at);
    lp_free(p->sections.at);
    lp_free(p);
}

/* ---- taking the time ---------------------------------------------------- */
LpStatus lp_profile_enter(LpProfile **own, const LpProgram *g, LpErr *e)
{
    if (!*own || (now.session && (*own)->session != now.session)) {
        lp_profile_release(*own);
        *own = NULL;
        LP_TRY(new_profile(g, own, e));
    }
    (*own)->runs++;
    (*own)->outer = now.running;
    now.running = *own;
    lp_team_watch(&(*own)->watch);
    (*own)->last = lp_profile_clock();
    return LP_OK;
}

static void lap(LpProfile *p, uint32_t row, int64_t replica)
{
    int64_t t = lp_profile_clock(), ns = t - p->last;
    p->row[row].ns += ns;
    p->run_ns += ns;
    now.run_ns += ns;
    if (row >= LP_PROFILE_OWN)
        keep(p, &p->rows, (LpProfileEvent){p->last, ns, row, (int32_t)replica});
    while (p->placed < p->sections.n)
        p->sections.at[p->placed++].row = row;
    p->last = t;
}

void lp_profile_lap(LpProfile *p, uint32_t row, int64_t replica)
{
    p->row[row].calls++;
    lap(p, row, replica);
}

void lp_profile_leave(LpProfile *p)
{
    p->row[LP_PROFILE_ENTER].calls++;
    lap(p, LP_PROFILE_ENTER, -1);
    now.running = p->outer;
    lp_team_watch(now.running ? &now.running->watch : NULL);
}

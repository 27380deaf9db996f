/* The simulated system as seen from Lua:
 *
 *   core.simulate(step, {chip=, strategy=, …}, placement) -> report
 *   core.replay(step, {chip=, …}, inputs, {order=, …}) -> outputs, variables
 *
 * A placement, in place of what the model's blocks say, is {nodes = list} or
 * {places = list} of {ipu=, stage=, phase=}: an entry an operator of the micro
 * graph, or an entry a place of step:places(); what is nil stays as it was.
 *
 * The report is a plain table (lupine.report gives it its methods); what its
 * fields mean stands there. */
#include "src/bind/simulation.h"

#include <string.h>

#include "runtime/report/report.h"
#include "src/bind/module.h"
#include "src/passes/ipu/strategy.h"

/* ---- options ------------------------------------------------------------- */
/* One of names[], its number; def when absent. */
static int get_choice(lua_State *L, int t, const char *key,
                      const char *const *names, int def)
{
    lua_getfield(L, t, key);
    int v = def;
    if (!lua_isnil(L, -1))
        v = luaL_checkoption(L, lua_gettop(L), NULL, names);
    lua_pop(L, 1);
    return v;
}

static void get_location(lua_State *L, int t, const char *key, LpLocation *l)
{
    lua_getfield(L, t, key);
    if (lua_istable(L, -1)) {
        int at = lua_gettop(L);
        l->on_chip = lp_opt_bool(L, at, "on_chip", true);
        l->sharded = lp_opt_bool(L, at, "sharded", false);
        l->io_load = lp_opt_bool(L, at, "io_load", false);
        l->io_store = lp_opt_bool(L, at, "io_store", false);
        l->min_off_chip = lp_opt_int(L, at, "min_off_chip", 0);
        l->min_sharded = lp_opt_int(L, at, "min_sharded", 0);
    }
    lua_pop(L, 1);
}

/* proportion: a number for all IPUs, or {[ipu] = number} with IPUs from 0. */
static void get_proportion(lua_State *L, int t, LpIpuOptions *o)
{
    lua_getfield(L, t, "proportion");
    for (int i = 0; i < LP_MAX_IPUS && !lua_isnil(L, -1); i++) {
        if (lua_istable(L, -1))
            lua_geti(L, -1, i);
        else
            lua_pushvalue(L, -1);
        if (!lua_isnil(L, -1))
            o->proportion[i] = luaL_checknumber(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

static LpIpuOptions read_options(lua_State *L, int t)
{
    static const char *const again[] = {"auto", "none", "all", NULL};
    static const char *const partials[] = {"float", "half", NULL};
    LpIpuOptions o = lp_ipu_options();
    luaL_checktype(L, t, LUA_TTABLE);
    lua_getfield(L, t, "chip");
    if (!lua_isnil(L, -1)) {
        const char *chip = luaL_checkstring(L, -1);
        o.chip = lp_chip_find(chip);
        o.system = lp_system_find(chip);
        if (!o.chip || !o.system)
            lp_raise(L, LP_E_VALUE,
                     "chip: expected ipu1, ipu2 or ipu21, got "
                     "'%s'",
                     chip);
    }
    lua_pop(L, 1);
    o.strategy = lp_strategy_find(
        lp_strategy_names[get_choice(L, t, "strategy", lp_strategy_names, 0)]);
    o.recompute = (LpAgain)get_choice(L, t, "recompute", again, 0);
    o.partials = get_choice(L, t, "partials", partials, 0) ? LP_F16 : LP_F32;
    int64_t live = lp_opt_int(L, t, "liveness", 0);
    if (live < LP_ALWAYS_LIVE || live > LP_OFF_CHIP_AFTER_EACH_PHASE)
        lp_raise(L, LP_E_VALUE, "liveness: expected 0..3, got %d", (int)live);
    o.liveness = (LpLiveness)live;
    o.separate_backward = lp_opt_bool(L, t, "separate_backward", false);
    o.tiles = (int)lp_opt_int(L, t, "tiles", 0);
    o.io_tiles = (int)lp_opt_int(L, t, "io_tiles", 0);
    o.allow_out_of_memory = lp_opt_bool(L, t, "allow_out_of_memory", false);
    o.synthetic_data = lp_opt_bool(L, t, "synthetic_data", false);
    o.output_slices = lp_opt_int(L, t, "output_slices", 0);
    o.input_groups = lp_opt_int(L, t, "input_groups", 0);
    get_location(L, t, "activation", &o.location[LP_LOC_ACTIVATION]);
    get_location(L, t, "weight", &o.location[LP_LOC_WEIGHT]);
    get_location(L, t, "optimizer", &o.location[LP_LOC_OPTIMIZER]);
    get_location(L, t, "accumulator", &o.location[LP_LOC_ACCUMULATOR]);
    get_proportion(L, t, &o);
    return o;
}

/* ---- placement ----------------------------------------------------------- */
/* Number of each node's entry in the list of places, or of nodes. */
static uint32_t *entry_of(lua_State *L, const LpGraph *g, bool by_place,
                          uint32_t *n)
{
    uint32_t *of = lua_newuserdatauv(L, (g->n_node + 1) * sizeof *of, 0);
    uint32_t *seen = lua_newuserdatauv(L, g->n_origin * sizeof *seen, 0);
    memset(seen, 0, g->n_origin * sizeof *seen);
    *n = 0;
    for (LpNodeId i = 0; i < g->n_node; i++) {
        uint32_t *place = &seen[g->node[i].origin];
        if (!by_place || !*place)
            *place = ++*n;
        of[i] = *place;
    }
    return of;
}

static int16_t place_field(lua_State *L, const char *key, int32_t def)
{
    lua_getfield(L, -1, key);
    int64_t v = lua_isnil(L, -1) ? def : luaL_checkinteger(L, -1);
    if (v < -1 || v > INT16_MAX)
        lp_raise(L, LP_E_VALUE, "placement: %s: expected 0..%d, got %d", key,
                 INT16_MAX, (int)v);
    lua_pop(L, 1);
    return (int16_t)v;
}

/* The table at t; what it points to is kept alive by the stack. */
static LpPlacement read_placement(lua_State *L, int t, const LpGraph *g)
{
    uint32_t n = 0;
    size_t size = (g->n_node + 1) * sizeof(int16_t);
    LpPlacement p = {lua_newuserdatauv(L, size, 0),
                     lua_newuserdatauv(L, size, 0),
                     lua_newuserdatauv(L, size, 0)};
    bool by_place = lua_getfield(L, t, "places") == LUA_TTABLE;
    if (!by_place && lua_getfield(L, t, "nodes") != LUA_TTABLE)
        lp_raise(L, LP_E_VALUE,
                 "placement: expected {nodes = list} or {places = list}");
    int list = lua_gettop(L);
    const uint32_t *of = entry_of(L, g, by_place, &n);
    if (lua_rawlen(L, list) != n)
        lp_raise(L, LP_E_VALUE, "placement: the step has %d %s, got %d entries",
                 (int)n, by_place ? "places" : "nodes",
                 (int)lua_rawlen(L, list));
    for (LpNodeId i = 0; i < g->n_node; i++) {
        const LpOrigin *o = lp_origin_of(g, i);
        if (lua_geti(L, list, of[i]) != LUA_TTABLE)
            lp_raise(L, LP_E_VALUE, "placement: entry %d is no table", of[i]);
        p.ipu[i] = place_field(L, "ipu", o->ipu);
        p.stage[i] = place_field(L, "stage", o->stage);
        p.phase[i] = place_field(L, "phase", o->phase);
        lua_pop(L, 1);
    }
    return p;
}

/* ---- the report ---------------------------------------------------------- */
static void set_text(lua_State *L, const char *key, const char *v)
{
    lp_set_string(L, key, v ? v : "");
}

static int stash_depth(const LpIpuPlan *p, int stage)
{
    for (size_t i = 0; i < p->n_stash; i++)
        if (p->stash[i].stage == stage)
            return p->stash[i].depth;
    return 0;
}

static void push_stages(lua_State *L, const LpIpuPlan *p)
{
    lua_createtable(L, p->n_stage, 0);
    for (int s = 0; s < p->n_stage; s++) {
        const LpStage *st = &p->stage[s];
        lua_createtable(L, 0, 10);
        lp_set_int(L, "stage", s);
        lp_set_int(L, "id", st->id);
        lp_set_int(L, "ipu", st->ipu);
        lp_set_int(L, "phase", st->phase);
        set_text(L, "block", st->block);
        lp_set_bool(L, "recomputed", st->recomputed);
        lp_set_int(L, "forward_cycles", lp_run_cyc(&p->run[s]));
        const LpRun *b = p->training ? &p->run[lp_run_of(p, s, true)] : NULL;
        lp_set_int(L, "backward_cycles", b ? lp_run_cyc(b) : 0);
        lp_set_int(L, "recompute_cycles", b ? b->again_cyc : 0);
        lp_set_int(L, "stash_depth", stash_depth(p, s));
        lua_rawseti(L, -2, s + 1);
    }
}

static void push_act(lua_State *L, const LpIpuPlan *p, const LpAct *a)
{
    lua_createtable(L, 0, 8);
    set_text(L, "kind", lp_report_act_name(a->kind));
    lp_set_int(L, "ipu", a->ipu);
    lp_set_int(L, "cycles", a->cycles);
    if (a->run >= 0) {
        lp_set_int(L, "stage", p->run[a->run].stage);
        lp_set_bool(L, "backward", p->run[a->run].backward);
        lp_set_int(L, "offset", a->offset);
    } else {
        lp_set_int(L, "bytes", a->bytes);
    }
    if (a->kind == LP_ACT_COPY)
        lp_set_int(L, "to", a->to);
}

static void push_rows(lua_State *L, const LpIpuPlan *p)
{
    lua_createtable(L, (int)p->n_row, 0);
    for (size_t i = 0; i < p->n_row; i++) {
        const LpRow *r = &p->row[i];
        lua_createtable(L, 0, 14);
        set_text(L, "kind", lp_report_row_name(r->kind));
        lp_set_int(L, "first", r->first);
        lp_set_int(L, "count", lp_loop_of(p, i)->count);
        lp_set_int(L, "cycles", r->total_cyc);
        lp_set_int(L, "compute", r->compute_cyc);
        lp_set_int(L, "exchange", r->exchange_cyc);
        lp_set_int(L, "sync", r->sync_cyc);
        lp_set_int(L, "copy", r->copy_cyc);
        lp_set_int(L, "host", r->host_cyc);
        lp_set_int(L, "streaming", r->stream_cyc);
        lp_set_int(L, "collective", r->collective_cyc);
        lua_createtable(L, (int)r->n, 0);
        for (uint32_t k = 0; k < r->n; k++) {
            push_act(L, p, &r->act[k]);
            lua_rawseti(L, -2, (lua_Integer)k + 1);
        }
        lua_setfield(L, -2, "entries");
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

static void push_loops(lua_State *L, const LpIpuPlan *p)
{
    lua_createtable(L, (int)p->n_loop, 0);
    for (size_t i = 0; i < p->n_loop; i++) {
        const LpLoop *l = &p->loop[i];
        lua_createtable(L, 0, 5);
        lp_set_int(L, "first_row", l->first_row + 1);
        lp_set_int(L, "rows", l->n_row);
        lp_set_int(L, "count", l->count);
        lp_set_int(L, "step", l->step);
        lp_set_bool(L, "once", l->once);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

/* Of one micro-batch, in the order of the step's variables. */
static void push_streams(lua_State *L, const LpIpuPlan *p)
{
    lua_newtable(L);
    int n = 0;
    for (size_t i = 0; i < p->step->n_var; i++) {
        const LpVariable *v = &p->step->var[i];
        bool in = v->role == LP_VAR_STREAM_IN;
        LpVal val = in ? v->micro_in : v->micro_out;
        if ((!in && v->role != LP_VAR_STREAM_OUT) || val == LP_NOVAL)
            continue;
        const LpRun *r = &p->run[lp_ipu_run_making(p, val)];
        lua_createtable(L, 0, 6);
        lp_set_int(L, "variable", (int64_t)i + 1);
        lp_set_bool(L, "input", in);
        lp_set_int(L, "bytes", lp_type_bytes(&v->type));
        lp_set_int(L, "ipu", r->ipu);
        lp_set_int(L, "stage", r->stage);
        lp_set_bool(L, "backward", r->backward);
        lua_rawseti(L, -2, ++n);
    }
}

static void push_big(lua_State *L, const LpIpuMemory *m)
{
    lua_createtable(L, LP_N_BIG, 0);
    for (int i = 0; i < LP_N_BIG && m->big[i].bytes > 0; i++) {
        lua_createtable(L, 0, 4);
        set_text(L, "name", m->big[i].name);
        set_text(L, "scope", m->big[i].scope);
        set_text(L, "kind", lp_report_mem_name(m->big[i].kind));
        lp_set_int(L, "bytes", m->big[i].bytes);
        lua_rawseti(L, -2, i + 1);
    }
}

/* Keyed by IPU, from 0; IPUs without work are left out. */
static void push_memory(lua_State *L, const LpIpuPlan *p)
{
    lua_newtable(L);
    for (int i = 0; i < p->n_ipus; i++) {
        const LpIpuMemory *m = &p->memory[i];
        if (m->always + m->not_always == 0)
            continue;
        lua_createtable(L, 0, 12);
        lp_set_int(L, "always_live", m->always);
        lp_set_int(L, "not_always_live", m->not_always);
        lp_set_int(L, "max_tile", m->max_tile);
        lp_set_int(L, "max_tile_including_gaps", m->max_tile_gaps);
        lp_set_int(L, "fullest_tile", m->max_tile_nr);
        lp_set_int(L, "tile_bytes", p->o.chip->tile_bytes);
        lp_set_int(L, "off_chip", m->off_chip);
        lp_set_bool(L, "fits", m->max_tile_gaps <= p->o.chip->tile_bytes);
        lp_set_bool(L, "peak_in_update", m->in_update);
        lua_createtable(L, 0, LP_N_MEM);
        for (int k = 0; k < LP_N_MEM; k++)
            lp_set_int(L, lp_report_mem_name((LpMemKind)k), m->bytes[k]);
        lua_setfield(L, -2, "categories");
        push_big(L, m);
        lua_setfield(L, -2, "biggest");
        lua_createtable(L, LP_TILE_CLASSES, 0);
        for (int k = 0; k < LP_TILE_CLASSES; k++) {
            lua_pushinteger(L, (lua_Integer)m->tile[k]);
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, "tiles");
        lua_rawseti(L, -2, i);
    }
}

static void push_operators(lua_State *L, const LpOpTotal *t, size_t n)
{
    lua_createtable(L, (int)n, 0);
    for (size_t i = 0; i < n; i++) {
        lua_createtable(L, 0, 5);
        set_text(L, "name", t[i].name);
        lp_set_int(L, "nodes", t[i].nodes);
        lp_set_int(L, "instances", t[i].instances);
        lp_set_int(L, "cycles", t[i].cycles);
        lp_set_int(L, "flops", t[i].flops);
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

static void push_report(lua_State *L, const LpIpuPlan *p)
{
    lua_createtable(L, 0, 20);
    set_text(L, "chip", p->o.chip->version);
    set_text(L, "chip_name", p->o.chip->name);
    lp_set_number(L, "clock_hz", p->o.chip->clock_hz);
    set_text(L, "strategy", p->o.strategy->name);
    lp_set_bool(L, "training", p->training);
    lp_set_bool(L, "pipelined", p->how->offset != NULL);
    lp_set_int(L, "ipus", p->n_ipus);
    lp_set_int(L, "replicas", p->step->replicas);
    lp_set_int(L, "loops", p->loops);
    lp_set_int(L, "micro_batches", p->micro_batches);
    lp_set_int(L, "cycles", p->cycles);
    lp_set_number(L, "seconds", p->seconds);
    lp_set_int(L, "samples", p->samples);
    lp_set_number(L, "samples_per_second", p->samples_per_second);
    lp_set_number(L, "pipeline_efficiency", p->efficiency);
    push_stages(L, p);
    lua_setfield(L, -2, "stages");
    push_rows(L, p);
    lua_setfield(L, -2, "schedule");
    push_loops(L, p);
    lua_setfield(L, -2, "sequence");
    push_streams(L, p);
    lua_setfield(L, -2, "streams");
    push_memory(L, p);
    lua_setfield(L, -2, "memory");
}

/* ---- functions ----------------------------------------------------------- */
static const char tag_plan = 'p';

static int plan_gc(lua_State *L)
{
    LpBox *b = lp_to_box(L, 1, &tag_plan);
    if (b) {
        lp_ipu_plan_free(b->p);
        b->p = NULL;
    }
    return 0;
}

LpIpuPlan *lp_bind_plan(lua_State *L, const LpStep *s, int options,
                        int placement)
{
    LpErr e = {0};
    LpIpuOptions o = read_options(L, options);
    bool placed = !lua_isnoneornil(L, placement);
    LpPlacement at = {NULL, NULL, NULL};
    luaL_checkstack(L, 20, NULL);
    if (placed) {
        luaL_checktype(L, placement, LUA_TTABLE);
        at = read_placement(L, placement, s->micro);
    }
    LpBox *b = lua_newuserdatauv(L, sizeof *b, 0);
    *b = (LpBox){.tag = &tag_plan};
    luaL_setmetatable(L, "lupine.plan");
    LpIpuPlan *p = NULL;
    LpStatus st = lp_ipu_analyse(s, &o, placed ? &at : NULL, &p, &e);
    b->p = p;
    if (st != LP_OK)
        lp_bind_fail(L, &e);
    return p;
}

/* simulate(step, options, placement) -> report */
static int simulate(lua_State *L)
{
    LpErr e = {0};
    size_t n = 0;
    const LpStep *s = lp_check_step(L);
    lua_settop(L, 3);
    LpIpuPlan *p = lp_bind_plan(L, s, 2, 3);
    push_report(L, p);
    LpOpTotal *t = lp_report_operators(p, &n, &e);
    char *text = t ? lp_report_summary(p, &e) : NULL;
    if (!text) {
        lp_free(t);
        return lp_bind_fail(L, &e);
    }
    push_operators(L, t, n);
    lua_setfield(L, -2, "operators");
    set_text(L, "text", text);
    lp_free(t);
    lp_free(text);
    return 1;
}

void lp_bind_simulation(lua_State *L)
{
    static const luaL_Reg meta[] = {
        {"__gc", plan_gc}, {"__close", plan_gc}, {NULL, NULL}};
    luaL_newmetatable(L, "lupine.plan");
    luaL_setfuncs(L, meta, 0);
    lua_pop(L, 1);
    lua_pushcfunction(L, simulate);
    lua_setfield(L, -2, "simulate");
    lua_pushcfunction(L, lp_bind_replay);
    lua_setfield(L, -2, "replay");
}

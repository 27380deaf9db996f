/* The simulated system as seen from Lua: plans of completed steps.
 *
 *   plan = core.plan(step, {chip=, strategy=, …}, placement)
 *   plan:report() plan:schedule() plan:nodes() plan:json() plan:step()
 *   plan:replay(inputs, {order=, …}) -> outputs, variables, bytes
 *
 * A placement, in place of what the model's blocks say, is {nodes = list} or
 * {places = list} of {ipu=, stage=, phase=}: an entry an operator of the micro
 * graph, or an entry a place of step:places(); what is nil stays as it was.
 *
 * A plan keeps its step; what its fields mean is said by report.def, which
 * core.report_fields() lists. */
#include "src/bind/program/simulation.h"

#include <string.h>

#include "runtime/report/walk.h"
#include "src/bind/module.h"
#include "src/passes/ipu/strategy.h"

/* ---- options ------------------------------------------------------------- */
/* Fields of a location, which is the table at t. */
static int64_t get_least(lua_State *L, int t, const char *whose,
                         const char *key)
{
    int fine = 1;
    lua_getfield(L, t, key);
    int64_t n = lua_isnil(L, -1) ? 0 : lua_tointegerx(L, -1, &fine);
    if (!fine || n < 0)
        lp_raise(L, fine ? LP_E_VALUE : LP_E_TYPE,
                 "%s: %s: expected 0 or more elements, got %s", whose, key,
                 luaL_tolstring(L, -1, NULL));
    lua_pop(L, 1);
    return n;
}

static bool get_flag(lua_State *L, int t, const char *whose, const char *key,
                     bool def)
{
    int kind = lua_getfield(L, t, key);
    if (kind != LUA_TNIL && kind != LUA_TBOOLEAN)
        lp_raise(L, LP_E_TYPE, "%s: %s: expected true or false, got %s", whose,
                 key, luaL_tolstring(L, -1, NULL));
    bool on = kind == LUA_TNIL ? def : lua_toboolean(L, -1);
    lua_pop(L, 1);
    return on;
}

/* The table on top of the stack. */
static void read_location(lua_State *L, const char *key, LpLocation *l)
{
    static const char *const keys[] = {
        "on_chip",      "sharded",     "io_load",   "io_store",
        "min_off_chip", "min_sharded", "on_demand", NULL};
    int at = lua_gettop(L);
    if (!lua_istable(L, at))
        lp_raise(L, LP_E_TYPE, "%s: expected a table, got %s", key,
                 luaL_typename(L, at));
    lp_check_keys(L, at, key, keys);
    l->on_chip = get_flag(L, at, key, "on_chip", true);
    l->sharded = get_flag(L, at, key, "sharded", false);
    l->io_load = get_flag(L, at, key, "io_load", false);
    l->io_store = get_flag(L, at, key, "io_store", false);
    l->on_demand = get_flag(L, at, key, "on_demand", l->on_demand);
    l->min_off_chip = get_least(L, at, key, "min_off_chip");
    l->min_sharded = get_least(L, at, key, "min_sharded");
}

static void get_location(lua_State *L, int t, const char *key, LpLocation *l)
{
    if (lua_getfield(L, t, key) != LUA_TNIL)
        read_location(L, key, l);
    lua_pop(L, 1);
}

/* own: {[name] = location}. The list stays on the stack, the names are the
 * table's. */
static void get_own_locations(lua_State *L, int t, LpIpuOptions *o)
{
    if (lua_getfield(L, t, "own") == LUA_TNIL)
        return;
    int table = lua_gettop(L);
    size_t n = 0;
    if (!lua_istable(L, table))
        lp_raise(L, LP_E_TYPE, "own: expected a table, got %s",
                 luaL_typename(L, table));
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1))
        n++;
    LpOwnLocation *list = lua_newuserdatauv(L, n * sizeof *list, 0);
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            lp_raise(L, LP_E_TYPE, "own: expected names of tensors, got %s",
                     luaL_typename(L, -2));
        int value = lua_gettop(L);
        LpOwnLocation *own = &list[o->n_own++];
        own->name = lua_tostring(L, -2);
        own->at = (LpLocation){.on_demand = false};
        own->as_kind =
            lua_istable(L, -1) && lua_getfield(L, -1, "on_demand") == LUA_TNIL;
        lua_settop(L, value);
        read_location(L, own->name, &own->at);
    }
    o->own = list;
}

/* proportion: a number for all IPUs, or {[ipu] = number} with IPUs from 0. */
static void get_proportion(lua_State *L, int t, LpIpuOptions *o)
{
    int kind = lua_getfield(L, t, "proportion");
    if (kind == LUA_TNIL) {
        lua_pop(L, 1);
        return;
    }
    if (kind != LUA_TTABLE) {
        double all = lp_opt_number(L, t, "proportion", o->proportion[0]);
        for (int i = 0; i < LP_MAX_IPUS; i++)
            o->proportion[i] = all;
        lua_pop(L, 1);
        return;
    }
    for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
        int64_t ipu = lua_isinteger(L, -2) ? lua_tointeger(L, -2) : -1;
        if (ipu < 0 || ipu >= LP_MAX_IPUS || lua_type(L, -1) != LUA_TNUMBER) {
            const char *type = luaL_typename(L, -1);
            lp_raise(L, LP_E_VALUE,
                     "proportion: expected numbers by IPUs 0..%d, got a %s for "
                     "'%s'",
                     LP_MAX_IPUS - 1, type, luaL_tolstring(L, -2, NULL));
        }
        o->proportion[ipu] = lua_tonumber(L, -1);
    }
    lua_pop(L, 1);
}

static int get_tiles(lua_State *L, int t, const char *key, const LpChip *chip)
{
    int64_t n = lp_opt_int(L, t, key, 0);
    if (n < 0 || n > chip->tiles)
        lp_raise(L, LP_E_VALUE, "%s: expected 0..%d, got %lld", key,
                 chip->tiles, (long long)n);
    return (int)n;
}

static void get_chip(lua_State *L, int t, LpIpuOptions *o)
{
    int n = lp_opt_choice(L, t, "chip", lp_chip_versions, -1);
    if (n < 0)
        return;
    o->chip = lp_chip_find(lp_chip_versions[n]);
    o->system = lp_system_find(lp_chip_versions[n]);
}

/* ---- plans of products --------------------------------------------------- */
LP_BOX_FREE(cache_free, lp_plan_cache_free)
static const LpBoxClass cache_class = {"lupine.plan_cache", "plan cache",
                                       cache_free};
static const char key_plans = 0;

/* Shapes that a state has met are planned once; NULL when memory is short. */
static LpPlanCache *plans(lua_State *L)
{
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key_plans) == LUA_TNIL) {
        LpBox *b = lp_new_box(L, &cache_class);
        b->p = lp_plan_cache_new();
        lua_rawsetp(L, LUA_REGISTRYINDEX, &key_plans);
        lua_rawgetp(L, LUA_REGISTRYINDEX, &key_plans);
        lua_remove(L, -2);
    }
    LpPlanCache *c = ((LpBox *)lua_touserdata(L, -1))->p;
    lua_pop(L, 1);
    return c;
}

LpIpuOptions lp_read_ipu_options(lua_State *L, int t)
{
    static const char *const again[] = {"auto", "none", "all", NULL};
    static const char *const partials[] = {"float", "half", NULL};
    static const char *const keys[] = {
        "chip",           "strategy",      "recompute",
        "partials",       "liveness",      "separate_backward",
        "tiles",          "io_tiles",      "allow_out_of_memory",
        "synthetic_data", "output_slices", "input_groups",
        "replicas",       "accumulation",  "batch_serialization",
        "activation",     "weight",        "optimizer",
        "accumulator",    "own",           "own_unmet",
        "proportion",     "power_of_two",  "round_ipus",
        "stable_norm",    "host_sync",     "near",
        "part_order",     "update_order",  NULL};
    LpIpuOptions o = lp_ipu_options();
    lp_check_keys(L, t, "system", keys);
    get_chip(L, t, &o);
    o.strategy = lp_strategy_find(lp_strategy_names[lp_opt_choice(
        L, t, "strategy", lp_strategy_names, 0)]);
    o.recompute = (LpRecompute)lp_opt_choice(L, t, "recompute", again, 0);
    o.partials = lp_opt_choice(L, t, "partials", partials, 0) ? LP_F16 : LP_F32;
    o.stable_norm = lp_opt_bool(L, t, "stable_norm", false);
    o.host_sync = lp_opt_int(L, t, "host_sync", -1);
    int64_t live = lp_opt_int(L, t, "liveness", 0);
    if (live < LP_ALWAYS_LIVE || live > LP_OFF_CHIP_AFTER_EACH_PHASE)
        lp_raise(L, LP_E_VALUE, "liveness: expected 0..3, got %lld",
                 (long long)live);
    o.liveness = (LpLiveness)live;
    o.separate_backward = lp_opt_bool(L, t, "separate_backward", false);
    o.near = lp_opt_bool(L, t, "near", false);
    o.parts =
        (LpParts)lp_opt_choice(L, t, "part_order", lp_part_order_names, 0);
    o.update_order = (LpUpdateOrder)lp_opt_choice(L, t, "update_order",
                                                  lp_update_order_names, 0);
    o.tiles = get_tiles(L, t, "tiles", o.chip);
    o.io_tiles = get_tiles(L, t, "io_tiles", o.chip);
    o.allow_out_of_memory = lp_opt_bool(L, t, "allow_out_of_memory", false);
    o.synthetic_data = lp_opt_bool(L, t, "synthetic_data", false);
    o.power_of_two = lp_opt_bool(L, t, "power_of_two", false);
    o.round_ipus = lp_opt_bool(L, t, "round_ipus", false);
    o.output_slices = lp_opt_int(L, t, "output_slices", 0);
    o.input_groups = lp_opt_int(L, t, "input_groups", 0);
    o.replicas = lp_opt_int(L, t, "replicas", 0);
    o.accumulation = lp_opt_int(L, t, "accumulation", 0);
    o.batch_serial = lp_opt_int(L, t, "batch_serialization", 0);
    get_location(L, t, "activation", &o.location[LP_LOC_ACTIVATION]);
    get_location(L, t, "weight", &o.location[LP_LOC_WEIGHT]);
    get_location(L, t, "optimizer", &o.location[LP_LOC_OPTIMIZER]);
    get_location(L, t, "accumulator", &o.location[LP_LOC_ACCUMULATOR]);
    get_proportion(L, t, &o);
    get_own_locations(L, t, &o);
    o.own_unmet = lp_opt_bool(L, t, "own_unmet", false);
    o.plans = plans(L);
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
        lp_raise(L, LP_E_VALUE, "placement: %s: expected 0..%d, got %lld", key,
                 INT16_MAX, (long long)v);
    lua_pop(L, 1);
    return (int16_t)v;
}

/* The table at t; what it points to is kept alive by the stack. */
static LpPlacement read_placement(lua_State *L, int t, const LpGraph *g)
{
    uint32_t n = 0;
    luaL_checktype(L, t, LUA_TTABLE);
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
/* A table for each group, list and map; the key of an open one is on the stack
 * below it. Entries of lists count from 1, those of maps from 0. */
typedef struct Tables {
    lua_State *L;
    LpTreeKind kind[16]; /* of what is open */
    int depth;
} Tables;

static void push_key(const Tables *t, LpReportKey k)
{
    if (k.name)
        lua_pushstring(t->L, k.name);
    else
        lua_pushinteger(t->L, (lua_Integer)k.nr +
                                  (t->kind[t->depth] == LP_TREE_LIST ? 1 : 0));
}

static void open_table(void *ctx, LpReportKey k, LpTreeKind kind)
{
    Tables *t = ctx;
    if (t->depth > 0)
        push_key(t, k);
    lua_newtable(t->L);
    t->kind[++t->depth] = kind;
}

static void close_table(void *ctx)
{
    Tables *t = ctx;
    if (--t->depth > 0)
        lua_rawset(t->L, -3);
}

static void set_value(void *ctx, LpReportKey k, LpReportValue v)
{
    Tables *t = ctx;
    push_key(t, k);
    switch (v.kind) {
    case LP_FIELD_TEXT:
        lua_pushstring(t->L, v.s);
        break;
    case LP_FIELD_BOOL:
        lua_pushboolean(t->L, v.i != 0);
        break;
    case LP_FIELD_INT:
        lua_pushinteger(t->L, (lua_Integer)v.i);
        break;
    default:
        lua_pushnumber(t->L, v.f);
    }
    lua_rawset(t->L, -3);
}

/* What report.def says of the plan, as a table. */
static void push_walk(lua_State *L, const LpIpuPlan *p, LpWalkWhat what)
{
    LpErr e = {0};
    Tables t = {.L = L};
    LpReportSink sink = {&t, open_table, close_table, set_value};
    luaL_checkstack(L, 40, NULL);
    lp_must(L, lp_report_walk(p, what, &sink, &e), &e);
}

/* chip(version) -> {proportion=, tiles=, workers=, ipus_machine=, ipus_rack=}
 * of a chip (proportion: of memory, where none is given) and of the machines
 * that it is sold in, nil for none of that version */
static int chip(lua_State *L)
{
    const char *version = luaL_checkstring(L, 1);
    const LpChip *c = lp_chip_find(version);
    const LpSystem *s = lp_system_find(version);
    if (!c || !s)
        return 0;
    lua_createtable(L, 0, 5);
    lp_set_number(L, "proportion", lp_cost_ctx(c).proportion);
    lp_set_int(L, "tiles", c->tiles);
    lp_set_int(L, "workers", c->workers);
    lp_set_int(L, "ipus_machine", s->ipus_machine);
    lp_set_int(L, "ipus_rack", s->ipus_rack);
    return 1;
}

/* report_fields() -> {{group=, name=, kind=, of=, unit=, doc=}, …}: what fields
 * of reports mean; an entry without a name is of the group itself */
static int report_fields(lua_State *L)
{
    static const char *const kinds[] = {
        [LP_FIELD_INT] = "integer",   [LP_FIELD_NUM] = "number",
        [LP_FIELD_BOOL] = "boolean",  [LP_FIELD_TEXT] = "string",
        [LP_FIELD_INTS] = "integers", [LP_FIELD_NAMED] = "named",
        [LP_FIELD_LIST] = "list",     [LP_FIELD_MAP] = "map"};
    const char *group = "";
    lua_newtable(L);
    for (const LpReportField *f = lp_report_fields; f->group || f->name; f++) {
        group = f->group ? f->group : group;
        lua_createtable(L, 0, 6);
        lp_set_string(L, "group", group);
        if (f->name) {
            lp_set_string(L, "name", f->name);
            lp_set_string(L, "kind", kinds[f->kind]);
            lp_set_string(L, "unit", f->unit);
        }
        if (f->of)
            lp_set_string(L, "of", f->of);
        lp_set_string(L, "doc", f->doc);
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    }
    return 1;
}

/* ---- plans --------------------------------------------------------------- */
LP_BOX_FREE(plan_free, lp_ipu_plan_free)
static const LpBoxClass plan_class = {"lupine.plan", "plan", plan_free};

static const LpIpuPlan *check_plan(lua_State *L)
{
    return lp_check_box(L, 1, &plan_class);
}

LpBox *lp_new_plan(lua_State *L)
{
    return lp_new_box(L, &plan_class);
}

/* plan(step, options, placement) -> plan */
static int plan_new(lua_State *L)
{
    LpErr e = {0};
    const LpStep *s = lp_check_step(L);
    lua_settop(L, 3);
    LpIpuOptions o = lp_read_ipu_options(L, 2);
    bool placed = !lua_isnoneornil(L, 3);
    LpPlacement at = {NULL, NULL, NULL};
    luaL_checkstack(L, 20, NULL);
    if (placed)
        at = read_placement(L, 3, s->micro);
    LpBox *b = lp_new_plan(L);
    LpIpuPlan *p = NULL;
    LpStatus st = lp_ipu_analyse(s, &o, placed ? &at : NULL, &p, &e);
    b->p = p;
    lp_must(L, st, &e);
    return 1;
}

const LpIpuPlan *lp_check_whole_plan(lua_State *L)
{
    LpErr e = {0};
    LpIpuPlan *p = lp_check_box(L, 1, &plan_class);
    lp_must(L, lp_ipu_expand(p, &e), &e);
    return p;
}

/* plan:report() -> table of all but the schedule and the nodes */
static int plan_report(lua_State *L)
{
    push_walk(L, check_plan(L), LP_WALK_FIGURES);
    lua_pushnil(L);
    lua_setfield(L, -2, "schedule");
    return 1;
}

/* plan:schedule() -> list of its rows */
static int plan_schedule(lua_State *L)
{
    push_walk(L, lp_check_whole_plan(L), LP_WALK_SCHEDULE);
    return 1;
}

/* plan:nodes() -> {{operator=, cycles=, …}, …} */
static int plan_nodes(lua_State *L)
{
    push_walk(L, check_plan(L), LP_WALK_NODES);
    lua_getfield(L, -1, "nodes");
    return 1;
}

/* plan:liveness() -> {ipus = {[0] = {bytes=, spans=, …}, …}} */
static int plan_liveness(lua_State *L)
{
    push_walk(L, check_plan(L), LP_WALK_LIVENESS);
    return 1;
}

static int push_made(lua_State *L, char *(*make)(const LpIpuPlan *, LpErr *))
{
    LpErr e = {0};
    const LpIpuPlan *p = lp_check_whole_plan(L);
    LpBox *text = lp_new_text(L);
    text->p = make(p, &e);
    lp_must(L, e.code, &e);
    lp_push_text(L, text);
    return 1;
}

/* plan:json(): the report and all nodes */
LP_FUNCTION_AS(plan_json, push_made(L, lp_report_json))

/* plan:step() -> the step that it is of */
static int plan_step(lua_State *L)
{
    const LpIpuPlan *p = check_plan(L);
    LpBox *b = lp_new_box(L, &lp_step_class);
    b->p = lp_step_retain(p->step);
    return 1;
}

static const luaL_Reg plan_methods[] = {
    {"report", plan_report},    {"schedule", plan_schedule},
    {"nodes", plan_nodes},      {"liveness", plan_liveness},
    {"json", plan_json},        {"step", plan_step},
    {"replay", lp_plan_replay}, {NULL, NULL}};

void lp_bind_simulation(lua_State *L)
{
    lp_add_class(L, &plan_class, plan_methods);
    lp_set_function(L, "plan", plan_new);
    lp_set_function(L, "report_fields", report_fields);
    lp_set_function(L, "chip", chip);
}

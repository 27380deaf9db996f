/* Profiles of executors for lua/lupine/profile.lua, as plain tables. */
#include "runtime/exec/profile.h"
#include "src/bind/module.h"
#include "src/bind/program/program.h"
#include "src/kernel/loops/peak.h"

#define MOST_THREADS 1024

static void push_place(lua_State *L, const LpProfileSource *p)
{
    lua_createtable(L, 0, 5);
    lp_set_string(L, "op", p->op);
    lp_set_string(L, "file", p->file);
    lp_set_string(L, "scope", p->scope);
    lp_set_int(L, "line", p->line);
    lp_set_number(L, "flops", p->flops);
}

static void push_row(lua_State *L, const LpProfileRow *r)
{
    lua_createtable(L, 0, 8);
    lp_set_string(L, "label", r->label);
    lp_set_string(L, "part", lp_profile_part_name(r->part));
    lp_set_int(L, "threads", r->threads);
    lp_set_int(L, "bytes", (int64_t)r->bytes);
    lp_set_int(L, "calls", (int64_t)r->calls);
    lp_set_int(L, "ns", r->ns);
    lp_set_number(L, "flops", r->flops);
    LP_PUSH_LIST(L, i, r->n_place, push_place(L, &r->place[i]));
    lua_setfield(L, -2, "places");
}

/* Four numbers an event, one after another: start, ns, row from 1, who. */
static void push_events(lua_State *L, const LpProfileEvents *list)
{
    lua_createtable(L, (int)list->n * 4, 0);
    lua_Integer at = 0;
    for (size_t i = 0; i < list->n; i++) {
        const LpProfileEvent *v = &list->at[i];
        const int64_t f[4] = {v->start, v->ns, (int64_t)v->row + 1, v->who};
        for (int k = 0; k < 4; k++) {
            lua_pushinteger(L, (lua_Integer)f[k]);
            lua_rawseti(L, -2, ++at);
        }
    }
}

static void push_profile(lua_State *L, const LpProfile *p)
{
    luaL_checkstack(L, 8, "profile");
    lua_createtable(L, 0, 7);
    lp_set_bool(L, "trains", p->trains);
    lp_set_int(L, "runs", (int64_t)p->runs);
    lp_set_int(L, "ns", p->run_ns);
    lp_set_int(L, "dropped", (int64_t)p->dropped);
    LP_PUSH_LIST(L, i, p->n_row, push_row(L, &p->row[i]));
    lua_setfield(L, -2, "rows");
    push_events(L, &p->rows);
    lua_setfield(L, -2, "events");
    push_events(L, &p->sections);
    lua_setfield(L, -2, "sections");
}

/* profile_begin() */
static int profile_begin(lua_State *L LP_UNUSED)
{
    lp_profile_begin();
    return 0;
}

/* profile_end() -> profiles of the executors that ran, the first one first */
static int profile_end(lua_State *L)
{
    lua_Integer n = 0;
    lp_profile_end();
    lua_newtable(L);
    for (const LpProfile *p = lp_profile_list(); p; p = p->next)
        n++;
    for (const LpProfile *p = lp_profile_list(); p; p = p->next) {
        push_profile(L, p);
        lua_rawseti(L, -2, n--);
    }
    return 1;
}

/* profile_clock() -> ns now, ns in executors since the session began */
static int profile_clock(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)lp_profile_clock());
    lua_pushinteger(L, (lua_Integer)lp_profile_run_ns());
    return 2;
}

/* machine_peak(threads) -> FLOP/s, bytes/s */
static int machine_peak(lua_State *L)
{
    int threads = (int)luaL_checkinteger(L, 1);
    if (threads < 1 || threads > MOST_THREADS)
        return lp_raise(L, LP_E_VALUE, "machine_peak: threads: expected 1..%d",
                        MOST_THREADS);
    lua_pushnumber(L, lp_peak_flops(threads));
    lua_pushnumber(L, lp_peak_copy(threads));
    return 2;
}

/* exec:profile(on) takes the time of each run, or not; exec:profile() -> the
 * profile, nil if none was taken */
int lp_exec_profile_method(lua_State *L)
{
    LpExecBox *d = lp_check_box(L, 1, &lp_exec_class);
    if (!lua_isnoneornil(L, 2)) {
        lp_exec_set_profile(d->x, lua_toboolean(L, 2));
        return 0;
    }
    const LpProfile *p = lp_exec_profile(d->x);
    if (!p)
        return 0;
    push_profile(L, p);
    return 1;
}

void lp_bind_profile(lua_State *L)
{
    static const luaL_Reg functions[] = {{"profile_begin", profile_begin},
                                         {"profile_end", profile_end},
                                         {"profile_clock", profile_clock},
                                         {"machine_peak", machine_peak},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
}

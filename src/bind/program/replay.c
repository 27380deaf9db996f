/* Replay from Lua. */
#include <string.h>

#include "runtime/exec/replay.h"
#include "src/bind/program/host_call.h"
#include "src/bind/program/simulation.h"

LP_BOX_FREE(replay_free, lp_replay_free)
/* Dimension 0 times the slices; a value without dimensions becomes a line. */
static LpType stream_type(const LpVariable *v, int64_t slices)
{
    LpType t = v->type;
    if (t.ndim == 0) {
        t.ndim = 1;
        t.shape[0] = slices;
    } else {
        t.shape[0] *= slices;
    }
    return t;
}

/* inputs at index 2, by variable number; what is made is kept alive in the
 * table at `keep`. */
static void bind_streams(lua_State *L, const LpStep *s, LpReplayStream *st,
                         int64_t slices, int keep)
{
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        LpType want = stream_type(v, slices);
        st[i] = (LpReplayStream){0};
        if (v->role == LP_VAR_STREAM_OUT) {
            st[i].out = lp_tensor_data(lp_new_tensor(L, &want));
            lua_rawseti(L, keep, (lua_Integer)i + 1);
        } else if (v->role == LP_VAR_STREAM_IN) {
            lua_geti(L, 2, (lua_Integer)i + 1);
            LpTensor *t = lp_check_tensor(L, -1, "replay", v->name);
            LpType got = lp_tensor_type(t);
            if (!lp_type_eq(&got, &want) || !lp_tensor_contiguous(t))
                lp_raise(L, LP_E_RUNTIME,
                         "replay: input '%s' has shape %s, expected contiguous "
                         "%s of dtype %s",
                         v->name, lp_shape_str(&got), lp_shape_str(&want),
                         lp_dtype_name(want.dtype));
            st[i].in = lp_tensor_data(t); /* the argument keeps it */
            lua_pop(L, 1);
        }
    }
}

/* {[variable] = tensor} of the first replica's memory. */
static void push_vars(lua_State *L, const LpStep *s, const LpReplay *x)
{
    lua_newtable(L);
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        if (v->role == LP_VAR_STREAM_IN || v->role == LP_VAR_STREAM_OUT)
            continue;
        LpTensor *t = lp_new_tensor(L, &v->type);
        memcpy(lp_tensor_data(t), lp_replay_var(x, i, 0),
               (size_t)lp_type_bytes(&v->type));
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

/* The functions that answer host calls, `calls` of the table at 3: pushed. */
static void push_functions(lua_State *L, const LpStep *s, LpHostFunctions *f)
{
    lua_getfield(L, 3, "calls");
    lp_check_host_functions(L, s->micro, lua_gettop(L));
    lp_host_functions(L, -1, f);
}

/* plan:replay({[var] = tensor}, {order=, seed=, micro_batch=, threads=,
 * calls=}) -> outputs, variables, most bytes of values at once */
int lp_plan_replay(lua_State *L)
{
    static const LpBoxClass class = {"lupine.replay", "replay", replay_free};
    static const char *const orders[] = {"schedule", "micro_batches", NULL};
    LpErr e = {0};
    const LpIpuPlan *p = lp_check_whole_plan(L);
    const LpStep *s = p->step;
    luaL_checktype(L, 2, LUA_TTABLE);
    if (lua_isnoneornil(L, 3)) {
        lua_settop(L, 2);
        lua_newtable(L);
    }
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    int order = lp_opt_choice(L, 3, "order", orders, LP_REPLAY_SCHEDULE);
    int64_t seed = lp_opt_int(L, 3, "seed", 0);
    int64_t start = lp_opt_int(L, 3, "micro_batch", 0);
    int threads = (int)lp_opt_int(L, 3, "threads", lp_num_threads());
    if (p->replicas != s->replicas ||
        p->accumulation != s->gradient_accumulation)
        lp_raise(L, LP_E_VALUE,
                 "replay: a plan with other replicas or another accumulation "
                 "than the step's cannot be run");
    int64_t slices = p->loops * p->micro_batches * s->replicas;
    LpReplayStream *st = lua_newuserdatauv(L, (s->n_var + 1) * sizeof *st, 0);
    lua_newtable(L);
    int outputs = lua_gettop(L);
    bind_streams(L, s, st, slices, outputs);
    LpHostFunctions f;
    push_functions(L, s, &f);
    LpBox *b = lp_new_box(L, &class);
    LpReplay *x = NULL;
    LpStatus status = lp_replay_new(p, threads, &x, &e);
    b->p = x;
    if (status == LP_OK)
        lp_replay_set_host(x, &f.calls);
    if (status == LP_OK)
        status = lp_replay_run(x, (LpReplayOrder)order, st, (uint64_t)seed,
                               (uint64_t)start, &e);
    lp_must(L, status, &e);
    push_vars(L, s, x);
    int64_t peak = lp_replay_peak(x);
    lp_replay_free(x);
    b->p = NULL;
    lua_pushvalue(L, outputs);
    lua_insert(L, -2);
    lua_pushinteger(L, (lua_Integer)peak);
    return 3;
}

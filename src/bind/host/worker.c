/* Worker processes: core.start_worker(f, leader) forks, runs f(channel) in the
 * child and ends it; the parent gets the channel. A leader may start workers.
 *   channel:send(text, tensors)
 *   channel:share(text, like, copies) -> tensors, in memory of both sides
 *   channel:written(tensors) the other side has written shared tensors
 *   channel:receive(seconds) -> text, tensors; nil, "timeout" or nil, "closed";
 *                            without seconds: waits for ever
 *   channel:close(seconds)   waits, then kills
 *   channel:cause()          how an ended worker ended
 *   channel:pid() */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/bind/box.h"
#include "src/bind/module.h"
#include "src/io/worker.h"

#define TYPE "lupine.worker"
#define MOST_TENSORS 100000

static LpWorker *check_worker(lua_State *L)
{
    return luaL_checkudata(L, 1, TYPE);
}

static int child_main(lua_State *L)
{
    int code = 0;
    lua_insert(L, 1); /* the channel below the function */
    lua_pushvalue(L, 1);
    if (lua_pcall(L, 1, 0, 0) != LUA_OK) {
        fprintf(stderr, "lupine: worker: %s\n", luaL_tolstring(L, -1, NULL));
        code = 1;
    }
    fflush(NULL);
    _exit(code);
}

/* (function, leader) -> channel */
static int start(lua_State *L)
{
    LpErr e = {0};
    bool child = false;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    bool leader = lua_toboolean(L, 2);
    lua_settop(L, 1);
    LpWorker *w = lua_newuserdatauv(L, sizeof *w, 0);
    *w = (LpWorker){.fd = -1};
    luaL_setmetatable(L, TYPE);
    lp_must(L, lp_worker_start(w, leader, &child, &e), &e);
    return child ? child_main(L) : 1;
}

/* (text, tensors) */
static int worker_send(lua_State *L)
{
    LpErr e = {0};
    LpWorker *w = check_worker(L);
    size_t size;
    const char *text = luaL_checklstring(L, 2, &size);
    int n;
    LpTensor **t = lp_check_tensors(L, 3, "send", "tensors", &n);
    luaL_argcheck(L, n <= MOST_TENSORS, 3, "too many tensors");
    lp_must(L, lp_worker_send(w, text, size, t, (size_t)n, &e), &e);
    return 0;
}

static int message_gc(lua_State *L)
{
    lp_message_fini(lua_touserdata(L, 1));
    return 0;
}

static void push_tensors(lua_State *L, LpMessage *m)
{
    LP_PUSH_LIST(L, i, m->n, lp_push_tensor(L, m->t[i]));
    lp_message_fini(m);
    lp_gc_account(L);
}

/* (text, like, copies) -> tensors */
static int worker_share(lua_State *L)
{
    LpErr e = {0};
    LpWorker *w = check_worker(L);
    size_t size;
    const char *text = luaL_checklstring(L, 2, &size);
    int n;
    LpTensor **like = lp_check_tensors(L, 3, "share", "like", &n);
    lua_Integer copies = luaL_checkinteger(L, 4);
    luaL_argcheck(L, copies > 0 && (n == 0 || copies <= MOST_TENSORS / n), 4,
                  "too many tensors");
    LpMessage *m = lp_new_owned(L, sizeof *m, TYPE ".message", message_gc);
    lp_must(
        L,
        lp_worker_share(w, text, size, like, (size_t)n, (size_t)copies, m, &e),
        &e);
    push_tensors(L, m);
    return 1;
}

/* (tensors): a gradient that needs what they were shall not be taken of what
 * they are. */
static int worker_written(lua_State *L)
{
    int n;
    LpTensor **t = lp_check_tensors(L, 2, "written", "tensors", &n);
    for (int i = 0; i < n; i++)
        t[i]->st->version++;
    return 0;
}

/* (seconds) -> text, tensors; nil, why */
static int worker_receive(lua_State *L)
{
    LpErr e = {0};
    LpReceived got;
    LpWorker *w = check_worker(L);
    double seconds = luaL_optnumber(L, 2, -1);
    LpMessage *m = lp_new_owned(L, sizeof *m, TYPE ".message", message_gc);
    lp_must(L, lp_worker_receive(w, seconds, &got, m, &e), &e);
    if (got != LP_GOT) {
        lua_pushnil(L);
        lua_pushstring(L, got == LP_TIMEOUT ? "timeout" : "closed");
        return 2;
    }
    lua_pushlstring(L, m->text, m->size);
    push_tensors(L, m);
    return 2;
}

static int worker_close(lua_State *L)
{
    lp_worker_end(check_worker(L), luaL_optnumber(L, 2, 0));
    return 0;
}

static int worker_gc(lua_State *L)
{
    lp_worker_end(check_worker(L), 0);
    return 0;
}

LP_GETTER(worker_cause, string, lp_worker_cause(check_worker(L)))
LP_GETTER(worker_pid, integer, check_worker(L)->pid)

static const luaL_Reg methods[] = {
    {"send", worker_send},       {"share", worker_share},
    {"written", worker_written}, {"receive", worker_receive},
    {"close", worker_close},     {"cause", worker_cause},
    {"pid", worker_pid},         {NULL, NULL},
};

void lp_bind_worker(lua_State *L)
{
    luaL_newmetatable(L, TYPE);
    lp_set_function(L, "__gc", worker_gc);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lp_set_function(L, "start_worker", start);
}

/* core.devices: the simulated machine's IPUs (runtime/exec/devices.h).
 *   user()        -> the user's number
 *   process()     -> this process's
 *   sleep(seconds)
 *   record(bytes) -> as machine:holder, of one record; nil for what is none
 *   most_ipus     of a machine
 *   open(folder)  -> machine
 *   machine:take(first, count, script) -> device; nil while it is busy
 *   machine:holder(ipu) -> {pid=, first=, count=, script=}; nil: nobody has it
 *   machine:path()
 *   device:close() gives the IPUs back */
#include <unistd.h>

#include "runtime/exec/devices.h"
#include "src/base/mem.h"
#include "src/bind/box.h"
#include "src/bind/host/host.h"
#include "src/bind/module.h"

typedef struct Device {
    LpMachine *machine;
    int64_t first, count;
} Device;

static void free_device(void *held)
{
    Device *d = held;
    if (d->count > 0)
        lp_ipus_give_back(d->machine, d->first, d->count);
    lp_machine_release(d->machine);
    lp_free(d);
}

LP_BOX_FREE(free_machine, lp_machine_release)
static const LpBoxClass machine_class = {"lupine.machine", "machine",
                                         free_machine};
static const LpBoxClass device_class = {"lupine.device", "device", free_device};

/* (folder) -> machine */
static int devices_open(lua_State *L)
{
    LpErr e = {0};
    const char *folder = lp_check_path(L, 1, "devices.open");
    LpMachine *m = NULL;
    LpBox *b = lp_new_box(L, &machine_class);
    LpStatus s = lp_machine_open(folder, &m, &e);
    b->p = m;
    lp_must(L, s, &e);
    return 1;
}

static int machine_take(lua_State *L)
{
    LpErr e = {0};
    bool taken;
    int64_t first = luaL_checkinteger(L, 2), count = luaL_checkinteger(L, 3);
    const char *script = luaL_checkstring(L, 4);
    LpBox *b = lp_new_box(L, &device_class);
    Device *d = b->p = lp_calloc(1, sizeof *d);
    if (!d)
        return lp_raise(L, LP_E_MEMORY, "out of memory");
    d->machine = lp_machine_retain(lp_check_box(L, 1, &machine_class));
    lp_must(L, lp_ipus_take(d->machine, first, count, script, &taken, &e), &e);
    if (!taken) {
        lua_pushnil(L);
        return 1;
    }
    d->first = first;
    d->count = count;
    return 1;
}

/* nil for NULL */
static void push_holder(lua_State *L, const LpHolder *h)
{
    if (!h) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 0, 4);
    if (h->pid > 0)
        lp_set_int(L, "pid", h->pid);
    if (h->count > 0) {
        lp_set_int(L, "first", h->first);
        lp_set_int(L, "count", h->count);
        lp_set_string(L, "script", h->script);
    }
}

static int machine_holder(lua_State *L)
{
    LpErr e = {0};
    LpHolder h = {0};
    bool held;
    LpMachine *m = lp_check_box(L, 1, &machine_class);
    lp_must(L, lp_ipu_holder(m, luaL_checkinteger(L, 2), &held, &h, &e), &e);
    push_holder(L, held ? &h : NULL);
    return 1;
}

/* (bytes) -> who a record names */
static int devices_record(lua_State *L)
{
    LpHolder h;
    size_t n;
    const char *bytes = luaL_checklstring(L, 1, &n);
    push_holder(L, lp_ipu_record_read(bytes, n, &h) ? &h : NULL);
    return 1;
}

LP_GETTER(machine_path, string,
          lp_machine_path(lp_check_box(L, 1, &machine_class)))
LP_GETTER(devices_user, integer, (lua_Integer)geteuid())
LP_GETTER(devices_process, integer, (lua_Integer)getpid())

static int devices_sleep(lua_State *L)
{
    LpErr e = {0};
    double seconds = luaL_checknumber(L, 1);
    luaL_argcheck(L, seconds >= 0 && seconds <= 1e6, 1, "0 to 10^6 seconds");
    lp_must(L, lp_devices_sleep(seconds, &e), &e);
    return 0;
}

static const luaL_Reg functions[] = {
    {"open", devices_open},   {"record", devices_record},
    {"user", devices_user},   {"process", devices_process},
    {"sleep", devices_sleep}, {NULL, NULL}};
static const luaL_Reg machine_methods[] = {{"take", machine_take},
                                           {"holder", machine_holder},
                                           {"path", machine_path},
                                           {NULL, NULL}};
static const luaL_Reg device_methods[] = {{NULL, NULL}};

void lp_bind_devices(lua_State *L)
{
    lp_add_class(L, &machine_class, machine_methods);
    lp_add_class(L, &device_class, device_methods);
    luaL_newlib(L, functions);
    lp_set_int(L, "most_ipus", LP_MOST_MACHINE_IPUS);
    lua_setfield(L, -2, "devices");
}

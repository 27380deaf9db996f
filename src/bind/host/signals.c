/* Signals that end a process, put off: core.host.defer_signals. The first one
 * is noted, for whoever asks between two steps; the second gives back what
 * these signals did before and is a Ctrl-C, which interrupts at once. */
#include <signal.h>
#include <string.h>

#include "src/bind/box.h"
#include "src/bind/host/host.h"
#include "src/bind/module.h"

enum { KINDS = 2 };
static const int kinds[KINDS] = {SIGINT, SIGTERM};
static const char *const kind_names[KINDS] = {"SIGINT", "SIGTERM"};

static volatile sig_atomic_t noted; /* the first signal; 0: none came */
static struct sigaction before[KINDS];
static bool deferred;

static void give_back(void)
{
    for (int i = 0; i < KINDS; i++)
        sigaction(kinds[i], &before[i], NULL);
}

static void on_signal(int sig)
{
    if (!noted) {
        noted = sig;
        return;
    }
    give_back();
    raise(SIGINT);
}

static void stop_deferring(void *held)
{
    (void)held;
    if (deferred)
        give_back();
    deferred = false;
    noted = 0;
}

static const LpBoxClass deferral_class = {"lupine.deferred_signals",
                                          "deferred signals", stop_deferring};

/* () -> deferred signals, put off until this is closed */
static int defer_signals(lua_State *L)
{
    if (deferred)
        return lp_raise(L, LP_E_VALUE, "defer_signals: they are already");
    struct sigaction act;
    memset(&act, 0, sizeof act);
    act.sa_handler = on_signal;
    act.sa_flags = SA_RESTART; /* the step is finished */
    sigemptyset(&act.sa_mask);
    LpBox *b = lp_new_box(L, &deferral_class);
    noted = 0;
    b->p = before;
    deferred = true;
    for (int i = 0; i < KINDS; i++)
        sigaction(kinds[i], &act, &before[i]);
    return 1;
}

/* deferred:signal() -> "SIGINT", "SIGTERM"; nil: none came */
static int signal_name(lua_State *L)
{
    lp_check_box(L, 1, &deferral_class);
    for (int i = 0; i < KINDS; i++) {
        if (noted == kinds[i]) {
            lua_pushstring(L, kind_names[i]);
            return 1;
        }
    }
    return 0;
}

void lp_bind_signals(lua_State *L)
{
    static const luaL_Reg methods[] = {{"signal", signal_name}, {NULL, NULL}};
    lp_add_class(L, &deferral_class, methods);
    lua_getfield(L, -1, "host");
    lua_pushcfunction(L, defer_signals);
    lua_setfield(L, -2, "defer_signals");
    lua_pop(L, 1);
}

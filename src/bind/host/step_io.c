/* Libraries that give inputs and take anchors: core.step_io(path, argument) and
 * its methods read(name, n, dtype, prefetch, broadcast) -> tensor or nil and
 * write(name, tensor). */
#include "src/io/step_io.h"
#include "src/base/checked.h"
#include "src/bind/box.h"
#include "src/bind/host/host.h"
#include "src/bind/module.h"

LP_BOX_FREE(free_step_io, lp_step_io_free)
static const LpBoxClass step_io_class = {"lupine.StepIO", "library of inputs",
                                         free_step_io};

static int step_io(lua_State *L)
{
    LpErr e = {0};
    LpStepIo *s = NULL;
    const char *path = lp_check_path(L, 1, "popart.StepIO");
    const char *argument = luaL_checkstring(L, 2);
    LpBox *box = lp_new_box(L, &step_io_class);
    LpStatus status = lp_step_io_open(path, argument, &s, &e);
    box->p = s;
    lp_must(L, status, &e);
    return 1;
}

static int read(lua_State *L)
{
    LpErr e = {0};
    LpStepIo *s = lp_check_box(L, 1, &step_io_class);
    LpStepBuffer b = {.name = luaL_checkstring(L, 2),
                      .n = luaL_checkinteger(L, 3),
                      .dtype = lp_to_dtype(L, 4),
                      .prefetch = lua_toboolean(L, 5),
                      .broadcast = lua_toboolean(L, 6)};
    bool given = false;
    LpType type = {.dtype = b.dtype, .ndim = 1, .shape = {b.n}};
    luaL_argcheck(L, b.dtype != LP_DT_NONE, 4, "expected a dtype");
    lp_must(L, lp_shape_check(&type, &e), &e);
    void *values = lp_tensor_data(lp_new_tensor(L, &type));
    lp_must(L, lp_step_io_read(s, &b, values, &given, &e), &e);
    return given;
}

static int write(lua_State *L)
{
    LpErr e = {0};
    LpStepIo *s = lp_check_box(L, 1, &step_io_class);
    LpTensor *t = lp_check_tensor(L, 3, "popart.StepIO", "values");
    LpStepBuffer b = {.name = luaL_checkstring(L, 2),
                      .n = lp_tensor_numel(t),
                      .dtype = t->dtype};
    luaL_argcheck(L, lp_tensor_contiguous(t), 3,
                  "expected a contiguous tensor");
    const void *values = lp_read_tensor(L, t);
    lp_must(L, lp_step_io_write(s, &b, values, &e), &e);
    return 0;
}

void lp_bind_step_io(lua_State *L)
{
    lp_add_class(L, &step_io_class,
                 (luaL_Reg[]){{"read", read}, {"write", write}, {NULL, NULL}});
    lp_set_function(L, "step_io", step_io);
}

/* Keywords that no form lists: out=, requires_grad=, device=, inplace=,
 * generator=. Which calls take them, and what they hold. */
#include "src/bind/call/call.h"

const char *const lp_special_names[] = {"out",     "requires_grad", "device",
                                        "inplace", "generator",     NULL};

bool lp_special_allowed(const LpFormCall *c, const LpForm *f, int i)
{
    switch (i) {
    case LP_SPECIAL_OUT:
        return f->flags & LP_FORM_OUT &&
               !(c->ov->surface & (LP_FORM_METHOD | LP_FORM_INPLACE));
    case LP_SPECIAL_INPLACE:
        return c->ov->surface == LP_FORM_NN && f->flags & LP_FORM_OVERWRITES;
    case LP_SPECIAL_GENERATOR:
        return f->flags & LP_FORM_DRAWS;
    default:
        return f->flags & LP_FORM_MAKES;
    }
}

/* torch.set_default_device */
static LpDevice default_device = LP_DEV_CPU;

LpDevice lp_special_device(const LpForm *f)
{
    if (default_device == LP_DEV_CPU || !(f->flags & LP_FORM_MAKES))
        return LP_DEV_CPU;
    for (int i = 0; i < f->op->n_operands; i++)
        if (f->operand[i].kind != LP_ATTR_SCALAR)
            return LP_DEV_CPU; /* where the operand is */
    return default_device;
}

/* default_device([device]) -> the one before: where tensors are made of whose
 * call none is told */
int lp_default_device(lua_State *L)
{
    LpDevice d = default_device;
    if (!lua_isnoneornil(L, 1) && !lp_to_device(L, 1, &d))
        return lp_no_device(L, 1, "set_default_device");
    if (d == LP_DEV_IPU)
        return lp_raise(L, LP_E_RUNTIME,
                        "set_default_device(): device: expected 'cpu' or "
                        "'meta', got 'ipu'; poptorch moves models to IPUs");
    lp_push_device(L, default_device);
    default_device = d;
    return 1;
}

static bool read_out(LpFormCall *c, int i)
{
    lua_State *L = c->L;
    c->out[0] = lp_to_tensor(L, i);
    c->n_out = 1;
    if (c->out[0])
        return true;
    if (!lua_istable(L, i) || lua_rawlen(L, i) > LP_MAX_OUT)
        return false;
    c->n_out = (int)lua_rawlen(L, i);
    for (int k = 0; k < c->n_out; k++) {
        lua_rawgeti(L, i, k + 1);
        c->out[k] = lp_to_tensor(L, -1);
        lua_pop(L, 1);
        if (!c->out[k])
            return false;
    }
    return c->n_out > 0;
}

static bool read_special(LpFormCall *c, int which, int i)
{
    bool flag = lua_toboolean(c->L, i);
    LpBox *g;
    switch (which) {
    case LP_SPECIAL_OUT:
        return read_out(c, i);
    case LP_SPECIAL_DEVICE:
        if (!lp_to_device(c->L, i, &c->device))
            lp_no_device(c->L, i, c->ov->name);
        return true;
    case LP_SPECIAL_GENERATOR:
        g = lp_to_box(c->L, i, &lp_tag_generator);
        c->generator = (LpGenerator *)(void *)g;
        return g != NULL;
    case LP_SPECIAL_REQUIRES_GRAD:
        c->requires_grad = flag;
        return lua_isboolean(c->L, i);
    default:
        c->inplace = flag;
        return lua_isboolean(c->L, i);
    }
}

bool lp_special_read(LpFormCall *c, const LpForm *f, LpMiss *m)
{
    for (int i = 0; lp_special_names[i]; i++) {
        if (!lp_special_allowed(c, f, i) ||
            !lp_push_keyword(c, lp_special_names[i]))
            continue;
        bool ok = lp_is_none(c->L, -1) || read_special(c, i, lua_gettop(c->L));
        lua_pop(c->L, 1);
        if (!ok) {
            m->why = LP_MISS_SPECIAL;
            m->arg = i;
            return false;
        }
    }
    return true;
}

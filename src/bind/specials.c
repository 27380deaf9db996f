/* Keywords that no form lists: out=, requires_grad=, device=, inplace=,
 * generator=. Which calls take them, and what they hold. */
#include <string.h>

#include "src/bind/call.h"

const char *const lp_special_names[] = {"out",     "requires_grad", "device",
                                        "inplace", "generator",     NULL};

static bool has_dtype(const LpForm *f)
{
    for (int i = 0; i < f->n_args; i++)
        if (f->arg[i].kind == LP_ARG_DTYPE)
            return true;
    return false;
}

/* Makes new data: no operand, or the name says so (zeros_like, new_zeros). */
static bool is_factory(const LpForm *f)
{
    size_t n = strlen(f->name);
    return has_dtype(f) &&
           (f->op->n_operands == 0 || strncmp(f->name, "new_", 4) == 0 ||
            (n > 5 && strcmp(f->name + n - 5, "_like") == 0) ||
            strcmp(f->name, "full") == 0 || strcmp(f->name, "arange") == 0);
}

/* The functions of torch.nn.functional that take inplace. */
static bool takes_inplace(const LpForm *f)
{
    static const char *const names[] = {
        "relu",
        "relu6",
        "elu",
        "selu",
        "celu",
        "silu",
        "mish",
        "hardtanh",
        "hardswish",
        "hardsigmoid",
        "leaky_relu",
        "rrelu",
        "threshold",
        "dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "alpha_dropout",
        "feature_alpha_dropout",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(f->name, names[i]) == 0)
            return true;
    return false;
}

/* Draws random numbers, by itself or through the operators it is made of. */
static bool draws(const LpForm *f)
{
    static const char *const names[] = {"rand_like",    "randn_like",
                                        "randint_like", "bernoulli",
                                        "normal",       "trunc_normal"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(f->name, names[i]) == 0)
            return true;
    return f->op->flags & LP_OPF_RANDOM && f->op->kind == LP_OP_PRIMITIVE;
}

bool lp_special_allowed(const LpFormCall *c, const LpForm *f, int i)
{
    switch (i) {
    case LP_SPECIAL_OUT:
        return f->flags & LP_FORM_OUT &&
               !(c->ov->surface & (LP_FORM_METHOD | LP_FORM_INPLACE));
    case LP_SPECIAL_INPLACE:
        return c->ov->surface == LP_FORM_NN && takes_inplace(f);
    case LP_SPECIAL_GENERATOR:
        return c->ov->surface != LP_FORM_NN && draws(f);
    default:
        return is_factory(f);
    }
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
        return lp_to_device(c->L, i, &c->device);
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

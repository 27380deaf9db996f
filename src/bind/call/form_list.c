/* core.form_list(): the parsed forms as Lua tables, for documentation,
 * completion and specs. */
#include "src/bind/bind.h"
#include "src/bind/module.h"

static const struct {
    const char *name;
    uint32_t flag;
} surfaces[] = {
    {"function", LP_FORM_FUNCTION},
    {"method", LP_FORM_METHOD},
    {"inplace", LP_FORM_INPLACE},
    {"nn", LP_FORM_NN},
    {"out", LP_FORM_OUT},
    {"special", LP_FORM_SPECIAL},
    {"linalg", LP_FORM_LINALG},
    {"internal", LP_FORM_INTERNAL},
    {"overwrites", LP_FORM_OVERWRITES},
    {"draws", LP_FORM_DRAWS},
    {"makes", LP_FORM_MAKES},
};

/* What torch.autocast does with an operator. */
static const char *cast_name(const LpOp *op)
{
    static const char *const names[] = {[LP_CAST_AS_IS] = "as_is",
                                        [LP_CAST_NARROW] = "narrow",
                                        [LP_CAST_WIDE] = "wide",
                                        [LP_CAST_WIDEST] = "widest"};
    return op->cast_of ? "by_attributes" : names[op->cast];
}

static void push_default(lua_State *L, const LpAttr *a)
{
    if (a->kind == LP_ATTR_NONE)
        lua_getfield(L, lua_upvalueindex(1), "none");
    else if (a->kind == LP_ATTR_DTYPE)
        lp_push_dtype(L, (LpDtype)a->i);
    else
        lp_push_attr(L, a);
}

static void push_argument(lua_State *L, const LpFormArg *a)
{
    lua_createtable(L, 0, 6);
    lp_set_string(L, "name", a->name);
    lp_set_string(L, "kind", lp_arg_kind_names[a->kind]);
    lp_set_bool(L, "optional", a->optional);
    lp_set_bool(L, "kw_only", a->kw_only);
    lp_set_int(L, "repeat", a->repeat);
    if (a->has_default) {
        push_default(L, &a->def);
        lua_setfield(L, -2, "default");
    }
}

static void push_form_table(lua_State *L, const LpForm *f)
{
    lua_createtable(L, 0, 16);
    lp_set_string(L, "name", f->name);
    lp_set_string(L, "variant", f->variant);
    lp_set_string(L, "op", f->op->name);
    lp_set_string(L, "text", f->text);
    lp_set_string(L, "cast", cast_name(f->op));
    lp_set_int(L, "results", f->n_results); /* 0: a list */
    for (size_t i = 0; i < sizeof surfaces / sizeof *surfaces; i++) {
        lp_set_bool(L, surfaces[i].name, (f->flags & surfaces[i].flag) != 0);
    }
    LP_PUSH_LIST(L, i, f->n_args, push_argument(L, &f->arg[i]));
    lua_setfield(L, -2, "arguments");
}

static int form_list(lua_State *L)
{
    LP_PUSH_LIST(L, i, lp_n_forms(), push_form_table(L, lp_form(i)));
    return 1;
}

void lp_bind_form_list(lua_State *L)
{
    lua_pushvalue(L, -1);
    lua_pushcclosure(L, form_list, 1);
    lua_setfield(L, -2, "form_list");
}

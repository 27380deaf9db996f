/* Reads the arguments of a call as one form has them. Nothing is allocated
 * for up to LP_CALL_IN operands and LP_CALL_INTS integers; longer lists live
 * in userdata left on the stack. Strings and tensors stay alive because their
 * Lua values lie on the stack or in the keyword table. */
#include <string.h>

#include "src/bind/call/call.h"

/* Is this positional argument on a surface that also takes loose integers:
 * x:view(2, 3), torch.zeros(2, 3)? */
static bool takes_varargs(const LpForm *f, uint32_t surface)
{
    int own = surface & (LP_FORM_METHOD | LP_FORM_INPLACE) ? 1 : 0;
    return f->n_positional == own + 1 &&
           f->arg[f->n_positional - 1].kind == LP_ARG_INTS;
}

/* ---- lists --------------------------------------------------------------- */
static int64_t *get_ints(LpFormCall *c, int n)
{
    if (c->n_ints + n > LP_CALL_INTS) {
        luaL_checkstack(c->L, 8, NULL);
        return lua_newuserdatauv(c->L, (size_t)n * sizeof(int64_t), 0);
    }
    int64_t *v = &c->ints[c->n_ints];
    c->n_ints += n;
    return v;
}

static bool element(LpMiss *m, int at)
{
    m->why = LP_MISS_ELEMENT;
    m->at = at;
    return false;
}

static bool read_ints(LpFormCall *c, int i, const LpFormArg *a, LpAttr *out,
                      LpMiss *m)
{
    lua_State *L = c->L;
    int n;
    if (lua_isinteger(L, i)) {
        n = a->repeat ? a->repeat : 1;
        int64_t *v = get_ints(c, n);
        for (int k = 0; k < n; k++)
            v[k] = lua_tointeger(L, i);
        *out = lp_attr_ints(v, n);
        return true;
    }
    if (!lua_istable(L, i))
        return false;
    n = (int)lua_rawlen(L, i);
    i = lua_absindex(L, i);
    if (n == 0 && !lp_is_empty_table(L, i))
        return false;
    int64_t *v = get_ints(c, n);
    for (int k = 0; k < n; k++) {
        lua_rawgeti(L, i, k + 1);
        bool ok = lua_isinteger(L, -1);
        v[k] = lua_tointeger(L, -1);
        lua_pop(L, 1);
        if (!ok)
            return element(m, k + 1);
    }
    if (a->repeat > 1 && n == 1) { /* {k} for int[2] is k, k */
        int64_t *w = get_ints(c, a->repeat);
        for (int k = 0; k < a->repeat; k++)
            w[k] = v[0];
        v = w;
        n = a->repeat;
    }
    *out = lp_attr_ints(v, n);
    return true;
}

/* x:view(2, 3): the integers from stack index i to the last positional. */
static bool read_loose_ints(LpFormCall *c, int i, LpAttr *out)
{
    int n = c->n_pos - c->empty_last - i + 1;
    int64_t *v = get_ints(c, n);
    for (int k = 0; k < n; k++) {
        if (!lua_isinteger(c->L, i + k))
            return false;
        v[k] = lua_tointeger(c->L, i + k);
    }
    c->used_pos = c->n_pos;
    *out = lp_attr_ints(v, n);
    return true;
}

/* Only a list of indices may have holes. */
static bool read_tensors(LpFormCall *c, int i, const LpFormArg *a, LpMiss *m)
{
    lua_State *L = c->L;
    int slot = a->slot;
    bool holes = strcmp(a->name, "indices") == 0;
    if (!lua_istable(L, i))
        return false;
    int n = (int)lua_rawlen(L, i);
    i = lua_absindex(L, i);
    if (slot + n > LP_CALL_IN) {
        luaL_checkstack(L, 8, NULL);
        LpArg *more =
            lua_newuserdatauv(L, (size_t)(slot + n) * sizeof *more, 0);
        memcpy(more, c->in, (size_t)slot * sizeof *more);
        c->in = more;
    }
    for (int k = 0; k < n; k++) {
        lua_rawgeti(L, i, k + 1);
        LpTensor *t = lp_to_tensor(L, -1);
        bool ok = t || (holes && lp_is_none(L, -1));
        lua_pop(L, 1);
        if (!ok)
            return element(m, k + 1);
        c->in[slot + k] = lp_arg_tensor(t);
    }
    c->n_in = slot + n;
    return n > 0 || lp_is_empty_table(L, i);
}

/* ---- one value ----------------------------------------------------------- */
static bool read_operand(LpFormCall *c, int i, const LpFormArg *a)
{
    LpArg *in = &c->in[a->slot];
    in->is_num = false;
    in->t = lp_to_tensor(c->L, i);
    if (in->t)
        return true;
    if (a->kind == LP_ARG_VALUE)
        return in->is_num = lp_to_scalar(c->L, i, &in->num);
    return false;
}

static bool read_number(lua_State *L, int i, const LpFormArg *a, LpAttr *out)
{
    LpScalar s;
    if (!lp_to_scalar(L, i, &s))
        return false;
    if (a->kind == LP_ARG_BOOL
            ? s.kind != LP_KIND_BOOL
            : a->kind != LP_ARG_SCALAR && s.kind == LP_KIND_BOOL)
        return false;
    if (a->kind == LP_ARG_INT && s.kind != LP_KIND_INT)
        return false;
    switch (a->own) {
    case LP_ARG_INT:
        *out = lp_attr_int(s.i);
        return true;
    case LP_ARG_BOOL:
        *out = lp_attr_bool(s.i != 0);
        return true;
    case LP_ARG_FLOAT:
        *out = lp_attr_float(lp_scalar_f(s));
        return true;
    default:
        *out = lp_attr_scalar(s);
        return true;
    }
}

/* Tensors given one by one to a form of nothing but a list: meshgrid(x, y). */
static bool read_loose_tensors(LpFormCall *c, const LpForm *f, LpMiss *m)
{
    int n = c->n_pos;
    lua_createtable(c->L, n, 0);
    for (int i = 1; i <= n; i++) {
        lua_pushvalue(c->L, i);
        lua_rawseti(c->L, -2, i);
    }
    if (!read_tensors(c, lua_gettop(c->L), &f->arg[0], m))
        return false;
    c->used_pos = n;
    return true;
}

static bool read_value(LpFormCall *c, int i, const LpFormArg *a, LpMiss *m)
{
    LpAttr *out = &c->attr[a->slot];
    LpDtype t;
    switch (a->kind) {
    case LP_ARG_TENSOR:
    case LP_ARG_VALUE:
        return read_operand(c, i, a);
    case LP_ARG_TENSORS:
        return read_tensors(c, i, a, m);
    case LP_ARG_INTS:
        return read_ints(c, i, a, out, m);
    case LP_ARG_INT:
        if (a->own == LP_ARG_INTS)
            return lua_isinteger(c->L, i) && read_ints(c, i, a, out, m);
        return read_number(c->L, i, a, out);
    case LP_ARG_FLOAT:
    case LP_ARG_BOOL:
    case LP_ARG_SCALAR:
        return read_number(c->L, i, a, out);
    case LP_ARG_STR:
        if (lua_type(c->L, i) != LUA_TSTRING)
            return false;
        *out = lp_attr_str(lua_tostring(c->L, i));
        return true;
    case LP_ARG_DTYPE:
        t = lp_to_dtype(c->L, i);
        *out = lp_attr_dtype(t);
        return t != LP_DT_NONE;
    case LP_ARG_GRAPH: /* only bodies are graphs: bind/program/body.c */
        return false;
    }
    return false;
}

/* An explicit None, where the type allows it. */
static bool read_none(LpFormCall *c, const LpFormArg *a)
{
    bool none_default = a->has_default && a->def.kind == LP_ATTR_NONE;
    if (!a->optional && !none_default)
        return false;
    if (a->kind == LP_ARG_TENSOR || a->kind == LP_ARG_VALUE)
        c->in[a->slot] = lp_arg_tensor(NULL);
    else if (a->kind == LP_ARG_TENSORS)
        c->n_in = a->slot;
    else
        c->attr[a->slot] = LP_NONE_ATTR;
    return true;
}

/* ---- one argument -------------------------------------------------------- */
static const char *stranger(const LpFormCall *c, const LpForm *f);

static bool absent(LpFormCall *c, const LpForm *f, int k, LpMiss *m)
{
    const LpFormArg *a = &f->arg[k];
    if (!a->has_default && !a->optional) {
        m->why = LP_MISS_VALUE;
        m->arg = k;
        m->key = stranger(c, f);
        return false;
    }
    if (a->kind == LP_ARG_TENSORS)
        c->n_in = a->slot;
    else if (a->kind != LP_ARG_TENSOR && a->kind != LP_ARG_VALUE)
        c->attr[a->slot] = a->def;
    else if (a->def.kind == LP_ATTR_SCALAR)
        c->in[a->slot] = (LpArg){.is_num = true, .num = a->def.s};
    return true;
}

/* A tensor where a number is wanted, or one of a dimension for a list. */
static bool read_held(LpFormCall *c, int i, const LpFormArg *a, LpMiss *m)
{
    switch (a->kind) {
    case LP_ARG_INT:
    case LP_ARG_INTS:
    case LP_ARG_FLOAT:
    case LP_ARG_SCALAR:
        return lp_push_numbers(c->L, i, a->kind == LP_ARG_INTS) &&
               read_value(c, lua_gettop(c->L), a, m);
    default:
        return false;
    }
}

static bool given(LpFormCall *c, const LpForm *f, int k, int i, LpMiss *m)
{
    const LpFormArg *a = &f->arg[k];
    m->arg = k;
    m->why = LP_MISS_TYPE;
    if (!read_value(c, i, a, m) && !(c->values && read_held(c, i, a, m)) &&
        !(lp_is_none(c->L, i) && read_none(c, a))) {
        m->rank += m->why == LP_MISS_ELEMENT; /* at least it was a list */
        return false;
    }
    m->rank += 2;
    return true;
}

const char *lp_other_name(const char *name)
{
    if (strcmp(name, "self") == 0)
        return "input";
    if (strcmp(name, "dim") == 0)
        return "axis";
    return strcmp(name, "keepdim") == 0 ? "keepdims" : NULL;
}

/* Pushes the keyword of that name; false (and nothing) if it is not there. */
bool lp_push_keyword(LpFormCall *c, const char *name)
{
    if (!c->kw)
        return false;
    const char *other = lp_other_name(name);
    lua_pushstring(c->L, name);
    if (lua_rawget(c->L, c->kw) == LUA_TNIL && other) {
        lua_pop(c->L, 1);
        lua_pushstring(c->L, other);
        lua_rawget(c->L, c->kw);
    }
    if (lua_isnil(c->L, -1)) {
        lua_pop(c->L, 1);
        return false;
    }
    c->used_kw++;
    return true;
}

/* {} at the end is no keywords, except where a list may be empty. */
static bool takes_empty(const LpFormArg *a)
{
    bool sized = a->def.kind == LP_ATTR_INTS && a->def.n > 0; /* stride=1 */
    return a->kind == LP_ARG_TENSORS || (a->kind == LP_ARG_INTS && !sized);
}

static bool argument(LpFormCall *c, const LpForm *f, int k, LpMiss *m)
{
    const LpFormArg *a = &f->arg[k];
    bool by_pos = k < f->n_positional && k < c->n_pos;
    if (by_pos) {
        int i = k + 1;
        c->used_pos = k + 1;
        if (a->kind == LP_ARG_INTS && c->n_pos > i && lua_isinteger(c->L, i) &&
            takes_varargs(f, c->ov->surface) &&
            read_loose_ints(c, i, &c->attr[a->slot]))
            return m->rank += 2, true;
        if (a->kind == LP_ARG_TENSORS && f->n_positional == 1 &&
            lp_to_tensor(c->L, 1) && read_loose_tensors(c, f, m))
            return m->rank += 2, true;
        bool nothing = lua_isnil(c->L, i) ||
                       (c->empty_last && i == c->n_pos && !takes_empty(a));
        if (!nothing) {
            if (!given(c, f, k, i, m))
                return false;
            if (c->kw && lp_push_keyword(c, a->name)) {
                lua_pop(c->L, 1);
                m->why = LP_MISS_TWICE;
                return false;
            }
            return true;
        }
    }
    if (c->kw && lp_push_keyword(c, a->name)) {
        int i = lua_gettop(c->L);
        if (!given(c, f, k, i, m))
            return false;
        if (lua_gettop(c->L) == i) /* else scratch lies above: leave both */
            lua_settop(c->L, i - 1);
        return true;
    }
    return absent(c, f, k, m);
}

/* ---- the whole call ------------------------------------------------------ */
static bool has_keyword(const LpFormCall *c, const char *name)
{
    lua_pushstring(c->L, name);
    bool has = lua_rawget(c->L, c->kw) != LUA_TNIL;
    lua_pop(c->L, 1);
    return has;
}

static bool is_parameter(const LpFormCall *c, const LpForm *f, const char *key)
{
    for (int i = 0; i < f->n_args; i++) {
        const char *other = lp_other_name(f->arg[i].name);
        if (strcmp(f->arg[i].name, key) == 0 ||
            (other && strcmp(other, key) == 0 &&
             !has_keyword(c, f->arg[i].name)))
            return true;
    }
    for (int i = 0; lp_special_names[i]; i++)
        if (strcmp(lp_special_names[i], key) == 0)
            return lp_special_allowed(c, f, i);
    return strcmp(key, "input") == 0;
}

/* The first in the alphabet of the keywords that the form does not have; the
 * table keeps it alive. NULL: none. */
static const char *stranger(const LpFormCall *c, const LpForm *f)
{
    const char *first = NULL;
    if (!c->kw)
        return NULL;
    lua_pushnil(c->L);
    while (lua_next(c->L, c->kw)) {
        lua_pop(c->L, 1);
        const char *key = lua_tostring(c->L, -1);
        if (!is_parameter(c, f, key) && (!first || strcmp(key, first) < 0))
            first = key;
    }
    return first;
}

static bool unknown_key(LpFormCall *c, const LpForm *f, LpMiss *m)
{
    m->why = LP_MISS_KEY;
    m->rank++; /* all that the form has did fit */
    lua_pushnil(c->L);
    while (lua_next(c->L, c->kw)) {
        lua_pop(c->L, 1);
        m->key = lua_tostring(c->L, -1); /* the table keeps it alive */
        if (!is_parameter(c, f, m->key))
            break;
    }
    return false;
}

bool lp_call_match(LpFormCall *c, const LpForm *f, LpMiss *m)
{
    *m = (LpMiss){.form = f};
    c->in = c->in_buf;
    c->n_in = f->op->n_operands;
    c->used_kw = c->used_pos = c->n_ints = c->n_out = 0;
    c->requires_grad = c->inplace = false;
    c->device = lp_special_device(f);
    c->generator = NULL;
    for (int i = 0; i < f->op->n_operands; i++) {
        c->in[i].t = NULL;
        c->in[i].is_num = f->operand[i].kind == LP_ATTR_SCALAR;
        c->in[i].num = f->operand[i].s;
    }
    if (f->op->n_attr)
        memcpy(c->attr, f->base, f->op->n_attr * sizeof *c->attr);
    for (int k = 0; k < f->n_args; k++)
        if (!argument(c, f, k, m))
            return false;
    if (f->op->has_list && f->list_arg < 0)
        c->n_in = f->op->n_operands - 1;
    if (c->used_pos == c->n_pos - 1 && lua_isboolean(c->L, c->n_pos) &&
        lp_special_allowed(c, f, LP_SPECIAL_INPLACE)) { /* F.relu(x, true) */
        c->inplace = lua_toboolean(c->L, c->n_pos);
    } else if (c->used_pos < c->n_pos - c->empty_last) {
        m->why = LP_MISS_MANY;
        return false;
    }
    if (!c->kw)
        return true;
    if (!lp_special_read(c, f, m))
        return false;
    return c->used_kw == c->n_kw || unknown_key(c, f, m);
}

/* x[key] and x[key] = value. A key is parsed into a list of items, as Python
 * does with what stands between the brackets, and the items are applied as
 * view operators (select, slice, unsqueeze) and, for tensors, as `index` and
 * `index_put`. Keys: an integer, a string of Python's text ("0:5, ..., -1"),
 * a tensor, or a table {items}. All indices count from 0. */
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/bind/bind.h"
#include "src/ops/ops.h"

#define MAX_ITEMS 32

typedef enum {
    ITEM_INT,
    ITEM_SLICE,
    ITEM_NEW,      /* None: a new dimension */
    ITEM_ELLIPSIS, /* all dimensions that are left */
    ITEM_TENSOR,
} ItemKind;

typedef struct Item {
    ItemKind kind;
    bool has_start, has_stop;
    int64_t start, stop, step; /* ITEM_INT: start */
    LpTensor *t;               /* borrowed from the key */
} Item;

typedef struct Key {
    int n;
    Item item[MAX_ITEMS];
} Key;

static Item *add_item(lua_State *L, Key *k, ItemKind kind)
{
    if (k->n == MAX_ITEMS)
        lp_raise(L, LP_E_INDEX, "an index of more than %d items", MAX_ITEMS);
    Item *it = &k->item[k->n++];
    *it = (Item){.kind = kind, .step = 1};
    return it;
}

/* ---- Python's text ------------------------------------------------------- */
bool lp_index_text(const char *s)
{
    s += strspn(s, " \t");
    return strchr("0123456789-:.,+", *s) != NULL ? *s != '\0'
                                                 : strncmp(s, "None", 4) == 0;
}

static bool text_int(const char **s, int64_t *v)
{
    char *end;
    *s += strspn(*s, " \t");
    if (**s != '-' && **s != '+' && (**s < '0' || **s > '9'))
        return false;
    *v = strtoll(*s, &end, 10);
    bool any = end != *s;
    *s = end + strspn(end, " \t");
    return any;
}

static int bad_text(lua_State *L, const char *text)
{
    return lp_raise(L, LP_E_INDEX,
                    "index \"%s\" is not understood: allowed are integers, "
                    "slices start:stop:step, ... and None, between commas",
                    text);
}

static void text_slice(lua_State *L, const char *text, const char **s, Item *it)
{
    it->kind = ITEM_SLICE;
    it->stop = 0;
    (*s)++;
    it->has_stop = text_int(s, &it->stop);
    if (**s == ':') {
        (*s)++;
        if (text_int(s, &it->step) && it->step <= 0)
            lp_raise(L, LP_E_VALUE,
                     "index \"%s\": the step of a slice must be positive",
                     text);
    }
}

static void text_item(lua_State *L, const char *text, const char **s, Key *k)
{
    *s += strspn(*s, " \t");
    if (strncmp(*s, "...", 3) == 0) {
        *s += 3;
        add_item(L, k, ITEM_ELLIPSIS);
    } else if (strncmp(*s, "None", 4) == 0) {
        *s += 4;
        add_item(L, k, ITEM_NEW);
    } else {
        Item *it = add_item(L, k, ITEM_INT);
        it->has_start = text_int(s, &it->start);
        if (**s == ':')
            text_slice(L, text, s, it);
        else if (!it->has_start)
            bad_text(L, text);
    }
    *s += strspn(*s, " \t");
}

static void parse_text(lua_State *L, const char *text, Key *k)
{
    const char *s = text;
    do {
        text_item(L, text, &s, k);
        if (*s == ',')
            s++;
        else if (*s)
            bad_text(L, text);
        s += strspn(s, " \t");
    } while (*s);
}

/* ---- keys ---------------------------------------------------------------- */
static void parse_value(lua_State *L, int i, Key *k, bool nested)
{
    char what[LP_DESCRIBE];
    LpTensor *t = lp_to_tensor(L, i);
    LpBox *slice = lp_to_box(L, i, &lp_tag_slice);
    if (lua_isinteger(L, i)) {
        add_item(L, k, ITEM_INT)->start = lua_tointeger(L, i);
    } else if (lua_type(L, i) == LUA_TSTRING) {
        parse_text(L, lua_tostring(L, i), k);
    } else if (t) {
        add_item(L, k, ITEM_TENSOR)->t = t;
    } else if (slice) {
        const LpSliceBox *b = (const LpSliceBox *)(void *)slice;
        Item *it = add_item(L, k, ITEM_SLICE);
        it->has_start = b->has_start;
        it->has_stop = b->has_stop;
        it->start = b->start;
        it->stop = b->stop;
        it->step = b->step;
    } else if (lp_is_none(L, i)) {
        add_item(L, k, ITEM_NEW);
    } else if (lp_to_box(L, i, &lp_tag_ellipsis)) {
        add_item(L, k, ITEM_ELLIPSIS);
    } else if (lua_istable(L, i) && !nested) {
        lua_Integer n = (lua_Integer)lua_rawlen(L, i);
        for (lua_Integer j = 1; j <= n; j++) {
            lua_rawgeti(L, i, j); /* stays alive: the key holds it */
            parse_value(L, lua_gettop(L), k, true);
            lua_pop(L, 1);
        }
    } else {
        lp_raise(L, LP_E_INDEX,
                 "an index is %s; allowed are integers, index text, tensors "
                 "of integers or bools, torch.slice, torch.ellipsis, "
                 "torch.none, or a list of these%s",
                 lp_describe(L, i, what), lp_int_hint(L, i));
    }
}

static bool is_mask(const LpTensor *t)
{
    return t->dtype == LP_BOOL || t->dtype == LP_U8;
}

/* Dimensions of the tensor that an item takes up. */
static int consumes(const Item *it)
{
    if (it->kind == ITEM_TENSOR)
        return is_mask(it->t) ? it->t->ndim : 1;
    return it->kind == ITEM_INT || it->kind == ITEM_SLICE;
}

/* ---- application --------------------------------------------------------- */
typedef struct Walk {
    lua_State *L;
    LpTensor *t; /* current view; held by the stack value at `top` */
    int top;
    int dim; /* next dimension of t */
    int n;   /* entries of index: a mask has one for all
                                     its dimensions */
    LpArg index[MAX_ITEMS + LP_MAX_DIMS];
    bool any; /* an index tensor was met */
} Walk;

/* Attributes of op, for the dimension that comes next. */
static void start(const Walk *w, const LpOp *op, LpAttr attr[LP_MAX_ATTR])
{
    const LpForm *f = lp_op_form(op);
    memcpy(attr, f->base, sizeof f->base);
    lp_set_attr(f, attr, "dim", lp_attr_int(w->dim));
}

void lp_set_attr(const LpForm *f, LpAttr *attr, const char *name, LpAttr v)
{
    for (int i = 0; i < f->n_args; i++)
        if (strcmp(f->arg[i].name, name) == 0)
            attr[f->arg[i].slot] = v;
}

static void view(Walk *w, const LpOp *op, const LpAttr *attr)
{
    LpArg in = lp_arg_tensor(w->t);
    lp_call_push(w->L, lp_op_form(op), &in, 1, attr, 1);
    lua_replace(w->L, w->top);
    w->t = lp_to_tensor(w->L, w->top);
}

/* Dimensions that no index tensor takes. */
static void skip(Walk *w, int dims)
{
    w->dim += dims;
    while (dims-- > 0)
        w->index[w->n++] = lp_arg_tensor(NULL);
}

static void apply_int(Walk *w, int64_t i)
{
    int64_t size = w->t->shape[w->dim];
    if (i < -size || i >= size)
        lp_raise(w->L, LP_E_INDEX,
                 "index %lld is out of range for dimension %d of size %lld: "
                 "indices count from 0, so 0 to %lld and -%lld to -1 are "
                 "allowed",
                 (long long)i, w->dim, (long long)size, (long long)size - 1,
                 (long long)size);
    LpAttr attr[LP_MAX_ATTR];
    start(w, &op_select, attr);
    const LpForm *f = lp_op_form(&op_select);
    lp_set_attr(f, attr, "index", lp_attr_int(i < 0 ? i + size : i));
    view(w, &op_select, attr);
}

static void apply_slice(Walk *w, const Item *it)
{
    if (!it->has_start && !it->has_stop && it->step == 1) {
        skip(w, 1);
        return;
    }
    LpAttr attr[LP_MAX_ATTR];
    start(w, &op_slice, attr);
    const LpForm *f = lp_op_form(&op_slice);
    lp_set_attr(f, attr, "start",
                it->has_start ? lp_attr_int(it->start) : LP_NONE_ATTR);
    lp_set_attr(f, attr, "end",
                it->has_stop ? lp_attr_int(it->stop) : LP_NONE_ATTR);
    lp_set_attr(f, attr, "step", lp_attr_int(it->step));
    view(w, &op_slice, attr);
    skip(w, 1);
}

static void apply_new(Walk *w)
{
    LpAttr attr[LP_MAX_ATTR];
    start(w, &op_unsqueeze, attr);
    view(w, &op_unsqueeze, attr);
    skip(w, 1);
}

/* As in PyTorch, once. */
static void warn_of_bytes(void)
{
    static bool warned;
    if (!warned)
        lp_log(LP_LOG_WARN, "a tensor of uint8 used as an index is a mask, "
                            "which is deprecated: give its :bool(), or its "
                            ":long() for positions");
    warned = true;
}

/* A new dimension, of which one element is taken or none. */
static LpTensor *one_mask(Walk *w, LpTensor *t)
{
    const LpForm *f = lp_op_form(&op_unsqueeze);
    LpAttr attr[LP_MAX_ATTR];
    LpArg in = lp_arg_tensor(t);
    start(w, &op_unsqueeze, attr);
    view(w, &op_unsqueeze, attr);
    lp_set_attr(f, attr, "dim", lp_attr_int(0));
    luaL_checkstack(w->L, LUA_MINSTACK, "too many masks");
    lp_call_push(w->L, f, &in, 1, attr, 1); /* held by the stack */
    return lp_to_tensor(w->L, -1);
}

static void apply_tensor(Walk *w, LpTensor *t)
{
    if (t->dtype == LP_U8)
        warn_of_bytes();
    if (!is_mask(t) && t->dtype != LP_I32 && t->dtype != LP_I64)
        lp_raise(w->L, LP_E_INDEX,
                 "tensors used as indices must be of int64, int32 or bool, not "
                 "%s",
                 lp_dtype_name(t->dtype));
    if (is_mask(t) && t->ndim == 0)
        t = one_mask(w, t);
    w->any = true;
    w->index[w->n++] = lp_arg_tensor(t);
    w->dim += is_mask(t) ? t->ndim : 1;
}

/* Leaves the view on the stack. */
static void walk(Walk *w, const Key *k, lua_State *L, LpTensor *t)
{
    w->L = L;
    w->t = t;
    w->dim = w->n = 0;
    w->any = false;
    int used = 0, ellipses = 0;
    for (int i = 0; i < k->n; i++) {
        used += consumes(&k->item[i]);
        ellipses += k->item[i].kind == ITEM_ELLIPSIS;
    }
    if (ellipses > 1)
        lp_raise(w->L, LP_E_INDEX, "an index may have one ellipsis ('...')");
    if (used > w->t->ndim)
        lp_raise(w->L, LP_E_INDEX,
                 "too many indices: %d for a tensor of %d dimensions", used,
                 w->t->ndim);
    int rest = w->t->ndim - used;
    lp_push_tensor(w->L, w->t);
    w->top = lua_gettop(w->L);
    for (int i = 0; i < k->n; i++) {
        const Item *it = &k->item[i];
        switch (it->kind) {
        case ITEM_INT:
            apply_int(w, it->start);
            break;
        case ITEM_SLICE:
            apply_slice(w, it);
            break;
        case ITEM_NEW:
            apply_new(w);
            break;
        case ITEM_ELLIPSIS:
            skip(w, rest);
            break;
        case ITEM_TENSOR:
            apply_tensor(w, it->t);
            break;
        }
    }
}

int lp_index_get(lua_State *L, LpTensor *t)
{
    Key k;
    k.n = 0;
    parse_value(L, 2, &k, false);
    Walk w;
    walk(&w, &k, L, t);
    if (!w.any)
        return 1;
    const LpForm *f = lp_op_form(&op_index);
    LpArg in[MAX_ITEMS + LP_MAX_DIMS + 1];
    in[0] = lp_arg_tensor(w.t);
    memcpy(in + 1, w.index, (size_t)w.n * sizeof *in);
    return lp_call_push(L, f, in, 1 + w.n, f->base, 1);
}

static LpArg value_arg(lua_State *L, int i)
{
    LpArg a;
    char what[LP_DESCRIBE];
    if (!lp_to_operand(L, i, &a))
        lp_raise(L, LP_E_TYPE,
                 "x[i] = v: the value is %s; a Tensor or a number is allowed",
                 lp_describe(L, i, what));
    return a;
}

/* A value in the memory that is written has the dimensions of what it goes to:
 * then each of its elements lies where it is written, or does not. */
static void align(lua_State *L, LpArg *v, const LpTensor *to)
{
    if (!v->t || v->t->st != to->st || v->t->ndim > to->ndim)
        return;
    LpType type = lp_tensor_type(v->t), all = lp_tensor_type(to);
    if (lp_shape_eq(&type, &all))
        return;
    LpAttr size = lp_attr_ints(to->shape, to->ndim);
    lp_call_push(L, lp_op_form(&op_expand), v, 1, &size, 1);
    v->t = lp_to_tensor(L, -1);
}

/* A value's leading dimensions of one element do not count, as in Python. */
static void strip(lua_State *L, LpArg *v)
{
    int n = 0;
    while (v->t && n < v->t->ndim && v->t->shape[n] == 1)
        n++;
    if (n == 0)
        return;
    LpAttr size = lp_attr_ints(v->t->shape + n, v->t->ndim - n);
    lp_call_push(L, lp_op_form(&op_reshape), v, 1, &size, 1);
    v->t = lp_to_tensor(L, -1);
}

int lp_index_set(lua_State *L, LpTensor *t)
{
    Key k;
    LpErr e = {0};
    int tries = 0;
    LpArg v = value_arg(L, 3);
    k.n = 0;
    parse_value(L, 2, &k, false);
    Walk w;
    walk(&w, &k, L, t);
    if (!w.any) {
        if (v.t && v.t->ndim > w.t->ndim)
            strip(L, &v);
        align(L, &v, w.t);
        while (lp_copy_into(w.t, &v, &e) != LP_OK)
            lp_gc_retry(L, &e, &tries, NULL);
        return 0;
    }
    if (v.t)
        lp_push_cast(L, v.t, w.t->dtype);
    else
        lp_push_data(L, 3, w.t->dtype, "x[i] = v");
    v = lp_arg_tensor(lp_to_tensor(L, -1));
    strip(L, &v);
    LpArg in[MAX_ITEMS + LP_MAX_DIMS + 2];
    in[0] = lp_arg_tensor(w.t);
    in[1] = v;
    memcpy(in + 2, w.index, (size_t)w.n * sizeof *in);
    while (lp_op_call_inplace(&op_index_put, in, 2 + w.n,
                              lp_op_form(&op_index_put)->base, &e) != LP_OK)
        lp_gc_retry(L, &e, &tries, NULL);
    return 0;
}

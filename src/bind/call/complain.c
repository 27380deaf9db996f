/* What a call says when no form takes its arguments: the function, the
 * argument, what was given, what is allowed. Of several forms the one that
 * got furthest speaks, and all are listed. */
#include <stdio.h>
#include <string.h>

#include "src/bind/call/call.h"

static const char *const allowed[] = {
    [LP_ARG_TENSOR] = "a Tensor",
    [LP_ARG_TENSORS] = "a list of Tensors",
    [LP_ARG_VALUE] = "a Tensor or a number",
    [LP_ARG_INT] = "an int",
    [LP_ARG_INTS] = "an int or a list of ints",
    [LP_ARG_FLOAT] = "a float",
    [LP_ARG_BOOL] = "a bool",
    [LP_ARG_STR] = "a str",
    [LP_ARG_SCALAR] = "a number",
    [LP_ARG_DTYPE] = "a dtype (torch.float32, ...)",
    [LP_ARG_GRAPH] = "a graph",
};

/* Pushes the value that the argument was given. */
static void push_given(LpFormCall *c, const LpForm *f, int k)
{
    const LpFormArg *a = &f->arg[k];
    if (k < f->n_positional && k < c->n_pos)
        lua_pushvalue(c->L, k + 1);
    else if (c->kw) {
        const char *other = lp_other_name(a->name);
        if (lua_getfield(c->L, c->kw, a->name) == LUA_TNIL && other) {
            lua_pop(c->L, 1);
            lua_getfield(c->L, c->kw, other);
        }
    } else
        lua_pushnil(c->L);
}

/* Pushes element m->at of the argument on top of the stack: of a list, of what
 * was given one by one in its place, or of a tensor that holds numbers. */
static void push_element(LpFormCall *c, const LpMiss *m, const LpFormArg *a)
{
    if (!lua_istable(c->L, -1) && a->kind == LP_ARG_TENSORS) {
        lua_pushvalue(c->L, m->at);
        return;
    }
    if (!lua_istable(c->L, -1))
        lp_push_numbers(c->L, lua_gettop(c->L), true);
    if (lua_istable(c->L, -1))
        lua_rawgeti(c->L, -1, m->at);
}

static void say_type(LpFormCall *c, const LpMiss *m, char *buf, size_t size)
{
    const LpFormArg *a = &m->form->arg[m->arg];
    char what[LP_DESCRIBE];
    push_given(c, m->form, m->arg);
    bool integral = a->kind == LP_ARG_INT || a->kind == LP_ARG_INTS;
    if (m->why == LP_MISS_ELEMENT) {
        push_element(c, m, a);
        snprintf(buf, size, "argument '%s' must be %s, but element %d is %s%s",
                 a->name, allowed[a->kind], m->at, lp_describe(c->L, -1, what),
                 integral ? lp_int_hint(c->L, -1) : "");
        return;
    }
    snprintf(buf, size, "argument '%s'%s must be %s, not %s%s", a->name,
             m->arg < c->n_pos ? "" : " (by name)", allowed[a->kind],
             lp_describe(c->L, -1, what),
             integral ? lp_int_hint(c->L, -1) : "");
}

static void say_key(LpFormCall *c, const LpMiss *m, char *buf, size_t size)
{
    const char *names[LP_MAX_FORM_ARGS + 8];
    int n = 0;
    for (int i = 0; i < m->form->n_args; i++)
        names[n++] = m->form->arg[i].name;
    for (int i = 0; lp_special_names[i]; i++)
        if (lp_special_allowed(c, m->form, i))
            names[n++] = lp_special_names[i];
    const char *near = lp_nearest(m->key, names, n);
    snprintf(buf, size, "got an unexpected keyword argument '%.60s'%s%s%s",
             m->key, near ? "; did you mean '" : "", near ? near : "",
             near ? "'?" : "");
}

/* The usual reason is a nil among them, from a misspelt name. */
static void say_many(LpFormCall *c, const LpMiss *m, char *buf, size_t size)
{
    int nil = 1;
    while (nil <= c->n_pos && !lua_isnil(c->L, nil))
        nil++;
    if (nil <= c->n_pos)
        snprintf(buf, size, "positional argument %d of %d is nil", nil,
                 c->n_pos);
    else
        snprintf(buf, size, "takes %d positional arguments, but %d were given",
                 m->form->n_positional, c->n_pos);
}

/* In the order of lp_special_names. */
static const struct {
    const char *what, *schema;
} SPECIAL[] = {
    {"a Tensor, or a list of one for each result", "Tensor? out=None"},
    {"a bool", "bool requires_grad=False"},
    {"a torch.device", "Device? device=None"},
    {"a bool", "bool inplace=False"},
    {"a torch.Generator", "Generator? generator=None"},
};

static void say(LpFormCall *c, const LpMiss *m, char *buf, size_t size)
{
    const LpFormArg *a = &m->form->arg[m->arg];
    char given[LP_DESCRIBE];
    switch (m->why) {
    case LP_MISS_TYPE:
    case LP_MISS_ELEMENT:
        say_type(c, m, buf, size);
        return;
    case LP_MISS_VALUE:
        snprintf(buf, size, "argument '%s' (%s) is missing%s%.60s%s", a->name,
                 allowed[a->kind],
                 m->key ? "; the table is keywords, and none is called '" : "",
                 m->key ? m->key : "", m->key ? "'" : "");
        return;
    case LP_MISS_TWICE:
        snprintf(buf, size, "argument '%s' is given by position and by name",
                 a->name);
        return;
    case LP_MISS_MANY:
        say_many(c, m, buf, size);
        return;
    case LP_MISS_KEY:
        say_key(c, m, buf, size);
        return;
    case LP_MISS_SPECIAL:
        lua_getfield(c->L, c->kw, lp_special_names[m->arg]);
        snprintf(buf, size, "argument '%s' (by name) must be %s, not %s",
                 lp_special_names[m->arg], SPECIAL[m->arg].what,
                 lp_describe(c->L, -1, given));
        return;
    }
}

/* The form without its flags and constants. */
static int public_length(const LpForm *f)
{
    const char *end = strstr(f->text, " @");
    return end ? (int)(end - f->text) : (int)strlen(f->text);
}

/* The form with the keywords that stand in no form's text. */
static size_t show_form(const LpFormCall *c, const LpForm *f, char *buf,
                        size_t size)
{
    const char *arrow = strstr(f->text, ") -> ");
    int n = public_length(f);
    int head = arrow && arrow - f->text < n ? (int)(arrow - f->text) : n;
    size_t used = (size_t)snprintf(buf, size, "\n  %.*s", head, f->text);
    bool bare = head > 0 && f->text[head - 1] == '(';
    bool star = memmem(f->text, (size_t)head, "*,", 2) != NULL;
    for (int i = 0; lp_special_names[i] && head < n && used < size; i++) {
        if (!lp_special_allowed(c, f, i))
            continue;
        used += (size_t)snprintf(buf + used, size - used, "%s%s%s",
                                 bare ? "" : ", ", star ? "" : "*, ",
                                 SPECIAL[i].schema);
        star = true;
        bare = false;
    }
    if (used < size)
        used += (size_t)snprintf(buf + used, size - used, "%.*s", n - head,
                                 f->text + head);
    return used;
}

int lp_call_complain(LpFormCall *c, const LpMiss *best)
{
    char what[320], forms[560];
    size_t used = 0;
    say(c, best, what, sizeof what);
    forms[0] = '\0';
    for (int i = 0; i < c->ov->n && used < sizeof forms; i++) {
        used += show_form(c, c->ov->form[i], forms + used, sizeof forms - used);
    }
    return lp_raise(c->L, LP_E_TYPE, "%s(): %s\nAllowed:%s", c->ov->name, what,
                    forms);
}

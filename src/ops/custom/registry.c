/* Tables of custom operators: checks, copies, look-up. A table comes from
 * somebody else's compiler, so nothing of it is used before it was checked. */
#include "src/ops/custom/registry.h"

#include <string.h>

#include "src/base/buf.h"

#define MAX_OPS 1024
#define MAX_NAME 100
#define MAX_FALLBACK 4096

static struct {
    LpArena mem;
    LpCustomOp **op; /* prepared kernels point to them */
    size_t n, cap;
    const lupine_library **table;
    size_t n_table, cap_table;
} all;

size_t lp_n_custom_ops(void)
{
    return all.n;
}

const LpCustomOp *lp_custom_op(size_t i)
{
    return all.op[i];
}

/* ---- checks --------------------------------------------------------- */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Letters, digits, `_` and, of domains, points. */
static bool is_name(const char *s, bool points)
{
    size_t n = 0;
    if (!s || !is_letter(*s))
        return false;
    for (; n <= MAX_NAME && s[n]; n++) {
        bool dot = points && s[n] == '.';
        if (!is_letter(s[n]) && !(s[n] >= '0' && s[n] <= '9') && !dot)
            return false;
    }
    return n <= MAX_NAME;
}

/* The text form reads these as numbers. */
static bool is_number(const char *s)
{
    return strcmp(s, "inf") == 0 || strcmp(s, "nan") == 0;
}

static LpStatus check_fallback(const lupine_op *op, const lupine_attr_spec *a,
                               LpErr *e)
{
    LpArena mem = {0};
    lupine_attr value;
    LpErr why = {0};
    LpStatus s = LP_OK;
    if (strnlen(a->fallback, MAX_FALLBACK + 1) > MAX_FALLBACK)
        s = lp_fail(&why, LP_E_VALUE, "it is longer than %d bytes",
                    MAX_FALLBACK);
    else
        s = lp_custom_value_read(a->fallback, a->kind, &mem, &value, &why);
    lp_arena_fini(&mem);
    LP_FAIL_IF(s != LP_OK, e, s == LP_E_MEMORY ? s : LP_E_RUNTIME,
               "operator %s: the default of attribute '%s': %.400s", op->name,
               a->name, why.msg);
    return LP_OK;
}

static LpStatus check_attr(const lupine_op *op, int i, LpErr *e)
{
    const lupine_attr_spec *a = &op->attrs[i];
    LP_FAIL_IF(!is_name(a->name, false) || is_number(a->name), e, LP_E_RUNTIME,
               "operator %s: attribute %d has no name of letters, digits and "
               "_, at most %d of them",
               op->name, i, MAX_NAME);
    LP_FAIL_IF(a->kind < LUPINE_FLOAT || a->kind > LUPINE_STRINGS, e,
               LP_E_RUNTIME,
               "operator %s: attribute '%s' is of kind %d. Allowed: %d to %d",
               op->name, a->name, (int)a->kind, LUPINE_FLOAT, LUPINE_STRINGS);
    for (int k = 0; k < i; k++)
        LP_FAIL_IF(strcmp(op->attrs[k].name, a->name) == 0, e, LP_E_RUNTIME,
                   "operator %s has two attributes '%s'", op->name, a->name);
    return a->fallback ? check_fallback(op, a, e) : LP_OK;
}

static LpStatus check_count(const lupine_op *op, const char *what, int32_t n,
                            int least, int most, LpErr *e)
{
    LP_FAIL_IF(n < least || n > most, e, LP_E_RUNTIME,
               "operator %s has %d %s. Allowed: %d to %d", op->name, (int)n,
               what, least, most);
    return LP_OK;
}

static LpStatus check_op(const lupine_op *op, size_t i, LpErr *e)
{
    LP_FAIL_IF(!is_name(op->name, false), e, LP_E_RUNTIME,
               "operator %zu has no name of letters, digits and _, at most %d "
               "of them",
               i, MAX_NAME);
    LP_FAIL_IF(!is_name(op->domain, true), e, LP_E_RUNTIME,
               "operator %s has no domain of letters, digits, _ and points, at "
               "most %d of them",
               op->name, MAX_NAME);
    LP_FAIL_IF(op->version < 1, e, LP_E_RUNTIME,
               "operator %s has the version %d; versions start at 1", op->name,
               (int)op->version);
    LP_TRY(check_count(op, "inputs", op->n_in, 0, LUPINE_MAX_INPUTS, e));
    LP_TRY(check_count(op, "outputs", op->n_out, 1, LUPINE_MAX_OUTPUTS, e));
    LP_TRY(check_count(op, "attributes", op->n_attrs, 0, LUPINE_MAX_ATTRS, e));
    LP_FAIL_IF(op->n_attrs > 0 && !op->attrs, e, LP_E_RUNTIME,
               "operator %s has %d attributes and no list of them", op->name,
               (int)op->n_attrs);
    LP_FAIL_IF(!op->infer || !op->run, e, LP_E_RUNTIME,
               "operator %s has no function `%s`", op->name,
               op->infer ? "run" : "infer");
    for (int k = 0; k < op->n_attrs; k++)
        LP_TRY(check_attr(op, k, e));
    return LP_OK;
}

static bool same_op(const lupine_op *a, const lupine_op *b)
{
    return a->version == b->version && strcmp(a->name, b->name) == 0 &&
           strcmp(a->domain, b->domain) == 0;
}

LpStatus lp_custom_check(const lupine_library *l, LpErr *e)
{
    LP_FAIL_IF(!l, e, LP_E_RUNTIME, "lupine_custom_ops() returned NULL");
    LP_FAIL_IF(l->abi != LUPINE_CUSTOM_OP_ABI, e, LP_E_RUNTIME,
               "it was compiled with version %u of lupine/custom_op.h, this "
               "program has version %u: compile it again",
               (unsigned)l->abi, LUPINE_CUSTOM_OP_ABI);
    LP_FAIL_IF(l->op_bytes != sizeof(lupine_op), e, LP_E_RUNTIME,
               "its operators have %u bytes, expected %zu: compile it again",
               (unsigned)l->op_bytes, sizeof(lupine_op));
    LP_FAIL_IF(l->n_ops < 1 || l->n_ops > MAX_OPS || !l->ops, e, LP_E_RUNTIME,
               "it has %s%u operators. Allowed: 1 to %d",
               l->ops ? "" : "no list of ", (unsigned)l->n_ops, MAX_OPS);
    for (size_t i = 0; i < l->n_ops; i++) {
        LP_TRY(check_op(&l->ops[i], i, e));
        for (size_t k = 0; k < i; k++)
            LP_FAIL_IF(same_op(&l->ops[i], &l->ops[k]), e, LP_E_RUNTIME,
                       "operator %s.%s, version %d, is there twice",
                       l->ops[i].domain, l->ops[i].name,
                       (int)l->ops[i].version);
    }
    return LP_OK;
}

/* ---- look-up -------------------------------------------------------- */
static const LpCustomOp *find(const char *domain, const char *name,
                              int64_t version, const LpCustomOp **other)
{
    for (size_t i = 0; i < all.n; i++) {
        const lupine_op *op = &all.op[i]->op;
        if (strcmp(op->name, name) != 0 || strcmp(op->domain, domain) != 0)
            continue;
        if (op->version == version)
            return all.op[i];
        *other = all.op[i];
    }
    return NULL;
}

LpStatus lp_custom_find(const char *domain, const char *name, int64_t version,
                        const char *library, const LpCustomOp **out, LpErr *e)
{
    const LpCustomOp *other = NULL;
    *out = find(domain, name, version, &other);
    LP_FAIL_IF(!*out && other, e, LP_E_POPTORCH,
               "no library that is loaded has version %lld of the custom "
               "operator %s; %s has version %d",
               (long long)version, other->label, other->library,
               (int)other->op.version);
    LP_FAIL_IF(!*out, e, LP_E_POPTORCH,
               "no library that is loaded has the custom operator '%.80s' of "
               "domain '%.80s', version %lld: load %s%.80s by "
               "torch.ops.load_library(path)",
               name, domain, (long long)version,
               *library ? "" : "the one that has it", library);
    return LP_OK;
}

/* ---- registering ---------------------------------------------------- */
static const char *join(const char *domain, const char *name)
{
    LpBuf b = {0};
    lp_buf_fmt(&b, "%s.%s", domain, name);
    char *text = lp_buf_take(&b);
    const char *kept = text ? lp_arena_strdup(&all.mem, text) : NULL;
    lp_free(text);
    return kept;
}

/* The attributes, in memory of ours. */
static bool copy_specs(LpCustomOp *c)
{
    size_t n = (size_t)c->op.n_attrs;
    lupine_attr_spec *spec = lp_arena_calloc(&all.mem, (n + 1) * sizeof *spec);
    if (!spec)
        return false;
    for (size_t i = 0; i < n; i++) {
        const lupine_attr_spec *a = &c->op.attrs[i];
        spec[i].kind = a->kind;
        spec[i].name = lp_arena_strdup(&all.mem, a->name);
        if (a->fallback)
            spec[i].fallback = lp_arena_strdup(&all.mem, a->fallback);
        if (!spec[i].name || (a->fallback && !spec[i].fallback))
            return false;
    }
    c->op.attrs = spec;
    c->specs = (LpCustomSpecs){.label = c->label, .spec = spec, .n = (int)n};
    return true;
}

static LpCustomOp *copy_op(const lupine_op *op, const char *library,
                           uint64_t hash)
{
    LpCustomOp *c = lp_arena_calloc(&all.mem, sizeof *c);
    if (!c)
        return NULL;
    *c = (LpCustomOp){.op = *op, .library = library, .hash = hash};
    c->label = join(op->domain, op->name);
    c->op.domain = lp_arena_strdup(&all.mem, op->domain);
    c->op.name = lp_arena_strdup(&all.mem, op->name);
    bool ok = c->label && c->op.domain && c->op.name && copy_specs(c);
    return ok ? c : NULL;
}

static bool is_there(const lupine_library *l)
{
    for (size_t i = 0; i < all.n_table; i++)
        if (all.table[i] == l)
            return true;
    return false;
}

static LpStatus check_new(const lupine_library *l, LpErr *e)
{
    for (size_t i = 0; i < l->n_ops; i++) {
        const lupine_op *op = &l->ops[i];
        const LpCustomOp *other = NULL;
        const LpCustomOp *same =
            find(op->domain, op->name, op->version, &other);
        LP_FAIL_IF(same, e, LP_E_RUNTIME,
                   "operator %s, version %d, is in %s already, which stays "
                   "loaded until the program ends",
                   same->label, (int)op->version, same->library);
    }
    return LP_OK;
}

LpStatus lp_custom_register(const lupine_library *l, const char *file,
                            uint64_t hash, LpErr *e)
{
    if (l && is_there(l))
        return LP_OK;
    LP_TRY(lp_custom_check(l, e));
    LP_TRY(check_new(l, e));
    const char *slash = strrchr(file, '/');
    const char *library = lp_arena_strdup(&all.mem, slash ? slash + 1 : file);
    size_t n = all.n;
    bool ok = library && LP_GROW(all.table, all.cap_table, all.n_table);
    for (size_t i = 0; i < l->n_ops && ok; i++) {
        ok = LP_GROW(all.op, all.cap, n) &&
             (all.op[n] = copy_op(&l->ops[i], library, hash)) != NULL;
        n++;
    }
    if (!ok)
        return lp_no_memory(e);
    all.table[all.n_table++] = l;
    all.n = n;
    return LP_OK;
}

/* Fuzz target: tables of custom operators, and the attributes of a call to each
 * that is taken.
 *
 * The input is a line of bytes that say what the table is, then texts with zero
 * bytes between them; the last one is the attributes of a call. A byte gives a
 * count, a kind or the number of a text; see `next`. What pointers point to is
 * there, as a table promises. */
#include <stdbool.h>
#include <string.h>

#include "spec/fuzz/harness/lua.h"
#include "src/ops/custom/registry.h"

enum { MOST = 4, HEAD = 64 };

typedef struct Input {
    const uint8_t *head;
    size_t at, n_head;
    const char *text[64];
    int n_text;
} Input;

static int next(Input *x)
{
    return x->at < x->n_head ? x->head[x->at++] : 0;
}

/* 0 to 239: that many of MOST; above: what no table has. */
static int32_t count(Input *x)
{
    static const int32_t odd[] = {-1,    5000,      INT32_MAX, INT32_MIN,
                                  65536, 0xfffffff, -65536,    1025};
    int n = next(x);
    return n < 240 ? n % (MOST + 1) : odd[n % 8];
}

/* 255: NULL */
static const char *text(Input *x)
{
    int n = next(x);
    return n == 255 || x->n_text == 0 ? NULL : x->text[n % x->n_text];
}

static int stub(lupine_call *c)
{
    return c->n_in;
}

static void fill_op(Input *x, lupine_op *op, lupine_attr_spec *attr)
{
    op->domain = text(x);
    op->name = text(x);
    op->version = count(x);
    op->n_in = count(x);
    op->n_out = count(x);
    op->n_attrs = count(x);
    int flags = next(x);
    op->attrs = flags & 1 ? NULL : attr;
    op->infer = flags & 2 ? NULL : stub;
    op->run = flags & 4 ? NULL : stub;
    for (int i = 0; i < MOST; i++) {
        attr[i].name = text(x);
        attr[i].kind = count(x);
        attr[i].fallback = text(x);
    }
}

/* Once read, attributes have one text, which reads as the same. */
static void call(const lupine_op *op, const char *attributes)
{
    LpArena mem = {0};
    LpErr e = {0};
    lupine_attr attr[LUPINE_MAX_ATTRS], again[LUPINE_MAX_ATTRS];
    LpCustomSpecs s = {"op", op->attrs, op->n_attrs};
    LpStatus st = lp_custom_attrs_read(&s, attributes, &mem, attr, &e);
    if ((st != LP_OK) != (e.msg[0] != '\0'))
        __builtin_trap();
    if (st == LP_OK) {
        char *once = lp_custom_attrs_text(&s, attr, &mem);
        if (!once || lp_custom_attrs_read(&s, once, &mem, again, &e) != LP_OK)
            __builtin_trap();
        char *twice = lp_custom_attrs_text(&s, again, &mem);
        if (!twice || strcmp(once, twice) != 0)
            __builtin_trap();
    }
    lp_arena_fini(&mem);
}

static void read_texts(Input *x, const char *s, size_t n)
{
    for (size_t at = 0; at < n && x->n_text < 64;) {
        x->text[x->n_text++] = s + at;
        at += strlen(s + at) + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    LpErr e = {0};
    Input x = {.head = data, .n_head = size < HEAD ? size : HEAD};
    size_t n = size - x.n_head;
    char *texts = lp_alloc(n + 1);
    if (!texts)
        __builtin_trap();
    memcpy(texts, data + x.n_head, n);
    texts[n] = '\0';
    read_texts(&x, texts, n);
    lupine_op op[MOST];
    lupine_attr_spec attr[MOST][MOST];
    memset(op, 0, sizeof op);
    int flags = next(&x);
    lupine_library l = {.abi = flags & 1 ? 2 : LUPINE_CUSTOM_OP_ABI,
                        .op_bytes = flags & 2 ? 3 : sizeof *op,
                        .ops = flags & 4 ? NULL : op};
    l.n_ops = (uint32_t)count(&x);
    for (int i = 0; i < MOST; i++)
        fill_op(&x, &op[i], attr[i]);
    LpStatus s = lp_custom_check(flags & 8 ? NULL : &l, &e);
    if ((s != LP_OK) != (e.msg[0] != '\0'))
        __builtin_trap();
    for (uint32_t i = 0; i < l.n_ops && s == LP_OK; i++)
        call(&op[i], x.n_text ? x.text[x.n_text - 1] : "");
    lp_free(texts);
    return 0;
}

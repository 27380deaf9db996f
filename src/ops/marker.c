/* Markers: operators that leave their operand's value and gradient as they
 * are and tell the IPU passes something about the place where they stand.
 * Host passes drop them. A print is an effect and stays. */
#include <string.h>

#include "src/kernel/copy/copy.h"
#include "src/kernel/copy/hooks.h"
#include "src/ops/layout_cost.h"
#include "src/ops/view/view.h"

static LpStatus prepare_marker(const LpKernelReq *r, LpKernel *k, LpErr *e)
{
    (void)e;
    return lp_copy_kernel(&r->in[0], 0, &r->out[0], r->threads, k);
}

#define MARKER(op_name, text, rule)                                            \
    LpOp op_##op_name = {                                                      \
        .flags = LP_OPF_MARKER | LP_OPF_INPLACE_OK,                            \
        .forms = text,                                                         \
        .infer = rule,                                                         \
        .grad = lp_grad_same,                                                  \
        .prepare = prepare_marker,                                             \
        .cost = lp_rule_view,                                                  \
    };

/* Keeps its place in the graph: an operation that does nothing. */
MARKER(nop, "nop(Tensor self) -> Tensor @p", lp_view_same)

/* The value is stored, what comes before it is computed again. */
MARKER(recomputation_checkpoint,
       "recomputation_checkpoint(Tensor self) -> Tensor @p", lp_view_same)

/* The share of a tile's memory that the operation which made the operand may
 * use for temporaries. */
static LpStatus infer_available_memory(LpInfer *x)
{
    double p = x->attr[LP_SET_AVAILABLE_MEMORY_PROPORTION].f;
    LP_FAIL_IF(!(p >= 0 && p <= 1), x->err, LP_E_VALUE,
               "set_available_memory: the proportion must be in [0, 1], got %g",
               p);
    return lp_view_same(x);
}
MARKER(set_available_memory,
       "set_available_memory(Tensor self, float available_memory_proportion) "
       "-> Tensor @p",
       infer_available_memory)

/* How the transfer of an input or output overlaps with computing:
 * "no_overlap", "overlap_accumulation_loop" or
 * "overlap_device_iteration_loop". */
static LpStatus infer_overlap(LpInfer *x)
{
    const char *mode = x->attr[LP_OVERLAP_MODE].str;
    LP_FAIL_IF(strcmp(mode, "no_overlap") != 0 &&
                   strcmp(mode, "overlap_accumulation_loop") != 0 &&
                   strcmp(mode, "overlap_device_iteration_loop") != 0,
               x->err, LP_E_VALUE,
               "%s: the mode must be no_overlap, overlap_accumulation_loop or "
               "overlap_device_iteration_loop, got %s",
               x->op->name, mode);
    return lp_view_same(x);
}
MARKER(set_overlap_for_input,
       "set_overlap_for_input(Tensor self, str mode) -> Tensor @p",
       infer_overlap)
MARKER(set_overlap_for_output,
       "set_overlap_for_output(Tensor self, str mode) -> Tensor @p",
       infer_overlap)

/* ---- print --------------------------------------------------------------- */
static LpStatus infer_print(LpInfer *x)
{
    static const char *const formats[] = {"auto", "fixed", "scientific",
                                          "none"};
    const char *f = x->attr[LP_PRINT_FLOAT_FORMAT].str;
    bool known = false;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        known |= strcmp(f, formats[i]) == 0;
    LP_FAIL_IF(!known, x->err, LP_E_VALUE,
               "print_tensor: float_format must be auto, fixed, scientific or "
               "none, got %s",
               f);
    for (int i = LP_PRINT_SUMMARISE_THRESHOLD; i <= LP_PRINT_DIGITS; i++)
        LP_FAIL_IF(x->attr[i].i < 0, x->err, LP_E_VALUE,
                   "print_tensor: summarise_threshold, edge_items, "
                   "max_line_width and digits must not be negative, got %lld",
                   (long long)x->attr[i].i);
    return lp_view_same(x);
}

/* The gradient is printed as title_gradient. */
static void grad_print(LpGrad *g)
{
    LpAttr a[LP_MAX_ATTR];
    g->din[0] = g->dout[0];
    if (!g->attr[LP_PRINT_PRINT_GRADIENT].i)
        return;
    const char *title = g->attr[LP_PRINT_TITLE].str;
    size_t n = strlen(title);
    char *text = lp_arena_alloc(g->b->scratch, n + sizeof "_gradient");
    if (!text) {
        lp_fail(g->b->err, LP_E_MEMORY, "no memory for a title");
        return;
    }
    memcpy(text, title, n);
    memcpy(text + n, "_gradient", sizeof "_gradient");
    memcpy(a, g->attr, g->op->n_attr * sizeof *a);
    a[LP_PRINT_TITLE] = lp_attr_str(text);
    g->din[0] = lp_emit(g->b, LP_OP_print_tensor, &g->dout[0], 1, a);
}

LpOp op_print_tensor = {
    .flags = LP_OPF_EFFECT,
    .forms = "print_tensor(Tensor self, str title='', bool "
             "print_gradient=True, int summarise_threshold=1000, int "
             "edge_items=3, int max_line_width=80, int digits=4, str "
             "float_format='auto', str separator=', ', str open_bracket='(', "
             "str close_bracket=')') -> Tensor @p",
    .infer = infer_print,
    .grad = grad_print,
    .prepare = lp_print_prepare,
    .cost = lp_rule_view,
};

/* Copies its operand; the program ends with an error if an element is not 0. */
LpOp op_abort_if = {
    .flags = LP_OPF_EFFECT,
    .forms = "abort_if(Tensor self) -> Tensor @p",
    .infer = lp_view_same,
    .grad = lp_grad_same,
    .prepare = lp_abort_prepare,
    .cost = lp_rule_view,
};

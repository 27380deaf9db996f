/* All calls of oneDNN (written for 2.6; another version is taken in here).
 *
 * Engine and stream are process-wide and made at the first use. The library
 * runs on OpenMP: the width is set around creation and execution and put back
 * afterwards, because a primitive keeps the width it was created with and
 * hangs if it is run with less. Scratch memory is the caller's
 * (scratchpad_mode_user). */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <string.h>

#include "src/base/cpu.h"
#include "src/base/interrupt.h"
#include "src/base/mem.h"
#include "src/kernel/product/dnn.h"

_Static_assert(sizeof(dnnl_memory_desc_t) <= LP_DNN_BLOB, "LP_DNN_BLOB");

enum { SCRATCH = LP_DNN_N_ARGS, N_MEM };

struct LpDnnPrim {
    dnnl_primitive_t prim;
    dnnl_memory_t mem[N_MEM];
    int arg_id[N_MEM];
    size_t work;
    int threads;
    bool reference;
    LpDnnLayout layout[LP_DNN_N_ARGS];
    /* Of a product in parts: rows of one and of all, bytes from row to row. */
    int64_t rows, all_rows;
    size_t row[LP_DNN_N_ARGS];
};

/* ---- the library --------------------------------------------------------- */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine;
static dnnl_stream_t stream;
static dnnl_status_t start_status;

static void start(void)
{
#if defined(__x86_64__)
    if (lp_cpu_simd() == LP_SIMD_PLAIN)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
    else if (lp_cpu_simd() == LP_SIMD_AVX2)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    else if (!lp_cpu_has_avx512_bf16())
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core);
    else if (!lp_cpu_has_amx())
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
#endif
    start_status = dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (start_status == dnnl_success)
        start_status =
            dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
}

static LpStatus fail(dnnl_status_t s, const char *what, LpErr *e)
{
    if (s == dnnl_out_of_memory)
        return lp_fail(e, LP_E_MEMORY, "out of memory in %s", what);
    if (s == dnnl_unimplemented)
        return lp_fail(e, LP_E_NOT_IMPLEMENTED, "oneDNN does not have %s",
                       what);
    return lp_fail(e, LP_E_INTERNAL, "oneDNN: %s failed with status %d", what,
                   (int)s);
}

static LpStatus need_library(LpErr *e)
{
    pthread_once(&once, start);
    return start_status == dnnl_success
               ? LP_OK
               : fail(start_status, "starting the engine", e);
}

/* Sets the width; returns the one to put back. */
static int enter(int threads)
{
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    return before;
}

static void leave(int before, int threads)
{
    if (before != threads)
        omp_set_num_threads(before);
}

static int width(int threads)
{
    int limit = omp_get_thread_limit();
    return threads < 1 ? 1 : threads > limit ? limit : threads;
}

bool lp_dnn_native(LpDtype t)
{
    return t == LP_F32 || (t == LP_BF16 && lp_cpu_has_avx512_bf16());
}

/* ---- layouts ------------------------------------------------------------- */
static const dnnl_memory_desc_t *md_of(const LpDnnLayout *l)
{
    return (const dnnl_memory_desc_t *)(const void *)l->blob;
}

static void keep(LpDnnLayout *l, const dnnl_memory_desc_t *md)
{
    bool any = md->format_kind == dnnl_format_kind_any;
    *l = (LpDnnLayout){.bytes = any ? 0 : dnnl_memory_desc_get_size(md)};
    memcpy(l->blob, md, sizeof *md);
}

static LpStatus check(LpDtype t, int ndim, LpErr *e)
{
    LP_FAIL_IF((t != LP_F32 && t != LP_BF16) || ndim > DNNL_MAX_NDIMS, e,
               LP_E_INTERNAL, "no library layout for %s with %d dimensions",
               lp_dtype_name(t), ndim);
    return LP_OK;
}

static dnnl_data_type_t type_of(LpDtype t)
{
    return t == LP_F32 ? dnnl_f32 : dnnl_bf16;
}

LpStatus lp_dnn_plain(LpDtype t, int ndim, const int64_t *shape,
                      const int64_t *strides, LpDnnLayout *out, LpErr *e)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t st;
    LP_TRY(check(t, ndim, e));
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        st[i] = strides ? strides[i] : step;
        step *= shape[i];
    }
    dnnl_status_t s =
        dnnl_memory_desc_init_by_strides(&md, ndim, shape, type_of(t), st);
    if (s != dnnl_success)
        return fail(s, "a plain layout", e);
    keep(out, &md);
    return LP_OK;
}

static LpStatus by_tag(LpDtype t, int ndim, const int64_t *shape,
                       dnnl_format_tag_t tag, const char *what,
                       LpDnnLayout *out, LpErr *e)
{
    dnnl_memory_desc_t md;
    LP_TRY(check(t, ndim, e));
    dnnl_status_t s =
        dnnl_memory_desc_init_by_tag(&md, ndim, shape, type_of(t), tag);
    if (s != dnnl_success)
        return fail(s, what, e);
    keep(out, &md);
    return LP_OK;
}

LpStatus lp_dnn_any(LpDtype t, int ndim, const int64_t *shape, LpDnnLayout *out,
                    LpErr *e)
{
    return by_tag(t, ndim, shape, dnnl_format_tag_any, "a free layout", out, e);
}

LpStatus lp_dnn_blocked(LpDtype t, int ndim, const int64_t *shape, int block,
                        LpDnnLayout *out, LpErr *e)
{
    static const dnnl_format_tag_t tags[2][3] = {
        {dnnl_nCw8c, dnnl_nChw8c, dnnl_nCdhw8c},
        {dnnl_nCw16c, dnnl_nChw16c, dnnl_nCdhw16c}};
    return by_tag(t, ndim, shape, tags[block == 16][ndim - 3],
                  "a blocked layout", out, e);
}

bool lp_dnn_layout_eq(const LpDnnLayout *a, const LpDnnLayout *b)
{
    return dnnl_memory_desc_equal(md_of(a), md_of(b)) != 0;
}

/* ---- primitives ---------------------------------------------------------- */
/* add: the result is added to what is there. */
static LpStatus new_attr(bool add, dnnl_primitive_attr_t *attr, LpErr *e)
{
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t s = dnnl_primitive_attr_create(attr);
    if (s != dnnl_success)
        return fail(s, "attributes", e);
    dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (!add)
        return LP_OK;
    s = dnnl_post_ops_create(&ops);
    if (s == dnnl_success)
        s = dnnl_post_ops_append_sum(ops, 1);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_post_ops(*attr, ops);
    if (ops)
        dnnl_post_ops_destroy(ops);
    if (s == dnnl_success)
        return LP_OK;
    dnnl_primitive_attr_destroy(*attr);
    return fail(s, "a post-operation", e);
}

/* An operand of a finished description: its argument number in the library
 * and what asks for its layout; 0: there is none. */
typedef struct Part {
    int id;
    dnnl_query_t query;
} Part;

static const Part parts[][LP_DNN_N_ARGS] = {
    [LP_DNN_FORWARD] = {{DNNL_ARG_SRC, dnnl_query_src_md},
                        {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
                        {DNNL_ARG_DST, dnnl_query_dst_md}},
    [LP_DNN_BACKWARD_DATA] = {{DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md},
                              {DNNL_ARG_WEIGHTS, dnnl_query_weights_md},
                              {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md}},
    [LP_DNN_BACKWARD_WEIGHTS] = {{DNNL_ARG_SRC, dnnl_query_src_md},
                                 {DNNL_ARG_DIFF_WEIGHTS,
                                  dnnl_query_diff_weights_md},
                                 {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md}},
};
static const Part reorder[LP_DNN_N_ARGS] = {
    [LP_DNN_SRC] = {DNNL_ARG_SRC, dnnl_query_src_md},
    [LP_DNN_DST] = {DNNL_ARG_DST, dnnl_query_dst_md},
};

void lp_dnn_free(LpDnnPrim *p)
{
    if (!p)
        return;
    for (int i = 0; i < N_MEM; i++)
        if (p->mem[i])
            dnnl_memory_destroy(p->mem[i]);
    if (p->prim)
        dnnl_primitive_destroy(p->prim);
    lp_free(p);
}

/* Does its name begin so? "ref:any", "jit:avx2", "gemm:jit", … */
static bool is_called(const_dnnl_primitive_desc_t pd, const char *start)
{
    const char *name = NULL;
    dnnl_status_t s =
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return s == dnnl_success && name && !strncmp(name, start, strlen(start));
}

/* The primitive of a primitive description. */
static LpStatus finish(const_dnnl_primitive_desc_t pd,
                       const Part part[LP_DNN_N_ARGS], int threads,
                       LpDnnPrim **out, LpErr *e)
{
    LpDnnPrim *p = lp_calloc(1, sizeof *p);
    LP_FAIL_IF(!p, e, LP_E_MEMORY, "out of memory");
    p->threads = threads;
    p->reference = is_called(pd, "ref");
    dnnl_status_t s = dnnl_primitive_create(&p->prim, pd);
    for (int i = 0; i < LP_DNN_N_ARGS && s == dnnl_success; i++) {
        if (part[i].id == 0)
            continue;
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(pd, part[i].query, 0);
        keep(&p->layout[i], md);
        p->arg_id[i] = part[i].id;
        s = dnnl_memory_create(&p->mem[i], md, engine, DNNL_MEMORY_NONE);
    }
    const dnnl_memory_desc_t *md =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    if (s == dnnl_success && md && dnnl_memory_desc_get_size(md) > 0) {
        p->work = dnnl_memory_desc_get_size(md);
        p->arg_id[SCRATCH] = DNNL_ARG_SCRATCHPAD;
        s = dnnl_memory_create(&p->mem[SCRATCH], md, engine, DNNL_MEMORY_NONE);
    }
    if (s != dnnl_success) {
        lp_dnn_free(p);
        return fail(s, "creating a primitive", e);
    }
    *out = p;
    return LP_OK;
}

const LpDnnLayout *lp_dnn_layout(const LpDnnPrim *p, LpDnnArg arg)
{
    return &p->layout[arg];
}

bool lp_dnn_is_reference(const LpDnnPrim *p)
{
    return p->reference;
}

size_t lp_dnn_work_bytes(const LpDnnPrim *p)
{
    return p->work;
}

/* Side by side with others that may run the same primitive: operands and the
 * stream are this run's own. */
static dnnl_status_t run_beside(const LpDnnPrim *p, void *const args[],
                                void *work)
{
    dnnl_exec_arg_t ex[N_MEM];
    dnnl_stream_t own = NULL;
    int n = 0;
    dnnl_status_t s =
        dnnl_stream_create(&own, engine, dnnl_stream_default_flags);
    for (int i = 0; i < N_MEM && s == dnnl_success; i++) {
        const dnnl_memory_desc_t *md;
        if (!p->mem[i])
            continue;
        s = dnnl_memory_get_memory_desc(p->mem[i], &md);
        if (s == dnnl_success)
            s = dnnl_memory_create(&ex[n].memory, md, engine,
                                   i == SCRATCH ? work : args[i]);
        if (s == dnnl_success)
            ex[n++].arg = p->arg_id[i];
    }
    if (s == dnnl_success)
        s = dnnl_primitive_execute(p->prim, own, n, ex);
    while (n > 0)
        dnnl_memory_destroy(ex[--n].memory);
    dnnl_stream_destroy(own);
    return s;
}

static dnnl_status_t run_alone(const LpDnnPrim *p, void *const args[],
                               void *work)
{
    dnnl_exec_arg_t ex[N_MEM];
    int n = 0;
    int before = enter(p->threads);
    dnnl_status_t s = dnnl_success;
    for (int i = 0; i < N_MEM && s == dnnl_success; i++) {
        if (!p->mem[i])
            continue;
        s = dnnl_memory_set_data_handle(p->mem[i],
                                        i == SCRATCH ? work : args[i]);
        ex[n++] = (dnnl_exec_arg_t){p->arg_id[i], p->mem[i]};
    }
    if (s == dnnl_success)
        s = dnnl_primitive_execute(p->prim, stream, n, ex);
    leave(before, p->threads);
    return s;
}

/* The library's generated code keeps values below its stack pointer, where a
 * handler of a signal would write: signals wait until it is done. */
static dnnl_status_t run(const LpDnnPrim *p, void *const args[], void *work)
{
    sigset_t before;
    lp_signals_hold(&before);
    dnnl_status_t s = omp_in_parallel() ? run_beside(p, args, work)
                                        : run_alone(p, args, work);
    lp_signals_release(&before);
    return s;
}

/* The last part ends with the last row. */
static dnnl_status_t run_parts(const LpDnnPrim *p, void *const args[],
                               void *work)
{
    dnnl_status_t s = dnnl_success;
    for (int64_t r = 0; r < p->all_rows && s == dnnl_success; r += p->rows) {
        int64_t at = r < p->all_rows - p->rows ? r : p->all_rows - p->rows;
        void *part[LP_DNN_N_ARGS];
        if (lp_kernel_stops())
            break;
        for (int i = 0; i < LP_DNN_N_ARGS; i++)
            part[i] = (char *)args[i] + (size_t)at * p->row[i];
        s = run(p, part, work);
    }
    return s;
}

LpStatus lp_dnn_run(LpDnnPrim *p, void *const args[LP_DNN_N_ARGS], void *work,
                    LpErr *e)
{
    dnnl_status_t s =
        p->rows > 0 ? run_parts(p, args, work) : run(p, args, work);
    return s == dnnl_success ? LP_OK : fail(s, "running a primitive", e);
}

/* Another description of the operation than the library's first, if there is
 * one whose name begins so. */
static void prefer(const char *name, const_dnnl_op_desc_t desc,
                   dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *pd)
{
    dnnl_primitive_desc_iterator_t it;
    if (dnnl_primitive_desc_iterator_create(&it, desc, attr, engine, NULL) !=
        dnnl_success)
        return;
    do {
        dnnl_primitive_desc_t other = dnnl_primitive_desc_iterator_fetch(it);
        if (other && is_called(other, name)) {
            dnnl_primitive_desc_destroy(*pd);
            *pd = other;
            break;
        }
        dnnl_primitive_desc_destroy(other);
    } while (dnnl_primitive_desc_iterator_next(it) == dnnl_success);
    dnnl_primitive_desc_iterator_destroy(it);
}

/* Creates the primitive of an operation description. */
static LpStatus create(const_dnnl_op_desc_t desc, bool add, const char *name,
                       const_dnnl_primitive_desc_t hint, const Part *part,
                       int threads, const char *what, LpDnnPrim **out, LpErr *e)
{
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    LP_TRY(new_attr(add, &attr, e));
    dnnl_status_t s = dnnl_primitive_desc_create(&pd, desc, attr, engine, hint);
    if (s == dnnl_success && name)
        prefer(name, desc, attr, &pd);
    dnnl_primitive_attr_destroy(attr);
    if (s != dnnl_success)
        return fail(s, what, e);
    LpStatus r = finish(pd, part, threads, out, e);
    dnnl_primitive_desc_destroy(pd);
    return r;
}

/* ---- products in parts --------------------------------------------------- */
/* The library does not stop in the middle: a product of more multiplications
 * runs in parts of its rows, so that Ctrl-C is heard in between. */
#define PART 5e9
#define LEAST_ROWS 16

/* Rows of a part; 0: all at once. Parts overlap where that does no harm. */
static int64_t rows_of_part(const LpDnnMatmul *d)
{
    const dnnl_memory_desc_t *dst = md_of(&d->dst);
    int n = dst->ndims;
    int64_t m = dst->dims[n - 2];
    double all = (double)md_of(&d->src)->dims[n - 1];
    for (int i = 0; i < n; i++)
        all *= (double)dst->dims[i];
    if (all <= PART)
        return 0;
    int64_t pieces = (int64_t)(all / PART) + 1;
    while (d->add && pieces < m && m % pieces != 0)
        pieces++;
    int64_t rows = (m + pieces - 1) / pieces;
    return rows >= m ? 0 : rows >= LEAST_ROWS ? rows : 0;
}

/* The first rows of a matrix, or of each of a batch; *row: the bytes of one. */
static LpStatus first_rows(LpDnnLayout *l, int64_t rows, size_t *row, LpErr *e)
{
    const dnnl_memory_desc_t *md = md_of(l);
    int n = md->ndims;
    dnnl_memory_desc_t sub;
    dnnl_dims_t dims, zero = {0};
    memcpy(dims, md->dims, sizeof dims);
    dims[n - 2] = rows;
    *row = (size_t)md->format_desc.blocking.strides[n - 2] *
           (md->data_type == dnnl_f32 ? 4 : 2);
    dnnl_status_t s = dnnl_memory_desc_init_submemory(&sub, md, dims, zero);
    if (s != dnnl_success)
        return fail(s, "a part of a matrix", e);
    keep(l, &sub);
    return LP_OK;
}

/* Which implementation is wanted; NULL: the first. Of float32 with operands in
 * rows that is the one for small batches and transposed weights; the packing
 * one is mostly a tenth quicker, at worst equal, at best twice as quick
 * (AVX-512, one thread), but for operands that it does not pack though rows of
 * 4 or 8 KiB lie on top of each other in the cache. */
static const char *better(const LpDnnMatmul *d)
{
    const dnnl_memory_desc_t *w = md_of(&d->weights), *x = md_of(&d->src);
    if (w->ndims != 2 || w->data_type != dnnl_f32 ||
        w->format_kind != dnnl_blocked ||
        w->format_desc.blocking.strides[1] != 1)
        return NULL;
    int64_t m = x->dims[0], n = w->dims[1];
    bool turned = x->format_desc.blocking.strides[1] != 1;
    int64_t row = turned ? x->format_desc.blocking.strides[1]
                         : w->format_desc.blocking.strides[0];
    bool clash = row == 1024 || row == 2048;
    return clash && (turned ? n : m) <= 512 ? NULL : "gemm:jit";
}

static LpStatus matmul_new(const LpDnnMatmul *d, LpDnnPrim **out, LpErr *e)
{
    LP_TRY(need_library(e));
    const char *what = "this matrix product";
    int threads = width(d->threads), before = enter(threads);
    dnnl_matmul_desc_t desc;
    dnnl_status_t s = dnnl_matmul_desc_init(
        &desc, md_of(&d->src), md_of(&d->weights), NULL, md_of(&d->dst));
    LpStatus r = s == dnnl_success
                     ? create(&desc, d->add, better(d), NULL,
                              parts[LP_DNN_FORWARD], threads, what, out, e)
                     : fail(s, what, e);
    leave(before, threads);
    return r;
}

/* Without AVX-512 the one implementation packs no rows of few left ones: it is
 * up to half as quick where they lie on top of each other in the cache. */
bool lp_dnn_clashes(int64_t row)
{
    return lp_cpu_simd() == LP_SIMD_AVX2 && row > 0 && row % 512 == 0;
}

/* Weights in a free layout that turned out to be rows: they need not clash. */
static LpStatus free_rows_apart(const LpDnnMatmul *d, LpDnnPrim **out, LpErr *e)
{
    const dnnl_memory_desc_t *w = md_of(&d->weights);
    LpDnnLayout rows;
    if (w->format_kind != dnnl_format_kind_any || w->ndims != 2 ||
        w->data_type != dnnl_f32 || !lp_dnn_clashes(w->dims[1]))
        return LP_OK;
    LP_TRY(lp_dnn_plain(LP_F32, 2, w->dims, NULL, &rows, e));
    if (!lp_dnn_layout_eq(&rows, lp_dnn_layout(*out, LP_DNN_WEIGHTS)))
        return LP_OK;
    LpDnnMatmul apart = *d;
    int64_t strides[] = {w->dims[1] + LP_DNN_APART, 1};
    lp_dnn_free(*out);
    *out = NULL;
    LP_TRY(lp_dnn_plain(LP_F32, 2, w->dims, strides, &apart.weights, e));
    return matmul_new(&apart, out, e);
}

LpStatus lp_dnn_matmul_new(const LpDnnMatmul *d, LpDnnPrim **out, LpErr *e)
{
    LpDnnMatmul part = *d;
    size_t row[LP_DNN_N_ARGS] = {0};
    int64_t rows = rows_of_part(d), all = rows;
    if (rows > 0) {
        const dnnl_memory_desc_t *dst = md_of(&d->dst);
        all = dst->dims[dst->ndims - 2];
        LP_TRY(first_rows(&part.src, rows, &row[LP_DNN_SRC], e));
        LP_TRY(first_rows(&part.dst, rows, &row[LP_DNN_DST], e));
    }
    LP_TRY(matmul_new(&part, out, e));
    LP_TRY(free_rows_apart(&part, out, e));
    (*out)->rows = rows;
    (*out)->all_rows = all;
    memcpy((*out)->row, row, sizeof row);
    return LP_OK;
}

/* The library counts dilation from 0: dense. */
static dnnl_status_t describe(const LpDnnConv *d, LpDnnPass pass,
                              dnnl_convolution_desc_t *desc)
{
    dnnl_alg_kind_t alg = d->alg == LP_DNN_WINOGRAD ? dnnl_convolution_winograd
                                                    : dnnl_convolution_direct;
    const dnnl_memory_desc_t *src = md_of(&d->src), *w = md_of(&d->weights),
                             *dst = md_of(&d->dst);
    dnnl_dims_t stride, dilation, pad_l, pad_r;
    for (int i = 0; i < d->n_spatial; i++) {
        stride[i] = d->stride[i];
        dilation[i] = d->dilation[i] - 1;
        pad_l[i] = d->pad_l[i];
        pad_r[i] = d->pad_r[i];
    }
    if (pass == LP_DNN_BACKWARD_DATA)
        return dnnl_dilated_convolution_backward_data_desc_init(
            desc, alg, src, w, dst, stride, dilation, pad_l, pad_r);
    if (pass == LP_DNN_BACKWARD_WEIGHTS)
        return dnnl_dilated_convolution_backward_weights_desc_init(
            desc, alg, src, w, NULL, dst, stride, dilation, pad_l, pad_r);
    return dnnl_dilated_convolution_forward_desc_init(
        desc, dnnl_forward_training, alg, src, w, NULL, dst, stride, dilation,
        pad_l, pad_r);
}

/* Gradients are described with the forward's description as a hint. */
static LpStatus conv_new(const LpDnnConv *d, int threads, LpDnnPrim **out,
                         LpErr *e)
{
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t hint = NULL;
    const char *what = "this convolution";
    dnnl_status_t s = describe(d, LP_DNN_FORWARD, &desc);
    if (d->pass != LP_DNN_FORWARD && s == dnnl_success)
        s = dnnl_primitive_desc_create(&hint, &desc, NULL, engine, NULL);
    if (hint) {
        what = "this convolution gradient";
        s = describe(d, d->pass, &desc);
    }
    LpStatus r = s == dnnl_success
                     ? create(&desc, false, NULL, hint, parts[d->pass], threads,
                              what, out, e)
                     : fail(s, what, e);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    return r;
}

LpStatus lp_dnn_conv_new(const LpDnnConv *d, LpDnnPrim **out, LpErr *e)
{
    LP_TRY(need_library(e));
    int threads = width(d->threads), before = enter(threads);
    LpStatus r = conv_new(d, threads, out, e);
    leave(before, threads);
    return r;
}

LpStatus lp_dnn_reorder_new(const LpDnnLayout *from, const LpDnnLayout *to,
                            int threads, LpDnnPrim **out, LpErr *e)
{
    LP_TRY(need_library(e));
    threads = width(threads);
    int before = enter(threads);
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    LpStatus r = new_attr(false, &attr, e);
    if (r == LP_OK) {
        dnnl_status_t s = dnnl_reorder_primitive_desc_create(
            &pd, md_of(from), engine, md_of(to), engine, attr);
        dnnl_primitive_attr_destroy(attr);
        r = s == dnnl_success ? finish(pd, reorder, threads, out, e)
                              : fail(s, "this change of layout", e);
        if (pd)
            dnnl_primitive_desc_destroy(pd);
    }
    leave(before, threads);
    return r;
}

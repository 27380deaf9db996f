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
static dnnl_data_type_t data_type(LpDtype t)
{
    switch (t) {
    case LP_F32:
        return dnnl_f32;
    case LP_F16:
        return dnnl_f16;
    case LP_BF16:
        return dnnl_bf16;
    case LP_I32:
        return dnnl_s32;
    case LP_I8:
        return dnnl_s8;
    case LP_U8:
        return dnnl_u8;
    default:
        return dnnl_data_type_undef;
    }
}

static const dnnl_memory_desc_t *md_of(const LpDnnLayout *l)
{
    return (const dnnl_memory_desc_t *)(const void *)l->blob;
}

static void keep(LpDnnLayout *l, LpDtype t, const dnnl_memory_desc_t *md)
{
    *l = (LpDnnLayout){.dtype = t,
                       .any = md->format_kind == dnnl_format_kind_any};
    l->bytes = l->any ? 0 : dnnl_memory_desc_get_size(md);
    memcpy(l->blob, md, sizeof *md);
}

static LpStatus dims_of(LpDtype t, int ndim, const int64_t *shape,
                        dnnl_dims_t dims, LpErr *e)
{
    LP_FAIL_IF(data_type(t) == dnnl_data_type_undef || ndim > DNNL_MAX_NDIMS, e,
               LP_E_INTERNAL, "no library layout for %s with %d dimensions",
               lp_dtype_name(t), ndim);
    for (int i = 0; i < ndim; i++)
        dims[i] = shape[i];
    return LP_OK;
}

LpStatus lp_dnn_plain(LpDtype t, int ndim, const int64_t *shape,
                      const int64_t *strides, LpDnnLayout *out, LpErr *e)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims, st;
    LP_TRY(dims_of(t, ndim, shape, dims, e));
    int64_t step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        st[i] = strides ? strides[i] : step;
        step *= shape[i];
    }
    dnnl_status_t s =
        dnnl_memory_desc_init_by_strides(&md, ndim, dims, data_type(t), st);
    if (s != dnnl_success)
        return fail(s, "a plain layout", e);
    keep(out, t, &md);
    return LP_OK;
}

LpStatus lp_dnn_any(LpDtype t, int ndim, const int64_t *shape, LpDnnLayout *out,
                    LpErr *e)
{
    dnnl_memory_desc_t md;
    dnnl_dims_t dims;
    LP_TRY(dims_of(t, ndim, shape, dims, e));
    dnnl_status_t s = dnnl_memory_desc_init_by_tag(
        &md, ndim, dims, data_type(t), dnnl_format_tag_any);
    if (s != dnnl_success)
        return fail(s, "a free layout", e);
    keep(out, t, &md);
    return LP_OK;
}

LpStatus lp_dnn_blocked(LpDtype t, int ndim, const int64_t *shape, int block,
                        LpDnnLayout *out, LpErr *e)
{
    static const dnnl_format_tag_t tags[2][3] = {
        {dnnl_nCw8c, dnnl_nChw8c, dnnl_nCdhw8c},
        {dnnl_nCw16c, dnnl_nChw16c, dnnl_nCdhw16c}};
    dnnl_memory_desc_t md;
    dnnl_dims_t dims;
    LP_TRY(dims_of(t, ndim, shape, dims, e));
    dnnl_status_t s = dnnl_memory_desc_init_by_tag(
        &md, ndim, dims, data_type(t), tags[block == 16][ndim - 3]);
    if (s != dnnl_success)
        return fail(s, "a blocked layout", e);
    keep(out, t, &md);
    return LP_OK;
}

bool lp_dnn_layout_eq(const LpDnnLayout *a, const LpDnnLayout *b)
{
    return a->dtype == b->dtype &&
           dnnl_memory_desc_equal(md_of(a), md_of(b)) != 0;
}

/* ---- primitives ---------------------------------------------------------- */
static LpStatus set_posts(dnnl_primitive_attr_t attr, const LpDnnPost *post,
                          int n, LpErr *e)
{
    static const dnnl_alg_kind_t alg[] = {
        [LP_DNN_POST_RELU] = dnnl_eltwise_relu,
        [LP_DNN_POST_GELU] = dnnl_eltwise_gelu_erf,
        [LP_DNN_POST_GELU_TANH] = dnnl_eltwise_gelu_tanh,
        [LP_DNN_POST_TANH] = dnnl_eltwise_tanh,
        [LP_DNN_POST_SIGMOID] = dnnl_eltwise_logistic,
        [LP_DNN_POST_SWISH] = dnnl_eltwise_swish,
        [LP_DNN_POST_ELU] = dnnl_eltwise_elu,
        [LP_DNN_POST_LINEAR] = dnnl_eltwise_linear,
    };
    dnnl_post_ops_t ops;
    dnnl_status_t s = dnnl_post_ops_create(&ops);
    for (int i = 0; i < n && s == dnnl_success; i++)
        s = post[i].kind == LP_DNN_POST_SUM
                ? dnnl_post_ops_append_sum(ops, post[i].alpha)
                : dnnl_post_ops_append_eltwise(ops, 1.0f, alg[post[i].kind],
                                               post[i].alpha, post[i].beta);
    if (s == dnnl_success)
        s = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (ops)
        dnnl_post_ops_destroy(ops);
    return s == dnnl_success ? LP_OK : fail(s, "a post-operation", e);
}

static LpStatus new_attr(dnnl_primitive_attr_t *attr, const LpDnnPost *post,
                         int n, LpErr *e)
{
    dnnl_status_t s = dnnl_primitive_attr_create(attr);
    if (s != dnnl_success)
        return fail(s, "attributes", e);
    dnnl_primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user);
    if (n == 0)
        return LP_OK;
    LpStatus r = set_posts(*attr, post, n, e);
    if (r != LP_OK)
        dnnl_primitive_attr_destroy(*attr);
    return r;
}

/* One operand of a finished description: its argument number in the library
 * and the layout it was given. */
typedef struct Part {
    LpDnnArg arg;
    int id;
    dnnl_query_t query;
    LpDtype dtype;
} Part;

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

/* Its names are "ref:any", "jit:avx2", "gemm:jit", … */
static bool is_reference(const_dnnl_primitive_desc_t pd)
{
    const char *name = NULL;
    dnnl_status_t s =
        dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name);
    return s == dnnl_success && name && !strncmp(name, "ref", 3);
}

/* The primitive of a primitive description. */
static LpStatus finish(const_dnnl_primitive_desc_t pd, const Part *part, int n,
                       int threads, LpDnnPrim **out, LpErr *e)
{
    LpDnnPrim *p = lp_calloc(1, sizeof *p);
    LP_FAIL_IF(!p, e, LP_E_MEMORY, "out of memory");
    p->threads = threads;
    p->reference = is_reference(pd);
    dnnl_status_t s = dnnl_primitive_create(&p->prim, pd);
    for (int i = 0; i < n && s == dnnl_success; i++) {
        const dnnl_memory_desc_t *md =
            dnnl_primitive_desc_query_md(pd, part[i].query, 0);
        if (part[i].query == dnnl_query_weights_md &&
            part[i].arg == LP_DNN_BIAS)
            md = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 1);
        if (part[i].query == dnnl_query_diff_weights_md &&
            part[i].arg == LP_DNN_BIAS)
            md =
                dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 1);
        keep(&p->layout[part[i].arg], part[i].dtype, md);
        p->arg_id[part[i].arg] = part[i].id;
        s = dnnl_memory_create(&p->mem[part[i].arg], md, engine,
                               DNNL_MEMORY_NONE);
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

LpStatus lp_dnn_run(LpDnnPrim *p, void *const args[LP_DNN_N_ARGS], void *work,
                    LpErr *e)
{
    dnnl_status_t s = omp_in_parallel() ? run_beside(p, args, work)
                                        : run_alone(p, args, work);
    return s == dnnl_success ? LP_OK : fail(s, "running a primitive", e);
}

/* Creates the primitive of an operation description. */
static LpStatus create(const_dnnl_op_desc_t desc, const LpDnnPost *post,
                       int n_post, const_dnnl_primitive_desc_t hint,
                       const Part *part, int n, int threads, const char *what,
                       LpDnnPrim **out, LpErr *e)
{
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd = NULL;
    LP_TRY(new_attr(&attr, post, n_post, e));
    dnnl_status_t s = dnnl_primitive_desc_create(&pd, desc, attr, engine, hint);
    dnnl_primitive_attr_destroy(attr);
    if (s != dnnl_success)
        return fail(s, what, e);
    LpStatus r = finish(pd, part, n, threads, out, e);
    dnnl_primitive_desc_destroy(pd);
    return r;
}

LpStatus lp_dnn_matmul_new(const LpDnnMatmul *d, LpDnnPrim **out, LpErr *e)
{
    LP_TRY(need_library(e));
    int threads = width(d->threads), before = enter(threads);
    bool bias = d->bias.dtype != LP_DT_NONE && d->bias.bytes > 0;
    dnnl_matmul_desc_t desc;
    dnnl_status_t s =
        dnnl_matmul_desc_init(&desc, md_of(&d->src), md_of(&d->weights),
                              bias ? md_of(&d->bias) : NULL, md_of(&d->dst));
    LpStatus r;
    if (s != dnnl_success) {
        r = fail(s, "this matrix product", e);
    } else {
        Part part[] = {
            {LP_DNN_SRC, DNNL_ARG_SRC, dnnl_query_src_md, d->src.dtype},
            {LP_DNN_WEIGHTS, DNNL_ARG_WEIGHTS, dnnl_query_weights_md,
             d->weights.dtype},
            {LP_DNN_DST, DNNL_ARG_DST, dnnl_query_dst_md, d->dst.dtype},
            {LP_DNN_BIAS, DNNL_ARG_BIAS, dnnl_query_weights_md, d->bias.dtype},
        };
        r = create(&desc, d->post, d->n_post, NULL, part, bias ? 4 : 3, threads,
                   "this matrix product", out, e);
    }
    leave(before, threads);
    return r;
}

/* Window geometry as the library counts it: dilation 0 is dense. */
typedef struct Window {
    dnnl_dims_t stride, dilation, pad_l, pad_r;
} Window;

static Window window_of(const LpDnnConv *d)
{
    Window w = {0};
    for (int i = 0; i < d->n_spatial; i++) {
        w.stride[i] = d->stride[i];
        w.dilation[i] = d->dilation[i] - 1;
        w.pad_l[i] = d->pad_l[i];
        w.pad_r[i] = d->pad_r[i];
    }
    return w;
}

static dnnl_status_t init_forward(dnnl_convolution_desc_t *desc,
                                  const LpDnnConv *d, bool bias,
                                  dnnl_alg_kind_t alg)
{
    Window w = window_of(d);
    return dnnl_dilated_convolution_forward_desc_init(
        desc, dnnl_forward_training, alg, md_of(&d->src), md_of(&d->weights),
        bias ? md_of(&d->bias) : NULL, md_of(&d->dst), w.stride, w.dilation,
        w.pad_l, w.pad_r);
}

static LpStatus conv_forward(const LpDnnConv *d, bool bias, int threads,
                             dnnl_alg_kind_t alg, LpDnnPrim **out, LpErr *e)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t s = init_forward(&desc, d, bias, alg);
    if (s != dnnl_success)
        return fail(s, "this convolution", e);
    Part part[] = {
        {LP_DNN_SRC, DNNL_ARG_SRC, dnnl_query_src_md, d->src.dtype},
        {LP_DNN_WEIGHTS, DNNL_ARG_WEIGHTS, dnnl_query_weights_md,
         d->weights.dtype},
        {LP_DNN_DST, DNNL_ARG_DST, dnnl_query_dst_md, d->dst.dtype},
        {LP_DNN_BIAS, DNNL_ARG_BIAS, dnnl_query_weights_md, d->bias.dtype},
    };
    return create(&desc, d->post, d->n_post, NULL, part, bias ? 4 : 3, threads,
                  "this convolution", out, e);
}

static LpStatus conv_backward(const LpDnnConv *d, bool bias, int threads,
                              dnnl_alg_kind_t alg,
                              const_dnnl_primitive_desc_t hint, LpDnnPrim **out,
                              LpErr *e)
{
    dnnl_convolution_desc_t desc;
    Window w = window_of(d);
    dnnl_status_t s;
    bool data = d->pass == LP_DNN_BACKWARD_DATA;
    if (data)
        s = dnnl_dilated_convolution_backward_data_desc_init(
            &desc, alg, md_of(&d->src), md_of(&d->weights), md_of(&d->dst),
            w.stride, w.dilation, w.pad_l, w.pad_r);
    else
        s = dnnl_dilated_convolution_backward_weights_desc_init(
            &desc, alg, md_of(&d->src), md_of(&d->weights),
            bias ? md_of(&d->bias) : NULL, md_of(&d->dst), w.stride, w.dilation,
            w.pad_l, w.pad_r);
    if (s != dnnl_success)
        return fail(s, "this convolution gradient", e);
    Part part[] = {
        {LP_DNN_DST, DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, d->dst.dtype},
        {LP_DNN_SRC, DNNL_ARG_SRC, dnnl_query_src_md, d->src.dtype},
        {LP_DNN_WEIGHTS, DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md,
         d->weights.dtype},
        {LP_DNN_BIAS, DNNL_ARG_DIFF_BIAS, dnnl_query_diff_weights_md,
         d->bias.dtype},
    };
    if (data) {
        part[1].id = DNNL_ARG_DIFF_SRC;
        part[1].query = dnnl_query_diff_src_md;
        part[2].id = DNNL_ARG_WEIGHTS;
        part[2].query = dnnl_query_weights_md;
    }
    return create(&desc, NULL, 0, hint, part, !data && bias ? 4 : 3, threads,
                  "this convolution gradient", out, e);
}

/* Gradients are described with the forward's description as a hint. */
static LpStatus conv_gradient(const LpDnnConv *d, bool bias, int threads,
                              dnnl_alg_kind_t alg, LpDnnPrim **out, LpErr *e)
{
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t s = init_forward(&desc, d, false, alg);
    if (s == dnnl_success)
        s = dnnl_primitive_desc_create(&hint, &desc, NULL, engine, NULL);
    if (s != dnnl_success)
        return fail(s, "this convolution", e);
    LpStatus r = conv_backward(d, bias, threads, alg, hint, out, e);
    dnnl_primitive_desc_destroy(hint);
    return r;
}

LpStatus lp_dnn_conv_new(const LpDnnConv *d, LpDnnPrim **out, LpErr *e)
{
    LP_TRY(need_library(e));
    int threads = width(d->threads), before = enter(threads);
    bool bias = d->bias.dtype != LP_DT_NONE && d->bias.bytes > 0;
    dnnl_alg_kind_t alg = d->alg == LP_DNN_WINOGRAD ? dnnl_convolution_winograd
                                                    : dnnl_convolution_direct;
    LpStatus r = d->pass == LP_DNN_FORWARD
                     ? conv_forward(d, bias, threads, alg, out, e)
                     : conv_gradient(d, bias, threads, alg, out, e);
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
    LpStatus r = new_attr(&attr, NULL, 0, e);
    if (r == LP_OK) {
        dnnl_status_t s = dnnl_reorder_primitive_desc_create(
            &pd, md_of(from), engine, md_of(to), engine, attr);
        dnnl_primitive_attr_destroy(attr);
        Part part[] = {
            {LP_DNN_SRC, DNNL_ARG_SRC, dnnl_query_src_md, from->dtype},
            {LP_DNN_DST, DNNL_ARG_DST, dnnl_query_dst_md, to->dtype},
        };
        r = s == dnnl_success ? finish(pd, part, 2, threads, out, e)
                              : fail(s, "this change of layout", e);
        if (pd)
            dnnl_primitive_desc_destroy(pd);
    }
    leave(before, threads);
    return r;
}

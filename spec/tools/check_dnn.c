/* Checks of src/kernel/product/dnn.h against sums in float64: packed weights,
 * sums added to, convolutions in the library's own layouts, Winograd,
 * both gradients.
 * Usage: check_dnn packed|added|batch|blocked|winograd|gradients|refusals.
 * Prints what is wrong and exits with 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spec/tools/checks.h"
#include "src/base/mem.h"
#include "src/kernel/product/dnn.h"

static int wrong;
static LpErr err;

static void must(LpStatus s, const char *what)
{
    if (s == LP_OK)
        return;
    printf("%s: %s\n", what, err.msg);
    exit(1);
}

static float *numbers(int64_t n, unsigned seed)
{
    float *p = lp_alloc_aligned((size_t)n * sizeof *p);
    uint32_t x = seed * 2654435761u + 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = (float)(x >> 8) * 0x1p-23f - 1;
    }
    return p;
}

static void compare(const char *what, const float *got, const double *want,
                    int64_t n, double tolerance)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (!(d <= worst))
            worst = d;
    }
    if (!(worst <= tolerance)) {
        printf("%s: differs by %g\n", what, worst);
        wrong++;
    }
}

static void run(LpDnnPrim *p, void *src, void *w, void *dst)
{
    void *work = lp_alloc_aligned(lp_dnn_work_bytes(p));
    must(lp_dnn_run(p, (void *[]){src, w, dst}, work, &err), "run");
    lp_free(work);
}

static LpDnnLayout plain(int n, const int64_t *shape, const int64_t *strides)
{
    LpDnnLayout l;
    must(lp_dnn_plain(LP_F32, n, shape, strides, &l, &err), "plain");
    return l;
}

static LpDnnLayout any(int n, const int64_t *shape)
{
    LpDnnLayout l;
    must(lp_dnn_any(LP_F32, n, shape, &l, &err), "any");
    return l;
}

/* `from` copied into the layout a primitive wants for `arg`; or back. */
static void *reordered(const LpDnnPrim *p, LpDnnArg arg, LpDnnLayout user,
                       void *data)
{
    LpDnnPrim *r;
    const LpDnnLayout *own = lp_dnn_layout(p, arg);
    void *out = lp_alloc_aligned(own->bytes);
    must(lp_dnn_reorder_new(&user, own, 2, &r, &err), "reorder");
    run(r, data, NULL, out);
    lp_dnn_free(r);
    return out;
}

static void put_back(const LpDnnPrim *p, LpDnnArg arg, LpDnnLayout user,
                     void *data, void *out)
{
    LpDnnPrim *r;
    must(lp_dnn_reorder_new(lp_dnn_layout(p, arg), &user, 2, &r, &err), "back");
    run(r, data, NULL, out);
    lp_dnn_free(r);
}

enum { M = 37, K = 65, N = 48 };

static void product(const float *a, const float *w, double *c)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            c[i * N + j] = 0;
            for (int k = 0; k < K; k++)
                c[i * N + j] += (double)a[i * K + k] * (double)w[j * K + k];
        }
}

/* y = x w^T with w [N, K] in rows, packed once. */
static void check_packed(void)
{
    float *a = numbers(M * K, 1), *w = numbers(N * K, 2);
    float *y = numbers(M * N, 4);
    double *want = lp_alloc(M * N * sizeof *want);
    LpDnnMatmul d = {.threads = 2};
    d.src = plain(2, (int64_t[]){M, K}, NULL);
    d.weights = any(2, (int64_t[]){K, N});
    d.dst = plain(2, (int64_t[]){M, N}, NULL);
    LpDnnPrim *p;
    must(lp_dnn_matmul_new(&d, &p, &err), "matmul");
    LpDnnLayout rows = plain(2, (int64_t[]){K, N}, (int64_t[]){1, K});
    void *packed = reordered(p, LP_DNN_WEIGHTS, rows, w);
    run(p, a, packed, y);
    product(a, w, want);
    compare("packed", y, want, M * N, 1e-4);
    float *back = numbers(N * K, 9);
    put_back(p, LP_DNN_WEIGHTS, rows, packed, back);
    if (memcmp(back, w, sizeof(float) * N * K) != 0)
        wrong += printf("packing and unpacking changed the weights\n");
    lp_dnn_free(p);
    lp_free(packed), lp_free(back), lp_free(want);
    lp_free(a), lp_free(w), lp_free(y);
}

static void check_added(void)
{
    float *a = numbers(M * K, 1), *w = numbers(N * K, 2);
    float *old = numbers(M * N, 5), *y = numbers(M * N, 5);
    double *want = lp_alloc(M * N * sizeof *want);
    LpDnnMatmul d = {.threads = 2, .add = true};
    d.src = plain(2, (int64_t[]){M, K}, NULL);
    d.weights = plain(2, (int64_t[]){K, N}, (int64_t[]){1, K});
    d.dst = plain(2, (int64_t[]){M, N}, NULL);
    LpDnnPrim *p;
    must(lp_dnn_matmul_new(&d, &p, &err), "matmul that adds");
    run(p, a, w, y);
    product(a, w, want);
    for (int i = 0; i < M * N; i++)
        want[i] += (double)old[i];
    compare("added", y, want, M * N, 1e-4);
    lp_dnn_free(p);
    lp_free(a), lp_free(w), lp_free(old), lp_free(y), lp_free(want);
}

/* A weight shared by all members of a batch has a batch of size 1. */
static void check_batch(void)
{
    enum { B = 3 };
    float *a = numbers(B * M * K, 1), *w = numbers(N * K, 2);
    float *y = numbers(B * M * N, 4);
    double *want = lp_alloc(B * M * N * sizeof *want);
    LpDnnMatmul d = {.threads = 2};
    d.src = plain(3, (int64_t[]){B, M, K}, NULL);
    d.weights = plain(3, (int64_t[]){1, K, N}, (int64_t[]){K * N, 1, K});
    d.dst = plain(3, (int64_t[]){B, M, N}, NULL);
    LpDnnPrim *p;
    must(lp_dnn_matmul_new(&d, &p, &err), "batched matmul");
    run(p, a, w, y);
    for (int b = 0; b < B; b++)
        product(a + b * M * K, w, want + b * M * N);
    compare("batch", y, want, B * M * N, 1e-4);
    lp_dnn_free(p);
    lp_free(a), lp_free(w), lp_free(y), lp_free(want);
}

enum { SN = 2, SC = 19, SO = 33, SH = 9, SW = 8, KS = 3 };
static const int64_t x_shape[4] = {SN, SC, SH, SW};
static const int64_t w_shape[4] = {SO, SC, KS, KS};
static const int64_t y_shape[4] = {SN, SO, SH, SW};
enum { NX = SN * SC * SH * SW, NW = SO * SC * KS * KS, NY = SN * SO * SH * SW };

/* What each pass of a 3x3 convolution with padding 1 is, in sums: the result
 * is the operand that is NULL as input. */
static void sums(const float *x, const float *w, const float *y, double *out)
{
    memset(out, 0, (x ? w ? NY : NW : NX) * sizeof *out);
    for (int n = 0; n < SN; n++)
        for (int o = 0; o < SO; o++)
            for (int c = 0; c < SC; c++)
                for (int q = 0; q < SH * SW * KS * KS; q++) {
                    int i = q / (KS * KS) / SW, j = q / (KS * KS) % SW;
                    int ki = q % (KS * KS) / KS, kj = q % KS;
                    int si = i + ki - 1, sj = j + kj - 1;
                    if (si < 0 || si >= SH || sj < 0 || sj >= SW)
                        continue;
                    int ix = ((n * SC + c) * SH + si) * SW + sj;
                    int iw = (o * SC + c) * KS * KS + ki * KS + kj;
                    int iy = ((n * SO + o) * SH + i) * SW + j;
                    if (!y)
                        out[iy] += (double)x[ix] * (double)w[iw];
                    else if (!x)
                        out[ix] += (double)y[iy] * (double)w[iw];
                    else
                        out[iw] += (double)y[iy] * (double)x[ix];
                }
}

static LpDnnConv description(LpDnnPass pass, LpDnnConvAlg alg)
{
    LpDnnConv d = {.pass = pass, .alg = alg, .n_spatial = 2, .threads = 2};
    d.src = any(4, x_shape);
    d.weights = any(4, w_shape);
    d.dst = any(4, y_shape);
    for (int i = 0; i < 2; i++)
        d.stride[i] = d.dilation[i] = d.pad_l[i] = d.pad_r[i] = 1;
    return d;
}

static void conv(LpDnnPass pass, LpDnnConvAlg alg, double tolerance,
                 const char *what)
{
    float *data[3] = {numbers(NX, 1), numbers(NW, 2), numbers(NY, 3)};
    static const int64_t *shape[3] = {x_shape, w_shape, y_shape};
    static const int n[3] = {NX, NW, NY};
    static const LpDnnArg arg[3] = {LP_DNN_SRC, LP_DNN_WEIGHTS, LP_DNN_DST};
    int r = pass == LP_DNN_FORWARD ? 2 : pass == LP_DNN_BACKWARD_DATA ? 0 : 1;
    LpDnnConv d = description(pass, alg);
    LpDnnPrim *p;
    must(lp_dnn_conv_new(&d, &p, &err), what);
    void *own[3];
    for (int i = 0; i < 3; i++)
        own[i] = reordered(p, arg[i], plain(4, shape[i], NULL), data[i]);
    run(p, own[0], own[1], own[2]);
    put_back(p, arg[r], plain(4, shape[r], NULL), own[r], data[r]);
    double *want = lp_alloc((size_t)n[r] * sizeof *want);
    sums(r == 0 ? NULL : data[0], r == 1 ? NULL : data[1],
         r == 2 ? NULL : data[2], want);
    compare(what, data[r], want, n[r], tolerance);
    lp_dnn_free(p);
    lp_free(want);
    for (int i = 0; i < 3; i++)
        lp_free(own[i]), lp_free(data[i]);
}

static void check_blocked(void)
{
    conv(LP_DNN_FORWARD, LP_DNN_DIRECT, 1e-4, "blocked convolution");
    /* the layout a result has is one the next can take */
    LpDnnConv d = description(LP_DNN_FORWARD, LP_DNN_DIRECT);
    LpDnnPrim *p, *q;
    must(lp_dnn_conv_new(&d, &p, &err), "first");
    LpDnnConv next = d;
    next.src = *lp_dnn_layout(p, LP_DNN_DST);
    next.weights = any(4, (int64_t[]){SC, SO, KS, KS});
    next.dst = any(4, x_shape);
    must(lp_dnn_conv_new(&next, &q, &err), "second");
    if (!lp_dnn_layout_eq(lp_dnn_layout(q, LP_DNN_SRC), &next.src))
        wrong += printf("a given layout was not kept\n");
    lp_dnn_free(p);
    lp_dnn_free(q);
}

static void check_winograd(void)
{
    LpDnnConv d = description(LP_DNN_FORWARD, LP_DNN_WINOGRAD);
    LpDnnPrim *p;
    LpStatus s = lp_dnn_conv_new(&d, &p, &err);
    if (s == LP_E_NOT_IMPLEMENTED) /* a CPU without AVX-512 */
        return;
    must(s, "winograd");
    lp_dnn_free(p);
    conv(LP_DNN_FORWARD, LP_DNN_WINOGRAD, 5e-3, "winograd");
}

static void check_gradients(void)
{
    conv(LP_DNN_BACKWARD_DATA, LP_DNN_DIRECT, 1e-4, "gradient of the input");
    conv(LP_DNN_BACKWARD_WEIGHTS, LP_DNN_DIRECT, 1e-4,
         "gradient of the weights");
}

static void check_refusals(void)
{
    LpDnnConv d = description(LP_DNN_FORWARD, LP_DNN_WINOGRAD);
    LpDnnPrim *p;
    d.stride[0] = d.stride[1] = 2;
    d.dst = any(4, (int64_t[]){SN, SO, 5, 4});
    if (lp_dnn_conv_new(&d, &p, &err) != LP_E_NOT_IMPLEMENTED)
        wrong += printf("Winograd with stride 2 was not refused\n");
    err = (LpErr){0};
    LpDnnLayout l;
    if (lp_dnn_plain(LP_F64, 1, (int64_t[]){4}, NULL, &l, &err) == LP_OK)
        wrong += printf("a float64 layout was not refused\n");
}

int main(int argc, char **argv)
{
    static const LpCheck checks[] = {
        {"packed", check_packed},     {"added", check_added},
        {"batch", check_batch},       {"blocked", check_blocked},
        {"winograd", check_winograd}, {"gradients", check_gradients},
        {"refusals", check_refusals},
    };
    return lp_checks_run(argc, argv, checks, sizeof checks / sizeof *checks,
                         &wrong);
}

/* Checks of src/base that Lua cannot reach, against independent sources:
 * conversions against gcc's own _Float16 arithmetic and against rounding by
 * nearest neighbour in double, Philox against Random123's known answers, and
 * in vectors against a block at a time, rounding at random against doubles;
 * quotas of made-up groups of processes, and sections that count their parts.
 * Usage: check_base half|bfloat16|philox|vectors|rounding|uniform|normal|log|
 * map|quota|team.
 * Prints what is wrong and exits with 1. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spec/tools/checks.h"
#include "src/base/half.h"
#include "src/base/log.h"
#include "src/base/map.h"
#include "src/base/quota.h"
#include "src/base/random.h"
#include "src/kernel/nn/nnloops.h"
#include "src/kernel/rounding.h"

static int wrong;

static void complain(const char *what, double input, unsigned got,
                     unsigned want)
{
    if (++wrong <= 10)
        printf("%s(%a): got %#x, not %#x\n", what, input, got, want);
}

/* The value of a finite half, from the definition of the format. */
static double half_value(unsigned h)
{
    int e = (int)(h >> 10 & 31);
    double m = h & 0x3ff;
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

static void check_widening(void)
{
    for (unsigned h = 0; h < 0x10000; h++) {
        float f = lp_half_to_float((uint16_t)h);
        if ((h & 0x7c00) != 0x7c00) {
            if ((double)f != half_value(h) || !signbit(f) != !(h & 0x8000))
                complain("lp_half_to_float", h, lp_float_bits(f), 0);
            if (lp_float_to_half(f) != h)
                complain("round trip", h, lp_float_to_half(f), h);
        } else if (h & 0x3ff) {
            if (!isnan(f) || lp_float_to_half(f) != (h | 0x200))
                complain("NaN", h, lp_float_to_half(f), h | 0x200);
        } else if (!isinf(f) || lp_float_to_half(f) != h) {
            complain("infinity", h, lp_float_to_half(f), h);
        }
    }
}

/* The places where rounding is decided: each half, each midpoint, and the
 * numbers next to them in float and in double. */
static void check_midpoints(void)
{
    for (unsigned h = 0; h < 0x7c00; h++) {
        double low = half_value(h);
        double high = h == 0x7bff ? 65536.0 : half_value(h + 1);
        double middle = (low + high) / 2;
        unsigned even = h & 1 ? h + 1 : h;
        struct {
            double x;
            unsigned want;
        } c[] = {
            {middle, even},
            {nextafter(middle, 1e9), h + 1},
            {nextafter(middle, 0), h},
            {nextafterf((float)middle, 1e9f), h + 1},
            {nextafterf((float)middle, 0), h},
            {low, h},
        };
        for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
            for (int s = 0; s < 2; s++) {
                double x = s ? -c[i].x : c[i].x;
                unsigned want = c[i].want | (s ? 0x8000u : 0);
                if (lp_double_to_half(x) != want)
                    complain("lp_double_to_half", x, lp_double_to_half(x),
                             want);
                if ((double)(float)x == x && lp_float_to_half((float)x) != want)
                    complain("lp_float_to_half", x, lp_float_to_half((float)x),
                             want);
            }
        }
    }
}

static unsigned float16_bits(_Float16 v)
{
    uint16_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

/* Random bit patterns against the compiler's conversions. */
static void check_half(void)
{
    check_widening();
    check_midpoints();
    for (uint64_t i = 0; i < 3000000; i++) {
        uint64_t r = lp_mix64(i);
        float f = lp_bits_float((uint32_t)r);
        if (i % 2) /* most patterns are out of half's range: fold some in */
            f = lp_bits_float(((uint32_t)r & 0x87ffffff) | 0x38000000);
        double d;
        uint64_t u = (r & 0x801fffffffffffff) | 0x3e00000000000000;
        u += (r >> 53 & 3) << 54;
        memcpy(&d, &u, sizeof d);
        if (!isnan(f) && lp_float_to_half(f) != float16_bits((_Float16)f))
            complain("lp_float_to_half", (double)f, lp_float_to_half(f),
                     float16_bits((_Float16)f));
        if (!isnan(d) && lp_double_to_half(d) != float16_bits((_Float16)d))
            complain("lp_double_to_half", d, lp_double_to_half(d),
                     float16_bits((_Float16)d));
    }
}

/* bfloat16 by its definition: of the two neighbours the nearer, else even. */
static unsigned nearest_bf16(double x)
{
    float f = (float)x;
    uint32_t u = lp_float_bits(f);
    unsigned below = u >> 16;
    if (fabs((double)lp_bits_float(below << 16)) > fabs(x))
        below--;
    double a = (double)lp_bits_float(below << 16), b;
    if ((below & 0x7fff) == 0x7f7f)
        b = below & 0x8000 ? -0x1p128 : 0x1p128;
    else
        b = (double)lp_bits_float((below + 1) << 16);
    double da = fabs(x - a), db = fabs(b - x);
    return da < db || (da == db && !(below & 1)) ? below : below + 1;
}

static void check_bfloat16(void)
{
    for (unsigned b = 0; b < 0x10000; b++) {
        float f = lp_bf16_to_float((uint16_t)b);
        unsigned want = isnan(f) ? b | 0x40 : b;
        if (lp_float_to_bf16(f) != want)
            complain("bfloat16 round trip", b, lp_float_to_bf16(f), want);
    }
    for (uint64_t i = 0; i < 3000000; i++) {
        uint64_t r = lp_mix64(i);
        if (i % 3 == 0) /* ties, and one part in 2^16 beside them */
            r = (r & ~(uint64_t)0xffff) | 0x8000;
        float f = lp_bits_float((uint32_t)r);
        if (!isfinite(f))
            continue;
        double d = (double)f * (i % 2 ? 1 + 0x1p-50 : 1 - 0x1p-52);
        unsigned want = nearest_bf16((double)f);
        if (lp_float_to_bf16(f) != want)
            complain("lp_float_to_bf16", (double)f, lp_float_to_bf16(f), want);
        if (lp_double_to_bf16(d) != nearest_bf16(d))
            complain("lp_double_to_bf16", d, lp_double_to_bf16(d),
                     nearest_bf16(d));
    }
}

/* Random123 1.14, tests/kat_vectors: philox 4x32 10, and 7 of the same. */
static void check_philox(void)
{
    static const uint32_t kat[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
         0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0,
         0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    static const uint32_t few[3][4] = {
        {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48},
        {0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662},
        {0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a},
    };
    for (int i = 0; i < 3; i++) {
        const uint32_t *k = kat[i];
        LpRandom r = {(uint64_t)k[5] << 32 | k[4], k[1], k[2], k[3]};
        uint32_t w[4];
        lp_random_block(&r, k[0], w);
        for (int j = 0; j < 4; j++) {
            if (w[j] != k[6 + j])
                complain("philox", i, w[j], k[6 + j]);
            if (lp_random_word(&r, 4 * (uint64_t)k[0] + (uint64_t)j) != w[j])
                complain("lp_random_word", i, 0, w[j]);
        }
        lp_random_block_of(LP_RANDOM_FEW_ROUNDS, &r, k[0], w);
        for (int j = 0; j < 4; j++)
            if (w[j] != few[i][j])
                complain("philox of few rounds", i, w[j], few[i][j]);
    }
}

/* This CPU's vectors, up to counters that begin again at 0, and no word past
 * the last. */
enum { BLOCKS = 70 };
static void check_philox_vectors(uint64_t key, uint32_t first, int blocks)
{
    const uint32_t ctr[4] = {first, (uint32_t)lp_mix64(key ^ 1),
                             (uint32_t)lp_mix64(key ^ 2),
                             (uint32_t)lp_mix64(key ^ 3)};
    LpRandom r = {key, ctr[1], ctr[2], ctr[3]};
    uint32_t out[4 * BLOCKS + 4], w[4];
    memset(out, 0x5a, sizeof out);
    lp_nn()->philox(key, ctr, blocks, out);
    for (int b = 0; b < blocks; b++) {
        lp_random_block(&r, first + (uint32_t)b, w);
        for (int j = 0; j < 4; j++)
            if (out[4 * b + j] != w[j])
                complain("philox", blocks, out[4 * b + j], w[j]);
    }
    for (int j = 0; j < 4; j++)
        if (out[4 * blocks + j] != 0x5a5a5a5a)
            complain("words past the last", blocks, out[4 * blocks + j],
                     0x5a5a5a5a);
}

static void check_vectors(void)
{
    static const uint32_t firsts[] = {0,          1,          0x7fffffff,
                                      0xffffffc0, 0xfffffffb, 0xffffffff};
    uint64_t keys[] = {0, UINT64_MAX, lp_mix64(1), lp_mix64(2)};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++)
            for (int n = 1; n <= BLOCKS; n++)
                check_philox_vectors(keys[k], firsts[f], n);
}

/* ---- rounding at random -------------------------------------------------- */
/* The 32 bits that element e draws (rounding.h). */
static uint32_t drawn(const LpRandom *r, uint64_t e)
{
    uint32_t w[4], i = (uint32_t)(e % 32);
    uint64_t block = e / 32 * 4 + i % 8 / 2;
    lp_random_block_of(LP_RANDOM_FEW_ROUNDS, r, (uint32_t)block, w);
    uint32_t word = w[i / 16 * 2 + i % 2];
    return i % 16 < 8 ? word : word << 16 | word >> 16;
}

/* What x becomes of a type of `digits` whose least normal exponent is least,
 * up where more than `most` of the distance is cut off; nearest beyond the
 * largest. */
static double at_random(double x, double most, int digits, int least,
                        double largest)
{
    int e;
    double m = fabs(x);
    if (m == 0 || !isfinite(x))
        return x;
    frexp(m < largest ? m : largest, &e);
    double unit = ldexp(1, (e - 1 < least ? least : e - 1) - digits);
    double low = floor(m / unit) * unit;
    if (m >= largest)
        return copysign(m < largest + unit / 2 ? largest : INFINITY, x);
    return copysign((m - low) / unit > most ? low + unit : low, x);
}

/* Of all kinds, or a normal half that is not large. */
static float to_round(uint64_t i, bool normal)
{
    static const float some[] = {0.0f,     -0.0f,   65504.0f,  -65519.0f,
                                 65520.0f, 1e30f,   -INFINITY, NAN,
                                 3.38e38f, -3.4e38f};
    uint64_t u = lp_mix64(i);
    if (u % 11 == 0 && !normal)
        return some[u / 11 % (sizeof some / sizeof *some)];
    float x = ldexpf((float)(u >> 40) * 0x1p-24f + 1,
                     normal ? (int)(u % 26) - 12 : (int)(u % 39) - 24);
    return u & 1 ? -x : x;
}

static void check_rounded(uint64_t at, int n)
{
    enum { MOST = 200 };
    float x[MOST], wide[MOST + 1];
    uint16_t half[MOST + 1];
    LpRandom r = {lp_mix64(at), 3, 1, 2};
    for (int i = 0; i < n; i++)
        x[i] = to_round(at * 1000 + (uint64_t)i, at % 2);
    for (int t = 0; t < 2; t++) {
        LpDtype to = t ? LP_BF16 : LP_F16;
        half[n] = 0x5a5a;
        wide[n] = 0x5a;
        memcpy(wide, x, (size_t)n * sizeof *x);
        lp_store_at_random(&r, to, at, n, x, half);
        lp_round_at_random(&r, to, at, n, wide);
        for (int i = 0; i < n; i++) {
            uint32_t draw = drawn(&r, at + (uint64_t)i);
            double most = t ? ldexp(~draw >> 16, -16) : ldexp(draw >> 9, -23);
            double y = t ? at_random((double)x[i], most, 7, -126, 0x1.fep127)
                         : at_random((double)x[i], most, 10, -14, 65504);
            float f = t ? lp_bf16_to_float(half[i]) : lp_half_to_float(half[i]);
            bool same = isnan(y) ? isnan(f) && isnan(wide[i])
                                 : (double)f == y && (double)wide[i] == y &&
                                       signbit(f) == signbit(x[i]);
            if (!same)
                complain("rounding at random", (double)x[i], half[i],
                         lp_float_bits(wide[i]));
        }
        if (half[n] != 0x5a5a || wide[n] != 0x5a)
            complain("numbers past the last", n, half[n], 0x5a5a);
    }
}

static void check_rounding(void)
{
    for (uint64_t at = 0; at < 70; at++)
        for (int n = 0; n < 200; n += 1 + (n > 40) * 7)
            check_rounded(at, n);
}

/* A mean of n draws lies within five standard errors of its expectation. */
static void check_mean(const char *what, double sum, double n, double expected,
                       double deviation)
{
    double error = fabs(sum / n - expected), limit = 5 * deviation / sqrt(n);
    if (error > limit) {
        wrong++;
        printf("%s: mean %g, expected %g\n", what, sum / n, expected);
    }
}

static void check_uniform(void)
{
    LpRandom r = lp_random(1, 2, 0, 0, 0);
    double n = 1 << 20, sum = 0, square = 0;
    for (uint64_t i = 0; i < 1 << 20; i++) {
        double u = (double)lp_random_unit(lp_random_word(&r, i));
        if (!(u >= 0 && u < 1))
            complain("range", u, 0, 0);
        sum += u;
        square += u * u;
    }
    check_mean("uniform", sum, n, 0.5, sqrt(1 / 12.0));
    check_mean("uniform, square", square, n, 1 / 3.0, sqrt(4 / 45.0));
    if (lp_random_unit(0xffffffff) >= 1 || lp_random_unit(0xff) != 0)
        complain("range", 1, 0, 0);
}

static void check_normal(void)
{
    LpRandom r = lp_random(1, 3, 0, 0, 0);
    double n = 1 << 20, s1 = 0, s2 = 0, s4 = 0, cross = 0, last = 0;
    for (uint64_t i = 0; i < 1 << 20; i++) {
        double z = (double)lp_random_normal(&r, i);
        if (!isfinite(z))
            complain("normal", (double)i, 0, 0);
        s1 += z;
        s2 += z * z;
        s4 += z * z * z * z;
        cross += z * last;
        last = z;
    }
    check_mean("normal", s1, n, 0, 1);
    check_mean("normal, square", s2, n, 1, sqrt(2));
    check_mean("normal, fourth power", s4, n, 3, sqrt(96));
    check_mean("normal, neighbours", cross, n, 0, 1);
}

static void keep_line(void *user, LpLogLevel level, const char *line)
{
    snprintf(user, 64, "%d %s", (int)level, line);
}

static void check_log(void)
{
    char got[64] = "";
    lp_log_set_sink(keep_line, got);
    lp_log_set_level(LP_LOG_WARN);
    lp_log(LP_LOG_INFO, "hidden");
    if (*got)
        complain("level", 0, 1, 0);
    lp_log(LP_LOG_ERR, "n = %d", 3);
    if (strcmp(got, "4 n = 3") != 0)
        complain("line", 0, 1, 0);
    lp_log_set_level(LP_LOG_OFF);
    lp_log(LP_LOG_OFF, "never");
    if (strcmp(got, "4 n = 3") != 0)
        complain("off", 0, 1, 0);
    lp_log_set_sink(NULL, NULL);
}

/* Number i stands under the key i / 3 * stride, for three at a time. */
static void check_map(void)
{
    static const uint64_t strides[] = {1, 64, 1u << 20, (uint64_t)1 << 40};
    for (size_t s = 0; s < sizeof strides / sizeof *strides; s++) {
        LpMap m = {0};
        if (lp_map_first(&m, 0))
            complain("empty map", 0, 1, 0);
        for (uint32_t i = 0; i < 3000; i++) {
            if (!lp_map_add(&m, i / 3 * strides[s], i))
                complain("map add", i, 0, 1);
            unsigned found = 0;
            for (const uint32_t *at = lp_map_first(&m, i / 3 * strides[s]); at;
                 at = lp_map_next(&m, at))
                found |= 1u << (*at - i / 3 * 3);
            if (found != (2u << i % 3) - 1)
                complain("map numbers", i, found, (2u << i % 3) - 1);
        }
        if (m.n != 3000 || lp_map_first(&m, 1000 * strides[s]))
            complain("map", (double)strides[s], (unsigned)m.n, 3000);
        lp_map_fini(&m);
        for (uint32_t i = 0; i < 3000; i++)
            ++*lp_map_at(&m, i % 1000 * strides[s]);
        for (uint32_t i = 0; i < 1000; i++)
            if (*lp_map_at(&m, i * strides[s]) != 3)
                complain("map at", i, *lp_map_at(&m, i * strides[s]), 3);
        if (m.n != 1000)
            complain("map of counts", (double)strides[s], (unsigned)m.n, 1000);
        lp_map_fini(&m);
    }
}

/* A file below the present folder, with the folders on its way. */
static void put(const char *path, const char *text)
{
    char folder[PATH_MAX];
    for (const char *at = strchr(path, '/'); at; at = strchr(at + 1, '/')) {
        snprintf(folder, sizeof folder, "%.*s", (int)(at - path), path);
        mkdir(folder, 0700);
    }
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        complain(path, 0, 0, 1);
}

static void check_quota(void)
{
    static const struct {
        const char *groups;
        double want;
    } cases[] = {{"0::/\n", 6},
                 {"0::/a/b\n", 1.5},
                 {"0::/a\n", 4},
                 {"0::/a/none\n", 4}, /* its own folder says max */
                 {"0::/gone/x\n", 6}, /* the path is that of outside */
                 {"0::/../..\n", 6},
                 {"5:cpuset:/v\n0::/\n", 6},
                 {"5:cpu,cpuacct:/v/w\n", 0.25},
                 {"5:cpuacct,cpu:/v\n4:memory:/v/w\n", 2},
                 {"5:cpu:/u\n", 0},
                 {"5:cpu\n\n", 0},
                 {"", 0}};
    char top[] = "/tmp/check_base.XXXXXX";
    if (!mkdtemp(top) || chdir(top) != 0) {
        complain("mkdtemp", 0, 0, 1);
        return;
    }
    put("cpu.max", "600000 100000\n");
    put("a/cpu.max", "40000 10000\n");
    put("a/b/cpu.max", "150000 100000\n");
    put("a/none/cpu.max", "max 100000\n");
    put("cpu/v/cpu.cfs_quota_us", "200000\n");
    put("cpu/v/cpu.cfs_period_us", "100000\n");
    put("cpu/v/w/cpu.cfs_quota_us", "25000\n");
    put("cpu/v/w/cpu.cfs_period_us", "100000\n");
    put("cpu/u/cpu.cfs_quota_us", "-1\n");
    put("cpu/u/cpu.cfs_period_us", "100000\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("groups", cases[i].groups);
        double got = lp_quota("groups", ".");
        if (got < cases[i].want || got > cases[i].want)
            complain(cases[i].groups, got, (unsigned)i, 0);
    }
    if (lp_quota("nowhere", ".") > 0)
        complain("no file", 0, 1, 0);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", top);
    if (chdir("/") != 0 || system(command) != 0)
        complain("rm", 0, 0, 1);
}

/* Each part of n sections runs once and knows its number; after a barrier all
 * see what all did before it, and a section within is part 0 of 1. */
enum { PARTS = 7 };
static void check_section(int parts, int seen[][2])
{
#pragma omp parallel num_threads(parts)
    {
        int i = omp_get_thread_num(), met = 0;
        seen[i][0]++;
        if (omp_get_num_threads() != parts || !omp_in_parallel())
            complain("team", i, (unsigned)omp_get_num_threads(), 0);
#pragma omp barrier
        for (int k = 0; k < parts; k++)
            met += seen[k][0];
#pragma omp barrier
        seen[i][0] = 0;
#pragma omp parallel num_threads(2)
        seen[i][1] += omp_get_num_threads() == 1 && omp_get_thread_num() == 0;
        if (met != parts)
            complain("barrier", i, (unsigned)met, (unsigned)parts);
    }
}

static void check_team(void)
{
    int seen[PARTS][2] = {{0}}, want = 0, sum = 0;
    for (int round = 0; round < 300; round++) {
        for (int parts = 2; parts <= PARTS; parts++)
            check_section(parts, seen);
        want += 2;
        if (seen[PARTS - 1][1] != round + 1 || seen[0][1] != 6 * (round + 1))
            complain("parts", round, (unsigned)seen[0][1], 0);
        for (int i = 0; i < 50; i++) {
#pragma omp parallel for num_threads(2) reduction(+ : sum) schedule(static, 1)
            for (int k = 0; k < 2; k++)
                sum += omp_get_thread_num() == k;
        }
    }
    if (sum != 50 * want || omp_in_parallel() || omp_get_num_threads() != 1)
        complain("sum", 0, (unsigned)sum, (unsigned)(50 * want));
}

int main(int argc, char **argv)
{
    static const LpCheck checks[] = {
        {"half", check_half},         {"bfloat16", check_bfloat16},
        {"philox", check_philox},     {"vectors", check_vectors},
        {"rounding", check_rounding}, {"uniform", check_uniform},
        {"normal", check_normal},     {"log", check_log},
        {"map", check_map},           {"quota", check_quota},
        {"team", check_team},
    };
    return lp_checks_run(argc, argv, checks, sizeof checks / sizeof *checks,
                         &wrong);
}

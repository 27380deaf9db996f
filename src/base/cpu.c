/* cpuid and the system are asked once, under pthread_once; LUPINE_CPU then
 * lowers what they said. */
#include "src/base/cpu.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/process.h"
#include "src/base/quota.h"

static struct {
    LpSimd simd;
    bool bf16, amx;
    char name[128];
    int threads;
} cpu;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool known; /* each row of a kernel may ask: no call of libc's */

static const char *const simd_names[LP_N_SIMD] = {"plain", "avx2", "avx512"};

/* What LUPINE_CPU may ask for, each including those before it. */
static const struct {
    const char *name;
    LpSimd simd;
    bool bf16, amx;
} level[] = {{"plain", LP_SIMD_PLAIN, false, false},
             {"avx2", LP_SIMD_AVX2, false, false},
             {"avx512", LP_SIMD_AVX512, false, false},
             {"avx512_bf16", LP_SIMD_AVX512, true, false},
             {"amx", LP_SIMD_AVX512, true, true}};

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* AMX is no name of __builtin_cpu_supports before gcc 13: leaf 7, EDX bits
 * 22 (bf16), 24 (tile), 25 (int8). Linux grants the tiles' data, state
 * component 18, on request (arch_prctl's ARCH_REQ_XCOMP_PERM). */
static bool has_amx(void)
{
    unsigned a, b, c, d;
    const unsigned want = 1u << 22 | 1u << 24 | 1u << 25;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & want) == want &&
           syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

/* __builtin_cpu_supports also asks whether the system saves the registers. */
static void ask_features(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("f16c"))
        return;
    cpu.simd = LP_SIMD_AVX2;
    if (!__builtin_cpu_supports("avx512f") ||
        !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512dq"))
        return;
    cpu.simd = LP_SIMD_AVX512;
    cpu.bf16 = __builtin_cpu_supports("avx512bf16");
    cpu.amx = has_amx();
}
#else
static void ask_features(void) {}
#endif

static int own_level(void)
{
    int i = (int)(sizeof level / sizeof *level) - 1;
    while (level[i].simd > cpu.simd || (level[i].bf16 && !cpu.bf16) ||
           (level[i].amx && !cpu.amx))
        i--;
    return i;
}

static void lower(const char *wanted)
{
    if (!wanted || !*wanted)
        return;
    int own = own_level();
    for (int i = 0; i < (int)(sizeof level / sizeof *level); i++) {
        if (strcmp(wanted, level[i].name) != 0)
            continue;
        if (i > own) {
            lp_log(LP_LOG_WARN, "LUPINE_CPU=%s: this CPU has only %s", wanted,
                   level[own].name);
            return;
        }
        cpu.simd = level[i].simd;
        cpu.bf16 &= level[i].bf16;
        cpu.amx &= level[i].amx;
        return;
    }
    lp_log(LP_LOG_WARN,
           "LUPINE_CPU=%s: known are plain, avx2, avx512, avx512_bf16, amx",
           wanted);
}

/* What the first line called `name` of /proc/cpuinfo says; false: there is
 * none. */
static bool cpuinfo(const char *name, char *value, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f)
        return false;
    bool found = false;
    char line[512];
    while (!found && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, name, strlen(name)) != 0 || !colon)
            continue;
        colon += strspn(colon, ": \t");
        snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        found = true;
    }
    fclose(f);
    return found;
}

/* arm64 has numbers (MIDR_EL1's) in the place of a name. */
static void ask_name(void)
{
    char maker[32], part[32];
    if (cpuinfo("model name", cpu.name, sizeof cpu.name))
        return;
    if (cpuinfo("CPU implementer", maker, sizeof maker) &&
        cpuinfo("CPU part", part, sizeof part))
        snprintf(cpu.name, sizeof cpu.name, "CPU implementer %s, part %s",
                 maker, part);
    else
        strcpy(cpu.name, "unknown CPU");
}

/* The number that `name` starts with, or 0 (OMP_NUM_THREADS may be a list
 * for nested regions: the first counts). */
static int env_count(const char *name)
{
    const char *s = getenv(name);
    long n = s ? strtol(s, NULL, 10) : 0;
    return n < 1 ? 0 : n > 1024 ? 1024 : (int)n;
}

/* Processors that this process may use, within the quota of its container: part
 * of one counts as a whole one. */
static int granted(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    double quota = lp_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota > 0 && quota < n ? (int)ceil(quota) : n;
}

static void ask_threads(void)
{
    int n = env_count("OMP_NUM_THREADS");
    int limit = env_count("OMP_THREAD_LIMIT");
    if (n == 0)
        n = granted();
    if (limit && n > limit)
        n = limit;
    cpu.threads = n < 1 ? 1 : n;
}

static void ask(void)
{
    ask_features();
    lower(getenv("LUPINE_CPU"));
    ask_name();
    ask_threads();
    atomic_store_explicit(&known, true, memory_order_release);
}

static void ask_once(void)
{
    if (!atomic_load_explicit(&known, memory_order_acquire))
        pthread_once(&once, ask);
}

const char *lp_simd_name(LpSimd simd)
{
    return simd_names[simd];
}

#define ASKED(type, function, field)                                           \
    type function(void)                                                        \
    {                                                                          \
        ask_once();                                                            \
        return cpu.field;                                                      \
    }
ASKED(LpSimd, lp_cpu_simd, simd)
ASKED(bool, lp_cpu_has_avx512_bf16, bf16)
ASKED(bool, lp_cpu_has_amx, amx)
ASKED(const char *, lp_cpu_name, name)

int lp_cpu_threads(void)
{
    ask_once();
    return lp_in_worker() ? 1 : cpu.threads;
}

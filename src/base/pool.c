/* A section is taken part by part. The thread that meets it runs part 0, each
 * of the pool's its own; whoever is done takes what nobody has begun. So a
 * thread that sleeps, or that another program keeps from its processor, holds
 * nobody up unless it is amid a part. A part that waits for the others at a
 * barrier does so while they are begun: nobody takes a second part before its
 * first has passed all barriers, and there are as many threads as parts.
 *
 * Sections are numbered by twos. A place has a section's number once somebody
 * has the part, the odd number below before; so a thread that comes late, with
 * an old number, gets nothing.
 *
 * Who waits looks again and again for a tenth of a millisecond, then sleeps
 * (futex): waking takes 25 us and more, but where programs share processors
 * waiting awake takes the time of the very thread that is waited for.
 * GOMP_SPINCOUNT and OMP_WAIT_POLICY say otherwise, as for GNU OpenMP. It is
 * next to nothing where threads are more than processors, or two are seen on
 * one. There the system leaves them if other programs have the rest; the one of
 * the higher number then goes where none of the lower ones is.
 *
 * Linux gives who wakes up a processor before a program that computes if it
 * asks for short slices, from 6.12 on; it has no more of the time by that.
 *
 * Sources: futex(2); sched_setattr(2); Drepper, "Futexes are tricky". */
#include "src/base/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/base/interrupt.h"
#include "src/base/team.h"

enum { LINE = 64, LOOK = 64 /* rounds between looks at clock and place */ };
#define AWAKE_NS 100000
#define SLICE_NS 500000

_Thread_local LpPart lp_part;

/* A number that threads wait for, and how many of them sleep. */
typedef struct Word {
    _Alignas(LINE) _Atomic uint32_t at;
    _Atomic int asleep;
} Word;

typedef struct Place {
    _Alignas(LINE) _Atomic uint32_t at;
    _Atomic int cpu; /* where the part runs, or the last of its number did */
} Place;

static struct {
    Word section; /* number of the last */
    _Atomic int n;
    void (*body)(void *);
    void *data;
    Word left;           /* parts that are not done */
    Word passed;         /* barriers of all */
    _Atomic int arrived; /* at the next one */
    Place place[LP_TEAM_MOST];
} pool;
static pthread_mutex_t entry = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int members = 1; /* the thread that meets sections, the pool's */
static cpu_set_t allowed;
static uint64_t most_rounds = UINT64_MAX;
static int64_t awake_ns = AWAKE_NS;

/* ---- waiting ------------------------------------------------------------ */
static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void futex(_Atomic uint32_t *at, int op, uint32_t v)
{
    syscall(SYS_futex, at, op | FUTEX_PRIVATE_FLAG, v, NULL, NULL, 0);
}

static bool crowded(void)
{
    return members > CPU_COUNT(&allowed);
}

static int cpu_of(int i)
{
    return atomic_load_explicit(&pool.place[i].cpu, memory_order_relaxed);
}

/* Does one of parts 0 to n - 1 run where part `own` does? */
static bool meets(int own, int n)
{
    int cpu = sched_getcpu();
    for (int i = 0; i < n; i++)
        if (i != own && cpu_of(i) == cpu)
            return true;
    return false;
}

static uint32_t sleep_until(Word *w, uint32_t old)
{
    uint32_t now;
    atomic_fetch_add(&w->asleep, 1);
    while ((now = atomic_load(&w->at)) == old)
        futex(&w->at, FUTEX_WAIT, old);
    atomic_fetch_sub(&w->asleep, 1);
    return now;
}

/* Until the word is not `old`: what it is. */
static uint32_t await(Word *w, uint32_t old, int own)
{
    uint64_t most = crowded() && most_rounds > LOOK ? LOOK : most_rounds;
    int64_t end = 0;
    for (uint64_t i = 0; i < most; i++) {
        uint32_t now = atomic_load_explicit(&w->at, memory_order_acquire);
        if (now != old)
            return now;
        relax();
        if (i % LOOK != LOOK - 1)
            continue;
        int64_t t = clock_ns();
        end = end ? end : t + awake_ns;
        if (t >= end ||
            meets(own, atomic_load_explicit(&pool.n, memory_order_relaxed)))
            break;
    }
    return sleep_until(w, old);
}

/* After the word changed. */
static void wake(Word *w)
{
    if (atomic_load(&w->asleep) > 0)
        futex(&w->at, FUTEX_WAKE, INT_MAX);
}

/* ---- parts -------------------------------------------------------------- */
static bool take(uint32_t section, int i)
{
    uint32_t open = section - 1;
    _Atomic uint32_t *at = &pool.place[i].at;
    return atomic_load_explicit(at, memory_order_relaxed) == open &&
           atomic_compare_exchange_strong(at, &open, section);
}

static void stand(int i)
{
    atomic_store_explicit(&pool.place[i].cpu, sched_getcpu(),
                          memory_order_relaxed);
}

static void run(int i)
{
    lp_part = (LpPart){i, atomic_load_explicit(&pool.n, memory_order_relaxed)};
    pool.body(pool.data);
    lp_part = (LpPart){0};
    if (atomic_fetch_sub(&pool.left.at, 1) == 1)
        wake(&pool.left);
}

/* Part `own` and those after it, as far as nobody has begun them. */
static void help(uint32_t section, int own)
{
    int n = atomic_load_explicit(&pool.n, memory_order_relaxed);
    for (int k = 0, i = own; k < n; k++, i = i + 1 < n ? i + 1 : 0) {
        if (i >= n || !take(section, i))
            continue;
        stand(i);
        run(i);
    }
}

/* To a processor where no part of a lower number is. */
static void step_aside(int own)
{
    cpu_set_t set = allowed;
    for (int i = 0; i < own; i++)
        CPU_CLR((size_t)cpu_of(i), &set);
    if (CPU_COUNT(&set) > 0)
        sched_setaffinity(0, sizeof set, &set);
}

static void ask_for_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } a = {0}; /* sched_attr, first version */
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 ||
        a.policy != SCHED_OTHER)
        return;
    a.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &a, 0);
}

static void *member(void *own)
{
    int me = (int)(intptr_t)own;
    uint32_t seen = 0;
    ask_for_short_slices();
    for (;;) {
        seen = await(&pool.section, seen, me);
        if (!crowded() && meets(me, me))
            step_aside(me);
        help(seen, me);
    }
    return NULL;
}

void lp_pool_barrier(void)
{
    uint32_t before = atomic_load(&pool.passed.at);
    if (atomic_fetch_add(&pool.arrived, 1) + 1 < lp_part.of) {
        await(&pool.passed, before, lp_part.i);
        return;
    }
    atomic_store(&pool.arrived, 0);
    atomic_store(&pool.passed.at, before + 1);
    wake(&pool.passed);
}

/* ---- the pool ----------------------------------------------------------- */
/* GNU OpenMP says what it does not know in them. */
static void ask_environment(void)
{
    const char *rounds = getenv("GOMP_SPINCOUNT");
    const char *policy = getenv("OMP_WAIT_POLICY");
    bool active = policy && strcasecmp(policy, "active") == 0;
    if (rounds && *rounds) {
        char *end;
        most_rounds = strtoull(rounds, &end, 10);
        if (end == rounds) /* INFINITE */
            most_rounds = UINT64_MAX;
        active = true;
    } else if (policy && strcasecmp(policy, "passive") == 0) {
        most_rounds = 0;
    }
    if (active)
        awake_ns = INT64_MAX / 2;
}

/* A forked process has but the thread that forked. */
static void in_child(void)
{
    atomic_store(&members, 1);
    atomic_store(&pool.section.asleep, 0);
}

static void start(void)
{
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        CPU_SET(0, &allowed);
    ask_environment();
    ask_for_short_slices();
    pthread_atfork(NULL, NULL, in_child);
}

static bool grow(int n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
    sigset_t before; /* signals are for the threads of the program */
    lp_signals_hold(&before);
    bool ok = true;
    for (; members < n && ok; members++) {
        pthread_t t;
        ok = pthread_create(&t, NULL, member, (void *)(intptr_t)members) == 0;
        if (ok)
            pthread_detach(t);
    }
    members -= !ok;
    lp_signals_release(&before);
    return ok;
}

static void run_section(void (*body)(void *), void *data, int n)
{
    uint32_t number =
        atomic_load_explicit(&pool.section.at, memory_order_relaxed) + 2;
    for (int i = 1; i < n; i++)
        atomic_store_explicit(&pool.place[i].at, number - 1,
                              memory_order_relaxed);
    atomic_store_explicit(&pool.n, n, memory_order_relaxed);
    pool.body = body;
    pool.data = data;
    atomic_store_explicit(&pool.left.at, (uint32_t)n, memory_order_relaxed);
    stand(0);
    atomic_store(&pool.section.at, number);
    wake(&pool.section);
    run(0);
    help(number, 1);
    uint32_t left;
    while ((left = atomic_load_explicit(&pool.left.at, memory_order_acquire)))
        await(&pool.left, left, 0);
}

bool lp_pool_run(void (*body)(void *), void *data, int n)
{
    pthread_mutex_lock(&entry);
    bool ok = grow(n);
    if (ok)
        run_section(body, data, n);
    pthread_mutex_unlock(&entry);
    return ok;
}

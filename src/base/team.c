/* Parallel sections. The compiler makes calls of GNU OpenMP of them, which are
 * answered here: those of this project, and of the libraries that have sections
 * of their own, oneDNN and OpenBLAS, whose calls find these functions before
 * GNU OpenMP's. The parts of a section are run by whoever is there
 * (src/base/pool.h); GNU OpenMP's threads would have to be there all.
 *
 * A section of one part runs as a call: a team costs a fifth of a microsecond,
 * as much as a kernel of a few hundred elements. So does a section within
 * another, where replicas run side by side: it is part 0 of 1, and waits for
 * nobody.
 *
 * Sections of other code in this process (a custom operator's library) may use
 * what is not answered here, tasks or loops dealt out on demand: GNU OpenMP
 * runs them, and answers in them. So it does all where the environment binds
 * threads to processors, which is its work. */
#include "src/base/team.h"

#include <dlfcn.h>
#include <link.h>
#include <omp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/pool.h"

typedef void Body(void *data);
void GOMP_parallel(Body *body, void *data, unsigned threads, unsigned flags);
void GOMP_barrier(void);

/* ---- GNU OpenMP --------------------------------------------------------- */
static struct {
    void (*parallel)(Body *body, void *data, unsigned threads, unsigned flags);
    void (*barrier)(void);
    int (*thread_num)(void), (*num_threads)(void), (*in_parallel)(void);
} gnu;

/* Where the code of this project and of its libraries lies. */
enum { MOST_RANGES = 16 };
static struct {
    uintptr_t from, to;
} range[MOST_RANGES];
static int n_ranges;

static void add_range(const struct dl_phdr_info *info, const ElfW(Phdr) * h)
{
    if (h->p_type != PT_LOAD || !(h->p_flags & PF_X) || n_ranges == MOST_RANGES)
        return;
    range[n_ranges].from = info->dlpi_addr + h->p_vaddr;
    range[n_ranges].to = range[n_ranges].from + h->p_memsz;
    n_ranges++;
}

static bool holds(const struct dl_phdr_info *info, uintptr_t at)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && at >= from &&
            at < from + info->dlpi_phdr[i].p_memsz)
            return true;
    }
    return false;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (strstr(info->dlpi_name, "/libdnnl.") ||
        strstr(info->dlpi_name, "/libopenblas") ||
        holds(info, (uintptr_t)look_at))
        for (int i = 0; i < info->dlpi_phnum; i++)
            add_range(info, &info->dlpi_phdr[i]);
    return 0;
}

static bool asks(const char *name)
{
    const char *s = getenv(name);
    return s && *s;
}

static bool bound; /* threads to processors */
__attribute__((constructor)) static void look(void)
{
    static const struct {
        const char *name;
        void *at;
    } want[] = {{"GOMP_parallel", &gnu.parallel},
                {"GOMP_barrier", &gnu.barrier},
                {"omp_get_thread_num", &gnu.thread_num},
                {"omp_get_num_threads", &gnu.num_threads},
                {"omp_in_parallel", &gnu.in_parallel}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        void *at = dlsym(RTLD_NEXT, want[i].name);
        memcpy(want[i].at, &at, sizeof at);
    }
    dl_iterate_phdr(look_at, NULL);
    bound = asks("OMP_PROC_BIND") || asks("OMP_PLACES") ||
            asks("GOMP_CPU_AFFINITY");
}

static bool ours(Body *body)
{
    uintptr_t at = (uintptr_t)body;
    for (int i = 0; i < n_ranges; i++)
        if (at >= range[i].from && at < range[i].to)
            return true;
    return false;
}

/* ---- what a part asks --------------------------------------------------- */
int omp_get_thread_num(void)
{
    return lp_part.of ? lp_part.i : gnu.thread_num();
}

int omp_get_num_threads(void)
{
    return lp_part.of ? lp_part.of : gnu.num_threads();
}

int omp_in_parallel(void)
{
    return lp_part.of || gnu.in_parallel();
}

void GOMP_barrier(void)
{
    if (lp_part.of > 1)
        lp_pool_barrier();
    else if (!lp_part.of)
        gnu.barrier();
}

/* ---- watching ----------------------------------------------------------- */
static const LpTeamWatch *watch;

void lp_team_watch(const LpTeamWatch *w)
{
    watch = w;
}

typedef struct Timed {
    Body *body;
    void *data;
    int n; /* parts that ran; part 0 says */
} Timed;
static LpTeamTime taken[LP_TEAM_MOST];

static void timed_body(void *p)
{
    Timed *t = p;
    int i = omp_get_thread_num(), n = omp_get_num_threads();
    if (i == 0)
        t->n = n;
    if (n > LP_TEAM_MOST) {
        t->body(t->data);
        return;
    }
    int64_t start = watch->clock();
    t->body(t->data);
    taken[i] = (LpTeamTime){start, watch->clock()};
}

/* ---- running ------------------------------------------------------------ */
static void run_as(LpPart part, Body *body, void *data)
{
    LpPart outer = lp_part;
    lp_part = part;
    body(data);
    lp_part = outer;
}

/* A section that is not within another. */
static void run(Body *body, void *data, int n)
{
    if (bound || n > LP_TEAM_MOST || !lp_pool_run(body, data, n))
        gnu.parallel(body, data, (unsigned)n, 0);
}

static void run_watched(Body *body, void *data, int n)
{
    Timed t = {body, data, 0};
    run(timed_body, &t, n);
    if (t.n > 1 && t.n <= LP_TEAM_MOST)
        watch->section(watch->ctx, taken, t.n);
}

static void run_others(Body *body, void *data, unsigned threads, unsigned flags)
{
    LpPart outer = lp_part;
    lp_part = (LpPart){0};
    gnu.parallel(body, data, threads, flags);
    lp_part = outer;
}

void GOMP_parallel(Body *body, void *data, unsigned threads, unsigned flags)
{
    if (!ours(body)) {
        run_others(body, data, threads, flags);
        return;
    }
    if (omp_in_parallel()) {
        run_as((LpPart){0, 1}, body, data);
        return;
    }
    int n = threads ? (int)threads : omp_get_max_threads();
    int limit = omp_get_thread_limit();
    n = n < limit ? n : limit;
    if (n == 1)
        body(data);
    else if (watch)
        run_watched(body, data, n);
    else
        run(body, data, n);
}

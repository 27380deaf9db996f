/* Runs the step whose text comes on standard input, its replicas dealt out to
 * N forked processes, and prints a hash of what each replica has afterwards:
 * comm_probe N [mixed | fail]. The lines are the same for any N, if every other
 * process lays weights out otherwise (mixed), and if a call with other inputs
 * fails before them, after its first sum was started (fail).
 * comm_probe N layouts: prints what processes compare of their accumulators'
 * layouts instead. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/exec/exec.h"
#include "runtime/exec/sum.h"
#include "src/base/hash.h"
#include "src/base/mem.h"
#include "src/ir/schema.h"
#include "src/passes/compile.h"

enum { PLACE = 1 << 16, PLACES = 256 }; /* bytes of one buffer; of all */

/* ---- communication over shared memory ---------------------------------- */
typedef struct Shared {
    pthread_barrier_t barrier;
    uint64_t table[PLACES]; /* of each process */
    char place[PLACES][PLACE];
} Shared;

typedef struct Peer {
    Shared *shared;
    int64_t replicas;
    int fails_in; /* starts until one fails; 0: none does */
} Peer;

static char *place(const Peer *p, const LpReduction *r, int64_t replica)
{
    return p->shared->place[(int64_t)r->var * p->replicas + replica];
}

static size_t bytes_of(const LpReduction *r)
{
    return (size_t)r->n * lp_dtype_size(r->dtype);
}

static LpStatus agree(const LpComm *c, uint64_t mine, bool *same, LpErr *e)
{
    (void)e;
    Shared *s = ((const Peer *)c->ctx)->shared;
    s->table[c->rank] = mine;
    pthread_barrier_wait(&s->barrier);
    *same = true;
    for (int64_t i = 0; i < c->size; i++)
        *same &= s->table[i] == mine;
    return LP_OK;
}

static LpStatus start(const LpComm *c, const LpReduction *r, LpErr *e)
{
    Peer *p = c->ctx;
    LP_FAIL_IF(p->fails_in && --p->fails_in == 0, e, LP_E_RUNTIME, "cut off");
    LP_FAIL_IF(bytes_of(r) > PLACE || (r->var + 1) * p->replicas > PLACES, e,
               LP_E_VALUE, "variable %u is too large", r->var);
    for (int64_t i = 0; i < r->n_local; i++)
        memcpy(place(p, r, c->rank * r->n_local + i), r->local[i], bytes_of(r));
    return LP_OK;
}

/* The sum of the group of replica `all`, into `to`. */
static void sum_group(const Peer *p, const LpReduction *r, int64_t all,
                      void *to)
{
    int64_t n = p->replicas, step = lp_group_stride(r->group, n);
    int64_t at = lp_group_first(r->group, n, lp_group_of(r->group, n, all));
    memcpy(to, place(p, r, at), bytes_of(r));
    for (int64_t k = 1; k < lp_group_size(r->group, n); k++) {
        void *pair[2] = {to, place(p, r, at + k * step)};
        LpSumRounding how = r->rounding;
        how.rc.replica = (uint32_t)lp_group_of(r->group, n, all);
        how.first = k - 1;
        lp_sum_buffers(r->dtype, pair, 2, 1, r->n, &how);
    }
}

static LpStatus finish(const LpComm *c, const LpReduction *r, LpErr *e)
{
    (void)e;
    const Peer *p = c->ctx;
    for (int64_t i = 0; i < r->n_local; i++)
        if (memcmp(place(p, r, c->rank * r->n_local + i), r->local[i],
                   bytes_of(r)) != 0)
            printf("variable %u was written while it was summed\n", r->var);
    pthread_barrier_wait(&p->shared->barrier);
    for (int64_t i = 0; i < r->n_local; i++)
        sum_group(p, r, c->rank * r->n_local + i, r->local[i]);
    pthread_barrier_wait(&p->shared->barrier);
    return LP_OK;
}

/* ---- values ------------------------------------------------------------- */
static void fill(float *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(lp_hash_bytes(seed, &i, sizeof i) % 2001) / 1000 - 1;
}

static LpStatus write_vars(LpExec *x, const LpStep *s, LpErr *e)
{
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        if (v->role == LP_VAR_ACCUM || v->role == LP_VAR_STREAM_IN ||
            v->role == LP_VAR_STREAM_OUT)
            continue;
        LpTensor *t = NULL;
        LpType type = lp_var_host_type(s, v);
        LP_TRY(lp_tensor_new(&type, &t, e));
        fill(lp_tensor_data(t), lp_numel(&type), i + 1);
        LpStatus st = lp_exec_write(x, i, t, e);
        lp_tensor_release(t);
        LP_TRY(st);
    }
    return LP_OK;
}

static LpStatus make_streams(const LpStep *s, LpStream *st, int64_t local,
                             LpErr *e)
{
    int64_t loops = s->device_iterations * s->gradient_accumulation;
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        int64_t n = lp_numel(&v->type);
        float *all = lp_calloc((size_t)(n * loops * local) + 1, sizeof *all);
        LP_FAIL_IF(!all, e, LP_E_MEMORY, "out of memory");
        st[i] = (LpStream){.in = all, .out = all, .mode = LP_OUT_ALL};
    }
    return LP_OK;
}

/* Slices in the order [slice of the loops][replica of this process]. */
static void fill_streams(const LpStep *s, const LpStream *st, int64_t first,
                         int64_t local, uint64_t seed)
{
    int64_t loops = s->device_iterations * s->gradient_accumulation;
    for (size_t i = 0; i < s->n_var; i++) {
        int64_t n = lp_numel(&s->var[i].type);
        for (int64_t k = 0; k < loops * local; k++) {
            int64_t replica = first + k % local, loop = k / local;
            fill((float *)st[i].out + k * n, n,
                 seed + (uint64_t)(loop * s->replicas + replica));
        }
    }
}

static LpStatus report(LpExec *x, const LpStep *s, const LpStream *st,
                       int64_t first, int64_t local, LpErr *e)
{
    int64_t loops = s->device_iterations * s->gradient_accumulation;
    static char value[PLACE];
    for (size_t i = 0; i < s->n_var; i++) {
        const LpVariable *v = &s->var[i];
        size_t bytes = (size_t)lp_type_bytes(&v->type);
        for (int64_t r = 0; r < local; r++) {
            uint64_t h = LP_HASH_START;
            if (v->role == LP_VAR_STREAM_OUT) {
                for (int64_t k = 0; k < loops; k++)
                    h = lp_hash_bytes(h,
                                      (const char *)st[i].out +
                                          (size_t)(k * local + r) * bytes,
                                      bytes);
            } else if (v->role == LP_VAR_PARAM || v->role == LP_VAR_STATE ||
                       v->role == LP_VAR_BUFFER) {
                LP_TRY(lp_exec_read(x, i, r, value, e));
                h = lp_hash_bytes(h, value, bytes);
            } else {
                continue;
            }
            printf("replica %d %s %s %016llx\n", (int)(first + r),
                   lp_var_role_name(v->role), v->name, (unsigned long long)h);
        }
    }
    return LP_OK;
}

static void report_layouts(const LpProgram *p)
{
    for (uint32_t i = 0; i < p->n_reduce; i++)
        printf("%s %016llx\n", p->step->var[p->reduce[i].var].name,
               (unsigned long long)p->reduce[i].layout);
}

/* ---- one process -------------------------------------------------------- */
/* With other inputs than those of the calls that succeed. */
static LpStatus fail_once(LpExec *x, const LpStep *s, const LpStream *st,
                          int64_t first, int64_t local, LpErr *e)
{
    int64_t finished;
    fill_streams(s, st, first, local, 5000);
    LP_FAIL_IF(lp_exec_run(x, st, &finished, e) == LP_OK, e, LP_E_VALUE,
               "a call that must fail did not");
    *e = (LpErr){0};
    return LP_OK;
}

static LpStatus run(const LpStep *s, const LpComm *c, const char *how, LpErr *e)
{
    LpProgram *p = NULL;
    LpExec *x = NULL;
    int64_t finished, local = s->replicas / c->size, first = c->rank * local;
    LpHostOptions o = lp_host_options();
    o.threads = 1;
    o.weight_layouts = strcmp(how, "mixed") != 0 || c->rank % 2 == 0;
    LpStream *st = lp_calloc(s->n_var + 1, sizeof *st);
    LP_FAIL_IF(!st, e, LP_E_MEMORY, "out of memory");
    LpTopology here = {s->replicas, first, local};
    LP_TRY(lp_compile_host(s, &here, &o, &p, e));
    LP_TRY(lp_exec_new(p, c, &x, e));
    LP_TRY(write_vars(x, s, e));
    LP_TRY(make_streams(s, st, local, e));
    if (strcmp(how, "fail") == 0)
        LP_TRY(fail_once(x, s, st, first, local, e));
    fill_streams(s, st, first, local, 1000);
    for (int call = 0; call < 2; call++)
        LP_TRY(lp_exec_run(x, st, &finished, e));
    if (strcmp(how, "layouts") == 0)
        report_layouts(p);
    else
        LP_TRY(report(x, s, st, first, local, e));
    for (size_t i = 0; i < s->n_var; i++)
        lp_free(st[i].out);
    lp_free(st);
    lp_exec_free(x);
    return LP_OK;
}

static int member(const LpStep *s, Shared *shared, int rank, int size,
                  const char *how)
{
    LpErr e = {0};
    Peer p = {shared, s->replicas, strcmp(how, "fail") == 0 ? 2 : 0};
    LpComm c = {.ctx = &p, .rank = rank, .size = size};
    c.agree = agree;
    c.start = start;
    c.wait = finish;
    if (run(s, size > 1 ? &c : lp_comm_alone(), how, &e) == LP_OK)
        return fflush(stdout);
    fprintf(stderr, "%s\n", e.msg);
    return 1;
}

int main(int argc, char **argv)
{
    static char text[1 << 20];
    LpErr e = {0};
    LpStep *s = NULL;
    int size = argc > 1 ? atoi(argv[1]) : 1, failed = 0;
    const char *how = argc > 2 ? argv[2] : "";
    text[fread(text, 1, sizeof text - 1, stdin)] = '\0';
    if (lp_schema_init(&e) != LP_OK || lp_step_parse(text, &s, &e) != LP_OK) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attr, (unsigned)size);
    for (int r = 1; r < size; r++)
        if (fork() == 0) {
            int code = member(s, shared, r, size, how);
            lp_step_release(s);
            _exit(code);
        }
    failed = member(s, shared, 0, size, how);
    for (int r = 1, status; r < size; r++)
        failed |= wait(&status) < 0 || status != 0;
    lp_step_release(s);
    return failed;
}

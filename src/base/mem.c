/* malloc and mmap behind one gate that counts blocks and can be told to fail;
 * arenas of chunks; large blocks on large pages. */
#include "src/base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/checked.h"

#define ALIGN 64
#define LARGE ((size_t)2 << 20) /* blocks from here on lie on large pages */
#define CHUNK ((size_t)32 * 1024)
#define MAPPED ((size_t)256 * 1024) /* of lp_zeros: own pages from here on */

struct LpArenaChunk {
    struct LpArenaChunk *next;
    size_t pad; /* keeps data aligned to 16 bytes */
    char data[];
};

static _Atomic uint64_t fail_in;
static _Atomic bool lasting, none_left; /* none_left: it has struck and lasts */
static _Atomic int64_t live;
static _Atomic size_t most = SIZE_MAX;

int64_t lp_mem_kept;

static bool may_allocate(size_t size)
{
    if (size > atomic_load_explicit(&most, memory_order_relaxed))
        return false;
    uint64_t n = atomic_load_explicit(&fail_in, memory_order_relaxed);
    if (n == 0)
        return !atomic_load_explicit(&none_left, memory_order_relaxed);
    if (atomic_fetch_sub(&fail_in, 1) != 1)
        return true;
    atomic_store(&none_left, lasting);
    return false;
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    return p;
}

uint64_t lp_mem_fail_at(uint64_t n, bool and_after)
{
    atomic_store(&none_left, false);
    atomic_store(&lasting, and_after);
    return atomic_exchange(&fail_in, n);
}

void lp_mem_most(size_t n)
{
    atomic_store(&most, n);
}

int64_t lp_mem_live(void)
{
    return atomic_load(&live) - lp_mem_kept;
}

void *lp_alloc(size_t n)
{
    return may_allocate(n) ? counted(malloc(n ? n : 1)) : NULL;
}

void *lp_calloc(size_t n, size_t size)
{
    size_t all;
    bool fits = lp_mul_size(n, size, &all) && may_allocate(all);
    return fits ? counted(calloc(n ? n : 1, size ? size : 1)) : NULL;
}

void *lp_realloc(void *p, size_t n)
{
    if (!p)
        return lp_alloc(n);
    return may_allocate(n) ? realloc(p, n ? n : 1) : NULL;
}

/* The whole pages within p[0..n). */
static size_t whole_pages(void *p, size_t n, void **from)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)p + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)p + n) & ~(page - 1);
    *from = (void *)first;
    return end > first ? end - first : 0;
}

/* Asks for large pages where they fit into p[0..n), before it is touched. The
 * system may refuse; its answer does not matter. Through 4 KB pages a step over
 * tens of megabytes takes a fifth to two thirds longer. */
static void large_pages(void *p, size_t n)
{
#ifdef MADV_HUGEPAGE
    void *from;
    size_t bytes = whole_pages(p, n, &from);
    (void)madvise(from, bytes, MADV_HUGEPAGE);
#else
    (void)p, (void)n;
#endif
}

void *lp_alloc_aligned(size_t n)
{
    size_t m;
    if (!lp_add_size(n, ALIGN - 1, &m) || !may_allocate(n))
        return NULL;
    m &= ~(size_t)(ALIGN - 1);
    void *p = aligned_alloc(ALIGN, m ? m : ALIGN);
    if (p && m >= LARGE)
        large_pages(p, m);
    return counted(p);
}

void lp_free(void *p)
{
    if (p)
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    free(p);
}

void lp_forget(void *p, size_t n)
{
    void *from;
    size_t bytes = whole_pages(p, n, &from);
    if (bytes)
        (void)madvise(from, bytes, MADV_DONTNEED);
}

void lp_clear(void *p, size_t n)
{
    void *from;
    size_t bytes = n >= MAPPED ? whole_pages(p, n, &from) : 0;
    if (bytes == 0 || madvise(from, bytes, MADV_DONTNEED) != 0) {
        memset(p, 0, n);
        return;
    }
    size_t before = (size_t)((char *)from - (char *)p);
    memset(p, 0, before);
    memset((char *)from + bytes, 0, n - before - bytes);
}

/* What lp_zeros maps for n bytes; 0: few come from the heap. Linux aligns a
 * mapping to large pages if it is a multiple of theirs; the rest of the last
 * one stays untouched. */
static size_t mapped(size_t n)
{
    if (n < MAPPED)
        return 0;
    return n < LARGE || n % LARGE == 0 ? n : n + (LARGE - n % LARGE);
}

void *lp_zeros(size_t n)
{
    size_t all = mapped(n);
    if (all == 0) {
        void *p = lp_alloc_aligned(n);
        return p ? memset(p, 0, n) : NULL;
    }
    void *p = all >= n && may_allocate(all)
                  ? mmap(NULL, all, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                  : MAP_FAILED;
    if (p == MAP_FAILED)
        return NULL;
    if (n >= LARGE)
        large_pages(p, n);
    return counted(p);
}

void lp_zeros_free(void *p, size_t n)
{
    size_t all = mapped(n);
    if (!p || all == 0) {
        lp_free(p);
        return;
    }
    atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    munmap(p, all);
}

void lp_trim(void)
{
    malloc_trim(0);
}

char *lp_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = lp_alloc(n);
    return p ? memcpy(p, s, n) : NULL;
}

bool lp_grow(void **p, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return true;
    size_t c = *cap ? *cap * 2 : 8, bytes;
    if (c <= n)
        c = n + 1;
    if (!lp_mul_size(c, size, &bytes))
        return false;
    void *q = lp_realloc(*p, bytes);
    if (!q)
        return false;
    *p = q;
    *cap = c;
    return true;
}

void *lp_arena_alloc(LpArena *a, size_t n)
{
    size_t m;
    if (!lp_add_size(n, 15, &m))
        return NULL;
    m &= ~(size_t)15;
    if (!a->head || a->cap - a->used < m) {
        size_t cap = m > CHUNK ? m : CHUNK, bytes;
        if (!lp_add_size(cap, sizeof *a->head, &bytes))
            return NULL;
        struct LpArenaChunk *c = lp_alloc(bytes);
        if (!c)
            return NULL;
        c->next = a->head;
        a->head = c;
        a->cap = cap;
        a->used = 0;
    }
    void *p = a->head->data + a->used;
    a->used += m;
    return p;
}

void *lp_arena_calloc(LpArena *a, size_t n)
{
    void *p = lp_arena_alloc(a, n);
    return p ? memset(p, 0, n) : NULL;
}

void *lp_arena_memdup(LpArena *a, const void *p, size_t n)
{
    void *q = lp_arena_alloc(a, n);
    return q && n ? memcpy(q, p, n) : q;
}

char *lp_arena_strdup(LpArena *a, const char *s)
{
    return lp_arena_memdup(a, s, strlen(s) + 1);
}

void lp_arena_reset(LpArena *a)
{
    if (!a->head)
        return;
    while (a->head->next) {
        struct LpArenaChunk *next = a->head->next->next;
        lp_free(a->head->next);
        a->head->next = next;
    }
    a->used = 0;
}

void lp_arena_fini(LpArena *a)
{
    while (a->head) {
        struct LpArenaChunk *next = a->head->next;
        lp_free(a->head);
        a->head = next;
    }
    a->used = a->cap = 0;
}

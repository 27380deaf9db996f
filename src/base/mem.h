/* The only entry to the heap. Tests can make the n-th allocation fail.
 * Small blocks come straight from malloc; tensor storages are aligned to 64
 * bytes. An arena is freed as a whole. */
#ifndef LP_BASE_MEM_H
#define LP_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All return NULL when memory is short (or a planned failure strikes); a size
 * of 0 gives a block that may be freed. lp_free takes NULL. */
void *lp_alloc(size_t n);
void *lp_calloc(size_t n, size_t size);
void *lp_realloc(void *p, size_t n);
void lp_free(void *p);
char *lp_strdup(const char *s);

/* Aligned to 64 bytes; freed with lp_free. */
void *lp_alloc_aligned(size_t n);

/* Gives the whole pages within p[0..n) back: what they hold is lost, they read
 * as zeros (or as before, where the system does not do it). */
void lp_forget(void *p, size_t n);

/* Zeros p[0..n) of the heap. Pages within a large block are given back: they
 * are had again, as zeros, when they are touched. */
void lp_clear(void *p, size_t n);

/* Zeros, aligned to 64 bytes; of a large block a page is had when it is first
 * touched, and all are given back when it is freed. */
void *lp_zeros(size_t n);
void lp_zeros_free(void *p, size_t n); /* of lp_zeros(n); NULL is fine */

/* Gives free memory of the heap back to the system. */
void lp_trim(void);

/* Blocks that pools hold for reuse; they do not count as alive. Only touched
 * under the interpreter. */
extern int64_t lp_mem_kept;

/* Test hooks: the n-th allocation from now fails (1 = the next; 0 = none), and
 * if `lasting` all after it, until the next call; returns what is left of the
 * number before: 0 if it has struck. Blocks alive now. */
uint64_t lp_mem_fail_at(uint64_t n, bool lasting);
int64_t lp_mem_live(void);
/* No allocation of more than n bytes succeeds from now on. */
void lp_mem_most(size_t n);

/* Makes room for one more element in a growing array of `size`-byte elements;
 * false when memory is short (the array stays as it was). */
bool lp_grow(void **p, size_t *cap, size_t n, size_t size);
#define LP_GROW(ptr, cap, n)                                                   \
    ((n) < (cap) || lp_grow((void **)&(ptr), &(cap), (n), sizeof *(ptr)))

/* Chunked arena. Zero-initialised is empty. Blocks are aligned to 16 bytes and
 * live until lp_arena_fini. */
typedef struct LpArena {
    struct LpArenaChunk *head;
    size_t used, cap;
} LpArena;

void *lp_arena_alloc(LpArena *a, size_t n);  /* NULL when memory is short */
void *lp_arena_calloc(LpArena *a, size_t n); /* zeroed */
char *lp_arena_strdup(LpArena *a, const char *s);
void *lp_arena_memdup(LpArena *a, const void *p, size_t n);
void lp_arena_fini(LpArena *a);
/* Forgets all blocks but keeps one chunk for reuse. */
void lp_arena_reset(LpArena *a);

#endif

/* Lua's small blocks, kept for reuse.
 *
 * The collector lets go of them by the hundred, many more than malloc's
 * lists for a thread take, and the next ones would be cut anew from what they
 * were joined to. Lists of blocks by what malloc grants for a size (24 bytes,
 * then 16 more each) answer faster; blocks that Lua had of malloc before are
 * alike. Under AddressSanitizer nothing is kept, so that it sees every use
 * after free.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "src/main.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
enum { LISTS = 16, KEEP = 512 }; /* up to 264 bytes; blocks of a list */

typedef struct Kept {
    struct Kept *next;
} Kept;
static struct {
    Kept *first;
    int n;
} lists[LISTS];

static size_t list_of(size_t bytes)
{
    return bytes <= 24 ? 0 : (bytes - 9) / 16;
}

static void *take(size_t bytes)
{
    size_t i = list_of(bytes);
    if (i >= LISTS)
        return malloc(bytes);
    Kept *k = lists[i].first;
    if (!k)
        return malloc(24 + 16 * i);
    lists[i].first = k->next;
    lists[i].n--;
    return k;
}

static void give(void *p, size_t bytes)
{
    size_t i = list_of(bytes);
    if (!p || i >= LISTS || lists[i].n == KEEP) {
        free(p);
        return;
    }
    Kept *k = p;
    k->next = lists[i].first;
    lists[i].first = k;
    lists[i].n++;
}

static void *resize(void *data, void *p, size_t from, size_t to)
{
    (void)data;
    if (to == 0) {
        give(p, from);
        return NULL;
    }
    if (!p)
        return take(to);
    size_t a = list_of(from), b = list_of(to);
    if (a >= LISTS && b >= LISTS)
        return realloc(p, to);
    if (a == b)
        return p;
    void *q = take(to);
    if (!q) /* less is always granted */
        return to < from ? p : NULL;
    memcpy(q, p, from < to ? from : to);
    give(p, from);
    return q;
}

void lp_host_keep_blocks(lua_State *L)
{
    lua_setallocf(L, resize, NULL);
}
#else
void lp_host_keep_blocks(lua_State *L)
{
    (void)L;
}
#endif

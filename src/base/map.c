/* Open addressing with linear probing, at most half full, so that a search
 * ends after a few slots; expected constant time. Keys are mixed: callers may
 * use addresses and counters as they are. */
#include "src/base/map.h"

#include "src/base/mem.h"
#include "src/base/random.h"

struct LpMapSlot {
    uint64_t key;
    uint32_t value;
    bool used;
};

void lp_map_fini(LpMap *m)
{
    lp_free(m->slot);
    *m = (LpMap){0};
}

static size_t start(const LpMap *m, uint64_t key)
{
    return (size_t)lp_mix64(key) & (m->cap - 1);
}

static void put(LpMap *m, uint64_t key, uint32_t value)
{
    size_t i = start(m, key);
    while (m->slot[i].used)
        i = (i + 1) & (m->cap - 1);
    m->slot[i] = (struct LpMapSlot){key, value, true};
}

bool lp_map_add(LpMap *m, uint64_t key, uint32_t value)
{
    if (m->n * 2 >= m->cap) {
        LpMap more = {.n = m->n, .cap = m->cap ? m->cap * 2 : 16};
        more.slot = lp_calloc(more.cap, sizeof *more.slot);
        if (!more.slot)
            return false;
        for (size_t i = 0; i < m->cap; i++)
            if (m->slot[i].used)
                put(&more, m->slot[i].key, m->slot[i].value);
        lp_free(m->slot);
        *m = more;
    }
    put(m, key, value);
    m->n++;
    return true;
}

static uint32_t *seek(const LpMap *m, uint64_t key, size_t i)
{
    for (; m->slot[i].used; i = (i + 1) & (m->cap - 1))
        if (m->slot[i].key == key)
            return &m->slot[i].value;
    return NULL;
}

const uint32_t *lp_map_first(const LpMap *m, uint64_t key)
{
    return m->cap ? seek(m, key, start(m, key)) : NULL;
}

const uint32_t *lp_map_next(const LpMap *m, const uint32_t *at)
{
    const char *field = (const char *)at;
    const struct LpMapSlot *s =
        (const void *)(field - offsetof(struct LpMapSlot, value));
    return seek(m, s->key, ((size_t)(s - m->slot) + 1) & (m->cap - 1));
}

uint32_t *lp_map_at(LpMap *m, uint64_t key)
{
    bool there = lp_map_first(m, key) || lp_map_add(m, key, 0);
    return there ? seek(m, key, start(m, key)) : NULL;
}

/* A memfd with a head, the text and the tensors, each from a page on. The
 * writer writes it once; the reader maps large tensors where they are and
 * copies small ones, unless they are to be shared: then it maps all of them.
 * The kernel frees the memory when nobody maps it any more, so nothing is left
 * over, whichever process dies when. Sources: memfd_create(2),
 * posix_fallocate(3). */
#include "src/io/message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/checked.h"
#include "src/base/mem.h"

#define PAGE 4096
#define COPIED (64 << 10) /* smaller tensors are copied: one page fault less */

typedef struct Head {
    size_t n, size; /* tensors, bytes of the text */
    size_t shared;  /* the tensors are */
} Head;

typedef struct Item {
    LpType type;
    uint64_t at, bytes;
} Item;

static LpStatus failed(const char *what, LpErr *e)
{
    return lp_fail(e, LP_E_OS, "worker: %s: %s", what, strerror(errno));
}

/* ---- writing ------------------------------------------------------------- */
/* All n bytes at `at`, of the file or to it. */
static bool transfer(int fd, void *p, size_t n, uint64_t at, bool out)
{
    for (char *c = p; n > 0;) {
        ssize_t k =
            out ? pwrite(fd, c, n, (off_t)at) : pread(fd, c, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        c += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return true;
}

static bool write_at(int fd, const void *p, size_t n, uint64_t at)
{
    return transfer(fd, (void *)(uintptr_t)p, n, at, true);
}

static uint64_t next_page(uint64_t at)
{
    return (at + PAGE - 1) / PAGE * PAGE;
}

/* Where the tensors go in a message; the end is its size. */
static LpStatus lay_out(Head h, Item *items, LpTensor *const *t, size_t n,
                        size_t *end, LpErr *e)
{
    size_t at = sizeof h + h.n * sizeof *items;
    bool fits = lp_add_size(at, h.size, &at);
    for (size_t i = 0; fits && i < h.n; i++) {
        const LpTensor *like = t[i % n];
        items[i].type = lp_tensor_type(like);
        items[i].bytes =
            (uint64_t)lp_tensor_numel(like) * lp_dtype_size(like->dtype);
        items[i].at = at = next_page(at);
        fits = lp_add_size(at, items[i].bytes + PAGE, &at);
        at -= PAGE;
    }
    *end = at;
    return fits && at <= INT64_MAX ? LP_OK : lp_no_memory(e);
}

static bool write_head(int fd, Head h, const Item *items, const char *text)
{
    return write_at(fd, &h, sizeof h, 0) &&
           write_at(fd, items, h.n * sizeof *items, sizeof h) &&
           write_at(fd, text, h.size, sizeof h + h.n * sizeof *items);
}

static LpStatus fill(int fd, Head h, Item *items, const char *text,
                     LpTensor *const *t, LpErr *e)
{
    size_t end;
    for (size_t i = 0; i < h.n; i++) {
        LP_TRY(lp_tensor_touch(t[i], false, e));
        LP_FAIL_IF(!lp_tensor_contiguous(t[i]), e, LP_E_VALUE,
                   "worker: a tensor is not contiguous");
    }
    LP_TRY(lay_out(h, items, t, h.n, &end, e));
    bool ok = write_head(fd, h, items, text);
    for (size_t i = 0; ok && i < h.n; i++)
        ok = write_at(fd, lp_tensor_data(t[i]), items[i].bytes, items[i].at);
    return ok ? LP_OK : failed("shared memory", e);
}

/* Bytes that the system can give, as far as it tells: more would make it kill
 * processes. Source: proc(5). */
static size_t available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    size_t all = 0, kib;
    char line[128];
    if (!f)
        return SIZE_MAX;
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %zu", &kib) == 1 ||
            sscanf(line, "SwapFree: %zu", &kib) == 1)
            all += kib << 10;
    fclose(f);
    return all > 0 ? all : SIZE_MAX;
}

/* Memory that is there: a system that has too little says so now and kills
 * nobody later. */
static LpStatus reserve(int fd, Head h, Item *items, const char *text,
                        LpTensor *const *like, size_t n, LpErr *e)
{
    size_t end;
    LP_TRY(lay_out(h, items, like, n, &end, e));
    size_t most = available();
    LP_FAIL_IF(
        end > most, e, LP_E_MEMORY,
        "out of memory: shared buffers take %zu bytes, %zu are available", end,
        most);
    do
        errno = posix_fallocate(fd, 0, (off_t)end);
    while (errno == EINTR);
    bool ok = errno == 0 && write_head(fd, h, items, text);
    return ok ? LP_OK : failed("shared memory", e);
}

static LpStatus make(Head h, const char *text, LpTensor *const *t, size_t n,
                     int *fd, LpErr *e)
{
    Item *items = lp_calloc(h.n, sizeof *items);
    *fd = items ? memfd_create("lupine", MFD_CLOEXEC) : -1;
    LpStatus s = !items     ? lp_no_memory(e)
                 : *fd < 0  ? failed("memfd_create", e)
                 : h.shared ? reserve(*fd, h, items, text, t, n, e)
                            : fill(*fd, h, items, text, t, e);
    if (s != LP_OK && *fd >= 0)
        close(*fd);
    lp_free(items);
    return s;
}

LpStatus lp_message_write(const char *text, size_t size, LpTensor *const *t,
                          size_t n, int *fd, LpErr *e)
{
    return make((Head){.n = n, .size = size}, text, t, n, fd, e);
}

LpStatus lp_message_share(const char *text, size_t size, LpTensor *const *like,
                          size_t n, size_t copies, int *fd, LpErr *e)
{
    Head h = {.size = size, .shared = 1};
    LP_FAIL_IF(!lp_mul_size(n, copies, &h.n), e, LP_E_MEMORY,
               "worker: too many tensors");
    return make(h, text, like, n, fd, e);
}

/* ---- reading ------------------------------------------------------------- */
static bool read_at(int fd, void *p, size_t n, uint64_t at)
{
    return transfer(fd, p, n, at, false);
}

static void unmap(void *ctx, void *data)
{
    munmap(data, (size_t)(uintptr_t)ctx);
}

static LpStatus map_tensor(int fd, const Item *x, LpTensor **out, LpErr *e)
{
    LpStorage *st;
    void *p = mmap(NULL, x->bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_POPULATE, fd, (off_t)x->at);
    if (p == MAP_FAILED)
        return failed("shared memory", e);
    LpStatus s = lp_storage_wrap(p, x->bytes, unmap,
                                 (void *)(uintptr_t)x->bytes, &st, e);
    if (s != LP_OK) {
        munmap(p, x->bytes);
        return s;
    }
    s = lp_tensor_over(st, &x->type, NULL, 0, out, e);
    lp_storage_release(st);
    return s;
}

static LpStatus read_tensor(int fd, const Item *x, size_t copied,
                            LpTensor **out, LpErr *e)
{
    if (x->bytes >= copied)
        return map_tensor(fd, x, out, e);
    LP_TRY(lp_tensor_new(&x->type, out, e));
    if (read_at(fd, lp_tensor_data(*out), x->bytes, x->at))
        return LP_OK;
    lp_tensor_release(*out);
    *out = NULL;
    return failed("shared memory", e);
}

LpStatus lp_message_read(int fd, LpMessage *out, LpErr *e)
{
    Head h;
    *out = (LpMessage){0};
    if (!read_at(fd, &h, sizeof h, 0))
        return failed("shared memory", e);
    Item *items = lp_calloc(h.n, sizeof *items);
    out->text = lp_alloc(h.size + 1);
    out->t = lp_calloc(h.n, sizeof(LpTensor *));
    LpStatus s = items && out->text && out->t ? LP_OK : lp_no_memory(e);
    uint64_t at = sizeof h + h.n * sizeof *items;
    if (s == LP_OK && !(read_at(fd, items, h.n * sizeof *items, sizeof h) &&
                        read_at(fd, out->text, h.size, at)))
        s = failed("shared memory", e);
    if (s == LP_OK) {
        out->text[h.size] = '\0';
        out->size = h.size;
    }
    size_t copied = h.shared ? 1 : COPIED;
    for (; s == LP_OK && out->n < h.n; out->n += s == LP_OK)
        s = read_tensor(fd, &items[out->n], copied, &out->t[out->n], e);
    lp_free(items);
    if (s != LP_OK)
        lp_message_fini(out);
    return s;
}

void lp_message_fini(LpMessage *m)
{
    for (size_t i = 0; i < m->n; i++)
        lp_tensor_release(m->t[i]);
    lp_free(m->t);
    lp_free(m->text);
    *m = (LpMessage){0};
}

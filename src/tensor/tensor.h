/* Storages and tensors.
 *
 * A storage is counted memory, aligned to 64 bytes, shared by views. A tensor
 * is counted too: type, strides and offset over a storage. A view knows its
 * base (retained) and the chain of view operators that leads from the base to
 * it, so that traces and eager autograd can replay it.
 *
 * Under a trace a tensor has no memory: its storage has the flag
 * LP_ST_TRACED. A storage without bytes (device meta) has LP_ST_META. */
#ifndef LP_TENSOR_TENSOR_H
#define LP_TENSOR_TENSOR_H

#include "src/tensor/shape.h"

enum {
    LP_ST_TRACED = 1, /* a value of a running or finished trace; no bytes */
    LP_ST_META = 2,   /* device meta: shape only */
    LP_ST_HOOKED = 4, /* an executor may own a newer copy: pull before use */
    LP_ST_SHARED = 8, /* hooked by an executor that reads these very bytes, or
                         has the only ones: gives way to other hooks */
    LP_ST_MIRRORED = 16, /* of a training model: nobody shares it */
};

typedef struct LpStorage LpStorage;

/* Called before the bytes of a hooked storage are read or written by anyone
 * but its executor; clears LP_ST_HOOKED by itself when it has pulled. */
typedef struct LpStorageHook {
    LpStatus (*pull)(void *ctx, LpStorage *st, bool will_write, LpErr *e);
    void *ctx; /* borrowed: the executor unhooks before it goes */
} LpStorageHook;

struct LpStorage {
    int32_t refs;     /* only ever touched under the interpreter */
    uint32_t flags;   /* LP_ST_… */
    uint32_t version; /* counts in-place writes */
    uint32_t era;     /* lp_storage_era when it was made */
    size_t bytes;
    void *data;
    LpStorageHook hook;
    void (*release)(void *ctx, void *data); /* NULL: aligned memory */
    union {
        void *release_ctx;
        uint32_t held; /* if traced: the value last written to it */
    };
};

/* What stamps storages: 0, or the number of the running trace. */
extern uint32_t lp_storage_era;

/* Owned by the caller (one reference). Contents are undefined. */
LpStatus lp_storage_new(size_t bytes, LpStorage **out, LpErr *e);
/* Takes over `data`; `release(ctx, data)` is called at the end, with NULL it is
 * of lp_alloc_aligned(bytes). On failure nothing was taken. */
LpStatus lp_storage_wrap(void *data, size_t bytes,
                         void (*release)(void *ctx, void *data), void *ctx,
                         LpStorage **out, LpErr *e);
void lp_storage_release(LpStorage *st); /* NULL is fine */
/* Gives the system what freed storages left in the heap, if it is much. */
void lp_storage_trim(void);
/* Bytes held by all live storages, and the peak. */
int64_t lp_storage_live_bytes(void);
int64_t lp_storage_peak_bytes(void);

/* One step of a view chain: operator and attributes, counted. Operator and
 * attributes are opaque here (src/ir gives them meaning). */
typedef struct LpViewStep {
    int32_t refs;
    struct LpViewStep *parent; /* retained; NULL: the base itself */
    LpType type;               /* of the result of this step */
    void *call;                /* owned by release_call */
    void (*release_call)(void *call);
} LpViewStep;
void lp_view_step_release(LpViewStep *s);

typedef struct LpTensor LpTensor;

/* Autograd or trace state; src/autodiff and src/ir define it. */
typedef struct LpTensorMeta LpTensorMeta;

struct LpTensor {
    int32_t refs;
    LpDtype dtype;
    int8_t ndim;
    bool requires_grad; /* leaf flag or result of a recorded operation */
    bool is_param;      /* torch.nn.Parameter */
    int64_t offset;     /* elements */
    int64_t shape[LP_MAX_DIMS];
    int64_t strides[LP_MAX_DIMS]; /* elements */
    LpStorage *st;                /* retained */
    LpTensor *base;               /* retained; NULL for a base */
    LpViewStep *view;             /* retained; NULL for a base */
    LpTensorMeta *meta;           /* owned; NULL for plain data */
};

/* All return owned tensors. */
LpStatus lp_tensor_new(const LpType *type, LpTensor **out, LpErr *e);
LpStatus lp_tensor_empty(const LpType *type, uint32_t flags, LpTensor **out,
                         LpErr *e); /* LP_ST_TRACED or LP_ST_META */
LpStatus lp_tensor_over(LpStorage *st, const LpType *type,
                        const int64_t *strides, int64_t offset, LpTensor **out,
                        LpErr *e); /* retains st; strides NULL: contiguous */
LpTensor *lp_tensor_retain(LpTensor *t);
void lp_tensor_release(LpTensor *t); /* NULL is fine */

LpType lp_tensor_type(const LpTensor *t);
int64_t lp_tensor_numel(const LpTensor *t);
bool lp_tensor_contiguous(const LpTensor *t);
static inline void *lp_tensor_data(const LpTensor *t)
{
    return (char *)t->st->data + t->offset * (int64_t)lp_dtype_size(t->dtype);
}
/* Makes the bytes current: pulls a hooked storage. One flag test when there is
 * nothing to do. RuntimeError for a traced or meta tensor. */
LpStatus lp_tensor_touch(const LpTensor *t, bool will_write, LpErr *e);

/* src/autodiff installs how meta is freed. */
extern void (*lp_tensor_meta_free)(LpTensor *t);

#endif

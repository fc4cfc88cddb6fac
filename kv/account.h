#ifndef FOVEA_KV_ACCOUNT_H
#define FOVEA_KV_ACCOUNT_H

/* WHAT A STORE HOLDS OF THE POOL. Every byte goes through the store's account, so the pool knows what
 * each owner holds without knowing stores. Bytes may be reserved first; memory that is taken afterwards
 * uses them, and needs no room in the pool.
 *
 * Inside kv/ only (pool.c). */
#include "kernels/ops.h"
#include "kv/pool.h"

typedef struct fv_kv_account {
    fv_kv_pool *pool;
    const fv_kv_shape *shape; /* the pool's */
    fv_device *device;
    const char *owner; /* borrowed */
    size_t held;       /* bytes, those reserved included */
    size_t reserved;   /* not in use yet */
    bool idle;         /* nobody uses what it holds: a cache gives it up when memory is needed */
    struct fv_kv_account *next,
        **link; /* list of the pool's accounts, and the pointer to this one */
} fv_kv_account;

/* Opens an account of no bytes, owned by ""; closes one that holds reserved bytes at most. */
void fv_kv_account_open(fv_kv_account *a, fv_kv_pool *pool);
void fv_kv_account_close(fv_kv_account *a);

/* Reserves bytes. FV_EBUSY if the pool's limit does not allow them; the same holds for the functions
 * below, which are FV_ENOMEM if the device is out of memory. */
fv_status fv_kv_account_reserve(fv_kv_account *a, size_t bytes);
void fv_kv_account_release(fv_kv_account *a); /* all that is reserved */

/* Moves bytes that are in use from one account of a pool to another. */
void fv_kv_account_move(fv_kv_account *from, fv_kv_account *to, size_t bytes);

/* Says whether anybody uses what the account holds. An idle account takes no more memory. */
void fv_kv_account_set_idle(fv_kv_account *a, bool idle);

/* Takes a buffer. Giving it back empties it. */
fv_status fv_kv_take(fv_kv_account *a, size_t bytes, fv_buf *out);
void fv_kv_give(fv_kv_account *a, fv_buf *buf);

/* Takes a buffer that will replace `old`. Unless it is larger it needs no room in the pool, although the
 * old one is given back later. */
fv_status fv_kv_take_for(fv_kv_account *a, const fv_buf *old, size_t bytes, fv_buf *out);

static inline size_t fv_kv_row_bytes(const fv_kv_shape *s) {
    return (size_t)s->d_head * fv_dtype_bytes(s->dtype);
}

static inline size_t fv_kv_page_bytes(const fv_kv_shape *s) {
    return FV_KV_BLOCK * fv_kv_row_bytes(s);
}

/* Takes or gives a page. */
fv_status fv_kv_take_page(fv_kv_account *a, void **out);
void fv_kv_give_page(fv_kv_account *a, void *page);

/* Changes what is held for tables, which are not the pool's memory, from *charged to `bytes`. On failure
 * *charged stays. */
fv_status fv_kv_charge_tables(fv_kv_account *a, size_t bytes, size_t *charged);

/* Returns pinned host memory that the device copies into; valid until the next call for this pool. */
fv_status fv_kv_staging(fv_kv_pool *p, size_t bytes, void **out);

#endif

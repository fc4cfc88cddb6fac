#ifndef FOVEA_TESTS_OPS_DEVICE_MIRROR_H
#define FOVEA_TESTS_OPS_DEVICE_MIRROR_H

/* The device copy of what a call references, and of its results. */
#include "tests/ops/device_test.h"

/* Copies of host memory, freed together. */
typedef struct mirror {
    fv_backend *be;
    fv_buf *bufs;
    int n;
} mirror;

static inline void *there(mirror *m, const void *from, size_t bytes) {
    fv_device *dev = m->be->device;
    m->bufs = realloc(m->bufs, (size_t)(m->n + 1) * sizeof *m->bufs);
    if (!m->bufs) exit(1);
    fv_buf *b = &m->bufs[m->n++];
    must(fv_buf_alloc(dev, bytes ? bytes : 1, FV_BUF_DEVICE, b));
    if (bytes) must(dev->ops->copy_async(dev, b->data, from, bytes));
    return b->data;
}

/* NULL stays NULL. */
static inline void *there_if(mirror *m, const void *from, size_t bytes) {
    return from ? there(m, from, bytes) : NULL;
}

/* Copies to the host; waits for all issued operations. */
static inline void back(const mirror *m, void *to, const void *from, size_t bytes) {
    if (bytes) must(m->be->device->ops->copy_async(m->be->device, to, from, bytes));
    must(m->be->ops->sync(m->be));
}

static inline void mirror_free(mirror *m) {
    for (int i = 0; i < m->n; i++) fv_buf_free(&m->bufs[i]);
    free(m->bufs);
}

/* The address in `copy` that corresponds to `p` in `all`. */
static inline void *moved(const void *p, const void *all, void *copy) {
    return (char *)copy + ((const char *)p - (const char *)all);
}

static inline bool same(const float *a, const float *b, size_t n, const char *what) {
    long at = first_difference(a, b, n);
    return check(at < 0, "%s: element %ld of %zu is %a, the CPU gives %a", what, at, n,
                 at < 0 ? 0.0 : (double)a[at], at < 0 ? 0.0 : (double)b[at]);
}

#endif

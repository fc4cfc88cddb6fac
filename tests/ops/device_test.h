#ifndef FOVEA_TESTS_OPS_DEVICE_TEST_H
#define FOVEA_TESTS_OPS_DEVICE_TEST_H

/* A device's operations against the plain ones: the same arguments, in memory of each.
 *
 * The device is the one of the plugin in FOVEA_PLUGIN_DIR, or, where that is not set, the same
 * plugin emulated on the CPU (tests/support/cuda_host). The host cannot access its memory; a tensor
 * exists twice, as `host` and as `there`, and send() and fetch() copy. */
#include "kernels/backends/open.h"
#include "tests/ops/ops_test.h"

typedef struct device_test {
    fv_backend plain, be;
    bool exact; /* its products sum in the CPU's order */
} device_test;

/* Opens the plain path and `name`. Exits with 77 where the machine lacks it. */
static inline device_test device_open_as(const char *name, fv_backend_options opt, bool exact) {
    device_test d = {.exact = exact};
    const char *dir = getenv("FOVEA_PLUGIN_DIR");
    fv_backend_options plain = {.isa = "plain", .n_threads = 1};
    fv_plugin_set_dir(dir && *dir ? dir : FOVEA_EMULATED);
    must(fv_backend_open(&d.plain, "cpu", &plain));
    if (fv_backend_open(&d.be, name, &opt) != FV_OK) {
        printf("skip: %s\n", fv_last_error());
        fv_backend_close(&d.plain);
        exit(77);
    }
    return d;
}

/* A GPU; isa: auto or exact. */
static inline device_test device_open(const char *isa) {
    return device_open_as("cuda", (fv_backend_options){.isa = isa}, strcmp(isa, "exact") == 0);
}

static inline void device_close(device_test *d) {
    fv_backend_close(&d->be);
    fv_backend_close(&d->plain);
}

/* Memory on both sides. */
typedef struct both {
    fv_tensor host, there;
    fv_buf buf;
} both;

static inline void send(device_test *d, const both *b) {
    fv_device *dev = d->be.device;
    size_t n = tensor_bytes(&b->host);
    if (n) must(dev->ops->copy_async(dev, b->buf.data, b->host.data, n));
    must(d->be.ops->sync(&d->be)); /* the host's copy may change after this */
}

/* A tensor on both sides, with a gap between rows and NaN everywhere. */
static inline both both_new(device_test *d, fv_dtype dtype, int rows, int cols, int gap) {
    both b = {.host = tensor_new(dtype, rows, cols, gap)};
    size_t bytes = tensor_bytes(&b.host);
    memset(b.host.data, 0xff, bytes);
    must(fv_buf_alloc(d->be.device, bytes, FV_BUF_DEVICE, &b.buf));
    b.there = b.host;
    b.there.data = bytes ? b.buf.data : (void *)256; /* present, though empty */
    send(d, &b);
    return b;
}

/* Random numbers, sent to the device. */
static inline both both_normal(device_test *d, fv_dtype dtype, int rows, int cols, int gap) {
    both b = both_new(d, dtype, rows, cols, gap);
    fill_normal(&b.host, 1);
    send(d, &b);
    return b;
}

static inline both both_absent(void) { return (both){0}; }

static inline void both_free(both *b) {
    if (b->host.data) free(b->host.data);
    fv_buf_free(&b->buf);
    *b = (both){0};
}

/* The device's content of b, gaps included; the caller frees it. */
static inline char *fetch(device_test *d, const both *b) {
    fv_device *dev = d->be.device;
    size_t n = tensor_bytes(&b->host);
    char *p = room(n);
    if (n) must(dev->ops->copy_async(dev, p, b->buf.data, n));
    must(d->be.ops->sync(&d->be));
    return p;
}

/* Whether both sides hold the same bits (any NaN equals any other), gaps included. */
static inline bool same_bits(device_test *d, const both *b, const char *what) {
    char *p = fetch(d, b);
    size_t n = tensor_bytes(&b->host);
    bool same = true;
    if (b->host.dtype == FV_F32) {
        long at = first_difference((const float *)b->host.data, (const float *)(void *)p, n / 4);
        same = at < 0;
        if (!same)
            check(false, "%s: element %ld of %d x %d (ld %d) is %.9g, not %.9g", what, at,
                  b->host.rows, b->host.cols, b->host.ld, (double)((float *)(void *)p)[at],
                  (double)((float *)b->host.data)[at]);
    } else
        same = memcmp(p, b->host.data, n) == 0;
    free(p);
    return same;
}

/* The largest error of the norm that a test has measured: ops_run prints it. */
__attribute__((weak)) double largest_error;

static inline double note_error(double e) {
    if (!(e <= largest_error)) largest_error = e; /* NaN too */
    return e;
}

/* ||device - plain|| / ||plain|| over the elements; NaN when one of them is not a number. */
static inline double relative_error(device_test *d, const both *b) {
    char *p = fetch(d, b);
    fv_tensor there = b->host;
    there.data = p;
    double diff = 0, all = 0;
    for (int r = 0; r < b->host.rows; r++)
        for (int c = 0; c < b->host.cols; c++) {
            double x = get(&b->host, r, c), y = get(&there, r, c);
            diff += (x - y) * (x - y);
            all += x * x;
        }
    free(p);
    return note_error(all > 0 ? sqrt(diff / all) : diff);
}

#endif

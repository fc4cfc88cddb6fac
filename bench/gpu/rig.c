/* Memory, timing and table rows of bench_gpu. */
#include "bench/gpu/rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROUND = 99, WARM_UP = 3 };

bench_rig rig;

void must(fv_status s) {
    if (s == FV_OK) return;
    fprintf(stderr, "bench_gpu: %s\n", fv_last_error());
    exit(1);
}

void *zeroed(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p) must(FV_FAIL(FV_ENOMEM, "out of memory: %zu x %zu bytes", n, size));
    return p;
}

/* ---- memory ---------------------------------------------------------------------------- */

/* Returns the random numbers from which all tensors of a type are filled. */
static const char *numbers(fv_dtype dtype, size_t *bytes) {
    static char *of_type[FV_N_DTYPE];
    size_t n = rig.small ? 1 << 14 : 1 << 24, width = fv_dtype_bytes(dtype);
    *bytes = n * width;
    if (of_type[dtype]) return of_type[dtype];
    char *p = of_type[dtype] = zeroed(n, width);
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        float f = (float)((double)(state >> 40) / (1 << 23) - 1) * 0.05f;
        if (dtype == FV_F32)
            memcpy(p + i * 4, &f, 4);
        else
            memcpy(p + i * 2, (char *)&f + 2, 2); /* bf16, truncated */
    }
    return p;
}

fv_tensor bench_host_tensor(fv_dtype dtype, int32_t rows, int32_t cols) {
    size_t n, bytes = (size_t)rows * (size_t)cols * fv_dtype_bytes(dtype);
    const char *from = numbers(dtype, &n);
    char *p = zeroed(bytes, 1);
    for (size_t at = 0; at < bytes; at += n) memcpy(p + at, from, bytes - at < n ? bytes - at : n);
    return fv_tensor_of(p, dtype, rows, cols);
}

/* Copies once from the host, then within the device. */
fv_tensor bench_tensor(fv_dtype dtype, int32_t rows, int32_t cols, fv_buf *buf) {
    size_t n, bytes = (size_t)rows * (size_t)cols * fv_dtype_bytes(dtype);
    const char *from = numbers(dtype, &n);
    fv_device *dev = rig.be.device;
    must(fv_buf_alloc(dev, bytes, FV_BUF_DEVICE, buf));
    char *to = buf->data;
    for (size_t at = 0; at < bytes; at += n)
        must(dev->ops->copy_async(dev, to + at, at ? to : from, bytes - at < n ? bytes - at : n));
    must(rig.be.ops->sync(&rig.be));
    return fv_tensor_of(to, dtype, rows, cols);
}

/* ---- time ------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *t, int32_t n) {
    qsort(t, (size_t)n, sizeof *t, by_value);
    return t[n / 2];
}

double bench_seconds(bench_work *work, void *arg, int32_t calls) {
    fv_device *dev = rig.be.device;
    fv_event begin = {0}, end = {0};
    double t[MAX_ROUND];
    int32_t n = rig.n_round < MAX_ROUND ? rig.n_round : MAX_ROUND;
    if (rig.small) calls = 1;
    for (int32_t i = 0; i < (rig.small ? 1 : WARM_UP); i++) must(work(arg, i));
    for (int32_t r = 0; r < n; r++) {
        must(dev->ops->event_record(dev, &begin));
        for (int32_t i = 0; i < calls; i++) must(work(arg, i));
        must(dev->ops->event_record(dev, &end));
        must(dev->ops->event_wait(dev, &end));
        must(dev->ops->event_seconds(dev, &begin, &end, &t[r]));
        t[r] /= calls;
    }
    dev->ops->event_free(dev, &begin);
    dev->ops->event_free(dev, &end);
    return bench_median(t, n);
}

/* ---- rows ------------------------------------------------------------------------------ */

static void print_aim(bool reached, int32_t aim) {
    rig.n_aim++;
    rig.n_reached += reached;
    printf("  aim %d %%: %s", aim, rig.small ? "means nothing" : reached ? "reached" : "missed");
}

void bench_more(const char *name, double s, double without, int32_t aim) {
    double percent = 100 * (s / without - 1);
    printf("%-46s %10.1f us %10.1f us without: %.1f %% more", name, s * 1e6, without * 1e6,
           percent);
    print_aim(percent <= aim, aim);
    printf("\n");
    fflush(stdout);
}

void bench_row(const char *key, const char *name, double s, double bytes, double flop,
               int32_t aim) {
    double by_bytes = rig.copy_rate > 0 ? bytes / rig.copy_rate : 0;
    double by_flop = rig.product_rate > 0 ? flop / rig.product_rate : 0;
    double percent = 100 * fmax(by_bytes, by_flop) / s;
    printf("%-46s %10.1f us %8.1f GB/s %8.2f TFLOP/s %6.1f %% of %-9s", name, s * 1e6,
           bytes / s * 1e-9, flop / s * 1e-12, percent,
           by_flop > by_bytes ? "products" : "bandwidth");
    if (aim != NO_AIM) print_aim(percent >= aim, aim);
    printf("\n");
    fflush(stdout);
    if (rig.numbers) {
        fprintf(rig.numbers, "%s %.9g\n", key, s);
        fflush(rig.numbers);
    }
}

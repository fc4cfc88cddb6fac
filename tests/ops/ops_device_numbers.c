/* Two GPUs in one process, used alternately and from two threads: each operation runs on its own
 * GPU, whichever the thread used before. There is nothing to test with one GPU. */
#include <pthread.h>

#include "tests/ops/device_test.h"

enum { M = 5, K = 70, N = 33 };

/* y = x w^T on both sides, within a step if asked for. */
static void product(device_test *d, bool step, const char *what) {
    both x = both_normal(d, FV_F32, M, K, 0), w = both_normal(d, FV_F32, N, K, 0);
    both y = both_new(d, FV_F32, M, N, 0);
    fv_linear_args a = {.x = x.host, .n_part = 1, .part = {{.w = w.host, .y = y.host}}};
    must(d->plain.ops->linear(&d->plain, &a));
    a = (fv_linear_args){.x = x.there, .n_part = 1, .part = {{.w = w.there, .y = y.there}}};
    if (step) must(fv_backend_step_begin(&d->be, 1));
    must(d->be.ops->linear(&d->be, &a));
    if (step) must(fv_backend_step_end(&d->be));
    check(same_bits(d, &y, what), "%s", what);
    both_free(&x);
    both_free(&w);
    both_free(&y);
}

static void *other_thread(void *two) {
    device_test *d = two;
    product(&d[1], false, "GPU 1, another thread");
    product(&d[0], true, "GPU 0, another thread");
    return NULL;
}

int main(void) {
    pthread_t thread;
    setenv("FOVEA_EMULATED_GPUS", "2", 1);
    device_test d[2] = {device_open("exact"), device_open("exact")};
    fv_backend_options second = {.isa = "exact", .device = 1};
    fv_backend_close(&d[1].be);
    if (fv_backend_open(&d[1].be, "cuda", &second) != FV_OK) {
        printf("skip: %s\n", fv_last_error());
        return 77;
    }
    group("two GPUs by turns, from two threads: the bits of the CPU");
    for (int i = 0; i < 8; i++) product(&d[i % 2], i / 2 % 2, i % 2 ? "GPU 1" : "GPU 0");
    if (pthread_create(&thread, NULL, other_thread, d) != 0) return 1;
    pthread_join(thread, NULL);
    product(&d[1], false, "GPU 1 again");
    device_close(&d[0]);
    device_close(&d[1]);
    return summary();
}

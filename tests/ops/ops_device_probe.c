/* Prints which backend a plugin opens, and fails when it cannot copy and compute: the first check
 * on a machine with a GPU. */
#include "tests/ops/device_test.h"

int main(void) {
    device_test d = device_open("auto");
    group("a row of numbers there, doubled, and back");
    both x = both_normal(&d, FV_F32, 3, 100, 1), w = both_new(&d, FV_F32, 1, 100, 0);
    for (int i = 0; i < 100; i++) put(&w.host, 0, i, 2);
    send(&d, &w);
    fv_norm_args a = {.x = x.host, .w = w.host, .y = x.host, .eps = 1e-5f, .rms = true};
    must(d.plain.ops->norm(&d.plain, &a));
    a.x = a.y = x.there, a.w = w.there;
    must(d.be.ops->norm(&d.be, &a));
    check(same_bits(&d, &x, "norm"), "the bits of the CPU");
    both_free(&x);
    both_free(&w);
    device_close(&d);
    return summary();
}

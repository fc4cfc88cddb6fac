/* eval/scenes/random.h: the values published by its authors, and ranges. */
#include <criterion/criterion.h>

#include "eval/scenes/random.h"

Test(random, splitmix_gives_the_published_numbers) {
    uint64_t state = 1234567;
    const uint64_t published[] = {UINT64_C(6457827717110365317), UINT64_C(3203168211198807973),
                                  UINT64_C(9817491932198370423), UINT64_C(4593380528125082431),
                                  UINT64_C(16408922859458223821)};
    for (int i = 0; i < 5; i++) cr_assert_eq(fv_random_splitmix(&state), published[i], "%d", i);
}

Test(random, xoshiro_gives_the_published_numbers) {
    fv_random r = {{1, 2, 3, 4}};
    const uint64_t published[] = {11520, 0, 1509978240, UINT64_C(1215971899390074240)};
    for (int i = 0; i < 4; i++) cr_assert_eq(fv_random_next(&r), published[i], "%d", i);
}

Test(random, the_mix_loses_nothing) {
    for (uint64_t i = 0; i < 100000; i++) {
        /* The steps of the finaliser, inverted. */
        uint64_t x = fv_random_mix(i * UINT64_C(0x123456789abcdef));
        x ^= x >> 31 ^ x >> 62;
        x *= UINT64_C(0x319642b2d24d8ec3);
        x ^= x >> 27 ^ x >> 54;
        x *= UINT64_C(0x96de1b173f119089);
        x ^= x >> 30 ^ x >> 60;
        cr_assert_eq(x, i * UINT64_C(0x123456789abcdef));
    }
}

Test(random, below_is_in_range_and_even) {
    fv_random r = fv_random_seeded(7);
    int32_t seen[7] = {0};
    for (int i = 0; i < 70000; i++) {
        int32_t v = fv_random_below(&r, 7);
        cr_assert(v >= 0 && v < 7);
        seen[v]++;
    }
    /* Five standard deviations of 10000: 463. */
    for (int i = 0; i < 7; i++) cr_assert(seen[i] > 9537 && seen[i] < 10463, "%d", seen[i]);
}

Test(random, between_meets_both_ends) {
    fv_random r = fv_random_seeded(8);
    bool low = false, high = false;
    for (int i = 0; i < 1000; i++) {
        int32_t v = fv_random_between(&r, -3, 3);
        cr_assert(v >= -3 && v <= 3);
        low |= v == -3;
        high |= v == 3;
    }
    cr_assert(low && high);
    cr_assert_eq(fv_random_between(&r, 5, 5), 5);
}

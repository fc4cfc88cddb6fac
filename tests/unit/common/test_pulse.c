/* common/pulse: the request being worked on, and its progress. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "common/pulse.h"

static uint64_t layers;
static uint64_t read_layers(const void *user) { return *(const uint64_t *)user; }

static fv_pulse_item item[FV_PULSE_MAX];

Test(pulse, a_count_grows_with_own_steps_and_with_shared_ones) {
    fv_pulse *p;
    cr_assert_eq(fv_pulse_open(&p), FV_OK);
    cr_assert_eq(fv_pulse_read(p, item), 0);
    int32_t a = fv_pulse_begin(p, "a", NULL, NULL);
    int32_t b = fv_pulse_begin(p, "b", read_layers, &layers);
    cr_assert_eq(fv_pulse_read(p, item), 2);
    cr_assert_str_eq(item[0].id, "a");
    cr_assert_str_eq(item[1].id, "b");
    uint64_t was_a = item[0].count, was_b = item[1].count;
    cr_assert_eq(fv_pulse_read(p, item), 2);
    cr_assert(item[0].count == was_a && item[1].count == was_b, "nothing was done");
    fv_pulse_step(p, a);
    layers += 3;
    cr_assert_eq(fv_pulse_read(p, item), 2);
    cr_assert_eq(item[0].count, was_a + 1);
    cr_assert_eq(item[1].count, was_b + 3);
    fv_pulse_end(p, a);
    cr_assert_eq(fv_pulse_read(p, item), 1);
    cr_assert_str_eq(item[0].id, "b");
    cr_assert_eq(fv_pulse_begin(p, "a", NULL, NULL), a, "its place is free again");
    cr_assert_eq(fv_pulse_read(p, item), 2);
    cr_assert_neq(item[0].count, was_a + 1, "it has begun anew, and that is a step");
    fv_pulse_end(p, b);
    fv_pulse_close(p);
}

Test(pulse, without_a_free_slot_work_goes_on) {
    fv_pulse *p;
    int32_t place = 0;
    cr_assert_eq(fv_pulse_open(&p), FV_OK);
    for (int i = 0; i < FV_PULSE_MAX; i++) {
        char id[230];
        memset(id, 'x', sizeof id);
        snprintf(id + 220, sizeof id - 220, "%d", i);
        cr_assert_gt(place = fv_pulse_begin(p, id, NULL, NULL), 0);
    }
    cr_assert_eq(fv_pulse_begin(p, "one more", NULL, NULL), 0);
    fv_pulse_step(p, 0);
    fv_pulse_end(p, 0);
    cr_assert_eq(fv_pulse_read(p, item), FV_PULSE_MAX);
    cr_assert_eq(strlen(item[0].id), FV_PULSE_ID_MAX);
    fv_pulse_end(p, place);
    cr_assert_eq(fv_pulse_begin(p, "one more", NULL, NULL), place);
    fv_pulse_close(p);
}

/* eval/scenes/scene.c: scenes that training never sees, properties of every scene, and that scenes
 * never change. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "eval/scenes/handwriting.h"
#include "eval/scenes/scene.h"

enum { MANY = 20000 };

static fv_scene make(fv_split split, uint64_t index) {
    fv_scene s;
    cr_assert_eq(fv_scene_make(&(fv_scene_key){.split = split, .index = index}, NULL, &s), FV_OK);
    return s;
}

/* ---- scenes kept from training ----------------------------------------------------------- */

static int32_t pairs_held_back(const fv_scene *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_object; i++)
        n += fv_peer_held_back(s->object[i].shape, s->object[i].color);
    return n;
}

Test(scene, six_pairs_are_held_back_one_of_each_shape) {
    int32_t of_shape[FV_N_SHAPE] = {0}, of_color[FV_N_COLOR] = {0}, n = 0;
    for (int32_t shape = 0; shape < FV_N_SHAPE; shape++)
        for (int32_t color = 0; color < FV_N_COLOR; color++)
            if (fv_peer_held_back(shape, color)) {
                of_shape[shape]++;
                of_color[color]++;
                n++;
            }
    cr_assert_eq(n, 6);
    for (int i = 0; i < FV_N_SHAPE; i++) cr_assert_eq(of_shape[i], 1);
    for (int i = 0; i < FV_N_COLOR; i++) cr_assert(of_color[i] <= 1);
}

Test(scene, training_never_sees_a_pair_or_a_digit_that_is_held_back) {
    for (uint64_t i = 0; i < MANY; i++)
        for (fv_split split = FV_SPLIT_TRAIN; split <= FV_SPLIT_CHECK; split++) {
            fv_scene s = make(split, i);
            cr_assert_eq(pairs_held_back(&s), 0, "scene %d", (int)i);
            cr_assert(!s.n_written || s.written.sample < FV_HANDWRITING_TRAIN);
        }
}

Test(scene, the_test_split_shows_all_pairs_and_only_digits_that_are_held_back) {
    int32_t seen[FV_N_SHAPE][FV_N_COLOR] = {{0}}, held_back = 0, objects = 0, written = 0;
    for (uint64_t i = 0; i < MANY; i++) {
        fv_scene s = make(FV_SPLIT_TEST, i);
        held_back += pairs_held_back(&s);
        objects += s.n_object;
        written += s.n_written;
        for (int32_t k = 0; k < s.n_object; k++) seen[s.object[k].shape][s.object[k].color]++;
        cr_assert(!s.n_written || s.written.sample >= FV_HANDWRITING_TRAIN);
    }
    for (int a = 0; a < FV_N_SHAPE; a++)
        for (int b = 0; b < FV_N_COLOR; b++) cr_assert_gt(seen[a][b], objects / 48 / 2);
    cr_assert_gt(held_back, objects / 10);
    cr_assert_gt(written, MANY / 5);
}

/* A seed, taken apart again: fields that overlapped would not come back. */
static uint64_t unmix(uint64_t x) {
    x ^= x >> 31 ^ x >> 62;
    x *= UINT64_C(0x319642b2d24d8ec3);
    x ^= x >> 27 ^ x >> 54;
    x *= UINT64_C(0x96de1b173f119089);
    return x ^ x >> 30 ^ x >> 60;
}

Test(scene, a_seed_tells_its_key) {
    uint32_t streams[] = {0, 1, 11, 63}, attempts[] = {0, 1, 16384, 32767};
    uint64_t indices[] = {0, 1, 4711, (UINT64_C(1) << 40) - 1};
    for (int split = 0; split < FV_N_SPLIT; split++)
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 4; b++)
                for (int c = 0; c < 4; c++)
                    for (uint32_t image = 0; image < 2; image++) {
                        fv_scene_key key = {(fv_split)split, streams[a], image, attempts[b],
                                            indices[c]};
                        uint64_t x = unmix(fv_scene_seed(&key));
                        cr_assert_eq(x >> 62, (uint64_t)split);
                        cr_assert_eq(x >> 56 & 63, streams[a]);
                        cr_assert_eq(x >> 55 & 1, image);
                        cr_assert_eq(x >> 40 & 32767, attempts[b]);
                        cr_assert_eq(x & ((UINT64_C(1) << 40) - 1), indices[c]);
                    }
}

Test(scene, no_scene_of_the_test_split_is_one_of_training) {
    enum { N = 5000 };
    static uint64_t train[N], test[N];
    for (uint64_t i = 0; i < N; i++) {
        fv_scene a = make(FV_SPLIT_TRAIN, i), b = make(FV_SPLIT_TEST, i);
        a.split = b.split = 0;
        train[i] = XXH64(&a, sizeof a, 0);
        test[i] = XXH64(&b, sizeof b, 0);
    }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) cr_assert_neq(train[i], test[k]);
}

/* ---- properties of every scene ----------------------------------------------------------- */

static int32_t apart(int32_t a, int32_t b) { return a > b ? a - b : b - a; }

static void check_object(const fv_scene_object *o) {
    const int32_t low[] = {1040, 1500, 2120}, high[] = {1150, 1660, 2330};
    cr_assert(o->shape >= 0 && o->shape < FV_N_SHAPE && o->color >= 0 && o->color < FV_N_COLOR);
    cr_assert(o->radius >= low[o->size] && o->radius <= high[o->size]);
    cr_assert(o->x - o->radius > 0 && o->x + o->radius < FV_SCENE_UNIT);
    cr_assert(o->y - o->radius > 0 && o->y + o->radius < FV_SCENE_UNIT);
    for (int32_t line = 1; line <= 2; line++) {
        cr_assert_geq(apart(o->x, line * FV_SCENE_UNIT / 3), 399);
        cr_assert_geq(apart(o->y, line * FV_SCENE_UNIT / 3), 399);
    }
}

static void check_pair(const fv_scene_object *a, const fv_scene_object *b) {
    int64_t dx = a->x - b->x, dy = a->y - b->y, clear = a->radius + b->radius;
    cr_assert(dx * dx + dy * dy >= clear * clear, "circles do not overlap");
    int32_t row_a = a->y * 3 / FV_SCENE_UNIT, row_b = b->y * 3 / FV_SCENE_UNIT;
    cr_assert(row_a < row_b || (row_a == row_b && a->x + 400 <= b->x), "raster order");
}

Test(scene, objects_keep_clear_of_each_other_and_of_the_lines) {
    int32_t of_n[FV_PLAIN_OBJECTS + 1] = {0};
    for (uint64_t i = 0; i < MANY; i++) {
        fv_scene s = make((fv_split)(i % FV_N_SPLIT), i);
        cr_assert(s.n_object >= 1 && s.n_object <= FV_PLAIN_OBJECTS);
        of_n[s.n_object]++;
        for (int32_t a = 0; a < s.n_object; a++) {
            check_object(&s.object[a]);
            for (int32_t b = a + 1; b < s.n_object; b++) check_pair(&s.object[a], &s.object[b]);
        }
    }
    for (int i = 1; i <= FV_PLAIN_OBJECTS; i++) cr_assert_gt(of_n[i], MANY / 20, "%d", i);
}

Test(scene, rich_ones_have_more_and_smaller_things) {
    const fv_scene_knobs rich = fv_scene_knobs_rich();
    int32_t objects[FV_SCENE_OBJECTS + 1] = {0}, numbers[FV_SCENE_NUMBERS + 1] = {0};
    for (uint64_t i = 0; i < MANY; i++) {
        fv_scene s;
        const fv_scene_key key = {.split = FV_SPLIT_TEST, .index = i};
        cr_assert_eq(fv_scene_make(&key, &rich, &s), FV_OK);
        cr_assert_eq(s.rich, 1);
        objects[s.n_object]++;
        numbers[s.n_number]++;
        for (int32_t a = 0; a < s.n_object; a++) {
            cr_assert_leq(s.object[a].radius, 2330 / 2);
            for (int32_t b = a + 1; b < s.n_object; b++) check_pair(&s.object[a], &s.object[b]);
        }
    }
    for (int i = 1; i <= FV_SCENE_OBJECTS; i++) cr_assert_gt(objects[i], MANY / 40, "%d", i);
    for (int i = 0; i <= FV_SCENE_NUMBERS; i++) cr_assert_gt(numbers[i], MANY / 40, "%d", i);
}

Test(scene, numbers_have_no_leading_zero_and_touch_nothing) {
    int32_t of_n[FV_PLAIN_NUMBERS + 1] = {0};
    for (uint64_t i = 0; i < MANY; i++) {
        fv_scene s = make(FV_SPLIT_TRAIN, i);
        of_n[s.n_number]++;
        for (int32_t k = 0; k < s.n_number; k++) {
            const fv_scene_number *n = &s.number[k];
            int32_t half_w = n->cell * (6 * n->n_digit + 3) / 2, half_h = n->cell * 11 / 2;
            cr_assert(n->n_digit >= 1 && n->n_digit <= FV_NUMBER_DIGITS);
            cr_assert(n->n_digit == 1 || n->digit[0] > 0);
            cr_assert(n->x - half_w > 0 && n->x + half_w < FV_SCENE_UNIT && n->y - half_h > 0);
            for (int32_t o = 0; o < s.n_object; o++)
                cr_assert(apart(n->x, s.object[o].x) > half_w + s.object[o].radius ||
                          apart(n->y, s.object[o].y) > half_h + s.object[o].radius);
        }
    }
    for (int i = 0; i <= FV_PLAIN_NUMBERS; i++) cr_assert_gt(of_n[i], MANY / 10);
}

Test(scene, handwriting_is_what_its_table_says) {
    int32_t of_digit[2][10] = {{0}};
    for (int32_t i = 0; i < FV_HANDWRITING_SAMPLES; i++) {
        uint8_t ink[64];
        int32_t sum = 0;
        fv_handwriting_ink(i, ink);
        for (int k = 0; k < 64; k++) {
            cr_assert_leq(ink[k], FV_HANDWRITING_INK_MAX);
            sum += ink[k];
        }
        cr_assert_gt(sum, 100, "sample %d has ink", i);
        of_digit[i >= FV_HANDWRITING_TRAIN][fv_handwriting_digit(i)]++;
    }
    for (int half = 0; half < 2; half++)
        for (int d = 0; d < 10; d++) cr_assert_gt(of_digit[half][d], 80);
    for (uint64_t i = 0; i < 1000; i++) {
        fv_scene s = make(FV_SPLIT_TEST, i);
        if (s.n_written) cr_assert_eq(s.written.digit, fv_handwriting_digit(s.written.sample));
    }
}

Test(scene, knobs_are_kept) {
    const fv_scene_knobs knobs = {1, 2, 1, 1, 0, false};
    for (uint64_t i = 0; i < 2000; i++) {
        fv_scene s;
        fv_scene_key key = {.split = FV_SPLIT_TRAIN, .index = i};
        cr_assert_eq(fv_scene_make(&key, &knobs, &s), FV_OK);
        cr_assert(s.n_object >= 1 && s.n_object <= 2);
        cr_assert_eq(s.n_number, 1);
        cr_assert_eq(s.n_written, 0);
    }
}

static void refuses(fv_scene_key key, const fv_scene_knobs *knobs, const char *because) {
    fv_scene s;
    cr_assert_eq(fv_scene_make(&key, knobs, &s), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), because), "said: %s", fv_last_error());
}

Test(scene, what_is_out_of_range_is_refused) {
    refuses((fv_scene_key){.split = FV_N_SPLIT}, NULL, "no split 3");
    refuses((fv_scene_key){.stream = 64}, NULL, "stream 64");
    refuses((fv_scene_key){.image = 2}, NULL, "image 2");
    refuses((fv_scene_key){.attempt = 32768}, NULL, "attempt 32768");
    refuses((fv_scene_key){.index = UINT64_C(1) << 40}, NULL, "2^40");
    refuses((fv_scene_key){0}, &(fv_scene_knobs){0, 3, 0, 0, 0, false}, "0 to 3 objects");
    refuses((fv_scene_key){0}, &(fv_scene_knobs){1, 10, 0, 0, 0, false}, "1 to 10 objects");
    refuses((fv_scene_key){0}, &(fv_scene_knobs){3, 2, 0, 0, 0, false}, "3 to 2 objects");
    refuses((fv_scene_key){0}, &(fv_scene_knobs){1, 1, 0, 4, 0, false}, "0 to 4 numbers");
    refuses((fv_scene_key){0}, &(fv_scene_knobs){1, 1, 0, 0, 101, false}, "101 of 100");
}

/* ---- stability --------------------------------------------------------------------------- */

static void digest_text(XXH64_state_t *state, const char *text) {
    XXH64_update(state, text, strlen(text));
}

/* Every fact as text, so that the layout of structures does not matter. */
static uint64_t digest_of(fv_split split, int32_t n) {
    XXH64_state_t *state = XXH64_createState();
    XXH64_reset(state, 0);
    for (int32_t i = 0; i < n; i++) {
        fv_scene s = make(split, (uint64_t)i);
        char line[160];
        snprintf(line, sizeof line, "look %llu\n", (unsigned long long)s.look);
        digest_text(state, line);
        for (int32_t k = 0; k < s.n_object; k++) {
            const fv_scene_object *o = &s.object[k];
            snprintf(line, sizeof line, "%s %s %s %d %d %d %d %d %d\n", fv_size_word(o->size),
                     fv_color_word(o->color), fv_shape_word(o->shape), o->x, o->y, o->radius,
                     o->rgb[0], o->rgb[1], o->rgb[2]);
            digest_text(state, line);
        }
        for (int32_t k = 0; k < s.n_number; k++) {
            const fv_scene_number *m = &s.number[k];
            snprintf(line, sizeof line, "%d %d %d %d %d %d %d %d\n", m->x, m->y, m->cell,
                     m->n_digit, m->digit[0], m->digit[1], m->digit[2], m->dark);
            digest_text(state, line);
        }
        const fv_scene_written *w = &s.written;
        snprintf(line, sizeof line, "%d %d %d %d %d %d %d %d\n", w->x, w->y, w->cell, w->sample,
                 w->digit, w->rgb[0], w->rgb[1], w->rgb[2]);
        digest_text(state, line);
    }
    uint64_t digest = XXH64_digest(state);
    XXH64_freeState(state);
    return digest;
}

Test(scene, facts_are_those_of_the_day_they_were_fixed) {
    cr_expect_eq(digest_of(FV_SPLIT_TRAIN, 1000), UINT64_C(0xb66520db49aa3914), "%#llx",
                 (unsigned long long)digest_of(FV_SPLIT_TRAIN, 1000));
    cr_expect_eq(digest_of(FV_SPLIT_CHECK, 1000), UINT64_C(0x62e0e1fb1adfdebf), "%#llx",
                 (unsigned long long)digest_of(FV_SPLIT_CHECK, 1000));
    cr_expect_eq(digest_of(FV_SPLIT_TEST, 1000), UINT64_C(0xa95cb0c76b912e54), "%#llx",
                 (unsigned long long)digest_of(FV_SPLIT_TEST, 1000));
}

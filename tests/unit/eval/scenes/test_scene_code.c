/* The evaluation's questions need few bytes. A coder made for these scenes stores a scene in at
 * most FACTS_BYTES, and every question can be asked and answered from those bytes. So a good score
 * shows that a policy does little damage, not how small an image's KV can be; eval/tables.py says
 * so beside its tables. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "eval/scenes/score.h"
#include "eval/scenes/tasks.h"

enum {
    FACTS_BYTES = 62,
    PLACE_BITS = 14, /* of FV_SCENE_UNIT */
    ITEMS = 100,     /* of each task */
};

_Static_assert(FV_SCENE_UNIT == 1 << PLACE_BITS, "a place takes so many bits");
_Static_assert(FV_N_SHAPE <= 8 && FV_N_COLOR <= 8 && FV_N_SIZE <= 4, "3, 3 and 2 bits");

typedef struct bits {
    uint8_t byte[FACTS_BYTES];
    int32_t n; /* written, or read */
    bool reads;
} bits;

/* Writes the value, or returns the value read. */
static int32_t pass(bits *b, int32_t width, int32_t value) {
    int32_t there = 0;
    for (int32_t i = 0; i < width; i++, b->n++) {
        uint8_t *byte = &b->byte[b->n / 8];
        cr_assert_lt(b->n / 8, FACTS_BYTES, "a scene takes more than %d bytes", FACTS_BYTES);
        if (!b->reads) *byte |= (uint8_t)(((value >> i) & 1) << (b->n % 8));
        there |= ((*byte >> (b->n % 8)) & 1) << i;
    }
    cr_assert(b->reads || there == value, "%d does not fit %d bits", value, width);
    return there;
}

/* Passes those positions, sizes and appearances that questions are about. */
static void pass_scene(bits *b, fv_scene *s) {
    s->n_object = pass(b, 4, s->n_object);
    s->n_number = pass(b, 2, s->n_number);
    s->n_written = pass(b, 1, s->n_written);
    for (int32_t i = 0; i < s->n_object; i++) {
        fv_scene_object *o = &s->object[i];
        o->shape = pass(b, 3, o->shape);
        o->color = pass(b, 3, o->color);
        o->size = pass(b, 2, o->size);
        o->x = pass(b, PLACE_BITS, o->x);
        o->y = pass(b, PLACE_BITS, o->y);
    }
    for (int32_t i = 0; i < s->n_number; i++) {
        fv_scene_number *o = &s->number[i];
        o->n_digit = pass(b, 2, o->n_digit);
        for (int32_t k = 0; k < o->n_digit; k++) o->digit[k] = (uint8_t)pass(b, 4, o->digit[k]);
        o->x = pass(b, PLACE_BITS, o->x);
        o->y = pass(b, PLACE_BITS, o->y);
    }
    if (!s->n_written) return;
    s->written.digit = pass(b, 4, s->written.digit);
    s->written.x = pass(b, PLACE_BITS, s->written.x);
    s->written.y = pass(b, PLACE_BITS, s->written.y);
}

static fv_scene through_the_coder(const fv_scene *scene) {
    fv_scene s = *scene, out = {.split = scene->split}; /* whose questions are asked */
    bits b = {0};
    pass_scene(&b, &s);
    b.n = 0;
    b.reads = true;
    pass_scene(&b, &out);
    cr_assert(memcmp(&out, scene, sizeof out) != 0, "its looks are not kept");
    return out;
}

Test(scene_code, what_a_image_shows_fits_few_bytes_and_answers_every_question) {
    for (int32_t t = 0; t < FV_N_TASK; t++)
        for (uint64_t i = 0; i < ITEMS; i++) {
            fv_item item;
            fv_scene coded[FV_ITEM_IMAGES];
            fv_turn was[FV_ITEM_TURNS] = {0}, now[FV_ITEM_TURNS] = {0};
            cr_assert_eq(fv_item_make(FV_SPLIT_TEST, (fv_scene_task)t, i, NULL, &item), FV_OK);
            for (int32_t k = 0; k < item.n_image; k++) coded[k] = through_the_coder(&item.scene[k]);
            bool asked = fv_task_ask((fv_scene_task)t, item.scene, i, was);
            cr_assert_eq(fv_task_ask((fv_scene_task)t, coded, i, now), asked);
            for (int32_t k = 0; k < item.n_turn && asked; k++) {
                cr_assert_str_eq(now[k].question, was[k].question);
                cr_assert_eq(fv_score_turn(&was[k], now[k].answer), 1, "%s", was[k].question);
            }
        }
}

/* The page beside the tables quotes this number. */
Test(scene_code, is_what_the_tables_say) {
    char *text, line[64];
    size_t n;
    cr_assert_eq(fv_file_read(FOVEA_TEST_DATA "/../eval/tables.py", 1 << 20, &text, &n), FV_OK,
                 "%s", fv_last_error());
    snprintf(line, sizeof line, "\nFACTS_BYTES = %d ", FACTS_BYTES);
    cr_assert(strstr(text, line), "eval/tables.py has another number than%s", line);
    free(text);
}

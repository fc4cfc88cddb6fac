/* eval/scenes/patches.c: labels match the patches, and images are as full as intended. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/scenes/patches.h"

static fv_scene make(uint64_t index) {
    fv_scene s;
    fv_scene_key key = {.split = FV_SPLIT_TRAIN, .index = index};
    cr_assert_eq(fv_scene_make(&key, NULL, &s), FV_OK);
    return s;
}

/* Share of the patches that show something, over many scenes. */
static double share_covered(int32_t grid) {
    static fv_patch patches[FV_PATCH_GRID_MAX * FV_PATCH_GRID_MAX];
    enum { SCENES = 2000 };
    int64_t covered = 0;
    for (uint64_t i = 0; i < SCENES; i++) {
        fv_scene s = make(i);
        cr_assert_eq(fv_scene_patches(&s, grid, patches), FV_OK);
        for (int32_t p = 0; p < grid * grid; p++) covered += patches[p].kind != FV_PATCH_BACKGROUND;
    }
    return (double)covered / (SCENES * grid * grid);
}

Test(patches, a_fifth_to_two_fifths_of_a_image_are_covered) {
    double coarse = share_covered(12), fine = share_covered(24);
    cr_log_info("covered: %.3f of 12 x 12 patches, %.3f of 24 x 24", coarse, fine);
    cr_assert(coarse > 0.2 && coarse < 0.4, "%f", coarse);
    cr_assert(fine > 0.2 && fine < 0.4, "%f", fine);
}

static void check_object(const fv_scene *s, const fv_patch *p, int32_t x, int32_t y, int32_t unit) {
    const fv_scene_object *o = &s->object[p->thing];
    cr_assert_eq(p->shape, o->shape);
    cr_assert_eq(p->color, o->color);
    cr_assert_eq(p->size, o->size);
    cr_assert_eq(p->digit, -1);
    /* The patch's centre and the offset lead to the object. */
    cr_assert_float_eq(((float)x + 0.5f + p->dx) * (float)unit, (float)o->x, 1.0f);
    cr_assert_float_eq(((float)y + 0.5f + p->dy) * (float)unit, (float)o->y, 1.0f);
    cr_assert_lt(hypotf(p->dx, p->dy) * (float)unit, 1.2f * (float)o->radius + (float)unit);
}

Test(patches, labels_lead_to_their_things) {
    enum { GRID = 16, UNIT = FV_SCENE_UNIT / GRID };
    static fv_patch patches[GRID * GRID];
    for (uint64_t i = 0; i < 300; i++) {
        fv_scene s = make(i);
        int32_t patches_of[64] = {0}, things = s.n_object + s.n_written;
        for (int32_t k = 0; k < s.n_number; k++) things += s.number[k].n_digit;
        cr_assert_eq(fv_scene_patches(&s, GRID, patches), FV_OK);
        for (int32_t y = 0; y < GRID; y++)
            for (int32_t x = 0; x < GRID; x++) {
                const fv_patch *p = &patches[y * GRID + x];
                if (p->kind == FV_PATCH_OBJECT) check_object(&s, p, x, y, UNIT);
                if (p->kind == FV_PATCH_WRITTEN) cr_assert_eq(p->digit, s.written.digit);
                if (p->kind != FV_PATCH_BACKGROUND) patches_of[p->thing]++;
                if (p->kind == FV_PATCH_BACKGROUND)
                    cr_assert(p->shape == -1 && p->thing == -1 && p->dx == 0.0f);
            }
        for (int32_t t = 0; t < things; t++) cr_assert_gt(patches_of[t], 0, "thing %d", t);
        cr_assert_eq(patches_of[things], 0);
    }
}

Test(patches, digits_of_a_number_stand_in_order) {
    enum { GRID = 48 };
    static fv_patch patches[GRID * GRID];
    for (uint64_t i = 0; i < 300; i++) {
        fv_scene s = make(i);
        cr_assert_eq(fv_scene_patches(&s, GRID, patches), FV_OK);
        for (int32_t k = 0; k < s.n_number; k++) {
            const fv_scene_number *n = &s.number[k];
            for (int32_t d = 0; d < n->n_digit; d++) {
                /* Six dots from one digit to the next, the middle one at the number's centre. */
                int32_t x = n->x + n->cell * (6 * d - 3 * (n->n_digit - 1));
                const fv_patch *p =
                    &patches[n->y * GRID / FV_SCENE_UNIT * GRID + x * GRID / FV_SCENE_UNIT];
                cr_assert_eq(p->kind, FV_PATCH_PRINTED);
                cr_assert_eq(p->digit, n->digit[d]);
            }
        }
    }
}

Test(patches, grids_out_of_range_are_refused) {
    fv_scene s = make(0);
    fv_patch patch;
    cr_assert_eq(fv_scene_patches(&s, 0, &patch), FV_EINVAL);
    cr_assert_eq(fv_scene_patches(&s, 65, &patch), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "1 to 64"));
    cr_assert_eq(fv_scene_patches(&s, 1, &patch), FV_OK);
}

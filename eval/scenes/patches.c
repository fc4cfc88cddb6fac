/* Counts, for each thing and each patch near it, how many of 6 x 6 points of the patch are inside
 * the thing; the thing with most points gets the patch. */
#include "eval/scenes/patches.h"

#include "eval/scenes/handwriting.h"
#include "eval/scenes/shape.h"

enum { POINTS = 6, POINTS_MIN = POINTS * POINTS / 6 };

/* A thing to find in the patches: a shape, or a box with a digit in it. */
typedef struct thing {
    float x, y, half_w, half_h; /* centre, reach */
    float radius;               /* of an object */
    fv_patch label;
} thing;

typedef struct labelling {
    int32_t grid, n_thing;
    uint8_t most[FV_PATCH_GRID_MAX * FV_PATCH_GRID_MAX]; /* points of the best thing so far */
    fv_patch *out;
} labelling;

static bool inside(const thing *t, float x, float y) {
    if (t->label.kind == FV_PATCH_OBJECT)
        return fv_shape_distance(t->label.shape, x - t->x, y - t->y, t->radius) < 0.0f;
    return fv_shape_box(x - t->x, y - t->y, t->half_w, t->half_h) < 0.0f;
}

static int32_t points_inside(const thing *t, float left, float top, float patch) {
    int32_t n = 0;
    for (int j = 0; j < POINTS; j++)
        for (int i = 0; i < POINTS; i++)
            n += inside(t, left + patch * ((float)i + 0.5f) / (float)POINTS,
                        top + patch * ((float)j + 0.5f) / (float)POINTS);
    return n;
}

/* Finds the patches [*from, *to) that centre +- reach touches. */
static void patch_range(float at, float reach, float patch, int32_t grid, int32_t *from,
                        int32_t *to) {
    *from = (int32_t)fv_shape_max((at - reach) / patch, 0.0f);
    *to = (int32_t)fv_shape_min((at + reach) / patch + 1.0f, (float)grid);
}

static void label_thing(labelling *l, thing t) {
    const float patch = (float)FV_SCENE_UNIT / (float)l->grid;
    int32_t left, right, top, bottom;
    patch_range(t.x, t.half_w, patch, l->grid, &left, &right);
    patch_range(t.y, t.half_h, patch, l->grid, &top, &bottom);
    t.label.thing = (int8_t)l->n_thing++;
    for (int32_t j = top; j < bottom; j++)
        for (int32_t i = left; i < right; i++) {
            const float x = patch * (float)i, y = patch * (float)j;
            const int32_t n = points_inside(&t, x, y, patch), at = j * l->grid + i;
            if (n < POINTS_MIN || n <= l->most[at]) continue;
            l->most[at] = (uint8_t)n;
            l->out[at] = t.label;
            l->out[at].dx = (t.x - (x + 0.5f * patch)) / patch;
            l->out[at].dy = (t.y - (y + 0.5f * patch)) / patch;
        }
}

static const fv_patch nothing = {
    .kind = FV_PATCH_BACKGROUND, .shape = -1, .color = -1, .size = -1, .digit = -1, .thing = -1};

static void label_object(labelling *l, const fv_scene_object *o) {
    const float r = (float)o->radius;
    thing t = {.x = (float)o->x, .y = (float)o->y, .radius = r, .label = nothing};
    t.half_w = t.half_h = FV_SHAPE_REACH * r;
    t.label.kind = FV_PATCH_OBJECT;
    t.label.shape = (int8_t)o->shape;
    t.label.color = (int8_t)o->color;
    t.label.size = (int8_t)o->size;
    label_thing(l, t);
}

/* A digit's box includes the empty column after it, and half a dot of plate above and below. */
static void label_number(labelling *l, const fv_scene_number *n) {
    for (int32_t i = 0; i < n->n_digit; i++) {
        thing t = {.y = (float)n->y, .label = nothing};
        t.x = (float)n->x + (float)n->cell * 3.0f * (float)(2 * i - n->n_digit + 1);
        t.half_w = (float)n->cell * 3.0f;
        t.half_h = (float)n->cell * 4.0f;
        t.label.kind = FV_PATCH_PRINTED;
        t.label.digit = (int8_t)n->digit[i];
        label_thing(l, t);
    }
}

static void label_written(labelling *l, const fv_scene_written *w) {
    thing t = {.x = (float)w->x, .y = (float)w->y, .label = nothing};
    t.half_w = t.half_h = (float)w->cell * (float)FV_HANDWRITING_SIDE * 0.5f;
    t.label.kind = FV_PATCH_WRITTEN;
    t.label.digit = (int8_t)w->digit;
    label_thing(l, t);
}

fv_status fv_scene_patches(const fv_scene *scene, int32_t grid, fv_patch *out) {
    if (grid < 1 || grid > FV_PATCH_GRID_MAX)
        return FV_FAIL(FV_EINVAL, "%d x %d patches: 1 to %d a side can be labelled", grid, grid,
                       FV_PATCH_GRID_MAX);
    labelling l = {.grid = grid, .out = out};
    for (int32_t i = 0; i < grid * grid; i++) out[i] = nothing;
    for (int32_t i = 0; i < scene->n_object; i++) label_object(&l, &scene->object[i]);
    for (int32_t i = 0; i < scene->n_number; i++) label_number(&l, &scene->number[i]);
    if (scene->n_written) label_written(&l, &scene->written);
    return FV_OK;
}

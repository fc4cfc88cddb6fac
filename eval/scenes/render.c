/* Renders a scene row by row: background, objects that cross the row, noise, eight bits. Needs only
 * a row of floats per colour, which stays in the cache.
 *
 * Coordinates here are pixels: the centre of pixel i is at i + 0.5. */
#include "eval/scenes/render.h"

#include <float.h>

#include "eval/scenes/background.h"
#include "eval/scenes/font.h"
#include "eval/scenes/handwriting.h"
#include "eval/scenes/random.h"
#include "eval/scenes/shape.h"

/* 16 means 0 on a processor that also computes in half precision */
_Static_assert((FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16) && FLT_MANT_DIG == 24,
               "float is binary32, computed as such");

/* A row of pixels while it is rendered. */
typedef struct strip {
    int32_t side, y;
    float *channel[3]; /* [side] each, 0 to 1 */
} strip;

/* Blends `alpha` of a colour over the pixel. */
static void blend(const strip *row, int32_t x, float alpha, const float color[3]) {
    for (int c = 0; c < 3; c++) {
        float *v = &row->channel[c][x];
        *v += alpha * (color[c] - *v);
    }
}

static float clamp01(float v) { return v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v; }

/* Share of a pixel that is inside, by its distance from the outline in pixels. */
static float covered(float outside) { return clamp01(0.5f - outside); }

/* Finds the pixels [*from, *to) of a row that centre +- reach may touch; none if it does not reach
 * the row. */
static void span(const strip *row, float cx, float cy, float reach_x, float reach_y, int32_t *from,
                 int32_t *to) {
    float dy = (float)row->y + 0.5f - cy;
    *from = *to = 0;
    if (fabsf(dy) > reach_y + 1.0f) return;
    float low = cx - reach_x - 1.0f, high = cx + reach_x + 1.0f;
    *from = low < 0.0f ? 0 : (int32_t)low;
    *to = high > (float)row->side ? row->side : (int32_t)high;
}

/* Shades the object slightly from the upper left or the lower right, as `look` says. */
static void paint_object(const strip *row, const fv_scene_object *o, float scale, float light) {
    const float cx = (float)o->x * scale, cy = (float)o->y * scale, r = (float)o->radius * scale;
    const float y = (float)row->y + 0.5f - cy;
    int32_t from, to;
    span(row, cx, cy, FV_SHAPE_REACH * r, FV_SHAPE_REACH * r, &from, &to);
    for (int32_t i = from; i < to; i++) {
        float x = (float)i + 0.5f - cx;
        float alpha = covered(fv_shape_distance(o->shape, x, y, r));
        if (alpha <= 0.0f) continue;
        float shade = light * ((x + y) / r), color[3];
        for (int c = 0; c < 3; c++) color[c] = (float)o->rgb[c] / 255.0f + shade;
        blend(row, i, alpha, color);
    }
}

/* ---- printed numbers -------------------------------------------------------------------- */

/* The two dots along one axis that a pixel overlaps, and the pixel's shares in them. */
typedef struct dots {
    int32_t first;
    float in_first, in_second; /* add up to 1 */
} dots;

/* `at`: start of the pixel, in dots; `size`: of a pixel, in dots, below 1. */
static dots meet(float at, float size) {
    int32_t first = (int32_t)at - (at < 0.0f);
    float in_first = ((float)(first + 1) - at) / size;
    if (in_first > 1.0f) in_first = 1.0f;
    return (dots){first, in_first, 1.0f - in_first};
}

static float ink_at(const fv_scene_number *n, int32_t column, int32_t line) {
    if (column < 0 || line < 0 || column >= 6 * n->n_digit || line >= FV_FONT_HEIGHT) return 0.0f;
    return fv_font_dot(n->digit[column / 6], column % 6, line) ? 1.0f : 0.0f;
}

static float ink_of_pixel(const fv_scene_number *n, dots column, dots line) {
    const int32_t x = column.first, y = line.first;
    return line.in_first *
               (column.in_first * ink_at(n, x, y) + column.in_second * ink_at(n, x + 1, y)) +
           line.in_second *
               (column.in_first * ink_at(n, x, y + 1) + column.in_second * ink_at(n, x + 1, y + 1));
}

static void paint_number(const strip *row, const fv_scene_number *n, float scale) {
    static const float light[3] = {0.88f, 0.86f, 0.76f}, dark[3] = {0.07f, 0.08f, 0.11f};
    const float cell = (float)n->cell * scale, size = 1.0f / cell;
    const float cx = (float)n->x * scale, cy = (float)n->y * scale;
    const float half_w = 0.5f * cell * (float)(6 * n->n_digit + 3), half_h = 5.5f * cell;
    /* the dots are centred on the plate, without the empty column after the last digit */
    const float left = cx - 0.5f * cell * (float)(6 * n->n_digit - 1), top = cy - 3.5f * cell;
    const dots line = meet(((float)row->y - top) * size, size);
    int32_t from, to;
    span(row, cx, cy, half_w, half_h, &from, &to);
    for (int32_t i = from; i < to; i++) {
        float x = (float)i + 0.5f - cx, y = (float)row->y + 0.5f - cy;
        float plate = covered(fv_shape_box(x, y, half_w, half_h));
        if (plate <= 0.0f) continue;
        blend(row, i, plate, n->dark ? light : dark);
        float ink = ink_of_pixel(n, meet(((float)i - left) * size, size), line);
        if (ink > 0.0f) blend(row, i, ink, n->dark ? dark : light);
    }
}

/* ---- handwriting ------------------------------------------------------------------------ */

/* Ink interpolated between the sample's pixels; none beyond its border. */
static float ink_between(const uint8_t ink[64], float x, float y) {
    int32_t x0 = (int32_t)x - (x < 0.0f), y0 = (int32_t)y - (y < 0.0f);
    float fx = x - (float)x0, fy = y - (float)y0, at[2][2];
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 2; i++) {
            int32_t u = x0 + i, v = y0 + j;
            bool inside = u >= 0 && v >= 0 && u < FV_HANDWRITING_SIDE && v < FV_HANDWRITING_SIDE;
            at[j][i] = inside ? (float)ink[v * FV_HANDWRITING_SIDE + u] : 0.0f;
        }
    float upper = at[0][0] + fx * (at[0][1] - at[0][0]);
    float lower = at[1][0] + fx * (at[1][1] - at[1][0]);
    return (upper + fy * (lower - upper)) / (float)FV_HANDWRITING_INK_MAX;
}

static void paint_written(const strip *row, const fv_scene_written *w, const uint8_t ink[64],
                          float scale) {
    const float cell = (float)w->cell * scale, half = cell * (float)FV_HANDWRITING_SIDE * 0.5f;
    const float cx = (float)w->x * scale, cy = (float)w->y * scale;
    float color[3];
    for (int c = 0; c < 3; c++) color[c] = (float)w->rgb[c] / 255.0f;
    int32_t from, to;
    span(row, cx, cy, half, half, &from, &to);
    for (int32_t i = from; i < to; i++) {
        float x = ((float)i + 0.5f - cx + half) / cell - 0.5f;
        float y = ((float)row->y + 0.5f - cy + half) / cell - 0.5f;
        /* steeper than the sample, whose enlarged edges would be blurred */
        float alpha = clamp01(1.6f * ink_between(ink, x, y) - 0.2f);
        if (alpha > 0.0f) blend(row, i, alpha, color);
    }
}

/* ---- the image ------------------------------------------------------------------------ */

static void finish_row(const strip *row, const fv_background *b, uint8_t *rgb) {
    const uint32_t first = (uint32_t)(row->y * row->side) * 3;
    for (uint32_t c = 0; c < 3; c++) {
        float *channel = row->channel[c];
        for (int32_t x = 0; x < row->side; x++) {
            float noise = b->noise * fv_random_noise(b->noise_seed, first + 3 * (uint32_t)x + c);
            channel[x] = clamp01(channel[x] + noise) * 255.0f + 0.5f;
        }
    }
    for (int32_t x = 0; x < row->side; x++)
        for (int c = 0; c < 3; c++) rgb[3 * x + c] = (uint8_t)row->channel[c][x];
}

fv_status fv_render(const fv_scene *scene, int32_t side, uint8_t *rgb) {
    if (side < FV_RENDER_SIDE_MIN || side > FV_RENDER_SIDE_MAX)
        return FV_FAIL(FV_EINVAL, "image size %d is out of range %d..%d", side, FV_RENDER_SIDE_MIN,
                       FV_RENDER_SIDE_MAX);
    float pixels[3][FV_RENDER_SIDE_MAX];
    uint8_t ink[FV_HANDWRITING_SIDE * FV_HANDWRITING_SIDE];
    const float scale = (float)side / (float)FV_SCENE_UNIT; /* exact: the unit is a power of two */
    fv_background background;
    fv_background_init(&background, scene->look, scene->rich, side);
    if (scene->n_written) fv_handwriting_ink(scene->written.sample, ink);
    strip row = {.side = side, .channel = {pixels[0], pixels[1], pixels[2]}};
    for (; row.y < side; row.y++) {
        fv_background_row(&background, row.y, row.channel);
        for (int32_t i = 0; i < scene->n_object; i++)
            paint_object(&row, &scene->object[i], scale, background.light);
        for (int32_t i = 0; i < scene->n_number; i++) paint_number(&row, &scene->number[i], scale);
        if (scene->n_written) paint_written(&row, &scene->written, ink, scale);
        finish_row(&row, &background, rgb + (size_t)row.y * (size_t)side * 3);
    }
    return FV_OK;
}

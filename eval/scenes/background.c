/* Blends clouds in two steps: the lattice rows above and below a pixel row are blended to one row,
 * which is then read along x. So a pixel costs one blend per cloud instead of three. */
#include "eval/scenes/background.h"

#include "eval/scenes/random.h"

/* A float in [low, high) in 2^24 steps; each product and sum is exactly rounded. */
static float draw(fv_random *r, float low, float high) {
    return low + (high - low) * ((float)(int32_t)(fv_random_next(r) >> 40) * (1.0f / 16777216.0f));
}

static void draw_lattice(fv_random *r, float amplitude, int32_t n, float *lattice) {
    for (int32_t i = 0; i < n; i++) lattice[i] = draw(r, -amplitude, amplitude);
}

static fv_cloud_step step_at(int32_t pixel, int32_t side, int32_t n_cell) {
    float at = ((float)pixel + 0.5f) * (float)n_cell / (float)side;
    int32_t cell = (int32_t)at;
    float t = at - (float)cell;
    return (fv_cloud_step){cell, t * t * (3.0f - 2.0f * t)};
}

/* Waves are 4 to 20 pixels long in an image of 288. */
static void draw_area(fv_random *r, int32_t side, fv_area *a) {
    a->pattern = (fv_pattern)fv_random_below(r, FV_N_PATTERN);
    a->x = draw(r, 0.0f, 1.0f);
    a->y = draw(r, 0.0f, 1.0f);
    const float fast = draw(r, 14.0f, 64.0f), slow = draw(r, -0.7f, 0.7f) * fast;
    const bool upright = fv_random_chance(r, 50);
    a->wave[0][upright] = a->wave[1][!upright] = fast;
    a->wave[0][!upright] = slow;
    a->wave[1][upright] = -slow;
    const float height = draw(r, 0.04f, 0.16f);
    for (int c = 0; c < 3; c++) a->tint[c] = height * draw(r, 0.3f, 1.0f);
    a->grain = 1 + side * fv_random_between(r, 2, 7) / 288;
}

void fv_background_init(fv_background *b, uint64_t look, bool rich, int32_t side) {
    fv_random r = fv_random_seeded(look);
    b->side = side;
    const float grey = draw(&r, 0.16f, 0.46f), hue = draw(&r, 0.0f, 0.06f);
    const float clouds = draw(&r, 0.03f, 0.12f);
    for (int c = 0; c < 3; c++) {
        b->base[c] = grey + draw(&r, -hue, hue);
        draw_lattice(&r, hue, (FV_CLOUD_COARSE + 1) * (FV_CLOUD_COARSE + 1), b->coarse[c][0]);
    }
    draw_lattice(&r, clouds, (FV_CLOUD_FINE + 1) * (FV_CLOUD_FINE + 1), b->fine[0]);
    b->stripe = fv_random_chance(&r, 50) ? draw(&r, 0.02f, 0.08f) : 0.0f;
    b->stripe_x = draw(&r, -24.0f, 24.0f);
    b->stripe_y = draw(&r, -24.0f, 24.0f);
    b->light = draw(&r, -0.06f, 0.06f);
    b->noise = draw(&r, 0.02f, 0.12f);
    b->noise_seed = (uint32_t)(fv_random_next(&r) >> 32);
    b->n_area = rich ? fv_random_between(&r, 3, FV_AREAS) : 0;
    for (int32_t i = 0; i < b->n_area; i++) draw_area(&r, side, &b->area[i]);
    for (int32_t i = 0; i < side; i++) {
        b->in_coarse[i] = step_at(i, side, FV_CLOUD_COARSE);
        b->in_fine[i] = step_at(i, side, FV_CLOUD_FINE);
    }
}

/* Blends two lattice rows of `n` values each at a height between them. */
static void blend_rows(const float *lattice, int32_t n, fv_cloud_step y, float *row) {
    const float *above = lattice + (size_t)y.cell * (size_t)n, *below = above + n;
    for (int32_t i = 0; i < n; i++) row[i] = above[i] + y.weight * (below[i] - above[i]);
}

static float between(const float *row, fv_cloud_step x) {
    return row[x.cell] + x.weight * (row[x.cell + 1] - row[x.cell]);
}

/* A triangle wave of height 1 and period 1. */
static float triangle_wave(float at) {
    float t = at - (float)((int32_t)at - (at < 0.0f));
    return (t < 0.5f ? t : 1.0f - t) * 4.0f - 1.0f;
}

static const fv_area *area_at(const fv_background *b, float x, float y) {
    int32_t nearest = 0;
    float least = 4.0f;
    for (int32_t i = 0; i < b->n_area; i++) {
        const float dx = x - b->area[i].x, dy = y - b->area[i].y, d = dx * dx + dy * dy;
        if (d < least) least = d, nearest = i;
    }
    return &b->area[nearest];
}

/* Height of a pattern at a pixel, -1 to 1. */
static float pattern_at(const fv_area *a, uint32_t seed, int32_t x, int32_t y, float pixel) {
    if (a->pattern == FV_GRAIN)
        return fv_random_noise(seed, (uint32_t)(y / a->grain * 4096 + x / a->grain));
    const float at_x = ((float)x + 0.5f) * pixel, at_y = ((float)y + 0.5f) * pixel;
    const float u = triangle_wave(a->wave[0][0] * at_x + a->wave[0][1] * at_y);
    if (a->pattern == FV_STRIPES) return u;
    const float v = triangle_wave(a->wave[1][0] * at_x + a->wave[1][1] * at_y);
    if (a->pattern == FV_CHECKS) return u * v;
    return u + v > 0.6f ? 1.0f : -0.5f;
}

/* Adds the patchwork to a row. */
static void add_patterns(const fv_background *b, int32_t y, float *const channel[3]) {
    const float pixel = 1.0f / (float)b->side;
    for (int32_t x = 0; x < b->side; x++) {
        const fv_area *a = area_at(b, ((float)x + 0.5f) * pixel, ((float)y + 0.5f) * pixel);
        const float height = pattern_at(a, b->noise_seed ^ 0x9e3779b9u, x, y, pixel);
        for (int c = 0; c < 3; c++) channel[c][x] += height * a->tint[c];
    }
}

void fv_background_row(const fv_background *b, int32_t y, float *const channel[3]) {
    float fine[FV_CLOUD_FINE + 1], coarse[FV_CLOUD_COARSE + 1], grey[FV_RENDER_SIDE_MAX];
    const float pixel = 1.0f / (float)b->side, down = b->stripe_y * ((float)y + 0.5f) * pixel;
    blend_rows(b->fine[0], FV_CLOUD_FINE + 1, b->in_fine[y], fine);
    for (int32_t x = 0; x < b->side; x++) {
        grey[x] = between(fine, b->in_fine[x]);
        float across = b->stripe_x * ((float)x + 0.5f) * pixel;
        grey[x] += b->stripe * triangle_wave(across + down);
    }
    for (int c = 0; c < 3; c++) {
        blend_rows(b->coarse[c][0], FV_CLOUD_COARSE + 1, b->in_coarse[y], coarse);
        for (int32_t x = 0; x < b->side; x++)
            channel[c][x] = b->base[c] + grey[x] + between(coarse, b->in_coarse[x]);
    }
    if (b->n_area > 0) add_patterns(b, y, channel);
}

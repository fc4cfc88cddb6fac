/* prune=grid: the baseline that uses neither attention nor content. Tokens are taken in the order
 * of an ordered dither (Bayer 1973), so that at any share the kept ones are spread evenly over the
 * image: at 1/2 on a checkerboard, at 1/4 in every second row and column. A larger share holds
 * every token of a smaller one; several images get equal shares. */
#include <assert.h>

#include "common/arena.h"
#include "prefill-worker/prune/prune.h"

/* Sides up to 4096: places are below 2^24, which a float holds exactly. */
enum { SIDE_BITS = 12 };

/* The place of a cell in the dither: bits of (row ^ column, row), lowest bit first. */
static int32_t dither(int32_t row, int32_t col) {
    int32_t place = 0, odd = row ^ col;
    for (int32_t bit = 0; bit < SIDE_BITS; bit++)
        place = place << 2 | (odd >> bit & 1) << 1 | (row >> bit & 1);
    return place;
}

/* Tokens of an image are its patches in raster order; tokens before them, such as CLS,
 * are taken first. */
static void score_image(float *score, const fv_token_span *image) {
    int32_t patches = image->h * image->w, ahead = image->n - image->t * patches;
    for (int32_t i = 0; i < ahead; i++) score[i] = 1;
    for (int32_t i = ahead; i < image->n; i++) {
        int32_t at = (i - ahead) % patches;
        score[i] = -(float)dither(at / image->w, at % image->w);
    }
}

static fv_status keep(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                      int32_t *n_kept) {
    fv_arena arena = {0};
    float *score, *at;
    (void)state;
    fv_status st = FV_ARENA_NEW(&arena, ctx->n_visual, score);
    assert(ctx->image || ctx->n_image == 0);
    if (st == FV_OK) {
        at = score;
        for (int32_t i = 0; i < ctx->n_image; at += ctx->image[i++].n)
            score_image(at, &ctx->image[i]);
        assert(at == score + ctx->n_visual);
        fv_prune_top(ctx, score, kept, n_kept);
    }
    fv_arena_fini(&arena);
    return st;
}

const fv_prune_method fv_prune_grid = {.keep = keep};

/* prune=grid: the baseline that uses neither attention nor content. Tokens are taken in the order
 * of an ordered dither (Bayer 1973), so that at any share the kept ones are spread evenly over the
 * image: at 1/2 on a checkerboard, at 1/4 in every second row and column. A larger share holds
 * every token of a smaller one; spans get equal shares. */
#include <assert.h>

#include "common/arena.h"
#include "prefill-worker/prune/prune.h"

/* Sides up to 4096: places are below 2^24, which a float holds exactly. */
enum { SIDE_BITS = 12 };

/* Returns a cell's place in the dither: bits of (row ^ column, row), lowest bit first. */
static int32_t dither(int32_t row, int32_t col) {
    int32_t place = 0, odd = row ^ col;
    for (int32_t bit = 0; bit < SIDE_BITS; bit++)
        place = place << 2 | (odd >> bit & 1) << 1 | (row >> bit & 1);
    return place;
}

/* Scores a span's tokens by their place; tokens outside the grid, such as CLS, come first. */
static void score_span(float *score, const fv_token_span *span) {
    int32_t cells = span->h * span->w;
    for (int32_t i = 0; i < span->n; i++) {
        int32_t at = i - span->ahead;
        bool inside = at >= 0 && at < span->t * cells;
        score[i] = inside ? -(float)dither(at % cells / span->w, at % cells % span->w) : 1;
    }
}

static fv_status keep(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                      int32_t *n_kept) {
    fv_arena arena = {0};
    float *score, *at;
    (void)state;
    fv_status st = FV_ARENA_NEW(&arena, ctx->n_visual, score);
    assert(ctx->n_span > 0 || ctx->n_visual == 0);
    if (st == FV_OK) {
        at = score;
        for (int32_t i = 0; i < ctx->n_span; at += ctx->span[i++].n) score_span(at, &ctx->span[i]);
        assert(at == score + ctx->n_visual);
        fv_prune_top(ctx, score, kept, n_kept);
    }
    fv_arena_fini(&arena);
    return st;
}

const fv_prune_method fv_prune_grid = {.keep = keep};

/* condense=hired: HiRED (arXiv 2408.10945). With s_j the attention of CLS to token j, summed over all
 * heads of the layer that made the features, a budget of B = floor(keep n) tokens of an image's n:
 *
 *   one tile         the B tokens of highest s
 *   several tiles    the tile that shows the whole image keeps b_0 = min(floor(whole B), its tokens)
 *                    tile i keeps b_i = min(floor((B - b_0) c_i / sum c), its tokens)
 *
 * where c_i counts the patches whose middle tile i shows, among the floor(P (1 - whole)) of the whole
 * image's P patches to which CLS attends most in the tower's first layer. Each tile keeps its tokens of
 * highest s, in the order of the prompt.
 *
 * The authors' code cuts the P patches into as many runs as there are tiles, whatever the tiles show;
 * here a patch counts for the tile that shows it. */
#include "common/top.h"
#include "policy/plan/condense.h"
#include "prefill-worker/condense/condense.h"

static int32_t least(int64_t a, int32_t b) { return a < b ? (int32_t)a : b; }

/* n[i]: tokens of tile i. */
static void count_tokens(const fv_condense_context *ctx, int32_t *n) {
    for (int32_t j = 0; j < ctx->n; j++) n[ctx->tile[j]]++;
}

/* budget[i]: how many tile i keeps of its n[i]. */
static fv_status divide(const fv_condense_context *ctx, const int32_t *n, int32_t *budget) {
    const fv_condense_hired_params *p = &ctx->params->condense_hired;
    int32_t all = fv_hired_tokens(p, ctx->n), *count, *top;
    int32_t n_top = fv_hired_first(p, ctx->n_whole);
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->n_tile, count));
    FV_TRY(FV_ARENA_NEW(ctx->arena, n_top, top));
    fv_top(ctx->first_score, ctx->n_whole, n_top, top);
    for (int32_t i = 0; i < n_top; i++) count[ctx->shown_by[top[i]]]++;
    budget[0] = least(fv_hired_whole(p, all), n[0]);
    for (int32_t i = 1; i < ctx->n_tile && n_top > 0; i++)
        budget[i] = least((int64_t)(all - budget[0]) * count[i] / n_top, n[i]);
    return FV_OK;
}

/* Marks the tokens of tile i that stay. */
static fv_status choose(const fv_condense_context *ctx, int32_t i, int32_t n, int32_t keep,
                        bool *stays) {
    int32_t *token, *top, at = 0;
    float *score;
    FV_TRY(FV_ARENA_NEW(ctx->arena, n, token));
    FV_TRY(FV_ARENA_NEW(ctx->arena, n, score));
    FV_TRY(FV_ARENA_NEW(ctx->arena, keep, top));
    for (int32_t j = 0; j < ctx->n; j++) {
        if (ctx->tile[j] != i) continue;
        score[at] = ctx->score[j];
        token[at++] = j;
    }
    fv_top(score, n, keep, top);
    for (int32_t k = 0; k < keep; k++) stays[token[top[k]]] = true;
    return FV_OK;
}

static fv_status run_tiles(const fv_condense_context *ctx, fv_condensed *out) {
    int32_t *n, *budget, *source, left = 0;
    bool *stays;
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->n_tile, n));
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->n_tile, budget));
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->n, stays));
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->n, source));
    count_tokens(ctx, n);
    FV_TRY(divide(ctx, n, budget));
    for (int32_t i = 0; i < ctx->n_tile; i++) FV_TRY(choose(ctx, i, n[i], budget[i], stays));
    for (int32_t j = 0; j < ctx->n; j++)
        if (stays[j]) source[left++] = j;
    return fv_condense_select(ctx, source, left, out);
}

static fv_status run(const fv_condense_context *ctx, fv_condensed *out) {
    int32_t *source, keep = fv_hired_tokens(&ctx->params->condense_hired, ctx->n);
    if (ctx->n_tile > 1) return run_tiles(ctx, out);
    FV_TRY(FV_ARENA_NEW(ctx->arena, keep, source));
    fv_top(ctx->score, ctx->n, keep, source);
    return fv_condense_select(ctx, source, keep, out);
}

const fv_condense_method fv_condense_hired = {.first = true, .run = run};

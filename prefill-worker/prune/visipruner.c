/* prune=visipruner: the middle and deep stages of VisiPruner (Fan et al. 2025); the shallow stage
 * consists of masks in the plan. With the ablation scores of visual tokens j for the last prompt token in
 * layer l:
 *
 *     DETECT --- l >= detect and some cos_j < cos (or l is the given filter layer) --> TRACK
 *                F = { j : L2_j > l2 }: the others are dropped before layer l + 1
 *     TRACK  --- l >= detect and all of F have cos_j >= exit_cos, exit_count times ------> over
 *                F is dropped before layer l + 1
 *
 * The authors' code counts such layers in total (exit=cumulative); the paper wants them in a row.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "policy/plan/visipruner.h"
#include "prefill-worker/prune/prune.h"

enum { DETECT = 0, TRACK };

/* Whether some cosine is below `least`, which a NaN never is. */
static bool any_below(const float *cos, int32_t n, double least) {
    for (int32_t j = 0; j < n; j++)
        if ((double)cos[j] < least) return true;
    return false;
}

__attribute__((format(printf, 2, 3))) static void add_note(fv_prune_state *s, const char *fmt,
                                                           ...) {
    size_t n = strlen(s->said);
    va_list ap;
    if (n > 0) n += (size_t)snprintf(s->said + n, sizeof s->said - n, "; ");
    va_start(ap, fmt);
    if (n < sizeof s->said) vsnprintf(s->said + n, sizeof s->said - n, fmt, ap);
    va_end(ap);
}

static void filter(const fv_prune_context *ctx, fv_prune_state *s, int32_t *kept, int32_t *n_kept) {
    *n_kept = 0;
    for (int32_t j = 0; j < ctx->n_visual; j++)
        if ((double)ctx->l2[j] > ctx->thresholds.l2) kept[(*n_kept)++] = j;
    s->stage = TRACK;
    s->over = *n_kept == 0;
    add_note(s, "filtered after layer %d: kept %d of %d visual tokens", ctx->layer - 1, *n_kept,
             ctx->n_visual);
}

static void track(const fv_prune_context *ctx, fv_prune_state *s, int32_t *n_kept) {
    const fv_prune_visipruner_params *p = &ctx->params->prune_visipruner;
    if (!any_below(ctx->cos, ctx->n_visual, ctx->thresholds.exit_cos))
        s->count++;
    else if (p->exit_consecutive)
        s->count = 0;
    if (s->count < p->exit_count) return;
    *n_kept = 0;
    s->over = true;
    add_note(s, "dropped after layer %d", ctx->layer - 1);
}

static fv_status keep(const fv_prune_context *ctx, fv_prune_state *s, int32_t *kept,
                      int32_t *n_kept) {
    const fv_prune_visipruner_params *p = &ctx->params->prune_visipruner;
    int32_t layer = ctx->layer - 1, forced, detect = p->detect;
    assert(ctx->n_visual == 0 || (ctx->l2 && ctx->cos));
    FV_TRY(fv_visipruner_filter(p, ctx->n_layer, &forced));
    if (ctx->thresholds_of && !s->said[0])
        add_note(s, "cos %.6g, l2 %.4g, exit_cos %.6g, thresholds of %s", ctx->thresholds.cos,
                 ctx->thresholds.l2, ctx->thresholds.exit_cos, ctx->thresholds_of);
    *n_kept = ctx->n_visual;
    for (int32_t j = 0; j < ctx->n_visual; j++) kept[j] = j;
    bool now = forced >= 0
                   ? layer == forced
                   : layer >= detect && any_below(ctx->cos, ctx->n_visual, ctx->thresholds.cos);
    if (s->stage == DETECT && now)
        filter(ctx, s, kept, n_kept);
    else if (s->stage == TRACK && layer >= detect)
        track(ctx, s, n_kept);
    return FV_OK;
}

const fv_prune_method fv_prune_visipruner = {.keep = keep};

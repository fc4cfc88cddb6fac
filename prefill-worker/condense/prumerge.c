/* condense=prumerge: PruMerge (arXiv 2403.15388). With s_j the attention of CLS to token j in the
 * layer after the features, heads concatenated, k_j the tokens' keys there and x_j features:
 *
 *     S   tokens of highest s_j: as many as are outliers (s_j > Q3 + 1.5 (Q3 - Q1)), at least one
 *     x_i + sum of s_j x_j over the 32 tokens j != i whose keys are nearest to k_i by cosine, i in S
 *     sum of s_j x_j over all tokens outside S                       one additional token
 *
 * The 32 nearest may be in S themselves, weights do not sum to 1, and tokens are in the order of
 * their score, then the additional one: all as in the authors' code. PruMerge+ adds to S every
 * step-th token, step = floor(floor(n / |S|) / 3), at least 1, of all but the last. If S holds all
 * tokens, there is no additional one. Sums are in double, in ascending order of j. */
#include "prefill-worker/condense/prumerge.h"

#include <math.h>
#include <stdlib.h>

#include "common/top.h"
#include "policy/plan/condense.h"

/* ---- how many --------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Interpolates between the two elements of sorted x[n] around index share (n - 1). */
static double quantile(const float *x, int32_t n, double share) {
    double at = share * (n - 1);
    int32_t i = (int32_t)at;
    double low = (double)x[i], high = (double)x[i + 1 < n ? i + 1 : i];
    return low + (high - low) * (at - i);
}

fv_status fv_prumerge_outliers(const float *score, int32_t n, int32_t *count) {
    float *sorted = malloc((size_t)n * sizeof *sorted + 1);
    *count = 0;
    if (!sorted) return FV_FAIL(FV_ENOMEM, "out of memory for %d scores", n);
    for (int32_t i = 0; i < n; i++) sorted[i] = score[i];
    if (n > 0) {
        qsort(sorted, (size_t)n, sizeof *sorted, compare);
        double q1 = quantile(sorted, n, 0.25), q3 = quantile(sorted, n, 0.75);
        for (int32_t i = 0; i < n; i++) *count += (double)score[i] > q3 + 1.5 * (q3 - q1);
    }
    free(sorted);
    return FV_OK;
}

/* ---- which ------------------------------------------------------------------------------ */

/* Appends tokens at even distances to the n chosen ones in list[], without repeating any. */
static int32_t add_spread(int32_t n_row, int32_t *list, int32_t n, bool *in) {
    int32_t step = n > 0 ? n_row / n / 3 : 1;
    if (step < 1) step = 1;
    for (int32_t j = 0; j < n_row - 1; j += step) {
        if (in[j]) continue;
        in[j] = true;
        list[n++] = j;
    }
    return n;
}

/* list[0 .. *n): the kept tokens, in order; in[j]: whether j is one. */
static fv_status choose(const fv_condense_context *ctx, const fv_prumerge_rule *rule, int32_t *list,
                        bool *in, int32_t *n) {
    if (rule->keep > 0)
        *n = fv_prumerge_share(rule->keep, ctx->n);
    else
        FV_TRY(fv_prumerge_outliers(ctx->score, ctx->n, n));
    if (*n < 1) *n = 1;
    FV_TRY(fv_top_sort(ctx->score, ctx->n, list));
    for (int32_t i = 0; i < *n; i++) in[list[i]] = true;
    if (rule->spread) *n = add_spread(ctx->n, list, *n, in);
    return FV_OK;
}

/* ---- merging ---------------------------------------------------------------------------- */

/* near[n] = cosine of key i with every key; -inf for itself. norm [n] of the keys. */
static void cosines(const fv_condense_context *ctx, const double *norm, int32_t i, float *near) {
    size_t d = (size_t)ctx->d_key;
    for (int32_t j = 0; j < ctx->n; j++) {
        double dot = 0;
        for (size_t c = 0; c < d; c++)
            dot += (double)ctx->key[(size_t)i * d + c] * (double)ctx->key[(size_t)j * d + c];
        double both = norm[i] * norm[j];
        near[j] = j == i ? -INFINITY : both > 0 ? (float)(dot / both) : 0;
    }
}

/* y += s_j x_j */
static void add_weighted(const fv_condense_context *ctx, int32_t j, double *y) {
    const float *x = ctx->feature + (size_t)j * (size_t)ctx->width;
    for (int32_t c = 0; c < ctx->width; c++) y[c] += (double)ctx->score[j] * (double)x[c];
}

static void to_f32(const double *y, int32_t n, float *to) {
    for (int32_t c = 0; c < n; c++) to[c] = (float)y[c];
}

/* Scratch for an image's rows. */
typedef struct merge {
    double *norm, *sum; /* [n] of keys, [width] */
    float *near;        /* [n] */
    int32_t *some;      /* [n] */
} merge;

static fv_status merge_open(const fv_condense_context *ctx, merge *m) {
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->n, m->norm));
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->width, m->sum));
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->n, m->near));
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->n, m->some));
    for (int32_t j = 0; j < ctx->n; j++) {
        const float *k = ctx->key + (size_t)j * (size_t)ctx->d_key;
        for (int32_t c = 0; c < ctx->d_key; c++) m->norm[j] += (double)k[c] * (double)k[c];
        m->norm[j] = sqrt(m->norm[j]);
    }
    return FV_OK;
}

static void merge_row(const fv_condense_context *ctx, int32_t neighbours, merge *m, int32_t i,
                      float *to) {
    int32_t most = ctx->n - 1, near = neighbours < most ? neighbours : most;
    for (int32_t c = 0; c < ctx->width; c++)
        m->sum[c] = (double)ctx->feature[(size_t)i * (size_t)ctx->width + (size_t)c];
    cosines(ctx, m->norm, i, m->near);
    fv_top(m->near, ctx->n, near, m->some);
    for (int32_t j = 0; j < near; j++) add_weighted(ctx, m->some[j], m->sum);
    to_f32(m->sum, ctx->width, to);
}

/* Writes the additional row, merged from all tokens outside S. */
static void merge_rest(const fv_condense_context *ctx, merge *m, const bool *in, float *to) {
    for (int32_t c = 0; c < ctx->width; c++) m->sum[c] = 0;
    for (int32_t j = 0; j < ctx->n; j++)
        if (!in[j]) add_weighted(ctx, j, m->sum);
    to_f32(m->sum, ctx->width, to);
}

fv_status fv_prumerge_run(const fv_condense_context *ctx, const fv_prumerge_rule *rule,
                          fv_condensed *out) {
    size_t width = (size_t)ctx->width;
    int32_t n, *list;
    float *feature;
    bool *in;
    merge m;
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->n + 1, list));
    FV_TRY(FV_ARENA_NEW(ctx->arena, ctx->n, in));
    FV_TRY(choose(ctx, rule, list, in, &n));
    FV_TRY(FV_ARENA_NEW(ctx->arena, (size_t)(n + 1) * width, feature));
    FV_TRY(merge_open(ctx, &m));
    for (int32_t i = 0; i < n; i++)
        merge_row(ctx, rule->neighbours, &m, list[i], feature + (size_t)i * width);
    *out = (fv_condensed){.n = n, .feature = feature, .source = list};
    if (n == ctx->n) return FV_OK;
    merge_rest(ctx, &m, in, feature + (size_t)n * width);
    list[n] = -1;
    out->n++;
    return FV_OK;
}

static fv_status run(const fv_condense_context *ctx, fv_condensed *out) {
    const fv_condense_prumerge_params *p = &ctx->params->condense_prumerge;
    return fv_prumerge_run(ctx, &(fv_prumerge_rule){p->keep, p->neighbours, false}, out);
}

const fv_condense_method fv_condense_prumerge = {.after = true, .whole = true, .run = run};

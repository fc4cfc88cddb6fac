/* select=lookm: LOOK-M (arXiv 2406.18139). With s_j the attention of all prompt tokens to row j, as in
 * select=h2o, of the rows before the recent ones
 *     prior=text   all text stays, and the image tokens of highest s_j while the budget has room
 *     prior=none   the rows of highest s_j stay; if rows are merged, the first four are among them
 * and dropped rows are merged into kept ones. With c_ej the cosine of the keys of dropped row e and kept
 * row j, e goes to its nearest j in the same KV head, key and value alike:
 *     x_j <- (x_j + sum of y_e) / (1 + number of e)
 *     pivotal   y_e = (x_e + x_j) / 2
 *     average   y_e = x_e
 *     weighted  y_e = c_ej x_e, only for those e whose c_ej, mean over the layer's KV heads, is no
 *               less than the mean over all e; e counts each head's dropped rows by position
 * The authors' code for `average` finds the nearest row for some rows only but merges all of them, so
 * that rows end up in the wrong places; here each goes to its own nearest row. */
#include <math.h>
#include <string.h>

#include "prefill-worker/select/select_rows.h"
#include "prefill-worker/select/store_rows.h"

enum { PINNED = 4 };

/* ---- what stays ------------------------------------------------------------------------- */

/* Scores text rows, or the first rows, above any attention. */
static void score_first_rows(const fv_select_context *ctx, const fv_select_rows *rows,
                             float *score) {
    const fv_select_lookm_params *p = &ctx->params->select_lookm;
    for (int32_t i = 0; i < rows->n; i++) {
        bool first = p->prior_text
                         ? rows->row[i].seg == FV_SEG_TEXT
                         : !p->merge_none && ctx->pos[rows->row[i].seg][rows->row[i].at] < PINNED;
        if (first) score[i] = HUGE_VALF;
    }
}

/* How many rows stay before the recent ones: the budget, or all text if that is more. */
static int32_t heavy_of(const fv_select_context *ctx, const fv_select_rows *rows) {
    int32_t n_text = 0, ahead = rows->n - ctx->budget.recent;
    for (int32_t i = 0; i < ahead; i++) n_text += rows->row[i].seg == FV_SEG_TEXT;
    bool text = ctx->params->select_lookm.prior_text;
    return text && n_text > ctx->budget.heavy ? n_text : ctx->budget.heavy;
}

static fv_status keep(const fv_select_context *ctx, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                      int32_t n_kept[FV_N_SEG]) {
    fv_select_context own = *ctx;
    fv_select_rows rows;
    float *score;
    FV_TRY(fv_select_order(ctx, arena, &rows));
    FV_TRY(FV_ARENA_NEW(arena, rows.n, score));
    FV_TRY(fv_select_score(ctx, &rows, arena, score));
    score_first_rows(ctx, &rows, score);
    if (rows.n > (int64_t)ctx->budget.heavy + ctx->budget.recent)
        own.budget.heavy = heavy_of(ctx, &rows);
    return fv_select_by_budget(&own, &rows, score, arena, kept, n_kept);
}

/* ---- merging ------------------------------------------------------------------------------ */

/* A KV head: its rows by position, and which of them stay or leave. */
typedef struct head {
    fv_select_rows rows;
    float *x[2];             /* keys and values of all rows, [n, D], by position */
    int32_t n_stay, *stay;   /* [n_stay] indices of rows */
    int32_t n_leave, *leave; /* [n_leave] likewise */
    int32_t *to;             /* [n_leave] the nearest kept row, as an index of stay[] */
    double *cosine;          /* [n_leave] with that row */
} head;

static fv_status read_rows(const fv_select_kept *k, int32_t g, fv_arena *arena, head *h) {
    size_t d = (size_t)fv_kv_get_shape(k->kv)->d_head;
    for (int value = 0; value < 2; value++) {
        float *of[FV_N_SEG];
        FV_TRY(FV_ARENA_NEW(arena, (size_t)h->rows.n * d, h->x[value]));
        for (int seg = 0; seg < FV_N_SEG; seg++) {
            size_t n = (size_t)fv_kv_len(k->kv, k->layer, g, (fv_kv_segment)seg);
            FV_TRY(FV_ARENA_NEW(arena, n * d, of[seg]));
            FV_TRY(fv_read_rows(k->be, k->kv, k->layer, g, (fv_kv_segment)seg, value, of[seg]));
        }
        for (int32_t i = 0; i < h->rows.n; i++)
            memcpy(h->x[value] + (size_t)i * d,
                   of[h->rows.row[i].seg] + (size_t)h->rows.row[i].at * d, d * sizeof(float));
    }
    return FV_OK;
}

static fv_status read_head(const fv_select_kept *k, int32_t g, fv_arena *arena, head *h) {
    fv_select_context ctx = {0};
    int32_t at[FV_N_SEG] = {0};
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        ctx.n[seg] = fv_kv_len(k->kv, k->layer, g, (fv_kv_segment)seg);
        ctx.pos[seg] = fv_kv_positions(k->kv, k->layer, g, (fv_kv_segment)seg);
    }
    FV_TRY(fv_select_order(&ctx, arena, &h->rows));
    FV_TRY(FV_ARENA_NEW(arena, h->rows.n, h->stay));
    FV_TRY(FV_ARENA_NEW(arena, h->rows.n, h->leave));
    FV_TRY(FV_ARENA_NEW(arena, h->rows.n, h->to));
    FV_TRY(FV_ARENA_NEW(arena, h->rows.n, h->cosine));
    for (int32_t i = 0; i < h->rows.n; i++) {
        fv_select_row row = h->rows.row[i];
        int32_t *next = &at[row.seg];
        bool stays = *next < k->n_kept[row.seg][g] && k->kept[row.seg][g][*next] == row.at;
        *next += stays;
        if (stays)
            h->stay[h->n_stay++] = i;
        else
            h->leave[h->n_leave++] = i;
    }
    return read_rows(k, g, arena, h);
}

static double dot(const float *x, const float *y, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)x[i] * (double)y[i];
    return sum;
}

/* Finds the nearest kept row of each dropped row; ties go to the first. Cosines with keys of zeros are 0. */
static void find_nearest(head *h, int32_t d) {
    const float *k = h->x[0];
    for (int32_t e = 0; e < h->n_leave; e++) {
        const float *x = k + (size_t)h->leave[e] * (size_t)d;
        double xx = dot(x, x, d), best = -HUGE_VAL;
        for (int32_t j = 0; j < h->n_stay; j++) {
            const float *y = k + (size_t)h->stay[j] * (size_t)d;
            double norms = sqrt(xx * dot(y, y, d)), c = norms > 0 ? dot(x, y, d) / norms : 0;
            if (c <= best) continue;
            best = c;
            h->to[e] = j;
        }
        h->cosine[e] = best;
    }
}

/* Sets to = -1 for rows that a weighted merge skips. All heads drop as many rows as the first. */
static void skip_far(head *heads, int32_t n_kv) {
    int32_t n = heads[0].n_leave;
    double all = 0;
    for (int32_t g = 0; g < n_kv; g++)
        for (int32_t e = 0; e < n; e++) all += heads[g].cosine[e];
    for (int32_t e = 0; e < n; e++) {
        double mean = 0;
        for (int32_t g = 0; g < n_kv; g++) mean += heads[g].cosine[e];
        for (int32_t g = 0; g < n_kv && mean * n < all; g++) heads[g].to[e] = -1;
    }
}

/* Merges into kept row stay[j] of keys or values the rows that go to it; false: there are none. */
static bool merge_into(const head *h, const fv_select_lookm_params *p, int32_t j, int value,
                       int32_t d, double *sum, float *out) {
    const float *x = h->x[value] + (size_t)h->stay[j] * (size_t)d;
    int32_t n = 1;
    for (int32_t i = 0; i < d; i++) sum[i] = (double)x[i];
    for (int32_t e = 0; e < h->n_leave; e++) {
        const float *y = h->x[value] + (size_t)h->leave[e] * (size_t)d;
        if (h->to[e] != j) continue;
        n++;
        for (int32_t i = 0; i < d; i++)
            sum[i] += p->merge_pivotal    ? ((double)y[i] + (double)x[i]) / 2
                      : p->merge_weighted ? h->cosine[e] * (double)y[i]
                                          : (double)y[i];
    }
    for (int32_t i = 0; i < d; i++) out[i] = (float)(sum[i] / n);
    return n > 1;
}

static fv_status write_head(const fv_select_kept *k, int32_t g, const head *h, fv_arena *arena) {
    int32_t d = fv_kv_get_shape(k->kv)->d_head;
    double *sum;
    FV_TRY(FV_ARENA_NEW(arena, d, sum));
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        int32_t n = 0, *at;
        float *x[2];
        FV_TRY(FV_ARENA_NEW(arena, h->n_stay, at));
        for (int v = 0; v < 2; v++)
            FV_TRY(FV_ARENA_NEW(arena, (size_t)h->n_stay * (size_t)d, x[v]));
        for (int32_t j = 0; j < h->n_stay; j++) {
            fv_select_row row = h->rows.row[h->stay[j]];
            if (row.seg != seg) continue;
            bool any =
                merge_into(h, &k->params->select_lookm, j, 0, d, sum, x[0] + (size_t)n * (size_t)d);
            if (!any) continue;
            merge_into(h, &k->params->select_lookm, j, 1, d, sum, x[1] + (size_t)n * (size_t)d);
            at[n++] = row.at;
        }
        FV_TRY(fv_write_rows(k->be, k->kv, k->layer, g, (fv_kv_segment)seg, at, n, x[0], x[1]));
    }
    return FV_OK;
}

static fv_status merge(const fv_select_kept *k, fv_arena *arena) {
    const fv_kv_shape *s = fv_kv_get_shape(k->kv);
    head *heads;
    if (k->params->select_lookm.merge_none) return FV_OK;
    FV_TRY(FV_ARENA_NEW(arena, s->n_kv, heads));
    for (int32_t g = 0; g < s->n_kv; g++) {
        FV_TRY(read_head(k, g, arena, &heads[g]));
        if (heads[g].n_stay == 0 || heads[g].n_leave == 0) return FV_OK;
        find_nearest(&heads[g], s->d_head);
    }
    if (k->params->select_lookm.merge_weighted) skip_far(heads, s->n_kv);
    for (int32_t g = 0; g < s->n_kv; g++) FV_TRY(write_head(k, g, &heads[g], arena));
    return FV_OK;
}

const fv_select_method fv_select_lookm = {.keep = keep, .merge = merge};

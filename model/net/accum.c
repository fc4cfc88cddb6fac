/* Adds captures to accumulators and evicts by them. The last entry of a segment fills the slot of
 * an evicted one: one entry moves instead of all later ones. Attention does not depend on the order
 * of entries, so only rounding differs. */
#include "model/net/accum.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "common/top.h"

/* ---- filling accumulators --------------------------------------------------------------- */

void fv_accum_init(fv_kv *kv, fv_accum_kind kind, int32_t width) {
    fv_kv_get_sequence(kv)->accum = kind;
    if (kind == FV_ACCUM_VALUE) width = 1;
    if (kind) fv_kv_add_column(kv, FV_KV_ACCUM, (size_t)width * sizeof(float));
}

/* Entries of the longest head in a segment: a capture has as many columns for it. */
static int32_t longest(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    int32_t n = 0;
    for (int32_t g = 0; g < fv_kv_get_shape(kv)->n_kv; g++)
        if (fv_kv_len(kv, layer, g, seg) > n) n = fv_kv_len(kv, layer, g, seg);
    return n;
}

/* Copies between p [H, n_key] and the accumulators of a layer's rows; `put`: into the
 * accumulators. */
static void copy(fv_kv *kv, int32_t layer, float *p, int32_t text, int32_t n_key, bool put) {
    int32_t width = fv_accum_width(kv);
    for (int32_t g = 0; g < fv_kv_get_shape(kv)->n_kv; g++)
        for (int seg = 0; seg < FV_N_SEG; seg++) {
            float *accum = fv_accum_values(kv, layer, g, (fv_kv_segment)seg);
            int32_t n = fv_kv_len(kv, layer, g, (fv_kv_segment)seg);
            float *column = p + (seg == FV_SEG_TEXT ? text : 0);
            for (int32_t i = 0; i < n * width; i++) {
                float *at = column + (size_t)(g * width + i % width) * (size_t)n_key + i / width;
                if (put)
                    accum[i] = *at;
                else
                    *at = accum[i];
            }
        }
}

void fv_accum_put(fv_kv *kv, int32_t layer, const float *p, int32_t text, int32_t n_key) {
    if (fv_accum_kind_of(kv)) copy(kv, layer, (float *)(uintptr_t)p, text, n_key, true);
}

fv_status fv_accum_add_captures(fv_arena *arena, int32_t n_head, bool last, fv_forward_seq *seq) {
    fv_accum_kind kind = fv_accum_kind_of(seq->kv);
    int32_t n_layer = fv_kv_get_shape(seq->kv)->n_layer, rows = seq->n_rows;
    fv_forward_capture *capture;
    if (!kind || kind == FV_ACCUM_VALUE || (kind == FV_ACCUM_LAST && !last)) return FV_OK;
    if (kind == FV_ACCUM_LAST) rows = 1;
    FV_TRY(FV_ARENA_NEW(arena, n_layer, capture));
    for (int32_t l = 0; l < n_layer; l++) {
        int32_t text = longest(seq->kv, l, FV_SEG_VISUAL);
        int32_t n_key = text + longest(seq->kv, l, FV_SEG_TEXT) + seq->n_rows;
        capture[l] = (fv_forward_capture){.layer = l,
                                          .n_row = rows,
                                          .low = kind == FV_ACCUM_LOW,
                                          .text = text,
                                          .n_key = n_key,
                                          .fresh = kind == FV_ACCUM_LAST};
        FV_TRY(FV_ARENA_NEW(arena, (size_t)n_head * (size_t)n_key, capture[l].p));
        if (kind != FV_ACCUM_LAST) copy(seq->kv, l, capture[l].p, text, n_key, false);
    }
    seq->capture = capture;
    seq->n_capture = n_layer;
    if (seq->wanted < rows) seq->wanted = rows;
    return FV_OK;
}

void fv_accum_store(const fv_forward_seq *seq) {
    if (!fv_accum_kind_of(seq->kv)) return;
    for (int32_t i = 0; i < seq->n_capture; i++) {
        const fv_forward_capture *capture = &seq->capture[i];
        copy(seq->kv, capture->layer, capture->p, capture->text, capture->n_key, true);
    }
}

/* ---- which rows are evicted ----------------------------------------------------------- */

typedef struct row {
    float worth; /* rows of least worth are evicted first */
    int32_t pos, at;
    uint8_t seg;
} row;

/* Sorts rows in the order of eviction: the least worth first, of equals the highest position. NaN
 * is worth less than any number. */
static int leaves_first(const void *a, const void *b) {
    const row *x = a, *y = b;
    bool x_is = x->worth == x->worth, y_is = y->worth == y->worth;
    if (x_is != y_is) return x_is ? 1 : -1;
    if (x_is && x->worth != y->worth) return x->worth < y->worth ? -1 : 1;
    return x->pos < y->pos ? 1 : -1;
}

/* Worth of a row: the mean over the query heads of its KV head, or with `shared` of all KV
 * heads. */
static float worth_of(const fv_kv *kv, const fv_accum_rule *rule, int32_t layer, int32_t head,
                      int seg, int32_t j, int32_t n_seen) {
    int32_t width = fv_accum_width(kv), n_kv = fv_kv_get_shape(kv)->n_kv;
    int32_t g0 = rule->shared ? 0 : head, g1 = rule->shared ? n_kv : head + 1;
    double sum = 0;
    for (int32_t g = g0; g < g1; g++) {
        const float *accum =
            fv_accum_values(kv, layer, g, (fv_kv_segment)seg) + (size_t)(j * width);
        for (int32_t q = 0; q < width; q++) sum += (double)accum[q];
    }
    float mean = (float)(sum / (width * (g1 - g0)));
    if (rule->mean) mean /= (float)n_seen;
    return rule->kind == FV_ACCUM_LOW ? -mean : mean;
}

static int32_t rows_of(const fv_kv *kv, int32_t layer, int32_t head) {
    return fv_kv_len(kv, layer, head, FV_SEG_VISUAL) + fv_kv_len(kv, layer, head, FV_SEG_TEXT);
}

/* Lists the *n_free rows of a head that may be evicted, with their worth: all but the `recent`
 * last. */
static fv_status rank(const fv_kv *kv, const fv_accum_rule *rule, int32_t layer, int32_t head,
                      fv_arena *arena, row **out, int32_t *n_free) {
    int32_t n = rows_of(kv, layer, head), i = 0, *last, end = 0;
    int32_t recent = rule->recent < n ? rule->recent : n;
    float *by_pos;
    row *rows, *ordered;
    FV_TRY(FV_ARENA_NEW(arena, n, rows));
    FV_TRY(FV_ARENA_NEW(arena, n, ordered));
    FV_TRY(FV_ARENA_NEW(arena, n, by_pos));
    FV_TRY(FV_ARENA_NEW(arena, recent, last));
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        const int32_t *pos = fv_kv_positions(kv, layer, head, (fv_kv_segment)seg);
        for (int32_t j = 0; j < fv_kv_len(kv, layer, head, (fv_kv_segment)seg); j++, i++) {
            rows[i] = (row){.pos = pos[j], .at = j, .seg = (uint8_t)seg};
            by_pos[i] = (float)pos[j];
            if (pos[j] >= end) end = pos[j] + 1;
        }
    }
    fv_top(by_pos, n, recent, last);
    *n_free = 0;
    for (int32_t j = 0, k = 0; j < n; j++) {
        bool stays = k < recent && last[k] == j;
        k += stays;
        if (stays) continue;
        rows[j].worth = worth_of(kv, rule, layer, head, rows[j].seg, rows[j].at, end - rows[j].pos);
        ordered[(*n_free)++] = rows[j];
    }
    *out = ordered;
    return FV_OK;
}

static int ascending(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Removes the first n of `rows` from their segments of a head. */
static fv_status remove_rows(fv_kv *kv, int32_t layer, int32_t head, const row *rows, int32_t n,
                             fv_arena *arena) {
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        int32_t *idx, n_idx = 0;
        FV_TRY(FV_ARENA_NEW(arena, n, idx));
        for (int32_t i = 0; i < n; i++)
            if (rows[i].seg == seg) idx[n_idx++] = rows[i].at;
        qsort(idx, (size_t)n_idx, sizeof *idx, ascending);
        FV_TRY(fv_kv_remove_later(kv, layer, head, (fv_kv_segment)seg, idx, n_idx));
        fv_kv_get_sequence(kv)->n_evicted += (uint64_t)n_idx;
    }
    return FV_OK;
}

/* Resets the accumulators of a head's remaining rows. */
static void start_again(fv_kv *kv, int32_t layer, int32_t head) {
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        float *accum = fv_accum_values(kv, layer, head, (fv_kv_segment)seg);
        int32_t n = fv_kv_len(kv, layer, head, (fv_kv_segment)seg) * fv_accum_width(kv);
        for (int32_t i = 0; i < n; i++) accum[i] = 0;
    }
}

/* Puts the rows to evict first. A single one, the usual case in decoding, needs no sort. */
static void bring_first(row *rows, int32_t n, int32_t n_leave) {
    if (n_leave > 1) qsort(rows, (size_t)n, sizeof *rows, leaves_first);
    for (int32_t i = 1; n_leave == 1 && i < n; i++)
        if (leaves_first(&rows[i], &rows[0]) < 0) {
            row first = rows[i];
            rows[i] = rows[0];
            rows[0] = first;
        }
}

static fv_status let_go_layer(fv_kv *kv, const fv_accum_rule *rule, int32_t layer,
                              fv_arena *arena) {
    int32_t n_kv = fv_kv_get_shape(kv)->n_kv, n_free, *n_leave;
    row **rows;
    FV_TRY(FV_ARENA_NEW(arena, n_kv, rows));
    FV_TRY(FV_ARENA_NEW(arena, n_kv, n_leave));
    for (int32_t g = 0; g < n_kv; g++) { /* all are chosen first: scores may be shared */
        int32_t n = rows_of(kv, layer, g);
        if (n <= rule->most) continue;
        FV_TRY(rank(kv, rule, layer, g, arena, &rows[g], &n_free));
        n_leave[g] = n - rule->left < n_free ? n - rule->left : n_free;
        bring_first(rows[g], n_free, n_leave[g]);
    }
    for (int32_t g = 0; g < n_kv; g++) {
        if (n_leave[g] == 0) continue;
        FV_TRY(remove_rows(kv, layer, g, rows[g], n_leave[g], arena));
        if (rule->kind == FV_ACCUM_LOW) start_again(kv, layer, g);
    }
    return FV_OK;
}

fv_status fv_accum_evict(fv_kv *kv, const fv_accum_rule *rule, bool pages) {
    fv_arena arena = {0};
    fv_status st = FV_OK;
    if (!fv_accum_kind_of(kv)) return FV_OK;
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer && st == FV_OK; l++) {
        fv_arena_reset(&arena);
        st = let_go_layer(kv, rule, l, &arena);
    }
    fv_arena_fini(&arena);
    if (st == FV_OK) st = fv_kv_settle(kv);
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer && st == FV_OK; l++)
        st = fv_kv_fit(kv, l, pages ? rule->most + 1 : INT32_MAX);
    return st;
}

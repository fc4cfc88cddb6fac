/* Turns a filled store into sets of image tokens, and the attention that chose them into scores of a
 * byte each, small enough for a report. For the thread that owns the store. */
#include "prefill-worker/prefill/kept_map.h"

#include <string.h>

#include "kv/packed.h"

enum { BYTE_MAX = 255, MAX_LAYERS = 256 };

struct fv_kept_map_watch {
    fv_arena *arena;
    int32_t n_visual;
    int32_t *place;             /* [prompt tokens] which image row a row is, -1: none */
    int32_t *seen;              /* [V] the last head, counted from 1, that held the row */
    uint8_t *score[MAX_LAYERS]; /* [V] of the layers that ranked; NULL: of the others */
};

fv_status fv_kept_map_begin(fv_arena *arena, const uint8_t *seg, int32_t n,
                            const fv_kept_map_rows *rows, fv_kept_map_watch **out) {
    int32_t image = 0;
    const int32_t *source = rows ? rows->source : NULL;
    fv_kept_map_watch *w;
    FV_TRY(FV_ARENA_NEW(arena, 1, w));
    FV_TRY(FV_ARENA_NEW(arena, n, w->place));
    w->arena = arena;
    for (int32_t i = 0; i < n; i++) {
        w->place[i] = -1;
        if (seg[i] != FV_SEG_VISUAL) continue;
        w->place[i] = source ? source[image] : image;
        image++;
    }
    w->n_visual = source ? rows->n : image;
    FV_TRY(FV_ARENA_NEW(arena, w->n_visual, w->seen));
    *out = w;
    return FV_OK;
}

fv_status fv_kept_map_ranked(void *watch, int32_t layer, const float *attention, const int32_t *pos,
                             int32_t n) {
    fv_kept_map_watch *w = watch;
    float most = 0;
    if (layer >= MAX_LAYERS) return FV_OK;
    if (!w->score[layer]) FV_TRY(FV_ARENA_NEW(w->arena, w->n_visual, w->score[layer]));
    for (int32_t i = 0; i < n; i++)
        if (attention[i] > most) most = attention[i];
    for (int32_t i = 0; i < n; i++) {
        float share = attention[i] > 0 ? attention[i] / most : 0; /* 0 for NaN */
        if (w->place[pos[i]] < 0) continue;
        w->score[layer][w->place[pos[i]]] = (uint8_t)(share * (BYTE_MAX - 1) + 1.5F);
    }
    return FV_OK;
}

/* Counts the heads that hold each row; a row that a head holds twice counts once. */
static void count(fv_kept_map_watch *w, const int32_t *pos, int32_t n, int32_t head,
                  uint8_t *heads) {
    for (int32_t i = 0; i < n; i++) {
        int32_t p = w->place[pos[i]];
        if (p < 0 || w->seen[p] == head + 1) continue;
        w->seen[p] = head + 1;
        if (heads[p] < BYTE_MAX) heads[p]++;
    }
}

static void count_layer(fv_kept_map_watch *w, const fv_kv *kv, int32_t layer, uint8_t *heads) {
    const fv_kv_packed *packed = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    memset(heads, 0, (size_t)w->n_visual);
    memset(w->seen, 0, (size_t)w->n_visual * sizeof *w->seen);
    for (int32_t g = 0; g < fv_kv_get_shape(kv)->n_kv; g++) {
        count(w, fv_kv_positions(kv, layer, g, FV_SEG_VISUAL),
              fv_kv_len(kv, layer, g, FV_SEG_VISUAL), g, heads);
        if (packed) count(w, packed->pos, packed->rows.n, g, heads);
    }
}

/* The ranking by which the rows of layers [from, end) were chosen: the last before them, or else
 * the first among them, by which they are evicted later. */
static uint8_t *score_of(const fv_kept_map_watch *w, int32_t from, int32_t end) {
    for (int32_t l = from - 1; l >= 0; l--)
        if (w->score[l]) return w->score[l];
    for (int32_t l = from; l < end; l++)
        if (w->score[l]) return w->score[l];
    return NULL;
}

fv_status fv_kept_map_end(fv_kept_map_watch *w, const fv_kv *kv, fv_kept_map *out) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    fv_kept_map kept = {.n_visual = w->n_visual, .n_kv = s->n_kv};
    uint8_t *heads;
    FV_TRY(FV_ARENA_NEW(w->arena, s->n_layer, kept.group));
    for (int32_t l = 0; l < s->n_layer; l++) {
        fv_kept_map_group *last = kept.n_group ? &kept.group[kept.n_group - 1] : NULL;
        FV_TRY(FV_ARENA_NEW(w->arena, w->n_visual, heads));
        count_layer(w, kv, l, heads);
        if (last && memcmp(last->heads, heads, (size_t)w->n_visual) == 0)
            last->n_layer++;
        else
            kept.group[kept.n_group++] =
                (fv_kept_map_group){.layer = l, .n_layer = 1, .heads = heads};
    }
    for (int32_t i = 0; i < kept.n_group; i++) {
        fv_kept_map_group *g = &kept.group[i];
        g->score = score_of(w, g->layer, g->layer + g->n_layer);
    }
    *out = kept;
    return FV_OK;
}

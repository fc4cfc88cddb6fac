/* Computes the tables of a pass, once for all its layers: first on the host, where they give the
 * size of the scratch area, then the device's copies. Runs on the thread that owns the decoder. */
#include "model/net/forward_tables.h"

#include <assert.h>
#include <string.h>

/* ---- rows ------------------------------------------------------------------------------ */

/* slot[r]: number of tokens of r's segment before r. */
static fv_status seq_slots(const fv_forward_seq *seq, int32_t b, int32_t row0, fv_arena *arena,
                           fv_forward_tables *t) {
    int32_t n = seq->n_rows, *slot, *count = t->seg_rows[b];
    FV_TRY(FV_ARENA_NEW(arena, n, slot));
    for (int s = 0; s < FV_N_SEG; s++) FV_TRY(FV_ARENA_NEW(arena, n, t->seg_pos[s][b]));
    for (int32_t r = 0; r < n; r++) {
        assert(seq->seg[r] < FV_N_SEG);
        slot[r] = count[seq->seg[r]]++;
        t->seg_pos[seq->seg[r]][b][slot[r]] = seq->pos[r];
    }
    t->write[b] = (fv_kv_write_seq){
        .row0 = row0, .n_rows = n, .n_seg = FV_N_SEG, .seg = seq->seg, .slot = slot};
    const fv_rope_map *map = fv_kv_rope_map(seq->kv);
    for (int32_t r = 0; r < n; r++)
        t->rope_pos[row0 + r] = seq->rope_pos ? seq->rope_pos[r] : fv_rope_map_at(map, seq->pos[r]);
    return FV_OK;
}

/* Lets the rows of an image see all of it: as much as its last row. Text separates images. */
static void see_images(const fv_forward_seq *seq, int32_t *masked_tail) {
    for (int32_t r = seq->n_rows - 2; r >= 0; r--)
        if (seq->seg[r] == FV_SEG_VISUAL && seq->seg[r + 1] == FV_SEG_VISUAL)
            masked_tail[r] = masked_tail[r + 1];
}

static void wanted_tails(const int32_t *masked_tail, int32_t n, int32_t w, int32_t *out) {
    for (int s = 0; s < FV_N_SEG; s++)
        for (int32_t i = 0; i < w; i++)
            out[s * w + i] = masked_tail[(size_t)s * (size_t)n + (size_t)(n - w + i)];
}

/* Keeps what rows see before images are whole, for layers in which they are not. */
static fv_status keep_causal(const fv_text_config *cfg, const int32_t *masked_tail, int32_t n,
                             int32_t w, int32_t b, fv_arena *arena, fv_forward_tables *t) {
    int32_t *all, *wanted;
    if (!cfg->image_slides) return FV_OK;
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * FV_N_SEG, all));
    FV_TRY(FV_ARENA_NEW(arena, (size_t)w * FV_N_SEG, wanted));
    memcpy(all, masked_tail, (size_t)n * FV_N_SEG * sizeof *all);
    wanted_tails(all, n, w, wanted);
    t->causal[b] = all;
    t->causal_wanted[b] = wanted;
    return FV_OK;
}

void fv_forward_tables_mask(const fv_text_config *cfg, const fv_forward_tables *t, int32_t b,
                            int32_t l, fv_attn_seq *at) {
    const bool few = at == &t->attn_wanted[b];
    if (!cfg->image_slides || cfg->slides[l])
        at->masked_tail = few ? t->whole_wanted[b] : t->whole[b];
    else
        at->masked_tail = few ? t->causal_wanted[b] : t->causal[b];
}

fv_status fv_forward_tables_mask_held(const fv_forward_batch *pass, int32_t b, int32_t l,
                                      fv_arena *arena, fv_attn_seq *at) {
    const fv_forward_seq *seq = &pass->seq[b];
    int32_t n = at->n_rows, *masked_tail;
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * FV_N_SEG, masked_tail));
    for (int s = 0; s < FV_N_SEG; s++) {
        const int32_t *held = fv_kv_positions(seq->kv, l, 0, (fv_kv_segment)s);
        const int32_t len = fv_kv_len(seq->kv, l, 0, (fv_kv_segment)s);
        for (int32_t i = 0; i < n; i++) {
            int32_t later = 0;
            while (later < len && held[len - 1 - later] > seq->pos[seq->n_rows - n + i]) later++;
            masked_tail[s * n + i] = later;
        }
    }
    at->masked_tail = masked_tail;
    return FV_OK;
}

/* masked_tail[s][i]: entries of segment s after query i in this forward batch, unless the sequence
 * sets its own. */
static fv_status seq_queries(const fv_forward_seq *seq, int32_t b, int32_t row0,
                             const fv_text_config *cfg, fv_arena *arena, fv_forward_tables *t) {
    int32_t n = seq->n_rows, w = seq->wanted, *masked_tail, *masked_wanted;
    assert(w >= 0 && w <= n);
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * FV_N_SEG, masked_tail));
    FV_TRY(FV_ARENA_NEW(arena, (size_t)w * FV_N_SEG, masked_wanted));
    int32_t after[FV_N_SEG] = {0};
    for (int32_t r = n - 1; r >= 0; r--) {
        for (int s = 0; s < FV_N_SEG; s++)
            masked_tail[(size_t)s * (size_t)n + (size_t)r] = after[s];
        after[seq->seg[r]]++;
    }
    if (seq->masked_tail)
        memcpy(masked_tail, seq->masked_tail, (size_t)n * FV_N_SEG * sizeof *masked_tail);
    FV_TRY(keep_causal(cfg, masked_tail, n, w, b, arena, t));
    if (cfg->image_whole) see_images(seq, masked_tail + (size_t)FV_SEG_VISUAL * (size_t)n);
    wanted_tails(masked_tail, n, w, masked_wanted);
    t->attn[b] =
        (fv_attn_seq){.row0 = row0, .n_rows = n, .n_seg = FV_N_SEG, .masked_tail = masked_tail};
    t->attn_wanted[b] = (fv_attn_seq){
        .row0 = t->n_wanted, .n_rows = w, .n_seg = FV_N_SEG, .masked_tail = masked_wanted};
    t->whole[b] = masked_tail;
    t->whole_wanted[b] = masked_wanted;
    for (int32_t i = 0; i < w; i++) t->wanted[t->n_wanted++] = row0 + n - w + i;
    return FV_OK;
}

/* ---- sliding windows -------------------------------------------------------------------- */

static fv_status seq_window(const fv_text_config *cfg, const fv_forward_seq *seq, int32_t b,
                            fv_arena *arena, fv_forward_tables *t) {
    int32_t *from, last = 0;
    t->window_from[b] = NULL;
    for (int32_t i = 0; i < seq->n_rows; i++) last = seq->pos[i] > last ? seq->pos[i] : last;
    if (cfg->window == 0 || last < cfg->window) return FV_OK;
    FV_TRY(FV_ARENA_NEW(arena, seq->n_rows, from));
    for (int32_t i = 0; i < seq->n_rows; i++) from[i] = seq->pos[i] - cfg->window + 1;
    t->window_from[b] = from;
    return FV_OK;
}

void fv_forward_tables_window(const fv_text_config *cfg, const fv_forward_batch *pass,
                              const fv_forward_tables *t, int32_t b, int32_t l, fv_attn_seq *at) {
    const int32_t *from = t->window_from[b], **position = t->position;
    position += (ptrdiff_t)b * cfg->n_kv * FV_N_SEG;
    at->window_from = NULL;
    if (!from || !cfg->slides[l]) return;
    at->window_from = from + pass->seq[b].n_rows - at->n_rows;
    at->position = position;
    for (int32_t g = 0; g < cfg->n_kv; g++)
        for (int s = 0; s < FV_N_SEG; s++)
            *position++ = fv_kv_positions(pass->seq[b].kv, l, g, (fv_kv_segment)s);
}

/* ---- rows with queries and keys of their own ------------------------------------------ */

enum { OWN_ALL, OWN_TEXT, OWN_NONE };

/* Which rows of a sequence compute queries and keys in layer l. Where only image tokens borrow
 * keys, a sequence of text rows alone computes all. */
static uint8_t own_rows(const fv_forward_tables *t, const fv_forward_seq *seq, int32_t b,
                        int32_t l) {
    if (fv_kv_borrows(seq->kv, l, FV_SEG_TEXT)) return OWN_NONE;
    bool lazy = fv_kv_borrows(seq->kv, l, FV_SEG_VISUAL) && t->seg_rows[b][FV_SEG_VISUAL] > 0;
    return lazy ? OWN_TEXT : OWN_ALL;
}

static fv_status fill_set(const fv_forward_batch *pass, const fv_forward_tables *t, fv_arena *arena,
                          fv_query_rows *set) {
    uint8_t *seg;
    int32_t *slot;
    FV_TRY(FV_ARENA_NEW(arena, t->n_rows, set->row));
    FV_TRY(FV_ARENA_NEW(arena, t->n_rows, seg));
    FV_TRY(FV_ARENA_NEW(arena, t->n_rows, slot));
    FV_TRY(FV_ARENA_NEW(arena, pass->n_seq, set->write));
    for (int32_t b = 0; b < pass->n_seq; b++) {
        const fv_kv_write_seq *from = &t->write[b];
        int32_t n = from->n_rows, first = set->wanted ? n - pass->seq[b].wanted : 0, at = set->n;
        for (int32_t r = first; r < n && set->own[b] != OWN_NONE; r++) {
            if (set->own[b] == OWN_TEXT && from->seg[r] != FV_SEG_TEXT) continue;
            set->row[set->n] = from->row0 + r;
            seg[set->n] = from->seg[r];
            slot[set->n++] = from->slot[r];
        }
        set->write[b] = (fv_kv_write_seq){.row0 = at,
                                          .n_rows = set->n - at,
                                          .n_seg = FV_N_SEG,
                                          .seg = seg + at,
                                          .slot = slot + at};
    }
    set->all = set->n == t->n_rows;
    return fv_adapter_rows_make(pass, set->row, set->n, arena, &set->adapters);
}

static fv_status find_set(const fv_forward_batch *pass, fv_forward_tables *t, const uint8_t *own,
                          bool wanted, fv_arena *arena, const fv_query_rows **out) {
    size_t bytes = (size_t)pass->n_seq;
    for (int32_t i = 0; i < t->n_set; i++)
        if (t->set[i].wanted == wanted && memcmp(t->set[i].own, own, bytes) == 0) {
            *out = &t->set[i];
            return FV_OK;
        }
    fv_query_rows *set = &t->set[t->n_set];
    *set = (fv_query_rows){.own = own, .wanted = wanted};
    FV_TRY(fill_set(pass, t, arena, set));
    if (!set->all && set->n > t->most) t->most = set->n;
    t->n_set++;
    *out = set;
    return FV_OK;
}

/* Makes the sets of rows for all layers; layers with equal rows use the same set. */
static fv_status make_sets(const fv_forward_batch *pass, int32_t l0, int32_t l1, int32_t n_layer,
                           fv_arena *arena, fv_forward_tables *t) {
    int32_t n = l1 - l0;
    uint8_t *own;
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * (size_t)pass->n_seq, own));
    FV_TRY(FV_ARENA_NEW(arena, n + 1, t->set));
    FV_TRY(FV_ARENA_NEW(arena, n, t->keys));
    FV_TRY(FV_ARENA_NEW(arena, n, t->queries));
    for (int32_t i = 0; i < n; i++, own += pass->n_seq) {
        for (int32_t b = 0; b < pass->n_seq; b++) {
            assert(fv_kv_source_layer(pass->seq[b].kv, l0 + i) >= l0 || pass->seq[b].queries.data);
            own[b] = own_rows(t, &pass->seq[b], b, l0 + i);
        }
        FV_TRY(find_set(pass, t, own, false, arena, &t->keys[i]));
        bool few = l0 + i == n_layer - 1 && t->n_wanted < t->n_rows;
        FV_TRY(find_set(pass, t, own, few, arena, &t->queries[i]));
    }
    return FV_OK;
}

fv_status fv_forward_tables_make(const fv_text_config *cfg, const fv_forward_batch *pass,
                                 int32_t l0, int32_t l1, fv_arena *arena, fv_forward_tables *t) {
    int32_t n_wanted = 0, n = pass->n_seq;
    *t = (fv_forward_tables){.l0 = l0};
    for (int32_t b = 0; b < n; b++) {
        t->n_rows += pass->seq[b].n_rows;
        n_wanted += pass->seq[b].wanted;
    }
    assert(t->n_rows == pass->x.rows);
    FV_TRY(FV_ARENA_NEW(arena, n, t->write));
    FV_TRY(FV_ARENA_NEW(arena, n, t->attn));
    FV_TRY(FV_ARENA_NEW(arena, n, t->attn_wanted));
    FV_TRY(FV_ARENA_NEW(arena, n, t->window_from));
    FV_TRY(FV_ARENA_NEW(arena, n, t->whole));
    FV_TRY(FV_ARENA_NEW(arena, n, t->whole_wanted));
    FV_TRY(FV_ARENA_NEW(arena, n, t->causal));
    FV_TRY(FV_ARENA_NEW(arena, n, t->causal_wanted));
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * (size_t)cfg->n_kv * FV_N_SEG, t->position));
    FV_TRY(FV_ARENA_NEW(arena, n, t->seg_rows));
    for (int s = 0; s < FV_N_SEG; s++) FV_TRY(FV_ARENA_NEW(arena, n, t->seg_pos[s]));
    FV_TRY(FV_ARENA_NEW(arena, n_wanted, t->wanted));
    FV_TRY(FV_ARENA_NEW(arena, t->n_rows, t->rope_pos));
    for (int32_t b = 0, row0 = 0; b < n; row0 += pass->seq[b++].n_rows) {
        FV_TRY(seq_slots(&pass->seq[b], b, row0, arena, t));
        FV_TRY(seq_queries(&pass->seq[b], b, row0, cfg, arena, t));
        FV_TRY(seq_window(cfg, &pass->seq[b], b, arena, t));
    }
    FV_TRY(fv_packed_forward_make(pass, l0, l1, arena, &t->packed));
    FV_TRY(fv_adapter_rows_make(pass, NULL, t->n_rows, arena, &t->adapters));
    FV_TRY(fv_adapter_rows_make(pass, t->wanted, t->n_wanted, arena, &t->adapters_wanted));
    return make_sets(pass, l0, l1, cfg->n_layer, arena, t);
}

/* ---- on the device ---------------------------------------------------------------------- */

size_t fv_forward_tables_bytes(const fv_text_config *cfg, const fv_forward_batch *pass,
                               const fv_forward_tables *t) {
    int32_t half = cfg->d_head / 2, n_angles = 2 * fv_text_ropes(cfg);
    size_t bytes = (size_t)n_angles * fv_workspace_need(FV_F32, t->n_rows, half) +
                   fv_captures_bytes(cfg, pass) +
                   fv_packed_forward_bytes(cfg, pass, &t->packed, t->n_rows);
    if (cfg->n_sharer) bytes += (size_t)n_angles * fv_workspace_need(FV_F32, t->n_wanted, half);
    for (int32_t i = 0; i < t->n_set; i++)
        bytes += (size_t)n_angles * fv_workspace_need(FV_F32, t->set[i].n, half);
    return bytes;
}

/* Puts angles of all rows; with `scaled` those of queries. */
static fv_status put_angles(const fv_forward_tables *t, const fv_rope *rope,
                            const fv_rope_config *scaled, fv_arena *arena, fv_workspace *ws,
                            fv_tensor *cosines, fv_tensor *sines) {
    float *c, *s;
    int32_t n = t->n_rows;
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * (size_t)rope->half, c));
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * (size_t)rope->half, s));
    fv_rope_angles(rope, t->rope_pos, n, c, s);
    if (scaled) fv_rope_scale_queries(scaled, t->rope_pos, n, rope->half, c, s);
    *cosines = fv_workspace_cut(ws, FV_F32, n, rope->half);
    *sines = fv_workspace_cut(ws, FV_F32, n, rope->half);
    fv_device *dev = ws->be->device;
    size_t bytes = (size_t)n * (size_t)rope->half * sizeof *c;
    FV_TRY(dev->ops->copy_async(dev, cosines->data, c, bytes));
    return dev->ops->copy_async(dev, sines->data, s, bytes);
}

/* Gathers the angles of rows row[n]. */
static fv_status put_some(const fv_forward_tables *t, int32_t rope, const int32_t *row, int32_t n,
                          fv_workspace *ws, fv_tensor *c, fv_tensor *s) {
    *c = fv_workspace_cut(ws, FV_F32, n, t->cos[rope].cols);
    *s = fv_workspace_cut(ws, FV_F32, n, t->sin[rope].cols);
    fv_index_select_args cosines = {.table = t->cos[rope], .y = *c, .ids = row};
    fv_index_select_args sines = {.table = t->sin[rope], .y = *s, .ids = row};
    FV_TRY(ws->be->ops->index_select(ws->be, &cosines));
    return ws->be->ops->index_select(ws->be, &sines);
}

static fv_status put_set(const fv_forward_tables *t, int32_t rope, fv_query_rows *set,
                         fv_workspace *ws) {
    set->cos[rope] = t->cos[rope];
    set->sin[rope] = t->sin[rope];
    if (set->all) return FV_OK;
    return put_some(t, rope, set->row, set->n, ws, &set->cos[rope], &set->sin[rope]);
}

fv_status fv_forward_tables_put(const fv_text_config *cfg, const fv_forward_batch *pass,
                                fv_forward_tables *t, const fv_rope rope[2], fv_arena *arena,
                                fv_workspace *ws) {
    for (int32_t k = 0; k < fv_text_ropes(cfg); k++) {
        const fv_rope_config *scaled = k == 1 && cfg->rope.query_beta != 0 ? &cfg->rope : NULL;
        FV_TRY(put_angles(t, &rope[k], scaled, arena, ws, &t->cos[k], &t->sin[k]));
        for (int32_t i = 0; i < t->n_set; i++) FV_TRY(put_set(t, k, &t->set[i], ws));
        if (cfg->n_sharer)
            FV_TRY(
                put_some(t, k, t->wanted, t->n_wanted, ws, &t->cos_wanted[k], &t->sin_wanted[k]));
    }
    fv_packed_forward_put(cfg, pass, &t->packed, t->n_rows, ws);
    return fv_captures_cut(ws, arena, cfg, pass, &t->captures);
}

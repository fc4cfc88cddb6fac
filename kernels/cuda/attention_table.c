/* Flattens a call of attention into one table (attention.h): first measures, then fills it.
 *
 * Most of it are addresses of KV blocks: 16 bytes for 64 rows of a KV head, 1/1024 of the rows
 * themselves in a 7B network. */
#include "kernels/cuda/attention.h"

#include <string.h>

#include "kernels/cuda/placement.h"

static int32_t longest(const fv_attn_args *a, const fv_attn_seq *q, int s) {
    int32_t most = 0;
    for (int32_t g = 0; g < a->n_kv; g++) {
        int32_t len = q->tables[g * q->n_seg + s].len;
        most = len > most ? len : most;
    }
    return most;
}

/* ---- keys ------------------------------------------------------------------------------ */

static size_t count_runs(const fv_attn_args *a) {
    size_t n = 0;
    for (int i = 0; i < a->n_seq; i++) n += (size_t)a->n_kv * (size_t)a->seqs[i].n_seg;
    return n;
}

static size_t count_blocks(const fv_attn_args *a) {
    size_t n = 0;
    for (int i = 0; i < a->n_seq; i++)
        for (int32_t r = 0; r < a->n_kv * a->seqs[i].n_seg; r++)
            n += (size_t)fv_div_up(a->seqs[i].tables[r].len, FV_KV_BLOCK);
    return n;
}

static size_t count_positions(const fv_attn_args *a) {
    size_t n = 0;
    for (int i = 0; i < a->n_seq; i++)
        for (int32_t r = 0; a->seqs[i].window_from && r < a->n_kv * a->seqs[i].n_seg; r++)
            n += (size_t)a->seqs[i].tables[r].len;
    return n;
}

static void lay_runs(const fv_attn_args *a, fv_placement *l, fv_cuda_attn_table *t) {
    fv_cuda_table *run = fv_place(l, count_runs(a), sizeof *run, &t->run);
    fv_kv_block *block = fv_place(l, count_blocks(a), sizeof *block, &t->block);
    int32_t *position = fv_place(l, count_positions(a), sizeof *position, &t->position);
    int32_t at = 0, at_position = 0;
    for (int i = 0; run && i < a->n_seq; i++)
        for (int32_t r = 0; r < a->n_kv * a->seqs[i].n_seg; r++, run++) {
            const fv_block_table *from = &a->seqs[i].tables[r];
            int32_t n = fv_div_up(from->len, FV_KV_BLOCK);
            *run = (fv_cuda_table){from->len, at, at_position};
            if (n) memcpy(block + at, from->block, (size_t)n * sizeof *block);
            at += n;
            if (!a->seqs[i].window_from || n == 0) continue;
            memcpy(position + at_position, a->seqs[i].position[r],
                   (size_t)from->len * sizeof *position);
            at_position += from->len;
        }
}

/* ---- queries --------------------------------------------------------------------------- */

static size_t count_masked(const fv_attn_args *a) {
    size_t n = 0;
    for (int i = 0; i < a->n_seq; i++)
        if (a->seqs[i].masked_tail) n += (size_t)a->seqs[i].n_seg * (size_t)a->seqs[i].n_rows;
    return n;
}

static size_t count_windowed(const fv_attn_args *a) {
    size_t n = 0;
    for (int i = 0; i < a->n_seq; i++)
        if (a->seqs[i].window_from) n += (size_t)a->seqs[i].n_rows;
    return n;
}

/* Bytes of the shares of rows and of the kinds of sums, in this order. */
static size_t count_bytes(const fv_attn_args *a, const fv_score_sums_args *sums) {
    size_t n = 0;
    for (int i = 0; i < a->n_seq; i++)
        if (a->seqs[i].share) n += (size_t)a->seqs[i].n_rows;
    for (int i = 0; sums && i < sums->n_sum; i++)
        if (sums->sums[i].kind) n += (size_t)sums->sums[i].n_row;
    return n;
}

/* Appends n bytes; returns their offset. */
static int32_t put_bytes(uint8_t *bytes, int32_t *at, const uint8_t *from, int32_t n) {
    int32_t first = *at;
    if (!from) return -1;
    if (n) memcpy(bytes + first, from, (size_t)n);
    *at += n;
    return first;
}

static void lay_sums(const fv_score_sums_args *sums, fv_placement *l, uint8_t *bytes, int32_t at,
                     fv_cuda_attn_table *t) {
    fv_cuda_score_sum *to = fv_place(l, sums ? (size_t)sums->n_sum : 0, sizeof *to, &t->sum);
    for (int i = 0; to && sums && i < sums->n_sum; i++, to++) {
        const fv_score_sum *s = &sums->sums[i];
        *to = (fv_cuda_score_sum){.weight = s->weight,
                                  .sum = s->sum,
                                  .seq = s->seq,
                                  .n_row = s->n_row,
                                  .n_kind = s->n_kind,
                                  .ld = s->ld,
                                  .kind = put_bytes(bytes, &at, s->kind, s->n_row),
                                  .n = s->n,
                                  .low = s->low,
                                  .head_max = s->head_max,
                                  .fresh = s->fresh};
        memcpy(to->column, s->column, sizeof to->column);
    }
}

static void lay_seqs(const fv_attn_args *a, const fv_cuda_attn_cut *cut, fv_placement *l,
                     fv_cuda_attn_table *t) {
    fv_cuda_attn_seq *seq = fv_place(l, (size_t)a->n_seq, sizeof *seq, &t->seq);
    int32_t *masked_tail = fv_place(l, count_masked(a), sizeof *masked_tail, &t->masked_tail);
    uint8_t *bytes = fv_place(l, count_bytes(a, cut->sums), 1, &t->bytes);
    int32_t *window_from = fv_place(l, count_windowed(a), sizeof *window_from, &t->window_from);
    int32_t run = 0, at_masked = 0, at_window = 0, at_byte = 0;
    for (int i = 0; seq && i < a->n_seq; i++, seq++) {
        const fv_attn_seq *q = &a->seqs[i];
        int32_t n = q->masked_tail ? q->n_seg * q->n_rows : 0;
        *seq = (fv_cuda_attn_seq){.row0 = q->row0,
                                  .n_rows = q->n_rows,
                                  .n_seg = q->n_seg,
                                  .n_first = q->n_first,
                                  .run = run,
                                  .masked_tail = q->masked_tail ? at_masked : -1,
                                  .window_from = q->window_from ? at_window : -1,
                                  .share = put_bytes(bytes, &at_byte, q->share, q->n_rows),
                                  .n = q->n};
        if (n) memcpy(masked_tail + at_masked, q->masked_tail, (size_t)n * sizeof *masked_tail);
        at_masked += n;
        if (q->window_from && q->n_rows) {
            memcpy(window_from + at_window, q->window_from,
                   (size_t)q->n_rows * sizeof *window_from);
            at_window += q->n_rows;
        }
        run += a->n_kv * q->n_seg;
    }
    lay_sums(cut->sums, l, bytes, at_byte, t);
}

/* ---- items ----------------------------------------------------------------------------- */

static bool is_few(const fv_attn_seq *q, const fv_cuda_attn_cut *cut) {
    return q->n_rows > 0 && q->n_rows <= cut->few;
}

/* Lists items of rows, the last rows first: they see most. */
static void lay_rows(const fv_attn_args *a, const fv_cuda_attn_cut *cut, fv_placement *l,
                     fv_cuda_attn_table *t) {
    t->n_rows = 0;
    for (int i = 0; i < a->n_seq; i++)
        if (!is_few(&a->seqs[i], cut)) t->n_rows += fv_div_up(a->seqs[i].n_rows, cut->rows);
    fv_cuda_attn_rows *item = fv_place(l, (size_t)t->n_rows, sizeof *item, &t->rows);
    for (int i = 0; item && i < a->n_seq; i++) {
        int32_t n = a->seqs[i].n_rows;
        if (is_few(&a->seqs[i], cut)) continue;
        for (int32_t b = fv_div_up(n, cut->rows) - 1; b >= 0; b--) {
            int32_t row0 = b * cut->rows, left = n - row0;
            *item++ = (fv_cuda_attn_rows){i, row0, left < cut->rows ? left : cut->rows};
        }
    }
}

/* Number of splits of a segment. */
static int32_t splits(const fv_attn_args *a, const fv_attn_seq *q, int s) {
    return fv_div_up(longest(a, q, s), FV_CUDA_SPLIT);
}

static void lay_splits(const fv_attn_args *a, const fv_cuda_attn_cut *cut, fv_placement *l,
                       fv_cuda_attn_table *t, int64_t *n_part) {
    t->n_split = t->n_few = 0;
    for (int i = 0; i < a->n_seq; i++) {
        t->n_few += is_few(&a->seqs[i], cut);
        for (int s = 0; is_few(&a->seqs[i], cut) && s < a->seqs[i].n_seg; s++)
            t->n_split += splits(a, &a->seqs[i], s);
    }
    fv_cuda_attn_split *item = fv_place(l, (size_t)t->n_split, sizeof *item, &t->split);
    int32_t *few = fv_place(l, (size_t)t->n_few, sizeof *few, &t->few);
    fv_cuda_attn_seq *seqs = item ? (fv_cuda_attn_seq *)(l->base + t->seq) : NULL;
    int32_t n_before = 0;
    *n_part = 0;
    for (int i = 0; i < a->n_seq; i++) {
        const fv_attn_seq *q = &a->seqs[i];
        int32_t n = 0;
        if (!is_few(q, cut)) continue;
        for (int s = 0; s < q->n_seg; s++)
            for (int32_t x = 0, of = splits(a, q, s); x < of; x++, n++)
                if (item) *item++ = (fv_cuda_attn_split){i, s, x * FV_CUDA_SPLIT, n};
        if (few) *few++ = i;
        if (seqs) {
            seqs[i].part = (int32_t)*n_part;
            seqs[i].split = n_before;
            seqs[i].n_split = n;
        }
        n_before += n;
        *n_part += (int64_t)n * q->n_rows * a->n_head;
    }
}

static void lay_sum_items(const fv_attn_args *a, const fv_score_sums_args *sums, fv_placement *l,
                          fv_cuda_attn_table *t) {
    t->n_item = 0;
    for (int i = 0; sums && i < sums->n_sum; i++) {
        const fv_attn_seq *q = &a->seqs[sums->sums[i].seq];
        for (int s = 0; s < q->n_seg; s++) t->n_item += fv_div_up(longest(a, q, s), FV_KV_BLOCK);
    }
    fv_cuda_sum_item *item = fv_place(l, (size_t)t->n_item, sizeof *item, &t->item);
    for (int i = 0; item && sums && i < sums->n_sum; i++) {
        const fv_attn_seq *q = &a->seqs[sums->sums[i].seq];
        for (int s = 0; s < q->n_seg; s++)
            for (int32_t j0 = 0, n = longest(a, q, s); j0 < n; j0 += FV_KV_BLOCK)
                *item++ = (fv_cuda_sum_item){i, s, j0};
    }
}

static size_t lay(const fv_attn_args *a, const fv_cuda_attn_cut *cut, char *base,
                  fv_cuda_attn_table *t, int64_t *n_part) {
    fv_placement l = {.base = base};
    uint32_t at;
    (void)fv_place(&l, 1, sizeof *t, &at);
    lay_seqs(a, cut, &l, t);
    lay_runs(a, &l, t);
    lay_rows(a, cut, &l, t);
    lay_splits(a, cut, &l, t, n_part);
    lay_sum_items(a, cut->sums, &l, t);
    return l.bytes;
}

fv_status fv_cuda_attn_send(fv_cuda *c, const fv_attn_args *a, const fv_cuda_attn_cut *cut,
                            fv_cuda_attn *out, fv_cuda_attn_size *size) {
    fv_cuda_attn_table t = {0};
    void *host, *device;
    size_t bytes = lay(a, cut, NULL, &t, &size->n_part);
    if (bytes > INT32_MAX || size->n_part > INT32_MAX)
        return FV_FAIL(FV_EINVAL, "attention of %d sequences at once: their tables are too large",
                       a->n_seq);
    FV_TRY(fv_cuda_stage(c, bytes, &host, &device));
    (void)lay(a, cut, host, &t, &size->n_part);
    memcpy(host, &t, sizeof t);
    FV_TRY(fv_cuda_stage_send(c, host, device, bytes));
    size->n_rows = t.n_rows;
    size->n_split = (int32_t)fv_cuda_round(t.n_split);
    size->n_few = t.n_few;
    size->n_item = (int32_t)fv_cuda_round(t.n_item);
    size->n_part = fv_cuda_round(size->n_part);
    *out = (fv_cuda_attn){.table = device,
                          .q = a->q.data,
                          .o = a->o.data,
                          .lse = a->lse.data,
                          .ldq = a->q.ld,
                          .ldo = a->o.ld,
                          .ldl = a->lse.ld,
                          .n_head = a->n_head,
                          .n_kv = a->n_kv,
                          .d_head = a->d_head,
                          .kv_dtype = a->kv_dtype,
                          .scale = a->scale};
    return FV_OK;
}

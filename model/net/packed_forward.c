/* Finds the sequences of a forward batch that have compressed tokens in a layer, and merges
 * attention to these with attention to uncompressed entries. Runs on the thread that owns the
 * decoder. */
#include "model/net/packed_forward.h"

#include <assert.h>

/* Largest number of packed rows that any layer of a sequence has in a segment. */
static int32_t most_rows(const fv_kv *kv, fv_kv_segment seg, int32_t l0, int32_t l1) {
    int32_t most = 0;
    for (int32_t l = l0; l < l1; l++) {
        const fv_kv_packed *p = fv_kv_packed_of(kv, l, seg);
        if (p && p->rows.n > most) most = p->rows.n;
    }
    return most;
}

static fv_status observe_all(fv_kv *kv, int32_t l0, int32_t l1) {
    for (int32_t l = l0; l < l1; l++)
        if (fv_kv_packed_of(kv, l, FV_SEG_VISUAL))
            FV_TRY(fv_kv_packed_observe(kv, fv_kv_packed_of(kv, l, FV_SEG_VISUAL)));
    return FV_OK;
}

fv_status fv_packed_forward_make(const fv_forward_batch *pass, int32_t l0, int32_t l1,
                                 fv_arena *arena, fv_packed_forward *p) {
    *p = (fv_packed_forward){0};
    FV_TRY(FV_ARENA_NEW(arena, pass->n_seq, p->n_score));
    FV_TRY(FV_ARENA_NEW(arena, pass->n_seq, p->score));
    FV_TRY(FV_ARENA_NEW(arena, pass->n_seq, p->seq));
    FV_TRY(FV_ARENA_NEW(arena, pass->n_seq, p->owner));
    for (int32_t b = 0; b < pass->n_seq; b++) {
        int32_t most = most_rows(pass->seq[b].kv, FV_SEG_VISUAL, l0, l1);
        p->any |= most > 0 || most_rows(pass->seq[b].kv, FV_SEG_TEXT, l0, l1) > 0;
        p->n_score[b] = pass->seq[b].observe ? most : 0;
        if (p->n_score[b]) FV_TRY(observe_all(pass->seq[b].kv, l0, l1));
    }
    return FV_OK;
}

size_t fv_packed_forward_bytes(const fv_text_config *c, const fv_forward_batch *pass,
                               const fv_packed_forward *p, int32_t rows) {
    if (!p->any) return 0;
    size_t bytes = fv_workspace_need(FV_F32, rows, c->n_head * c->d_head) +
                   2 * fv_workspace_need(FV_F32, rows, c->n_head);
    for (int32_t b = 0; b < pass->n_seq; b++)
        bytes += fv_workspace_need(FV_F32, c->n_head * pass->seq[b].n_rows, p->n_score[b]);
    return bytes;
}

void fv_packed_forward_put(const fv_text_config *c, const fv_forward_batch *pass,
                           fv_packed_forward *p, int32_t rows, fv_workspace *ws) {
    if (!p->any) return;
    p->o2 = fv_workspace_cut(ws, FV_F32, rows, c->n_head * c->d_head);
    p->lse = fv_workspace_cut(ws, FV_F32, rows, c->n_head);
    p->lse2 = fv_workspace_cut(ws, FV_F32, rows, c->n_head);
    for (int32_t b = 0; b < pass->n_seq; b++)
        p->score[b] = fv_workspace_cut(ws, FV_F32, c->n_head * pass->seq[b].n_rows, p->n_score[b]);
}

/* Arguments for one sequence; returns false if it has no packed tokens of that form in this
 * layer. */
static bool ask(const fv_packed_forward *p, int32_t b, const fv_kv_packed *packed,
                fv_packed_form form, const fv_attn_seq *at, fv_packed_seq *out) {
    if (!packed || at->n_rows == 0 || packed->n_alive == 0) return false;
    if (packed->part[FV_PACKED_V].shape.form != form) return false;
    *out = (fv_packed_seq){.row0 = at->row0,
                           .n_rows = at->n_rows,
                           .k = &packed->part[FV_PACKED_K],
                           .v = &packed->part[FV_PACKED_V],
                           .rows = &packed->rows};
    bool scored = fv_packed_format_of(form)->scored;
    if (p->n_score[b] == 0 || packed->seg == FV_SEG_TEXT || !scored) return true;
    out->score = p->score[b].data;
    out->score_rows = at->n_rows;
    out->score_ld = packed->rows.n;
    return true;
}

/* Adds the attention of this forward batch's tokens to the mean over the tokens of their step:
 *     mean <- k / (k + 1) mean + 1 / (k + 1) token      after k tokens
 * token by token, so that a step can be cut anywhere. */
static fv_status observe(fv_backend *be, fv_kv_packed *packed, const fv_packed_seq *s,
                         const fv_attn_args *a) {
    for (int32_t i = 0; i < s->n_rows; i++) {
        float k = (float)packed->n_turn++;
        fv_importance_args args = {.score = s->score + (size_t)i * (size_t)s->score_ld,
                                   .n_head = a->n_head,
                                   .n_rows = 1,
                                   .score_ld = s->n_rows * s->score_ld, /* from head to head */
                                   .lse = fv_tensor_rows(a->lse, s->row0 + i, 1),
                                   .importance =
                                       fv_tensor_of(packed->turn, FV_F32, 1, packed->rows.n),
                                   .keep = k / (k + 1)};
        FV_TRY(be->ops->importance(be, &args));
    }
    return FV_OK;
}

static fv_status merge(fv_backend *be, const fv_packed_forward *p, const fv_packed_seq *s,
                       const fv_attn_args *a) {
    fv_merge_args m = {.o = fv_tensor_rows(a->o, s->row0, s->n_rows),
                       .lse = fv_tensor_rows(a->lse, s->row0, s->n_rows),
                       .o2 = fv_tensor_rows(p->o2, s->row0, s->n_rows),
                       .lse2 = fv_tensor_rows(p->lse2, s->row0, s->n_rows),
                       .n_head = a->n_head};
    return be->ops->merge(be, &m);
}

static fv_status attend_packed(fv_backend *be, fv_packed_form form, const fv_attn_packed_args *a) {
    if (form == FV_PACKED_LOWRANK) return be->ops->attn_lowrank(be, a);
    if (form == FV_PACKED_QUANTIZED) return be->ops->attn_quantized(be, a);
    return form == FV_PACKED_MERGED ? be->ops->attn_merged(be, a) : be->ops->attn_latent(be, a);
}

/* Block `number` of a segment, or NULL. */
static fv_kv_packed *block_of(const fv_kv *kv, int32_t l, fv_kv_segment seg, int32_t number) {
    fv_kv_packed *p = fv_kv_packed_of(kv, l, seg);
    while (p && p->number < number) p = p->next;
    return p;
}

/* Attention to packed rows of one form in block `number` of a segment, for all sequences that have
 * them. */
static fv_status attend(const fv_packed_forward *p, fv_backend *be, const fv_rope *rope,
                        const fv_forward_batch *pass, int32_t l, fv_kv_segment seg, int32_t number,
                        fv_packed_form form, const fv_attn_args *a) {
    int32_t n = 0;
    for (int32_t b = 0; b < pass->n_seq; b++) {
        fv_kv *kv = pass->seq[b].kv;
        fv_kv_packed *packed = block_of(kv, l, seg, number);
        if (!ask(p, b, packed, form, &a->seqs[b], &p->seq[n])) continue;
        FV_TRY(fv_kv_packed_ready(kv, packed, be, rope));
        p->owner[n++] = b;
    }
    if (n == 0) return FV_OK;
    assert(a->lse.data);
    fv_attn_packed_args args = {.q = a->q,
                                .o = fv_tensor_rows(p->o2, 0, a->q.rows),
                                .lse = fv_tensor_rows(p->lse2, 0, a->q.rows),
                                .n_head = a->n_head,
                                .n_kv = a->n_kv,
                                .d_head = a->d_head,
                                .n_seq = n,
                                .scale = a->scale,
                                .seqs = p->seq};
    FV_TRY(attend_packed(be, form, &args));
    for (int32_t i = 0; i < n; i++) {
        FV_TRY(merge(be, p, &p->seq[i], a));
        fv_kv_packed *packed = block_of(pass->seq[p->owner[i]].kv, l, seg, number);
        if (p->seq[i].score) FV_TRY(observe(be, packed, &p->seq[i], a));
    }
    return FV_OK;
}

/* Largest number of text blocks in any sequence. */
static int32_t most_blocks(const fv_forward_batch *pass, int32_t l) {
    int32_t most = 0;
    for (int32_t b = 0; b < pass->n_seq; b++) {
        int32_t n = 0;
        for (const fv_kv_packed *p = fv_kv_packed_of(pass->seq[b].kv, l, FV_SEG_TEXT); p;
             p = p->next)
            n++;
        most = n > most ? n : most;
    }
    return most;
}

/* Text first: attention to visual tokens is a share of the total. */
fv_status fv_packed_forward_attend(const fv_packed_forward *p, fv_backend *be, const fv_rope *rope,
                                   const fv_forward_batch *pass, int32_t l, const fv_attn_args *a) {
    if (!p->any) return FV_OK;
    FV_TRY(attend(p, be, rope, pass, l, FV_SEG_TEXT, 0, FV_PACKED_LOWRANK, a));
    for (int32_t i = 0; i < most_blocks(pass, l); i++)
        FV_TRY(attend(p, be, rope, pass, l, FV_SEG_TEXT, i, FV_PACKED_QUANTIZED, a));
    for (int form = 0; form < FV_N_PACKED_FORM; form++)
        FV_TRY(attend(p, be, rope, pass, l, FV_SEG_VISUAL, 0, (fv_packed_form)form, a));
    return FV_OK;
}

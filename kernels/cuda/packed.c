/* Attention in rank space: builds the table that a call sends to the device, and chooses its kernels. */
#include "kernels/cuda/packed.h"

#include <assert.h>
#include <string.h>

#include "kernels/cuda/placement.h"

enum { TILE = 16, MOST_D = 256 }; /* vectors of a tensor core tile; columns of a head */

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static fv_cuda_packed_part part_of(const fv_packed_part *p) {
    return (fv_cuda_packed_part){
        .data = p->data, .s = p->shape, .l = fv_packed_layout_of(&p->shape)};
}

/* Converts a sequence; its offsets are the vectors counted in `size` so far. */
static fv_cuda_packed_seq seq_of(const fv_attn_packed_args *a, const fv_packed_seq *q,
                                 const fv_cuda_packed_size *size) {
    const fv_packed_rows *rows = q->rows;
    return (fv_cuda_packed_seq){
        .k = part_of(q->k),
        .v = part_of(q->v),
        .first = rows->first,
        .valid = rows->valid,
        .cos = rows->cos,
        .sin = rows->sin,
        .group = rows->group,
        .score = q->score,
        .score_rows = q->score_rows,
        .score_ld = q->score_ld,
        .row0 = q->row0,
        .n_rows = q->n_rows,
        .n = rows->n,
        .n_anchor = rows->n_anchor,
        .n_latent = rows->cos ? rows->n_anchor : 1,
        .n_split = fv_div_up(rows->n, FV_CUDA_PACKED_SPLIT),
        .vectors = fv_div_up(q->n_rows * a->n_head, TILE) * TILE,
        .latent = (int32_t)size->n_latent,
        .part = (int32_t)size->n_part,
    };
}

/* ---- forms ----------------------------------------------------------------------------- */

static bool is_tiled(const fv_packed_shape *s) {
    enum { MOST_RANK = 128 };
    return (s->lowrank.bits != 16 || s->dtype == FV_BF16) && s->lowrank.rank > 0 &&
           s->lowrank.rank <= MOST_RANK;
}

/* Whether a rank is no multiple of the 8 columns of a load. Tiers of keys are in tiles of rows, so only their basis
 * has lines of R numbers, and rank2 does not matter. */
static bool is_odd(const fv_packed_shape *k, const fv_packed_shape *v) {
    enum { RANK_UNIT = 8 };
    return k->lowrank.rank % RANK_UNIT || v->lowrank.rank % RANK_UNIT ||
           v->lowrank.rank2 % RANK_UNIT;
}

static fv_cuda_packed_form form_of(const fv_cuda *c, const fv_attn_packed_args *a,
                                   const fv_packed_seq *q) {
    const fv_packed_shape *k = &q->k->shape, *v = &q->v->shape;
    bool heads = a->d_head % TILE == 0 && a->d_head <= MOST_D;
    if (c->exact || !heads || k->lowrank.bits != v->lowrank.bits || !is_tiled(k) || !is_tiled(v))
        return FV_FORM_EXACT;
    fv_cuda_packed_form form = k->lowrank.bits == 16  ? FV_FORM_BF16
                               : k->lowrank.bits == 8 ? FV_FORM_8
                                                      : FV_FORM_4;
    return is_odd(k, v) ? (fv_cuda_packed_form)(form - FV_FORM_BF16 + FV_FORM_BF16_ODD) : form;
}

/* ---- items ----------------------------------------------------------------------------- */

static int32_t works(const fv_cuda_packed_seq *s, int32_t group, fv_cuda_work work) {
    if (s->n_rows == 0) return 0;
    switch (work) {
    case FV_WORK_ROW: return s->n_rows;
    case FV_WORK_LATENT:
        return s->n ? fv_div_up(s->n_latent * s->n_rows * group, FV_CUDA_LATENTS) : 0;
    default: return s->n_split;
    }
}

/* Counts a sequence's items and scratch. */
static void count(const fv_attn_packed_args *a, const fv_cuda_packed_seq *s,
                  fv_cuda_packed_size *size) {
    size_t tiles = FV_CUDA_GRANULE / FV_PACKED_TILE * (s->k.l.stride[0] + s->k.l.stride[1]);
    size_t rows = FV_CUDA_GRANULE * (s->v.l.stride[0] + s->v.l.stride[1]);
    for (int w = 0; w < FV_N_WORK; w++)
        size->n_item[w] += works(s, a->n_head / a->n_kv, (fv_cuda_work)w);
    size->rank_k = larger(size->rank_k, s->k.s.lowrank.rank);
    size->rank_v = larger(size->rank_v, s->v.s.lowrank.rank);
    size->vectors = larger(size->vectors, s->vectors);
    size->bytes = larger(size->bytes, (int32_t)(tiles + rows));
    size->n_latent += (int64_t)s->n_latent * s->vectors;
    size->n_part += (int64_t)s->n_split * s->vectors;
}

/* Selects the sequences of one form. */
typedef struct chosen {
    const fv_cuda *c;
    const fv_attn_packed_args *a;
    fv_cuda_packed_form form;
} chosen;

static bool is_chosen(const chosen *x, int32_t i) {
    return form_of(x->c, x->a, &x->a->seqs[i]) == x->form;
}

static void put_items(const chosen *x, const fv_cuda_packed_seq *seqs, fv_cuda_work work,
                      fv_cuda_packed_item *item) {
    int32_t group = x->a->n_head / x->a->n_kv;
    for (int32_t i = 0; i < x->a->n_seq; i++)
        for (int32_t n = 0; is_chosen(x, i) && n < works(&seqs[i], group, work); n++)
            *item++ = (fv_cuda_packed_item){i, n};
}

static size_t lay(const chosen *x, char *base, fv_cuda_packed_size *size) {
    fv_placement l = {.base = base};
    uint32_t at;
    fv_cuda_packed_table t = {0}, *to = fv_place(&l, 1, sizeof t, &at);
    fv_cuda_packed_seq *seqs = fv_place(&l, (size_t)x->a->n_seq, sizeof *seqs, &t.seq);
    *size = (fv_cuda_packed_size){0};
    for (int32_t i = 0; i < x->a->n_seq; i++) {
        if (!is_chosen(x, i)) continue;
        fv_cuda_packed_seq s = seq_of(x->a, &x->a->seqs[i], size);
        count(x->a, &s, size);
        if (seqs) seqs[i] = s;
    }
    for (int w = 0; w < FV_N_WORK; w++) {
        size_t n = (size_t)(t.n_item[w] = size->n_item[w]);
        fv_cuda_packed_item *item = fv_place(&l, n, sizeof *item, &t.item[w]);
        if (item) put_items(x, seqs, (fv_cuda_work)w, item);
    }
    if (to) *to = t;
    return l.bytes;
}

/* Rounds up the sizes that change with the valid rows (issue.h). */
static void round_up(fv_cuda_packed_size *size) {
    for (int w = FV_WORK_LATENT; w < FV_N_WORK; w++)
        size->n_item[w] = (int32_t)fv_cuda_round(size->n_item[w]);
    size->n_latent = fv_cuda_round(size->n_latent);
    size->n_part = fv_cuda_round(size->n_part);
}

/* Builds the table of the sequences in the staging ring, sends it, and launches the kernels. */
static fv_status attend(fv_cuda *c, const chosen *x) {
    const fv_attn_packed_args *a = x->a;
    fv_cuda_packed_size size;
    void *host, *device;
    size_t bytes = lay(x, NULL, &size);
    if (size.n_item[FV_WORK_ROW] == 0) return FV_OK;
    if (bytes > INT32_MAX || size.n_latent > INT32_MAX || size.n_part > INT32_MAX)
        return FV_FAIL(FV_EINVAL, "attention on packed rows of %d sequences: too many at once",
                       a->n_seq);
    FV_TRY(fv_cuda_stage(c, bytes, &host, &device));
    (void)lay(x, host, &size);
    FV_TRY(fv_cuda_stage_send(c, host, device, bytes));
    round_up(&size);
    fv_cuda_packed call = {.table = device,
                           .q = a->q.data,
                           .o = a->o.data,
                           .lse = a->lse.data,
                           .ldq = a->q.ld,
                           .ldo = a->o.ld,
                           .ldl = a->lse.ld,
                           .n_head = a->n_head,
                           .n_kv = a->n_kv,
                           .d_head = a->d_head,
                           .scale = a->scale};
    return x->form == FV_FORM_EXACT ? fv_cuda_packed_exact(c, &call, &size)
                                    : fv_cuda_packed_tiled(c, &call, &size, x->form);
}

static void check_seq(const fv_attn_packed_args *a, const fv_packed_seq *seq) {
    const fv_packed_shape *k = &seq->k->shape, *v = &seq->v->shape;
    assert(k->kind == FV_PACKED_K && v->kind == FV_PACKED_V);
    assert(k->n == seq->rows->n && v->n == seq->rows->n);
    assert(k->n_kv == a->n_kv && v->n_kv == a->n_kv);
    assert(k->d_head == a->d_head && v->d_head == a->d_head);
    assert(!seq->rows->cos == !seq->rows->sin && (!seq->rows->cos || a->d_head % 2 == 0));
    assert(!seq->score || (seq->score_rows <= seq->n_rows && seq->score_ld >= seq->rows->n));
    (void)a, (void)k, (void)v;
}

fv_status fv_cuda_attn_lowrank(fv_backend *be, const fv_attn_packed_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    assert(a->n_kv > 0 && a->n_head % a->n_kv == 0 && a->d_head > 0 && a->scale > 0);
    for (int i = 0; i < a->n_seq; i++) check_seq(a, &a->seqs[i]);
    for (int form = 0; form < FV_N_FORM; form++)
        FV_TRY(attend(c, &(chosen){c, a, (fv_cuda_packed_form)form}));
    return FV_OK;
}

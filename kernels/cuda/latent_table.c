/* Attention on coefficients: builds the table that a call sends to the device. Directions are there
 * already; bits per direction, deviations and levels are sent once for all sequences that share them. */
#include <assert.h>

#include "kernels/cuda/latent.h"
#include "kernels/cuda/placement.h"

/* The most scores in scratch at a time: 64 MiB. */
static const int64_t SCORES = (int64_t)16 << 20;

/* A pass: query rows [row0, row0 + n_rows) of each sequence, as far as it has them. */
typedef struct pass {
    const fv_attn_packed_args *a;
    int32_t row0, n_rows;
} pass;

static int32_t rows_of(const pass *p, int32_t i) {
    int32_t n = p->a->seqs[i].n_rows - p->row0;
    return n < 0 ? 0 : n < p->n_rows ? n : p->n_rows;
}

static int32_t blocks_of(const fv_packed_seq *q) { return fv_div_up(q->rows->n, FV_KV_BLOCK); }

/* ---- shared arrays ----------------------------------------------------------------------- */

static bool same_layer(const fv_packed_part *a, const fv_packed_part *b) {
    return a->latent == b->latent;
}

static bool same_bits(const fv_packed_part *a, const fv_packed_part *b) {
    return same_layer(a, b) && a->shape.latent.row_bits == b->shape.latent.row_bits &&
           a->shape.latent.each_bits == b->shape.latent.each_bits;
}

/* The first sequence that equals sequence i under `same`. */
static int32_t first_with(const fv_attn_packed_args *a, int32_t i,
                          bool (*same)(const fv_packed_part *, const fv_packed_part *)) {
    int32_t first = 0;
    while (!same(a->seqs[first].k, a->seqs[i].k)) first++;
    return first;
}

static int32_t put_bits(const fv_packed_part *p, uint16_t *begin) {
    uint8_t bits[FV_LATENT_MOST];
    int32_t n = fv_latent_bits(p->latent, &p->shape, bits);
    begin[0] = 0;
    for (int32_t r = 0; r < n; r++) begin[r + 1] = (uint16_t)(begin[r] + bits[r]);
    return n;
}

static void lay_shared(fv_placement *l, const fv_attn_packed_args *a, int32_t i,
                       fv_cuda_latent_seq *seqs) {
    const fv_packed_part *part = a->seqs[i].k;
    size_t R = (size_t)part->latent->n_dir;
    int32_t layer = first_with(a, i, same_layer), shape = first_with(a, i, same_bits);
    fv_cuda_latent_seq none, *s = seqs ? &seqs[i] : &none;
    if (layer == i) {
        float *deviation = fv_place(l, R, sizeof *deviation, &s->deviation);
        int8_t *level = fv_place(l, FV_LATENT_LEVELS, sizeof *level, &s->level);
        if (deviation) memcpy(deviation, part->latent->deviation, R * sizeof *deviation);
        if (level) memcpy(level, part->latent->level, FV_LATENT_LEVELS * sizeof *level);
    } else if (seqs) {
        s->deviation = seqs[layer].deviation;
        s->level = seqs[layer].level;
    }
    if (shape == i) {
        uint16_t *begin = fv_place(l, R + 1, sizeof *begin, &s->bits);
        if (begin) s->n_dir = put_bits(part, begin);
    } else if (seqs) {
        s->bits = seqs[shape].bits;
        s->n_dir = seqs[shape].n_dir;
    }
}

/* ---- the table --------------------------------------------------------------------------- */

/* The exact token's numbers. */
static const char *exact_of(const fv_packed_part *part) {
    return part->shape.latent.exact ? (const char *)part->data + fv_latent_own_bytes(&part->shape)
                                    : NULL;
}

static fv_cuda_latent_seq seq_of(const pass *p, int32_t i, int64_t held) {
    const fv_packed_seq *q = &p->a->seqs[i];
    const fv_packed_rows *rows = q->rows;
    const fv_packed_shape *shape = &q->k->shape;
    const char *from = q->k->base ? q->k->base : q->k->data;
    size_t row = fv_latent_head_bytes(shape);
    return (fv_cuda_latent_seq){
        .k = {.own = q->k->data, .exact = exact_of(q->k)},
        .v = {.own = q->v->data, .exact = exact_of(q->v)},
        .key = q->k->latent->key,
        .affine = q->k->latent->affine,
        .sigma = q->k->latent->sigma,
        .codes = shape->latent.coded ? fv_latent_coded(q->k, 0, 0) : NULL,
        .coded_tile = (int32_t)fv_latent_coded_tile(shape),
        .value = q->v->latent->value,
        .line = (int32_t)fv_latent_line(q->k->latent->n_dir),
        .plane = fv_latent_plane(shape, from),
        .exact = (const int32_t *)(const void *)(shape->latent.exact ? from + row : NULL),
        .first = rows->first,
        .valid = rows->valid,
        .cos = rows->cos,
        .sin = rows->sin,
        .group = rows->group,
        .score = q->score,
        .score_from = q->n_rows - q->score_rows - p->row0,
        .score_rows = q->score_rows,
        .score_ld = q->score_ld,
        .held = held,
        .ld = blocks_of(q) * FV_KV_BLOCK,
        .row0 = q->row0 + p->row0,
        .n_rows = rows_of(p, i),
        .n = rows->n,
        .n_anchor = rows->n_anchor,
        .planes = (int32_t)fv_latent_planes(shape),
        .n_own = shape->latent.n_own,
        .own_line = (int32_t)fv_latent_own_line(shape),
        .type = (int32_t)shape->dtype,
        .n_all = q->k->latent->n_dir};
}

static void put_low(const fv_packed_seq *q, fv_cuda_latent_seq *s) {
    size_t n = (size_t)(s->n_dir + s->n_own + q->k->shape.latent.exact);
    s->k.n_low = (int32_t)fv_latent_read_dirs(&q->k->shape, n, true);
    s->v.n_low = (int32_t)fv_latent_read_dirs(&q->v->shape, n, true);
}

/* Counts a sequence's items: its blocks and its tiles of vectors. */
static void count(const pass *p, int32_t i, fv_cuda_latent_size *size) {
    const fv_packed_seq *q = &p->a->seqs[i];
    int32_t rows = rows_of(p, i), n = 2 + q->k->latent->n_dir + q->k->shape.latent.n_own;
    if (rows == 0) return;
    size->n_block += blocks_of(q);
    size->n_tile += fv_div_up(rows * (p->a->n_head / p->a->n_kv), FV_CUDA_LATENT_TILE);
    size->n_score += (int64_t)rows * p->a->n_head * blocks_of(q) * FV_KV_BLOCK;
    size->n_sum = n > size->n_sum ? n : size->n_sum;
}

static fv_cuda_latent_item *put_items(fv_cuda_latent_item *to, int32_t seq, int32_t n) {
    for (int32_t x = 0; to && x < n; x++) *to++ = (fv_cuda_latent_item){seq, x};
    return to;
}

static size_t lay(const pass *p, char *base, fv_cuda_latent_size *size) {
    const fv_attn_packed_args *a = p->a;
    fv_placement l = {.base = base};
    uint32_t at;
    fv_cuda_latent_table t = {0}, *to = fv_place(&l, 1, sizeof t, &at);
    fv_cuda_latent_seq *seqs = fv_place(&l, (size_t)a->n_seq, sizeof *seqs, &t.seq);
    *size = (fv_cuda_latent_size){0};
    for (int32_t i = 0; i < a->n_seq; i++) {
        if (seqs) seqs[i] = seq_of(p, i, size->n_score);
        lay_shared(&l, a, i, seqs);
        if (seqs) put_low(&a->seqs[i], &seqs[i]);
        count(p, i, size);
    }
    t.n_block = size->n_block;
    t.n_tile = size->n_tile;
    fv_cuda_latent_item *block = fv_place(&l, (size_t)t.n_block, sizeof *block, &t.block);
    fv_cuda_latent_item *tile = fv_place(&l, (size_t)t.n_tile, sizeof *tile, &t.tile);
    for (int32_t i = 0; i < a->n_seq; i++) {
        fv_cuda_latent_size one = {0};
        count(p, i, &one);
        block = put_items(block, i, one.n_block);
        tile = put_items(tile, i, one.n_tile);
    }
    if (to) *to = t;
    return l.bytes;
}

/* Builds the table of a pass in the staging ring, and sends it. */
static fv_status send_table(fv_cuda *c, const pass *p, fv_cuda_latent_size *size, void **device) {
    void *host;
    size_t bytes = lay(p, NULL, size);
    if (bytes > INT32_MAX)
        return FV_FAIL(FV_EINVAL, "attention on coefficients of %d sequences: too many at once",
                       p->a->n_seq);
    FV_TRY(fv_cuda_stage(c, bytes, &host, device));
    (void)lay(p, host, size);
    return fv_cuda_stage_send(c, host, *device, bytes);
}

static fv_status attend(fv_cuda *c, const pass *p) {
    const fv_attn_packed_args *a = p->a;
    fv_cuda_latent_size size;
    void *device;
    FV_TRY(send_table(c, p, &size, &device));
    fv_cuda_latent call = {.table = device,
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
    return fv_cuda_latent_attend(c, &call, &size);
}

static void check_seq(const fv_attn_packed_args *a, const fv_packed_seq *seq) {
    const fv_packed_shape *k = &seq->k->shape, *v = &seq->v->shape;
    assert(k->form == FV_PACKED_LATENT && v->form == FV_PACKED_LATENT);
    assert(k->kind == FV_PACKED_K && v->kind == FV_PACKED_V);
    assert(k->n == seq->rows->n && v->n == seq->rows->n && seq->k->latent == seq->v->latent);
    assert(k->n_kv == a->n_kv && k->d_head == a->d_head && k->latent.n_own == v->latent.n_own);
    assert(k->latent.exact == v->latent.exact && k->dtype == v->dtype);
    assert(!seq->rows->cos == !seq->rows->sin && (!seq->rows->cos || a->d_head % 2 == 0));
    assert(!seq->score || (seq->score_rows <= seq->n_rows && seq->score_ld >= seq->rows->n));
    (void)a, (void)k, (void)v, (void)seq;
}

/* Attends in passes of as many query rows as there is scratch for their scores. */
fv_status fv_cuda_attn_latent(fv_backend *be, const fv_attn_packed_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    int32_t most = 0;
    int64_t row = 0; /* scores of one row of each sequence */
    assert(a->n_kv > 0 && a->n_head % a->n_kv == 0 && a->d_head > 0 && a->scale > 0);
    for (int32_t i = 0; i < a->n_seq; i++) {
        check_seq(a, &a->seqs[i]);
        most = a->seqs[i].n_rows > most ? a->seqs[i].n_rows : most;
        row += (int64_t)a->n_head * blocks_of(&a->seqs[i]) * FV_KV_BLOCK;
    }
    int32_t step = row < SCORES ? (int32_t)(SCORES / (row > 0 ? row : 1)) : 1;
    for (int32_t r = 0; r < most; r += step) FV_TRY(attend(c, &(pass){a, r, step}));
    return FV_OK;
}

/* Builds a table of one sequence, of which only the blocks of keys are used. */
fv_status fv_cuda_latent_codes(fv_backend *be, const fv_latent_codes_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    const fv_packed_shape *s = &a->k->shape;
    fv_packed_rows rows = {.n = s->n};
    fv_packed_seq seq = {.n_rows = 1, .k = a->k, .v = a->k, .rows = &rows};
    fv_attn_packed_args args = {
        .n_head = s->n_kv, .n_kv = s->n_kv, .d_head = s->d_head, .n_seq = 1, .seqs = &seq};
    fv_cuda_latent_size size;
    void *device;
    assert(s->form == FV_PACKED_LATENT && s->latent.coded);
    FV_TRY(send_table(c, &(pass){&args, 0, 1}, &size, &device));
    fv_cuda_latent call = {
        .table = device, .n_head = s->n_kv, .n_kv = s->n_kv, .d_head = s->d_head};
    return fv_cuda_latent_code(c, &call, &size);
}

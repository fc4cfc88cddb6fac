#ifndef FOVEA_TESTS_OPS_CODES_CASE_H
#define FOVEA_TESTS_OPS_CODES_CASE_H

/* A random call of attention on quantized or depth-merged blocks: blocks of any size, anchors,
 * bits, outliers and valid tokens.
 *
 * o and lse are in one array, so one comparison covers everything. Tokens that are not valid hold
 * NaN where a block has numbers. */
#include "packed/codes.h"
#include "packed/merged.h"
#include "tests/ops/ops_test.h"

enum { MAX_SEQ = 3 };

static inline float *random_numbers(size_t n, float scale) {
    float *x = room(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = random_normal() * scale;
    return x;
}

/* ---- blocks ------------------------------------------------------------------------------ */

typedef struct block {
    fv_packed_part k, v;
    fv_packed_rows rows;
    int32_t *pos, *first, *alive;
    float *cos, *sin;
    float *mk, *mv; /* [n, W] the values that the blocks represent */
    void *other[2]; /* of merged layers: the other layer's blocks */
} block;

static inline bool is_alive(const block *b, int32_t j) {
    int32_t a = 0;
    while (j >= b->first[a + 1]) a++;
    return !b->rows.valid || j - b->first[a] < b->alive[a];
}

/* Index in a tile of angle i of token j. */
static inline int angle_at(int j, int i, int half) {
    return (j / FV_PACKED_TILE * half + i) * FV_PACKED_TILE + j % FV_PACKED_TILE;
}

static inline void make_rows(block *b, int n, int anchor, int D) {
    int n_anchor = anchor ? (n + anchor - 1) / anchor : n > 0, half = D / 2;
    size_t angles = fv_packed_tiles((size_t)n) * (size_t)half * FV_PACKED_TILE;
    b->pos = room((size_t)n * 4);
    b->first = room((size_t)(n_anchor + 1) * 4);
    b->alive = room((size_t)n_anchor * 4);
    b->cos = room(angles * 4);
    b->sin = room(angles * 4);
    for (int j = 0, p = 0; j < n; j++) b->pos[j] = p += random_int(1, 3);
    for (int a = 0; a <= n_anchor; a++) b->first[a] = anchor && a * anchor < n ? a * anchor : n;
    b->first[0] = 0;
    for (int a = 0; a < n_anchor; a++) {
        b->alive[a] = random_int(0, 2) ? random_int(0, b->first[a + 1] - b->first[a])
                                       : b->first[a + 1] - b->first[a];
        for (int j = b->first[a]; j < b->first[a + 1]; j++)
            for (int i = 0; i < half; i++) {
                double angle = b->pos[b->first[a]] * pow(1e4, -2.0 * i / D);
                b->cos[angle_at(j, i, half)] = (float)cos(angle);
                b->sin[angle_at(j, i, half)] = (float)sin(angle);
            }
    }
    b->rows = (fv_packed_rows){.n = n, .n_anchor = n_anchor, .pos = b->pos, .first = b->first};
    if (anchor) b->rows.cos = b->cos, b->rows.sin = b->sin;
}

static inline fv_packed_part make_part(fv_packed_shape s, double share, float **m) {
    size_t n = (size_t)s.n * fv_packed_width(&s);
    double error;
    s.codes.n_outlier = (int32_t)fv_codes_all_outliers(&s, share);
    *m = random_numbers(n, 1);
    for (size_t i = 0; i < n; i += 37) (*m)[i] *= 40;
    fv_packed_part p = {.shape = s, .data = room(fv_packed_bytes(&s))};
    must(fv_codes_write(&s, *m, p.data, &error));
    must(fv_codes_check_outliers(&p));
    fv_codes_read(&p, 0, s.n, *m);
    return p;
}

/* Makes a part of the first or the second of two more or less similar layers. */
static inline fv_packed_part make_merged_part(fv_packed_shape s, double gamma, bool second,
                                              float **m, void **other) {
    size_t n = (size_t)s.n * fv_packed_width(&s);
    float *rows[2] = {random_numbers(n, 3), random_numbers(n, 1)};
    uint8_t *kept = room((size_t)(s.n * s.n_kv));
    double error[2];
    for (size_t i = 0; i < n; i++) rows[1][i] += rows[0][i];
    const float *const both[2] = {rows[0], rows[1]};
    s.merged.n_exact = fv_merged_keep(&s, both, gamma, kept);
    fv_packed_shape shapes[2] = {s, s};
    shapes[1].borrows = true;
    void *data[2] = {room(fv_packed_bytes(&shapes[0])), room(fv_packed_bytes(&shapes[1]))};
    must(fv_merged_write(shapes, both, 0.6, kept, data, error));
    fv_packed_part p = {
        .shape = shapes[second], .data = data[second], .base = second ? data[0] : NULL};
    must(fv_packed_check(&p.shape));
    must(fv_codes_check_outliers(&p));
    *m = rows[second];
    *other = data[!second];
    fv_codes_read(&p, 0, s.n, *m);
    free(rows[!second]);
    free(kept);
    return p;
}

static inline void poison_norms(fv_packed_part *p, int32_t j) {
    float *norm = (float *)((char *)p->data + fv_codes_layout_of(&p->shape).pair);
    size_t head = fv_packed_tiles((size_t)p->shape.n) * FV_PACKED_TILE;
    for (size_t g = 0; g < (size_t)p->shape.n_kv; g++) norm[g * head + (size_t)j] = NAN;
}

static inline void poison_row(fv_packed_part *p, int32_t j) {
    fv_codes_layout l = fv_codes_layout_of(&p->shape);
    for (size_t g = 0; g < (size_t)p->shape.n_kv; g++)
        memset((char *)p->data + l.code + g * l.head + (size_t)j * l.stride, 0xff, l.stride);
}

/* NaN in tokens that are not valid: norms, rows, the pair of values, and all outliers. */
static inline void poison(const block *b, fv_packed_part *p) {
    fv_codes_layout l = fv_codes_layout_of(&p->shape);
    const uint32_t *first = (const uint32_t *)((char *)p->data + l.first);
    size_t size = fv_codes_unit(&p->shape) * fv_dtype_bytes(p->shape.dtype);
    for (int32_t j = 0; j < p->shape.n; j++) {
        if (is_alive(b, j)) continue;
        if (p->shape.form == FV_PACKED_MERGED)
            poison_norms(p, j);
        else if (p->shape.codes.bits == 16)
            poison_row(p, j);
        else if (p->shape.kind == FV_PACKED_V)
            memset((char *)p->data + l.pair + (size_t)j * 8, 0xff, 8);
        if (fv_codes_n_outlier(&p->shape) == 0) continue;
        memset((char *)p->data + l.value + first[j] * size, 0xff, (first[j + 1] - first[j]) * size);
    }
}

typedef struct block_shape {
    int n, anchor, n_kv, D, bits;
    fv_dtype dtype;
    double share;
    bool alive, merged, rows; /* rows: values as they are, beside coded keys */
} block_shape;

static inline block_shape random_shape(int n_kv, int D, bool merged) {
    return (block_shape){.n = PICK(0, 1, 3, 16, 40, 63, 64, 65, 130, 200),
                         .anchor = D % 2 ? 0 : PICK(0, 1, 1, 5, 64),
                         .n_kv = n_kv,
                         .D = D,
                         .bits = merged ? 16 : PICK(8, 4),
                         .merged = merged,
                         .dtype = (fv_dtype)random_int(0, FV_N_DTYPE - 1),
                         .share = PICK(0, 1, 1, 20, 50) / 100.0,
                         .alive = random_int(0, 1),
                         .rows = !merged && random_int(0, 2) == 0};
}

/* second: the layer that uses the other one's directions. */
static inline block *make_block_of(const block_shape *s, bool second) {
    block *b = room(sizeof *b);
    make_rows(b, s->n, s->anchor, s->D);
    b->rows.valid = s->alive ? b->alive : NULL;
    fv_packed_shape k = {.n = s->n,
                         .n_kv = s->n_kv,
                         .d_head = s->D,
                         .dtype = s->dtype,
                         .kind = FV_PACKED_K,
                         .form = s->merged ? FV_PACKED_MERGED : FV_PACKED_QUANTIZED};
    if (!s->merged) k.codes.bits = (uint8_t)s->bits;
    fv_packed_shape v = k;
    v.kind = FV_PACKED_V;
    if (s->rows) v.codes.bits = 16;
    b->other[0] = b->other[1] = NULL;
    b->k = s->merged ? make_merged_part(k, s->share, second, &b->mk, &b->other[0])
                     : make_part(k, s->share, &b->mk);
    b->v = s->merged ? make_merged_part(v, s->share, second, &b->mv, &b->other[1])
                     : make_part(v, s->rows ? 0 : s->share, &b->mv);
    poison(b, &b->k);
    poison(b, &b->v);
    return b;
}

static inline block *make_block(const block_shape *s) { return make_block_of(s, random_int(0, 1)); }

static inline void free_block(block *b) {
    void *all[] = {b->k.data, b->v.data, b->pos, b->first,    b->alive,   b->cos,
                   b->sin,    b->mk,     b->mv,  b->other[0], b->other[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(b);
}

/* ---- calls ------------------------------------------------------------------------------- */

typedef struct call {
    fv_attn_packed_args args;
    fv_packed_seq seqs[MAX_SEQ];
    block *blocks[MAX_SEQ];
    float *out; /* o and lse */
    size_t n_out;
    bool merged;
} call;

static inline call make_call_of(int n_seq, int n_kv, int group, int D, int max_rows, bool merged) {
    call c = {.args = {.n_head = n_kv * group,
                       .n_kv = n_kv,
                       .d_head = D,
                       .n_seq = n_seq,
                       .scale = 1 / sqrtf((float)D)},
              .merged = merged};
    int M = 0, H = c.args.n_head;
    for (int i = 0; i < n_seq; i++) {
        block_shape s = random_shape(n_kv, D, c.merged);
        block *b = c.blocks[i] = make_block(&s);
        M += random_int(0, 1); /* rows of q that belong to no sequence */
        c.seqs[i] = (fv_packed_seq){.row0 = M,
                                    .n_rows = random_int(max_rows > 1 ? 0 : 1, max_rows),
                                    .k = &b->k,
                                    .v = &b->v,
                                    .rows = &b->rows};
        M += c.seqs[i].n_rows;
    }
    c.args.q = tensor_new(FV_F32, M, H * D, random_int(0, 3));
    fill_normal(&c.args.q, 1.5f);
    c.n_out = (size_t)M * (size_t)(H * D + H);
    c.out = random_numbers(c.n_out, 1);
    c.args.o = fv_tensor_of(c.out, FV_F32, M, H * D);
    c.args.lse = fv_tensor_of(c.out + (size_t)M * (size_t)(H * D), FV_F32, M, H);
    return c;
}

/* A call on quantized or on depth-merged blocks. */
static inline call make_call(int n_seq, int n_kv, int group, int D, int max_rows) {
    return make_call_of(n_seq, n_kv, group, D, max_rows, random_int(0, 1));
}

static inline fv_status attend(const call *c, fv_backend *be, const fv_attn_packed_args *a) {
    return c->merged ? be->ops->attn_merged(be, a) : be->ops->attn_quantized(be, a);
}

static inline void run_call(call *c, fv_backend *be) {
    c->args.seqs = c->seqs;
    must(attend(c, be, &c->args));
}

static inline void free_call(call *c) {
    for (int i = 0; i < c->args.n_seq; i++) free_block(c->blocks[i]);
    free(c->args.q.data);
    free(c->out);
}

#endif

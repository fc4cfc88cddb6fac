#ifndef FOVEA_TESTS_OPS_PACKED_CASE_H
#define FOVEA_TESTS_OPS_PACKED_CASE_H

/* A random call of attention on low-rank blocks: any rank, anchors, bits and valid tokens.
 *
 * All outputs (o, lse, scores) are in one array, so one comparison covers everything. Data that
 * must not be read is NaN: tokens that are not valid, and the second tier of tokens at the lower
 * rank. */
#include "packed/lowrank.h"
#include "tests/ops/ops_test.h"

enum { MAX_SEQ = 3 };

static inline float *random_numbers(size_t n, float scale) {
    float *x = room(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = random_normal() * scale;
    return x;
}

/* ---- blocks ---------------------------------------------------------------------------- */

/* A compressed block and everything that it references. */
typedef struct block {
    fv_packed_part k, v;
    fv_packed_rows rows;
    int32_t *pos, *first, *alive;
    float *cos, *sin;
    uint8_t *group;
    float *uk, *bk, *uv, *bv; /* the values the block represents; 0 for tokens that are not valid */
} block;

static inline bool is_alive(const block *b, int32_t j) {
    int32_t a = 0;
    while (j >= b->first[a + 1]) a++;
    return !b->rows.valid || j - b->first[a] < b->alive[a];
}

static inline void make_rows(block *b, int n, int anchor, int D) {
    int n_anchor = anchor ? (n + anchor - 1) / anchor : n > 0, half = D / 2;
    b->pos = room((size_t)n * 4);
    b->first = room((size_t)(n_anchor + 1) * 4);
    b->alive = room((size_t)n_anchor * 4);
    b->cos = room((size_t)(n_anchor * half) * 4);
    b->sin = room((size_t)(n_anchor * half) * 4);
    b->group = room((size_t)n);
    for (int j = 0, p = 0; j < n; j++) b->pos[j] = p += random_int(1, 3);
    for (int a = 0; a <= n_anchor; a++) b->first[a] = anchor && a * anchor < n ? a * anchor : n;
    b->first[0] = 0;
    for (int a = 0; a < n_anchor; a++)
        for (int i = 0; i < half; i++) {
            double angle = b->pos[b->first[a]] * pow(1e4, -2.0 * i / D);
            b->cos[a * half + i] = (float)cos(angle);
            b->sin[a * half + i] = (float)sin(angle);
        }
    b->rows = (fv_packed_rows){
        .n = n, .n_anchor = n_anchor, .pos = b->pos, .first = b->first, .group = b->group};
    if (anchor) b->rows.cos = b->cos, b->rows.sin = b->sin;
}

/* Prunes some tokens and reads some at the lower rank. */
static inline void thin(block *b, bool alive, bool group) {
    for (int a = 0; a < b->rows.n_anchor; a++)
        b->alive[a] = random_int(0, 2) ? random_int(0, b->first[a + 1] - b->first[a])
                                       : b->first[a + 1] - b->first[a];
    for (int j = 0; j < b->rows.n; j++) b->group[j] = (uint8_t)random_int(0, 1);
    b->rows.valid = alive ? b->alive : NULL;
    b->rows.group = group ? b->group : NULL;
}

/* Values kept as tokens are factors whose basis is the identity. */
static inline fv_packed_part make_rows_part(fv_packed_shape s, float **u, float **basis) {
    size_t W = fv_packed_width(&s);
    *u = random_numbers((size_t)s.n * W, 1);
    *basis = room(W * W * sizeof(float));
    for (size_t i = 0; i < W * W; i++) (*basis)[i] = i % (W + 1) == 0;
    fv_packed_part p = {.shape = s, .data = room(fv_packed_bytes(&s))};
    fv_packed_write(&s, *u, NULL, p.data);
    fv_packed_read_rows(&p, 0, s.n, *u);
    return p;
}

static inline fv_packed_part make_part(fv_packed_shape s, float **u, float **basis) {
    if (fv_packed_is_rows(&s)) return make_rows_part(s, u, basis);
    size_t nu = (size_t)s.n * (size_t)s.lowrank.rank,
           nb = (size_t)s.lowrank.rank * fv_packed_width(&s);
    *u = random_numbers(nu, 1);
    *basis = random_numbers(nb, 1 / sqrtf((float)s.lowrank.rank));
    fv_packed_part p = {.shape = s, .data = room(fv_packed_bytes(&s))};
    fv_packed_write(&s, *u, *basis, p.data);
    fv_packed_read_u(&p, 0, s.n, *u);
    fv_packed_read_basis(&p, *basis);
    return p;
}

/* Writes NaN where nothing may be read: tokens that are not valid, the second tier of tokens at the
 * lower rank. Codes have no NaN; a value token's scale and minimum have. */
static inline void poison_row(const fv_packed_part *p, int32_t j, int tier) {
    fv_packed_layout l = fv_packed_layout_of(&p->shape);
    char *at = (char *)p->data + l.tier[tier];
    size_t bytes = (size_t)p->shape.d_head * fv_dtype_bytes(p->shape.dtype);
    for (int32_t g = 0; fv_packed_is_rows(&p->shape) && g < p->shape.n_kv; g++)
        memset((char *)p->data + l.rows + (size_t)(g * p->shape.n + j) * bytes, 0xff, bytes);
    if (p->shape.kind == FV_PACKED_V) {
        memset(at + (size_t)j * l.stride[tier], 0xff, l.stride[tier]);
        return;
    }
    size_t size = fv_dtype_bytes(p->shape.dtype), line = FV_PACKED_TILE * size;
    at += (size_t)(j / FV_PACKED_TILE) * l.stride[tier] + (size_t)(j % FV_PACKED_TILE) * size;
    for (size_t r = 0; p->shape.lowrank.bits == 16 && r < fv_packed_tier_rank(&p->shape, tier); r++)
        memset(at + r * line, 0xff, size);
}

static inline void poison(const block *b, fv_packed_part *p) {
    fv_packed_layout l = fv_packed_layout_of(&p->shape);
    for (int32_t j = 0; j < p->shape.n; j++) {
        bool alive = is_alive(b, j), low = b->rows.group && b->group[j];
        if (!alive) poison_row(p, j, 0);
        if (!alive || (low && !fv_packed_is_rows(&p->shape))) poison_row(p, j, 1);
        if (!alive && p->shape.lowrank.bits != 16 && p->shape.kind == FV_PACKED_V)
            memset((char *)p->data + l.pair + (size_t)j * 4, 0xff, 4);
    }
}

typedef struct block_shape {
    int n, anchor, n_kv, D, rank_k, rank_v, rank2_k, rank2_v, bits;
    fv_dtype dtype;
    bool alive, group;
} block_shape;

static inline block *make_block(const block_shape *s) {
    block *b = room(sizeof *b);
    make_rows(b, s->n, s->anchor, s->D);
    thin(b, s->alive, s->group);
    fv_packed_shape k = {.n = s->n,
                         .lowrank.rank = s->rank_k,
                         .lowrank.rank2 = s->rank2_k,
                         .n_kv = s->n_kv,
                         .d_head = s->D,
                         .dtype = s->dtype,
                         .kind = FV_PACKED_K,
                         .lowrank.bits = (uint8_t)s->bits};
    fv_packed_shape v = k;
    v.lowrank.rank = s->rank_v;
    v.lowrank.rank2 = s->rank2_v;
    v.kind = FV_PACKED_V;
    if (v.lowrank.rank == 0) v.lowrank.bits = 16;
    b->k = make_part(k, &b->uk, &b->bk);
    b->v = make_part(v, &b->uv, &b->bv);
    poison(b, &b->k);
    poison(b, &b->v);
    return b;
}

static inline void free_block(block *b) {
    void *all[] = {b->k.data, b->v.data, b->pos, b->first, b->alive, b->cos,
                   b->sin,    b->group,  b->uk,  b->bk,    b->uv,    b->bv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(b);
}

/* ---- calls ----------------------------------------------------------------------------- */

/* A call, and an array of all its outputs. */
typedef struct call {
    fv_attn_packed_args args;
    fv_packed_seq seqs[MAX_SEQ];
    block *blocks[MAX_SEQ];
    fv_tensor q;
    float *out, *lse;
    size_t n_out;
} call;

static inline block_shape random_shape(int n_kv, int D) {
    block_shape s = {.n = PICK(0, 1, 3, 16, 40, 63, 64, 65, 130, 200),
                     .anchor = D % 2 ? 0 : PICK(0, 0, 1, 5, 8, 24, 64, 100),
                     .n_kv = n_kv,
                     .D = D,
                     .bits = PICK(16, 16, 8, 4),
                     .dtype = (fv_dtype)random_int(0, FV_N_DTYPE - 1),
                     .alive = random_int(0, 1),
                     .group = random_int(0, 1)};
    int most = n_kv * D < 70 ? n_kv * D : 70;
    s.rank_k = random_int(0, 3) ? random_int(1, most) : most;
    s.rank_v = random_int(0, 3) ? random_int(1, most) : most;
    s.rank2_k = random_int(0, 1) ? s.rank_k : random_int(1, s.rank_k);
    s.rank2_v = random_int(0, 3) ? random_int(1, s.rank_v) : s.rank_v;
    if (random_int(0, 3) == 0) s.rank_v = s.rank2_v = 0; /* uncompressed */
    return s;
}

static inline call make_call(int n_seq, int n_kv, int group, int D, int max_rows,
                             const block_shape *fixed) {
    call c = {.args = {.n_head = n_kv * group, .n_kv = n_kv, .d_head = D, .n_seq = n_seq}};
    int M = 0, H = c.args.n_head;
    for (int i = 0; i < n_seq; i++) {
        block_shape s = fixed ? *fixed : random_shape(n_kv, D);
        block *b = c.blocks[i] = make_block(&s);
        int rows = random_int(max_rows > 1 ? 0 : 1, max_rows), captured = random_int(0, rows);
        M += random_int(0, 1); /* rows of q that belong to no sequence */
        c.seqs[i] = (fv_packed_seq){.row0 = M,
                                    .n_rows = rows,
                                    .k = &b->k,
                                    .v = &b->v,
                                    .rows = &b->rows,
                                    .score_rows = captured,
                                    .score_ld = s.n + random_int(0, 3)};
        M += rows;
        c.n_out += (size_t)(H * captured * c.seqs[i].score_ld);
    }
    c.q = tensor_new(FV_F32, M, H * D, random_int(0, 3));
    fill_normal(&c.q, 1.5f);
    fv_tensor o = {.dtype = FV_F32, .rows = M, .cols = H * D, .ld = H * D + random_int(0, 2)};
    c.n_out += (size_t)M * (size_t)(o.ld + H);
    float *at = o.data = c.out = random_numbers(c.n_out, 1);
    at += (size_t)M * (size_t)o.ld;
    c.lse = at;
    at += (size_t)(M * H);
    for (int i = 0; i < n_seq; i++) {
        c.seqs[i].score = c.seqs[i].score_rows ? at : NULL;
        at += (size_t)(H * c.seqs[i].score_rows * c.seqs[i].score_ld);
    }
    c.args.q = c.q;
    c.args.o = o;
    c.args.lse = fv_tensor_of(c.lse, FV_F32, M, H);
    c.args.scale = 1 / sqrtf((float)D);
    return c;
}

static inline void run_call(call *c, fv_backend *be) {
    c->args.seqs = c->seqs;
    must(be->ops->attn_lowrank(be, &c->args));
}

static inline void free_call(call *c) {
    for (int i = 0; i < c->args.n_seq; i++) free_block(c->blocks[i]);
    free(c->q.data);
    free(c->out);
}

#endif

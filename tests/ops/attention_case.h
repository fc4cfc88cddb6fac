#ifndef FOVEA_TESTS_OPS_ATTENTION_CASE_H
#define FOVEA_TESTS_OPS_ATTENTION_CASE_H

/* A random attention call: sequences with ragged segments, masked_tail tokens, shares and n; and
 * the attention-score sums it asks for.
 *
 * All outputs (o, lse, the sums) are in one array, so one comparison covers everything. Forbidden
 * reads are detected: tokens past a segment's end and tokens that no query attends to hold NaN, and
 * the block after a segment's last one has an invalid address. */
#include "tests/ops/ops_test.h"

enum { CASE_MAX_SEQ = 4 };

typedef struct attention_case {
    fv_attn_args args;
    fv_attn_seq seqs[CASE_MAX_SEQ];
    fv_score_sums_args sums_args;
    fv_score_sum sums[CASE_MAX_SEQ]; /* of each sequence, if any */
    fv_tensor out;                   /* [1, all outputs] */
    int n_run;
    void **memory; /* everything to free */
    int n_memory;
} attention_case;

typedef struct attention_shape {
    fv_dtype dtype;
    int n_kv, group, D, n_seq;
    int max_rows, max_seg, max_len;
    bool causal, lse;
    bool shares, n; /* some tokens lose segment 0's share; some sequences have n-softmax */
    bool window;    /* some sequences have a sliding window */
    bool sums;      /* needs lse */
    bool largest;   /* all sizes are the largest, for timing */
} attention_shape;

static inline void *case_room(attention_case *c, size_t bytes) {
    c->memory = realloc(c->memory, (size_t)(c->n_memory + 1) * sizeof *c->memory);
    if (!c->memory) exit(1);
    return c->memory[c->n_memory++] = room(bytes);
}

/* Fills token j of a segment's block with numbers, or NaN. */
static inline void case_fill_row(const attention_shape *s, void *block, int j, bool numbers) {
    fv_tensor row = fv_tensor_of(block, s->dtype, FV_KV_BLOCK, s->D);
    for (int d = 0; d < s->D; d++) put(&row, j, d, numbers ? random_normal() : NAN);
}

static inline void case_fill_run(attention_case *c, const attention_shape *s, fv_block_table *run,
                                 int len, int seen) {
    int n_block = (len + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
    size_t bytes = (size_t)FV_KV_BLOCK * (size_t)s->D * fv_dtype_bytes(s->dtype);
    run->len = len;
    run->block = case_room(c, (size_t)(n_block + 1) * sizeof *run->block);
    for (int b = 0; b < n_block; b++) {
        run->block[b].k = case_room(c, bytes);
        run->block[b].v = case_room(c, bytes);
        for (int j = 0; j < FV_KV_BLOCK; j++) {
            bool numbers = b * FV_KV_BLOCK + j < seen;
            case_fill_row(s, run->block[b].k, j, numbers);
            case_fill_row(s, run->block[b].v, j, numbers);
        }
    }
    run->block[n_block] = (fv_kv_block){(void *)(uintptr_t)64, (void *)(uintptr_t)64};
}

/* Fills a sum over the last tokens, with segments apart and out of order: head-max scores, or
 * scores some of which have weights. */
static inline void case_fill_sum(attention_case *c, const fv_attn_seq *q, fv_score_sum *sum,
                                 int longest, bool peak) {
    *sum = (fv_score_sum){.n_row = random_int(0, q->n_rows),
                          .n = (float)random_int(0, 2),
                          .n_kind = random_int(1, 2),
                          .low = random_int(0, 3) == 0,
                          .ld = q->n_seg * (longest + 2)};
    uint8_t *kind = case_room(c, (size_t)sum->n_row);
    for (int i = 0; i < sum->n_row; i++) kind[i] = (uint8_t)random_int(0, sum->n_kind - 1);
    if (random_int(0, 2)) sum->kind = kind;
    sum->head_max = peak;
    if (peak) sum->low = false;
    size_t n = (size_t)sum->n_row * (size_t)sum->ld;
    float *weight = case_room(c, n * sizeof *weight);
    for (size_t i = 0; i < n; i++) weight[i] = random_int(0, 3) ? random_normal() : 0;
    if (!peak && !sum->low && random_int(0, 1)) sum->weight = weight;
    for (int s = 0; s < q->n_seg; s++) sum->column[s] = (q->n_seg - 1 - s) * (longest + 2) + 1;
}

/* Sets positions, in order or not; rows of some sequences see only a window of them. */
static inline void case_fill_window(attention_case *c, const attention_shape *s, fv_attn_seq *q,
                                    bool alike) {
    int n_table = s->n_kv * q->n_seg, most = 3 * (s->max_len + 2);
    const int32_t **position = case_room(c, (size_t)n_table * sizeof *position);
    int32_t *from = case_room(c, (size_t)q->n_rows * sizeof *from);
    bool ordered = random_int(0, 2);
    for (int r = 0; r < n_table; r++) {
        int32_t *p = case_room(c, (size_t)q->tables[r].len * sizeof *p);
        for (int j = 0, at = 0; j < q->tables[r].len; j++)
            p[j] = ordered ? (at += random_int(1, 3)) : random_int(0, most);
        position[r] = alike && r >= q->n_seg ? position[r - q->n_seg] : p;
    }
    for (int i = 0; i < q->n_rows; i++)
        from[i] = random_int(0, 9) ? random_int(-2, most) / (1 + i % 3) : most;
    if (!s->window || !random_int(0, 2)) return;
    q->position = position;
    q->window_from = from;
}

/* Whether query row i sees row j of table r: head by head, segment by segment. */
static inline bool case_sees(const fv_attn_seq *q, int r, int i, int j) {
    int masked = q->masked_tail ? q->masked_tail[r % q->n_seg * q->n_rows + i] : 0;
    return j < q->tables[r].len - masked &&
           (!q->window_from || q->position[r][j] >= q->window_from[i]);
}

static inline void case_fill_seq(attention_case *c, const attention_shape *s, fv_attn_seq *q,
                                 fv_score_sum *sum) {
    int n_seg = q->n_seg;
    fv_block_table *runs = case_room(c, (size_t)(s->n_kv * n_seg) * sizeof *runs);
    int32_t *masked_tail = case_room(c, (size_t)(n_seg * q->n_rows) * sizeof *masked_tail);
    int longest = 0;                              /* tokens of a head, all segments together */
    bool peak = s->sums && random_int(0, 2) == 0; /* of heads with the same tokens */
    for (int seg = 0; seg < n_seg; seg++) {
        int len = random_int(s->largest ? s->max_len : 0, s->max_len),
            least_masked = q->n_rows ? len + 9 : 0;
        for (int i = 0; i < q->n_rows; i++) {
            int causal = seg == n_seg - 1 ? q->n_rows - 1 - i : 0;
            masked_tail[seg * q->n_rows + i] =
                s->largest || random_int(0, 9) ? causal : random_int(0, len + 3);
            int h = masked_tail[seg * q->n_rows + i];
            least_masked = h < least_masked ? h : least_masked;
        }
        if (!s->causal) least_masked = 0;
        for (int g = 0; g < s->n_kv; g++) {
            int ragged = peak || s->largest || random_int(0, 3) ? len : random_int(0, s->max_len);
            case_fill_run(c, s, &runs[g * n_seg + seg], ragged, ragged - least_masked);
        }
    }
    for (int g = 0; g < s->n_kv; g++) {
        int total = 0;
        for (int seg = 0; seg < n_seg; seg++) total += runs[g * n_seg + seg].len;
        longest = total > longest ? total : longest;
    }
    q->tables = runs;
    q->masked_tail = s->causal ? masked_tail : NULL;
    case_fill_window(c, s, q, peak);
    uint8_t *share = case_room(c, (size_t)q->n_rows);
    for (int i = 0; i < q->n_rows; i++) share[i] = (uint8_t)random_int(0, FV_SHARE_WITHOUT_FIRST);
    if (s->n && random_int(0, 2)) q->n = random_int(0, 1) ? 1.0f : 37.5f;
    if (s->shares && q->n == 0 && random_int(0, 2)) q->share = share;
    q->n_first = random_int(0, s->max_len);
    if (s->sums) case_fill_sum(c, q, sum, longest, peak);
}

static inline attention_case attention_case_new(const attention_shape *s) {
    attention_case c = {0};
    int H = s->n_kv * s->group, M = 0;
    size_t n = 0;
    for (int i = 0; i < s->n_seq; i++) {
        fv_attn_seq *q = &c.seqs[i];
        M += random_int(0, 2); /* rows of q that belong to no sequence */
        *q = (fv_attn_seq){.row0 = M,
                           .n_rows = random_int(s->largest ? s->max_rows
                                                : i        ? 0
                                                           : 1,
                                                s->max_rows),
                           .n_seg = random_int(1, s->max_seg)};
        M += q->n_rows;
        case_fill_seq(&c, s, q, &c.sums[i]);
        c.sums[i].seq = i;
        n += (size_t)(H * c.sums[i].n_kind) * (size_t)c.sums[i].ld;
    }
    fv_tensor q = tensor_new(FV_F32, M, H * s->D, random_int(0, 3)), o = q;
    c.memory = realloc(c.memory, (size_t)(c.n_memory + 1) * sizeof *c.memory);
    if (!c.memory) exit(1);
    c.memory[c.n_memory++] = q.data;
    fill_normal(&q, 2);
    o.ld = o.cols + random_int(0, 2);
    n += (size_t)M * (size_t)(o.ld + H);
    c.out = fv_tensor_of(case_room(&c, n * 4), FV_F32, 1, (int32_t)n);
    fill_normal(&c.out, 1);
    float *at = c.out.data;
    o.data = at;
    at += (size_t)M * (size_t)o.ld;
    fv_tensor lse = fv_tensor_of(at, FV_F32, M, H);
    at += (size_t)M * (size_t)H;
    for (int i = 0; i < s->n_seq; i++) {
        c.sums[i].sum = at;
        at += (size_t)(H * c.sums[i].n_kind) * (size_t)c.sums[i].ld;
    }
    if (s->sums) c.sums_args.n_sum = s->n_seq;
    c.args = (fv_attn_args){.q = q,
                            .o = o,
                            .kv_dtype = s->dtype,
                            .n_head = H,
                            .n_kv = s->n_kv,
                            .d_head = s->D,
                            .n_seq = s->n_seq,
                            .scale = 1.0f / sqrtf((float)s->D),
                            .slides = s->window};
    if (s->lse || s->sums) c.args.lse = lse;
    return c;
}

static inline void attention_case_free(attention_case *c) {
    for (int i = 0; i < c->n_memory; i++) free(c->memory[i]);
    free(c->memory);
}

/* The case contains its own sequences; call this before every use, because the case may have
 * moved. */
static inline const fv_attn_args *attention_case_args(attention_case *c) {
    c->args.seqs = c->seqs;
    c->sums_args.attn = &c->args;
    c->sums_args.sums = c->sums;
    return &c->args;
}

/* Attention, and the sums that the case asks for. */
static inline fv_status attention_case_run(fv_backend *be, attention_case *c) {
    fv_status st = be->ops->attention(be, attention_case_args(c));
    if (st == FV_OK && c->sums_args.n_sum) st = be->ops->score_sums(be, &c->sums_args);
    return st;
}

static inline attention_shape attention_shape_random(void) {
    static const int dims[] = {1, 8, 10, 16, 17, 48, 64, 80, 96, 128, 160};
    static const int lens[] = {0, 1, 3, 16, 63, 64, 65, 100, 130, 200};
    static const int rows[] = {1, 1, 2, 3, 7, 20, 60};
    static const int groups[] = {1, 2, 3, 4, 6, 7, 8};
    attention_shape s = {.dtype = (fv_dtype)random_int(0, FV_N_DTYPE - 1),
                         .n_kv = random_int(1, 3),
                         .group = groups[random_int(0, 6)],
                         .D = dims[random_int(0, 10)],
                         .n_seq = random_int(1, 3),
                         .max_rows = rows[random_int(0, 6)],
                         .max_seg = random_int(1, FV_ATTN_MAX_SEG),
                         .max_len = lens[random_int(0, 9)],
                         .causal = random_int(0, 3) > 0,
                         .lse = random_int(0, 1),
                         .shares = random_int(0, 1),
                         .n = random_int(0, 1),
                         .window = random_int(0, 1),
                         .sums = random_int(0, 1)};
    return s;
}

#endif

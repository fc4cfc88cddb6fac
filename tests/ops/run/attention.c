/* Attention and sums of its scores against the plain path, on random calls.
 *
 * In exact mode every bit of every output must be the plain path's, and outputs that belong to no
 * sequence must not change: the outputs of a call are in one array. */
#include "tests/ops/attention_case.h"
#include "tests/ops/device_mirror.h"
#include "tests/ops/run/near.h"

/* Receives the seconds of a call while speed is measured; else NULL. */
static double *seconds;

/* The block tables of a sequence, with the device's blocks. */
static fv_block_table *runs_there(mirror *m, const attention_case *c, const fv_attn_seq *q) {
    int n = c->args.n_kv * q->n_seg;
    size_t bytes = FV_KV_BLOCK * (size_t)c->args.d_head * fv_dtype_bytes(c->args.kv_dtype);
    fv_block_table *runs = room((size_t)n * sizeof *runs);
    for (int r = 0; r < n; r++) {
        int blocks = (q->tables[r].len + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
        runs[r].len = q->tables[r].len;
        runs[r].block = room((size_t)blocks * sizeof *runs[r].block);
        for (int b = 0; b < blocks; b++) {
            runs[r].block[b].k = there(m, q->tables[r].block[b].k, bytes);
            runs[r].block[b].v = there(m, q->tables[r].block[b].v, bytes);
        }
    }
    return runs;
}

/* Runs the case on `be` and leaves its outputs in `out`. Sums are of scores that attention has been given before: the
 * case's outputs hold the plain path's, so that a test of sums needs no attention of `be`. */
static void run_case(fv_backend *be, attention_case *c, float *out) {
    mirror m = {.be = be};
    attention_case d = *c;
    size_t n = (size_t)c->out.cols;
    const fv_attn_args *a = &c->args;
    d.out.data = there(&m, c->out.data, n * 4);
    d.args.q.data = there(&m, a->q.data, tensor_bytes(&a->q));
    d.args.o.data = moved(a->o.data, c->out.data, d.out.data);
    if (a->lse.data) d.args.lse.data = moved(a->lse.data, c->out.data, d.out.data);
    for (int i = 0; i < a->n_seq; i++) {
        d.seqs[i].tables = runs_there(&m, c, &c->seqs[i]);
        if (!c->sums_args.n_sum) continue;
        const fv_score_sum *s = &c->sums[i];
        d.sums[i].sum = moved(s->sum, c->out.data, d.out.data);
        d.sums[i].weight = there_if(&m, s->weight, (size_t)s->n_row * (size_t)s->ld * 4);
    }
    fv_attn_args args = *attention_case_args(&d);
    device_test t = {.be = *be};
    if (seconds || !d.sums_args.n_sum) must(be->ops->attention(be, &args));
    if (seconds && !d.sums_args.n_sum) *seconds = seconds_of(&t, be->ops->attention, args);
    if (d.sums_args.n_sum) must(be->ops->score_sums(be, &d.sums_args));
    if (seconds && d.sums_args.n_sum) *seconds = seconds_of(&t, be->ops->score_sums, d.sums_args);
    back(&m, out, d.out.data, n * 4);
    for (int i = 0; i < a->n_seq; i++) {
        for (int r = 0; r < a->n_kv * c->seqs[i].n_seg; r++) free(d.seqs[i].tables[r].block);
        free((void *)(uintptr_t)d.seqs[i].tables);
    }
    mirror_free(&m);
}

/* Values that are not finite must not affect queries that do not attend to them. */
static void spoil_values(attention_case *c) {
    for (int i = 0; i < c->args.n_seq; i++)
        for (int r = 0; r < c->args.n_kv * c->seqs[i].n_seg; r++) {
            const fv_block_table *t = &c->seqs[i].tables[r];
            if (t->len == 0 || random_int(0, 1)) continue;
            int j = random_int(0, t->len - 1), D = c->args.d_head;
            fv_tensor v =
                fv_tensor_of(t->block[j / FV_KV_BLOCK].v, c->args.kv_dtype, FV_KV_BLOCK, D);
            put(&v, j % FV_KV_BLOCK, random_int(0, D - 1), random_int(0, 1) ? INFINITY : NAN);
        }
}

/* Shrinks values to about 2^-126, below which products in bf16 flush to zero. */
static void shrink_values(attention_case *c) {
    for (int i = 0; i < c->args.n_seq; i++)
        for (int r = 0; r < c->args.n_kv * c->seqs[i].n_seg; r++)
            for (int j = 0; j < c->seqs[i].tables[r].len; j++) {
                void *values = c->seqs[i].tables[r].block[j / FV_KV_BLOCK].v;
                fv_tensor v = fv_tensor_of(values, c->args.kv_dtype, FV_KV_BLOCK, c->args.d_head);
                for (int x = 0; x < c->args.d_head; x++)
                    put(&v, j % FV_KV_BLOCK, x, random_normal() * 0x1p-124f);
            }
}

static void attention_bits(device_test *d, attention_shape s, int i) {
    if (!on_cpu(d) && s.max_rows > 20 && i % 4) s.max_rows = 5; /* emulation is slow */
    attention_case c = attention_case_new(&s);
    if (i % 8 == 0) fill_specials(&c.args.q, 2000);
    if (i % 8 == 2) fill_normal(&c.args.q, 60); /* so that p is subnormal, or 0, too */
    if (i % 8 == 4) spoil_values(&c);
    if (i % 8 == 6) shrink_values(&c);
    float *got = room(tensor_bytes(&c.out));
    if (s.sums) must(d->plain.ops->attention(&d->plain, attention_case_args(&c)));
    run_case(&d->be, &c, got);
    must(attention_case_run(&d->plain, &c));
    char what[128];
    snprintf(what, sizeof what, "%s D=%d Hkv=%d G=%d rows<=%d len<=%d seg<=%d",
             fv_dtype_name(s.dtype), s.D, s.n_kv, s.group, s.max_rows, s.max_len, s.max_seg);
    same(got, c.out.data, (size_t)c.out.cols, what);
    free(got);
    attention_case_free(&c);
}

static void test_attention_exact(device_test *d) {
    group("attention: the bits of the plain path");
    for (int i = 0; i < cases(on_cpu(d) ? 120 : 40); i++) {
        attention_shape s = attention_shape_random();
        s.sums = false;
        attention_bits(d, s, i);
    }
}

static void test_score_sums(device_test *d) {
    group("score_sums: the bits of the plain path");
    for (int i = 0; i < cases(on_cpu(d) ? 80 : 30); i++) {
        attention_shape s = attention_shape_random();
        s.sums = true;
        attention_bits(d, s, i);
    }
}

static void test_attention_bf16(device_test *d) {
    if (!on_cpu(d)) return;
    group("attention and score_sums in bf16: the bits of the plain path");
    compute_in(d, FV_COMPUTE_BF16);
    for (int i = 0; i < cases(60); i++) attention_bits(d, attention_shape_random(), i);
    group("attention in bf16, one row: the bits of the plain path");
    for (int i = 0; i < cases(90); i++) {
        attention_shape s = attention_shape_random();
        s.dtype = i % 5 ? FV_BF16 : s.dtype;
        s.group = i % 2 ? PICK(1, 2, 3, 4, 7, 8, 9, 16) : 1;
        s.D = PICK(32, 48, 64, 96, 128, 160, 288);
        s.max_rows = 1;
        s.max_len = PICK(64, 65, 128, 200, 300);
        s.sums = false;
        attention_bits(d, s, i);
    }
    group("attention in bf16, few vectors: the bits of the plain path");
    for (int i = 0; i < cases(90); i++) {
        attention_shape s = attention_shape_random();
        s.dtype = FV_BF16;
        s.group = 1;
        s.D = PICK(32, 48, 64, 96, 128, 256, 288);
        s.max_rows = PICK(2, 3, 4, 6, 8);
        s.max_len = PICK(5, 33, 64, 65, 130, 300);
        s.sums = false;
        attention_bits(d, s, i);
    }
    group("attention and score_sums in bf16, many vectors: the bits of the plain path");
    for (int i = 0; i < cases(120); i++) {
        attention_shape s = attention_shape_random();
        s.dtype = FV_BF16;
        s.group = PICK(1, 1, 2, 3, 4, 7);
        s.D = PICK(4, 32, 44, 64, 72, 80, 128);
        s.max_rows = PICK(9, 16, 17, 48, 49, 97, 130);
        s.max_len = PICK(5, 33, 64, 65, 130, 300);
        s.shares = i % 4 == 0;
        attention_bits(d, s, i);
    }
    compute_in(d, FV_COMPUTE_F32);
}

/* Calls that use the tensor cores; few rows are split along their keys, many are not. */
static attention_shape attention_shape_tiled(void) {
    attention_shape s = attention_shape_random();
    s.dtype = random_int(0, 2) ? FV_BF16 : FV_F16;
    s.D = PICK(64, 128, 8, 24, 72, 80, 96, 104, 256, 136, 512);
    if (s.dtype == FV_F16 && s.D == 512) s.D = 32;
    s.max_rows = PICK(1, 3, 4, 6, 20, 70);
    s.max_len = PICK(0, 1, 64, 65, 128, 129, 300);
    s.sums = false;
    s.lse = true;
    return s;
}

static void test_attention_tiled(device_test *d) {
    group("attention, tensor cores: within bf16 of the CPU");
    for (int i = 0; i < cases(50); i++) {
        attention_shape s = attention_shape_tiled();
        attention_case c = attention_case_new(&s);
        float *got = room(tensor_bytes(&c.out)), *before = room(tensor_bytes(&c.out));
        memcpy(before, c.out.data, tensor_bytes(&c.out));
        run_case(&d->be, &c, got);
        must(attention_case_run(&d->plain, &c));
        char what[128];
        snprintf(what, sizeof what, "D=%d Hkv=%d G=%d rows<=%d len<=%d seg<=%d shares=%d n=%d", s.D,
                 s.n_kv, s.group, s.max_rows, s.max_len, s.max_seg, s.shares, s.n);
        near(got, c.out.data, before, (size_t)c.out.cols, what);
        free(got);
        free(before);
        attention_case_free(&c);
    }
}

/* Row i of a sequence as a sequence of its own. */
static fv_attn_seq row_alone(const fv_attn_seq *q, int i, int32_t masked_tail[FV_ATTN_MAX_SEG]) {
    fv_attn_seq one = *q;
    one.row0 += i;
    one.n_rows = 1;
    for (int s = 0; q->masked_tail && s < q->n_seg; s++)
        masked_tail[s] = q->masked_tail[s * q->n_rows + i];
    if (q->masked_tail) one.masked_tail = masked_tail;
    if (q->share) one.share = q->share + i;
    if (q->window_from) one.window_from = q->window_from + i;
    return one;
}

/* Other kernels compute calls with few rows and calls with many: a row must have the same bits in
 * both. */
static void test_attention_alone(device_test *d) {
    group("attention, tensor cores: a row alone has the bits it has among others");
    for (int i = 0; i < 12; i++) {
        attention_shape s = attention_shape_tiled();
        attention_case c = attention_case_new(&s);
        float *all = room(tensor_bytes(&c.out)), *alone = room(tensor_bytes(&c.out));
        run_case(&d->be, &c, all);
        for (int b = 0; b < c.args.n_seq; b++)
            for (int row = 0; row < c.seqs[b].n_rows; row += random_int(1, 9)) {
                int32_t masked_tail[FV_ATTN_MAX_SEG];
                attention_case one = c;
                one.args.n_seq = 1;
                one.seqs[0] = row_alone(&c.seqs[b], row, masked_tail);
                run_case(&d->be, &one, alone);
                long at = (long)(c.seqs[b].row0 + row) * c.args.o.ld;
                same(alone + at, all + at, (size_t)c.args.o.cols, "a row alone");
            }
        free(all);
        free(alone);
        attention_case_free(&c);
    }
}

static void test_attention(device_test *d) {
    if (d->exact) {
        test_attention_exact(d);
        return;
    }
    test_attention_tiled(d);
    test_attention_alone(d);
}

/* ---- speed ------------------------------------------------------------------------------ */

/* Decoding with all heads' keys, with groups' keys, and with small heads; then prompts, and an
 * image in a vision tower. */
static void perf_of_attention(device_test *d, bool sums) {
    static const struct {
        int n_kv, group, D, rows, len;
        bool causal;
    } shapes[] = {{32, 1, 128, 1, 2048, false}, {8, 4, 128, 1, 2048, false},
                  {2, 7, 64, 1, 1024, false},   {32, 1, 128, 640, 640, true},
                  {2, 7, 64, 640, 640, true},   {16, 1, 64, 577, 577, false}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int n_kv = shapes[i].n_kv, H = n_kv * shapes[i].group, D = shapes[i].D;
        attention_shape s = {.dtype = FV_BF16,
                             .n_kv = n_kv,
                             .group = shapes[i].group,
                             .D = D,
                             .n_seq = 1,
                             .max_rows = shapes[i].rows,
                             .max_seg = 1,
                             .max_len = shapes[i].len,
                             .causal = shapes[i].causal,
                             .lse = true,
                             .sums = sums,
                             .largest = true};
        attention_case c = attention_case_new(&s);
        float *out = room(tensor_bytes(&c.out));
        const fv_attn_seq *q = &c.seqs[0];
        fv_score_sum *sum = &c.sums[0]; /* of all rows, as captures need it */
        sum->n_row = q->n_rows;
        sum->kind = NULL;
        sum->weight = NULL;
        sum->head_max = sum->low = false;
        double pairs = 0, entries = 0, time = 0;
        for (int g = 0; g < n_kv; g++) {
            entries += q->tables[g].len;
            for (int r = 0; r < q->n_rows; r++) {
                int seen = q->tables[g].len - (q->masked_tail ? q->masked_tail[r] : 0);
                pairs += seen > 0 ? seen * s.group : 0;
            }
        }
        seconds = &time;
        run_case(&d->be, &c, out);
        seconds = NULL;
        report(time, (sums ? 2.0 : 4.0) * D * pairs, (sums ? 2.0 : 4.0) * D * entries,
               "%d rows, %.0f keys, %d/%d heads of %d, bf16", q->n_rows, entries / n_kv, H, n_kv,
               D);
        free(out);
        attention_case_free(&c);
    }
}

static void perf_attention(device_test *d) { perf_of_attention(d, false); }
static void perf_score_sums(device_test *d) { perf_of_attention(d, true); }

static void perf_attention_bf16(device_test *d) {
    if (!on_cpu(d)) return;
    d->be.compute = FV_COMPUTE_BF16;
    perf_of_attention(d, false);
    d->be.compute = FV_COMPUTE_F32;
}

const op op_attention = {"attention",
                         "exact: bits; tensor cores: 6e-3 of the norm, 0.04 of an element",
                         test_attention, perf_attention};
const op op_score_sums = {"score_sums", "bits", test_score_sums, perf_score_sums};
const op op_attention_bf16 = {"attention_bf16", "bits", test_attention_bf16, perf_attention_bf16};

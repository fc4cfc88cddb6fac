/* Attention, sums of its scores, attention on low-rank blocks, merge and importance against the
 * plain path, on random calls.
 *
 * In exact mode every bit of every output must be the plain path's, and outputs that belong to no
 * sequence must not change: the outputs of a call are in one array. */
#include <dlfcn.h>

#include "tests/ops/attention_case.h"
#include "tests/ops/device_mirror.h"
#include "tests/ops/packed_case.h"
#include "tests/ops/run/run.h"

/* While speed is measured: how the seconds of a call are spent. */
static double *seconds;

/* got and want differ by no more than products in bf16 cost; outputs that the CPU left alone keep
 * their bits. */
static void near(const float *got, const float *want, const float *before, size_t n,
                 const char *what) {
    double worst = 0, diff = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        bool left = memcmp(&want[i], &before[i], 4) == 0;
        if (left || isinf(want[i]) || isnan(want[i])) {
            if (!same_f32(got[i], want[i])) worst = (double)INFINITY;
            continue;
        }
        double e = fabs((double)got[i] - (double)want[i]);
        worst = fmax(worst, e == e ? e / (1 + fabs((double)want[i])) : (double)INFINITY);
        diff += e * e;
        all += (double)want[i] * (double)want[i];
    }
    double norm = all > 0 ? sqrt(diff / all) : 0;
    check(worst < 0.04 && norm < 6e-3, "%s: largest error %.3g, of the norm %.3g", what, worst,
          norm);
}

/* ---- attention ------------------------------------------------------------------------- */

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

/* Runs the case on `be` and leaves its outputs in `out`. */
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
    must(be->ops->attention(be, &args));
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

/* Values at the border below which a product in bf16 has zeros. */
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

/* With keys that no tensor core accepts, so that attention's lse has the plain path's bits. */
static void test_score_sums(device_test *d) {
    group("score_sums: the bits of the plain path");
    for (int i = 0; i < cases(on_cpu(d) ? 80 : 30); i++) {
        attention_shape s = attention_shape_random();
        if (!d->exact) s.dtype = FV_F32;
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
    s.dtype = FV_BF16;
    s.D = PICK(64, 128);
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

/* Also where it is alone with few rows and among others with many, which other kernels compute. */
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

/* ---- low-rank blocks -------------------------------------------------------------------- */

/* A block as the device has it. */
typedef struct block_there {
    fv_packed_part k, v;
    fv_packed_rows rows;
} block_there;

static void put_block(mirror *m, const block *b, block_there *to) {
    size_t anchors = (size_t)b->rows.n_anchor, half = (size_t)b->k.shape.d_head / 2;
    to->k = b->k;
    to->v = b->v;
    to->k.data = there(m, b->k.data, fv_packed_bytes(&b->k.shape));
    to->v.data = there(m, b->v.data, fv_packed_bytes(&b->v.shape));
    to->rows = b->rows;
    to->rows.pos = there_if(m, b->rows.pos, (size_t)b->rows.n * 4);
    to->rows.first = there_if(m, b->rows.first, (anchors + 1) * 4);
    to->rows.valid = there_if(m, b->rows.valid, anchors * 4);
    to->rows.cos = there_if(m, b->rows.cos, anchors * half * 4);
    to->rows.sin = there_if(m, b->rows.sin, anchors * half * 4);
    to->rows.group = there_if(m, b->rows.group, (size_t)b->rows.n);
}

/* Issues a call; returns where its outputs are on the device. They are fetched, and m is freed,
 * later. */
static float *begin_packed(fv_backend *be, const call *c, mirror *m) {
    call d = *c;
    block_there blocks[MAX_SEQ];
    *m = (mirror){.be = be};
    d.out = there(m, c->out, c->n_out * 4);
    d.args.q.data = there(m, c->q.data, tensor_bytes(&c->q));
    d.args.o.data = moved(c->args.o.data, c->out, d.out);
    d.args.lse.data = moved(c->args.lse.data, c->out, d.out);
    for (int i = 0; i < c->args.n_seq; i++) {
        put_block(m, c->blocks[i], &blocks[i]);
        d.seqs[i].k = &blocks[i].k;
        d.seqs[i].v = &blocks[i].v;
        d.seqs[i].rows = &blocks[i].rows;
        if (c->seqs[i].score) d.seqs[i].score = moved(c->seqs[i].score, c->out, d.out);
    }
    d.args.seqs = d.seqs;
    must(be->ops->attn_lowrank(be, &d.args));
    device_test t = {.be = *be};
    if (seconds) *seconds = seconds_of(&t, be->ops->attn_lowrank, d.args);
    return d.out;
}

static void run_packed(fv_backend *be, const call *c, float *out) {
    mirror m;
    float *there_out = begin_packed(be, c, &m);
    back(&m, out, there_out, c->n_out * 4);
    mirror_free(&m);
}

static void test_packed_exact(device_test *d, int n) {
    for (int i = 0; i < n; i++) {
        int D = PICK(1, 2, 8, 16, 17, 20, 32, 64, 128);
        block_shape held = {200, 1 + i, 2, 32, 40, 33, 40, 16, 16, FV_BF16, i % 2, true};
        bool many = on_cpu(d) && i < 4; /* anchor blocks: more than are held at once */
        if (many && i > 1) held.bits = 4, held.rank2_k = PICK(16, 32); /* which may become words */
        call c = many ? make_call(1, 2, 3, 32, 3, &held)
                      : make_call(random_int(1, MAX_SEQ), PICK(1, 2, 4), PICK(1, 2, 3, 7, 20), D,
                                  PICK(1, 1, 2, 5, 9), NULL);
        if (i % 4 == 3) fill_normal(&c.q, 0x1p-123f); /* to where bf16 flushes */
        float *got = room(c.n_out * 4);
        run_packed(&d->be, &c, got);
        run_call(&c, &d->plain);
        same(got, c.out, c.n_out, "attn_lowrank");
        free(got);
        free_call(&c);
    }
}

/* One token, whose values' factors are just below the least normal number, and round to it; a basis of 1 to 16
 * makes that seen. */
static void test_packed_border(device_test *d) {
    for (int rank = 16; rank <= 48; rank += 16) {
        block_shape held = {1, 0, 2, 32, 16, rank, 16, rank, 4, FV_BF16, false, false};
        call c = make_call(1, 2, 1, 32, 1, &held);
        const block *b = c.blocks[0];
        fv_packed_layout l = fv_packed_layout_of(&b->v.shape);
        float *column = (float *)((char *)b->v.data + l.column);
        uint16_t *pair = (uint16_t *)(void *)((char *)b->v.data + l.basis_pair);
        for (int r = 0; r < 2 * 2 * rank; r++) pair[r] = 0x3c00; /* 1 */
        for (int r = 0; r < rank; r++) column[r] *= 0x1.ff8p-127f / b->uv[r];
        float *got = room(c.n_out * 4), most = 0;
        run_packed(&d->be, &c, got);
        run_call(&c, &d->plain);
        same(got, c.out, c.n_out, "attn_lowrank at the border");
        for (int i = 0; i < 2 * 32; i++) most = fmaxf(most, fabsf(((float *)c.args.o.data)[i]));
        check(most > 0x1p-126f, "values at the border are not flushed");
        free(got);
        free_call(&c);
    }
}

/* Factors that fit the tiles. */
static block_shape tiled_shape(int n_kv, int D) {
    static const int ranks[] = {8, 16, 24, 40, 64, 72, 128};
    block_shape s = {.n = PICK(0, 1, 31, 32, 33, 64, 130, 512, 513, 700),
                     .anchor = PICK(0, 0, 1, 5, 8, 24, 64, 64, 100),
                     .n_kv = n_kv,
                     .D = D,
                     .bits = PICK(16, 16, 8, 4),
                     .dtype = FV_BF16,
                     .alive = random_int(0, 1),
                     .group = random_int(0, 1)};
    int last = 6;
    while (ranks[last] > n_kv * D) last--;
    s.rank_k = ranks[random_int(0, last)];
    s.rank_v = ranks[random_int(0, last)];
    s.rank2_k = random_int(0, 1) ? s.rank_k : 8 * random_int(1, s.rank_k / 8);
    s.rank2_v = random_int(0, 2) ? s.rank_v : 8 * random_int(1, s.rank_v / 8);
    return s;
}

/* Of any rank, as an energy share gives it. */
static block_shape odd_shape(int n_kv, int D) {
    block_shape s = tiled_shape(n_kv, D);
    int most = n_kv * D < 128 ? n_kv * D : 128;
    s.rank_k = random_int(1, most);
    s.rank_v = random_int(1, most);
    s.rank2_k = random_int(0, 1) ? s.rank_k : random_int(1, s.rank_k);
    s.rank2_v = random_int(0, 1) ? s.rank_v : random_int(1, s.rank_v);
    return s;
}

/* The kernels that the last calls launched; NULL on a GPU. */
typedef uint64_t launches_fn(const char *part_of_name);

static launches_fn *launches(void) {
    const char *dir = getenv("FOVEA_PLUGIN_DIR");
    if (dir && *dir && strcmp(dir, FOVEA_EMULATED) != 0) return NULL;
    void *library = dlopen(FOVEA_EMULATED "/libfovea_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    return library ? (launches_fn *)(uintptr_t)dlsym(library, "fv_emu_launches") : NULL;
}

static void test_packed_tiled(device_test *d, const char *what_ranks,
                              block_shape (*shape)(int n_kv, int D)) {
    launches_fn *count = launches();
    uint64_t before_all = count ? count("packed_exact") : 0;
    group(what_ranks);
    for (int i = 0; i < cases(50); i++) {
        int D = PICK(16, 32, 64, 128), n_kv = PICK(1, 2, 4);
        block_shape s = shape(n_kv, D);
        call c = make_call(random_int(1, 2), n_kv, PICK(1, 2, 3, 7), D, PICK(1, 1, 2, 5), &s);
        float *got = room(c.n_out * 4), *before = room(c.n_out * 4);
        memcpy(before, c.out, c.n_out * 4);
        run_packed(&d->be, &c, got);
        run_call(&c, &d->plain);
        char what[128];
        snprintf(what, sizeof what, "n=%d anchor=%d Hkv=%d D=%d R=%d/%d, %d/%d bits=%d alive=%d",
                 s.n, s.anchor, n_kv, D, s.rank_k, s.rank2_k, s.rank_v, s.rank2_v, s.bits, s.alive);
        near(got, c.out, before, c.n_out, what);
        free(got);
        free(before);
        free_call(&c);
    }
    if (count) check(count("packed_exact") == before_all, "a call took the scalar kernels");
}

/* Launches of one kernel with less and less shared memory, held back together: the limit set for
 * the last must not apply to the first. */
static void test_packed_in_a_step(device_test *d) {
    static const int ranks[] = {128, 96, 64, 128, 72, 8};
    group("attention on packed rows in one step: ranks that shrink and grow");
    enum { N = sizeof ranks / sizeof *ranks };
    call c[N];
    mirror m[N];
    float *out[N];
    for (int i = 0; i < N; i++) {
        block_shape s = tiled_shape(2, 128);
        s.n = 130;
        s.bits = 16;
        s.rank_k = s.rank2_k = s.rank_v = s.rank2_v = ranks[i];
        c[i] = make_call(1, 2, 2, 128, 1, &s);
    }
    must(fv_backend_step_begin(&d->be, 1));
    for (int i = 0; i < N; i++) out[i] = begin_packed(&d->be, &c[i], &m[i]);
    check(fv_backend_step_end(&d->be) == FV_OK, "%s", fv_last_error());
    for (int i = 0; i < N; i++) {
        float *got = room(c[i].n_out * 4), *before = room(c[i].n_out * 4);
        memcpy(before, c[i].out, c[i].n_out * 4);
        back(&m[i], got, out[i], c[i].n_out * 4);
        run_call(&c[i], &d->plain);
        near(got, c[i].out, before, c[i].n_out, "a call of the step");
        free(got);
        free(before);
        mirror_free(&m[i]);
        free_call(&c[i]);
    }
}

/* A row's result does not depend on the rows and sequences beside it, or on which kernel computes
 * them. */
static void test_packed_alone(device_test *d) {
    group("attention on packed rows, tensor cores: a row alone has the bits it has among others");
    for (int i = 0; i < 10; i++) {
        block_shape tiled = tiled_shape(2, 32);
        call c = make_call(2, 2, PICK(1, 4), 32, 5, i % 2 ? &tiled : NULL);
        float *all = room(c.n_out * 4), *one = room(c.n_out * 4);
        run_packed(&d->be, &c, all);
        for (int s = 0; s < 2; s++)
            for (int row = 0; row < c.seqs[s].n_rows; row++) {
                call alone = c;
                alone.args.n_seq = 1;
                alone.blocks[0] = c.blocks[s];
                alone.seqs[0] = c.seqs[s];
                alone.seqs[0].row0 += row;
                alone.seqs[0].n_rows = 1;
                alone.seqs[0].score = NULL;
                alone.seqs[0].score_rows = 0;
                run_packed(&d->be, &alone, one);
                long at = (long)(c.seqs[s].row0 + row) * c.args.o.ld;
                same(one + at, all + at, (size_t)c.args.o.cols, "a row alone");
            }
        free(all);
        free(one);
        free_call(&c);
    }
}

/* ---- merge, importance ------------------------------------------------------------------- */

static void test_merge(device_test *d) {
    group("merge: the bits of the CPU, where one part is empty too");
    for (int i = 0; i < cases(20); i++) {
        int M = random_int(0, 5), H = random_int(1, 4), D = PICK(1, 16, 33, 128), gap = i % 3;
        fv_tensor t[4] = {tensor_new(FV_F32, M, H * D, gap), tensor_new(FV_F32, M, H, gap),
                          tensor_new(FV_F32, M, H * D, 1), tensor_new(FV_F32, M, H, 0)};
        for (int x = 0; x < 4; x++) fill_normal(&t[x], 2);
        for (int x = 1; x < 4; x += 2)
            for (int r = 0; r < M * H; r++)
                if (random_int(0, 3) == 0) put(&t[x], r / H, r % H, -INFINITY);
        mirror m = {.be = &d->be};
        fv_tensor t2[4];
        for (int x = 0; x < 4; x++) {
            t2[x] = t[x];
            t2[x].data = there(&m, t[x].data, tensor_bytes(&t[x]));
        }
        fv_merge_args a = {t[0], t[1], t[2], t[3], H}, b = {t2[0], t2[1], t2[2], t2[3], H};
        must(d->plain.ops->merge(&d->plain, &a));
        must(d->be.ops->merge(&d->be, &b));
        for (int x = 0; x < 2; x++) {
            float *got = room(tensor_bytes(&t[x]));
            back(&m, got, t2[x].data, tensor_bytes(&t[x]));
            for (int r = 0; r < M; r++)
                same(got + r * t[x].ld, (float *)t[x].data + r * t[x].ld, (size_t)t[x].cols,
                     x ? "lse" : "o");
            free(got);
        }
        for (int x = 0; x < 4; x++) free(t[x].data);
        mirror_free(&m);
    }
}

static void test_importance(device_test *d) {
    group("importance: the bits of the CPU");
    for (int i = 0; i < cases(20); i++) {
        int H = random_int(1, 5), rows = random_int(1, 3), n = PICK(0, 1, 127, 128, 300),
            ld = n + 2;
        fv_tensor score = tensor_new(FV_F32, H * rows, ld, 0), lse = tensor_new(FV_F32, rows, H, 0);
        fv_tensor imp = tensor_new(FV_F32, 1, n, 0);
        fill_normal(&score, 2);
        fill_normal(&lse, 1);
        fill_normal(&imp, 1);
        for (int x = 0; x < H * rows * ld; x++)
            if (random_int(0, 9) == 0) ((float *)score.data)[x] = -INFINITY;
        if (i % 4 == 0) put(&lse, 0, 0, -INFINITY);
        float keep = i % 3 ? 0.9f : 0.0f;
        if (keep == 0.0f && n) put(&imp, 0, 0, NAN); /* it is not read */
        mirror m = {.be = &d->be};
        fv_tensor dl = lse, di = imp;
        dl.data = there(&m, lse.data, tensor_bytes(&lse));
        di.data = there(&m, imp.data, tensor_bytes(&imp));
        fv_importance_args a = {score.data, H, rows, ld, lse, imp, keep}, b = a;
        b.score = there(&m, score.data, tensor_bytes(&score));
        b.lse = dl;
        b.importance = di;
        must(d->plain.ops->importance(&d->plain, &a));
        must(d->be.ops->importance(&d->be, &b));
        float *got = room(tensor_bytes(&imp));
        back(&m, got, di.data, tensor_bytes(&imp));
        same(got, imp.data, (size_t)n, "importance");
        free(got);
        free(score.data);
        free(lse.data);
        free(imp.data);
        mirror_free(&m);
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

static void test_lowrank(device_test *d) {
    if (d->exact) {
        group("attn_lowrank: the bits of the plain path");
        test_packed_exact(d, cases(on_cpu(d) ? 150 : 60));
    }
    if (on_cpu(d)) {
        group("attn_lowrank in bf16: the bits of the plain path");
        compute_in(d, FV_COMPUTE_BF16);
        test_packed_exact(d, cases(50));
        test_packed_border(d);
        compute_in(d, FV_COMPUTE_F32);
    }
    if (d->exact) return;
    test_packed_tiled(d, "attn_lowrank, tensor cores: within bf16 of the plain path", tiled_shape);
    test_packed_tiled(d, "attn_lowrank of odd ranks, tensor cores: within bf16 of the plain path",
                      odd_shape);
    test_packed_in_a_step(d);
    test_packed_alone(d);
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

static void perf_lowrank(device_test *d) {
    block_shape s = {.n = 2048,
                     .anchor = 64,
                     .n_kv = 32,
                     .D = 128,
                     .rank_k = 64,
                     .rank_v = 64,
                     .rank2_k = 64,
                     .rank2_v = 64,
                     .dtype = FV_BF16};
    for (s.bits = 16; s.bits >= 4; s.bits /= 2) {
        call c = make_call(1, 32, 1, 128, 1, &s);
        float *out = room(c.n_out * 4);
        double time = 0;
        seconds = &time;
        run_packed(&d->be, &c, out);
        seconds = NULL;
        const fv_packed_shape *k = &c.blocks[0]->k.shape, *v = &c.blocks[0]->v.shape;
        report(time,
               (double)(fv_packed_flops_k(k, 32, c.blocks[0]->rows.n_anchor) +
                        fv_packed_flops_v(v, 32, 0)),
               (double)(fv_packed_read_bytes(k, 0) + fv_packed_read_bytes(v, 0)),
               "%d rows, 32 heads of 128, rank 64, %d bits", s.n, s.bits);
        free(out);
        free_call(&c);
    }
}

/* Both parts of one row and of many. */
static void perf_merge(device_test *d) {
    enum { H = 32, D = 128 };
    for (int M = 1; M <= 640; M += 639) {
        both o = both_normal(d, FV_F32, M, H * D, 0), lse = both_normal(d, FV_F32, M, H, 0);
        both o2 = both_normal(d, FV_F32, M, H * D, 0), lse2 = both_normal(d, FV_F32, M, H, 0);
        fv_merge_args a = {o.there, lse.there, o2.there, lse2.there, H};
        report(seconds_of(d, d->be.ops->merge, a), 0, 12.0 * M * H * (D + 1),
               "%d rows, %d heads of %d", M, H, D);
        both_free(&o);
        both_free(&lse);
        both_free(&o2);
        both_free(&lse2);
    }
}

/* Scores of the last rows of a prompt, and of one decoded row. */
static void perf_importance(device_test *d) {
    enum { H = 32, N = 2048 };
    for (int rows = 1; rows <= 16; rows += 15) {
        both score = both_normal(d, FV_F32, H * rows, N, 0);
        both lse = both_normal(d, FV_F32, rows, H, 0), imp = both_normal(d, FV_F32, 1, N, 0);
        fv_importance_args a = {score.there.data, H, rows, N, lse.there, imp.there, 0.9f};
        report(seconds_of(d, d->be.ops->importance, a), 0, 4.0 * (H * rows + 2.0) * N,
               "%d rows, %d heads, %d keys", rows, H, N);
        both_free(&score);
        both_free(&lse);
        both_free(&imp);
    }
}

const op op_attention = {"attention",
                         "exact: bits; tensor cores: 6e-3 of the norm, 0.04 of an element",
                         test_attention, perf_attention};
const op op_score_sums = {"score_sums", "bits", test_score_sums, perf_score_sums};
const op op_attention_bf16 = {"attention_bf16", "bits", test_attention_bf16, perf_attention_bf16};
const op op_attn_lowrank = {"attn_lowrank",
                            "exact: bits; tensor cores: 6e-3 of the norm, 0.04 of an element",
                            test_lowrank, perf_lowrank};
const op op_merge = {"merge", "bits", test_merge, perf_merge};
const op op_importance = {"importance", "bits", test_importance, perf_importance};

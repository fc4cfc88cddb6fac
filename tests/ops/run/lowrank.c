/* Attention on low-rank blocks against the plain path, on random calls. In exact mode every bit must be the
 * plain path's. */
#include <dlfcn.h>

#include "tests/ops/device_mirror.h"
#include "tests/ops/packed_case.h"
#include "tests/ops/run/near.h"

/* Receives the seconds of a call while speed is measured; else NULL. */
static double *seconds;

/* The device's copy of a block. */
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
        if (many && i > 1) held.bits = 4, held.rank2_k = PICK(16, 32); /* possible words */
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

/* A token whose values' factors are just below the least normal number and round to it; a basis of
 * 1 to 16 shows that. */
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

/* A shape of any rank, as an energy share gives it. */
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

const op op_attn_lowrank = {"attn_lowrank",
                            "exact: bits; tensor cores: 6e-3 of the norm, 0.04 of an element",
                            test_lowrank, perf_lowrank};

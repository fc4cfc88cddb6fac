/* Attention on quantized and on depth-merged blocks: the plain path's bits, on every backend. */
#include "tests/ops/codes_case.h"
#include "tests/ops/device_mirror.h"
#include "tests/ops/run/run.h"

/* Receives the seconds of a call while speed is measured; else NULL. */
static double *seconds;

/* The device's copy of a block. */
typedef struct block_there {
    fv_packed_part k, v;
    fv_packed_rows rows;
} block_there;

/* Copies a part to the device; a buffer that it borrows is as large as its own. */
static void put_part(mirror *m, fv_packed_part *p) {
    fv_packed_shape lender = p->shape;
    lender.borrows = false;
    p->data = there(m, p->data, fv_packed_bytes(&p->shape));
    p->base = there_if(m, p->base, fv_packed_bytes(&lender));
}

static void put_block(mirror *m, const block *b, block_there *to) {
    size_t n = (size_t)b->rows.n, anchors = (size_t)b->rows.n_anchor;
    size_t angles =
        fv_packed_tiles(n) * FV_PACKED_TILE * (size_t)(b->k.shape.d_head / 2) * sizeof(float);
    *to = (block_there){b->k, b->v, b->rows};
    put_part(m, &to->k);
    put_part(m, &to->v);
    to->rows.pos = there_if(m, b->rows.pos, n * 4);
    to->rows.first = there_if(m, b->rows.first, (anchors + 1) * 4);
    to->rows.valid = there_if(m, b->rows.valid, anchors * 4);
    to->rows.cos = there_if(m, b->rows.cos, angles);
    to->rows.sin = there_if(m, b->rows.sin, angles);
}

static void run_there(fv_backend *be, const call *c, bool lse, float *out) {
    mirror m = {.be = be};
    call d = *c;
    block_there blocks[MAX_SEQ];
    d.out = there(&m, c->out, c->n_out * 4);
    d.args.q.data = there(&m, c->args.q.data, tensor_bytes(&c->args.q));
    d.args.o.data = moved(c->args.o.data, c->out, d.out);
    d.args.lse.data = moved(c->args.lse.data, c->out, d.out);
    if (!lse) d.args.lse = (fv_tensor){0};
    for (int i = 0; i < c->args.n_seq; i++) {
        put_block(&m, c->blocks[i], &blocks[i]);
        d.seqs[i].k = &blocks[i].k;
        d.seqs[i].v = &blocks[i].v;
        d.seqs[i].rows = &blocks[i].rows;
    }
    d.args.seqs = d.seqs;
    must(attend(&d, be, &d.args));
    device_test t = {.be = *be};
    if (seconds)
        *seconds =
            seconds_of(&t, d.merged ? be->ops->attn_merged : be->ops->attn_quantized, d.args);
    memset(d.seqs, 0xff, sizeof d.seqs); /* they have been consumed */
    back(&m, out, d.out, c->n_out * 4);
    mirror_free(&m);
}

/* Outputs that belong to no sequence must not change: they are in the same array. */
static void compare(device_test *d, call *c, bool lse) {
    float *got = room(c->n_out * 4);
    run_there(&d->be, c, lse, got);
    if (!lse) c->args.lse.data = NULL;
    run_call(c, &d->plain);
    same(got, c->out, c->n_out, c->merged ? "attn_merged" : "attn_quantized");
    free(got);
    free_call(c);
}

static void test_codes(device_test *d, bool merged, int n) {
    for (int i = 0; i < n; i++) {
        int D = PICK(1, 2, 8, 16, 17, 20, 32, 64, 128);
        call c = make_call_of(random_int(1, MAX_SEQ), PICK(1, 2, 4), PICK(1, 2, 3, 7), D,
                              PICK(1, 1, 2, 5), merged);
        compare(d, &c, i % 4 > 0);
    }
}

/* In one case a KV head has more queries than a block holds at a time. */
static void test_many_heads(device_test *d, bool merged) {
    group(merged ? "attn_merged: more heads than fit, in turns"
                 : "attn_quantized: more heads than fit, in turns");
    call c = make_call_of(1, 1, 50, 20, 2, merged);
    compare(d, &c, true);
}

/* Keys and values of a layer that has its directions or uses another's: all vectors but the most
 * similar are kept, or none. */
static void test_kept(device_test *d) {
    group("attn_merged: of both layers, with all vectors kept but one, and with none");
    for (int i = 0; i < 4; i++) {
        call c = make_call_of(1, 2, 2, 16, 2, true);
        block_shape s = random_shape(2, 16, true);
        s.n = 70;
        s.share = i % 2;
        block *b = make_block_of(&s, i / 2);
        int kept = b->k.shape.merged.n_exact, all = s.n * s.n_kv;
        check(kept == (i % 2 ? all - 1 : 0), "%d of %d vectors are kept", kept, all);
        check(b->v.shape.borrows == (i / 2 > 0), "borrows: %d", b->v.shape.borrows);
        free_block(c.blocks[0]);
        c.blocks[0] = b;
        c.seqs[0].k = &b->k;
        c.seqs[0].v = &b->v;
        c.seqs[0].rows = &b->rows;
        compare(d, &c, true);
    }
}

static void test_alone(device_test *d, bool merged) {
    group(merged ? "attn_merged: a row alone has the bits it has among others"
                 : "attn_quantized: a row alone has the bits it has among others");
    for (int i = 0; i < 4; i++) {
        call c = make_call_of(2, 2, PICK(1, 4), 32, 5, merged);
        float *all = room(c.n_out * 4), *one = room(c.n_out * 4);
        run_there(&d->be, &c, true, all);
        for (int s = 0; s < 2; s++)
            for (int row = 0; row < c.seqs[s].n_rows; row++) {
                call alone = c;
                alone.args.n_seq = 1;
                alone.blocks[0] = c.blocks[s];
                alone.seqs[0] = c.seqs[s];
                alone.seqs[0].row0 += row;
                alone.seqs[0].n_rows = 1;
                run_there(&d->be, &alone, true, one);
                long at = (long)(c.seqs[s].row0 + row) * c.args.o.ld;
                same(one + at, all + at, (size_t)c.args.o.cols, "a row alone");
            }
        free(all);
        free(one);
        free_call(&c);
    }
}

static void test_form(device_test *d, bool merged) {
    group(merged ? "attn_merged: the bits of the plain path"
                 : "attn_quantized: the bits of the plain path");
    test_codes(d, merged, on_cpu(d) ? 120 : d->exact ? 40 : 8);
    if (on_cpu(d)) {
        group(merged ? "attn_merged in bf16: the bits of the plain path"
                     : "attn_quantized in bf16: the bits of the plain path");
        compute_in(d, FV_COMPUTE_BF16);
        test_codes(d, merged, 40);
        compute_in(d, FV_COMPUTE_F32);
    }
    if (d->exact) test_many_heads(d, merged);
    if (d->exact) test_alone(d, merged);
    if (merged) test_kept(d);
}

static void test_quantized(device_test *d) { test_form(d, false); }
static void test_merged(device_test *d) { test_form(d, true); }

/* ---- speed ------------------------------------------------------------------------------ */

static void perf_form(device_test *d, block_shape s) {
    call c = make_call_of(1, 32, 1, 128, 1, s.merged);
    free_block(c.blocks[0]);
    block *b = c.blocks[0] = make_block_of(&s, false);
    c.seqs[0].k = &b->k, c.seqs[0].v = &b->v, c.seqs[0].rows = &b->rows;
    float *out = room(c.n_out * 4);
    double time = 0;
    seconds = &time;
    run_there(&d->be, &c, true, out);
    seconds = NULL;
    report(time, 4.0 * 32 * 128 * s.n,
           (double)(fv_packed_bytes(&b->k.shape) + fv_packed_bytes(&b->v.shape)),
           "%d rows, 32 heads of 128, %d bits", s.n, s.bits);
    free(out);
    free_call(&c);
}

static void perf_quantized(device_test *d) {
    for (int bits = 8; bits >= 4; bits -= 4)
        perf_form(d, (block_shape){2048, 1, 32, 128, bits, FV_BF16, 0.01, .merged = false});
}

static void perf_merged(device_test *d) {
    perf_form(d, (block_shape){2048, 1, 32, 128, 16, FV_BF16, 0.05, .merged = true});
}

const op op_attn_quantized = {"attn_quantized", "bits", test_quantized, perf_quantized};
const op op_attn_merged = {"attn_merged", "bits", test_merged, perf_merged};

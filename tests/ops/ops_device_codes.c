/* A device's attention on codes, and on directions that two layers share, against the plain one:
 * the same bits, in both modes. */
#include "tests/ops/codes_case.h"
#include "tests/ops/device_mirror.h"

/* A block as the device has it. */
typedef struct block_there {
    fv_packed_part k, v;
    fv_packed_rows rows;
} block_there;

/* What a part borrows lies in one that has it, and is otherwise as large. */
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
    memset(d.seqs, 0xff, sizeof d.seqs); /* they have been taken */
    back(&m, out, d.out, c->n_out * 4);
    mirror_free(&m);
}

/* What no sequence owns stays: it is in the same array. */
static void compare(device_test *d, call *c, bool lse) {
    float *got = room(c->n_out * 4);
    run_there(&d->gpu, c, lse, got);
    if (!lse) c->args.lse.data = NULL;
    run_call(c, &d->plain);
    same(got, c->out, c->n_out, c->merged ? "attn_merged" : "attn_quantized");
    free(got);
    free_call(c);
}

static void test_codes(device_test *d, bool merged) {
    group(merged ? "attention on directions: the bits of the CPU, in both modes"
                 : "attention on codes: the bits of the CPU, in both modes");
    for (int i = 0; i < (d->exact ? 40 : 8); i++) {
        int D = PICK(1, 2, 8, 16, 17, 20, 32, 64, 128);
        call c = make_call_of(random_int(1, MAX_SEQ), PICK(1, 2, 4), PICK(1, 2, 3, 7), D,
                              PICK(1, 1, 2, 5), merged);
        compare(d, &c, i % 4 > 0);
    }
}

/* In one case the queries of a KV head are more than a block holds at a time. */
static void test_many_heads(device_test *d, bool merged) {
    group(merged ? "attention on directions: more heads than fit, in turns"
                 : "attention on codes: more heads than fit, in turns");
    call c = make_call_of(1, 1, 50, 20, 2, merged);
    compare(d, &c, true);
}

/* Keys and values of a layer, which has its directions or borrows them: all vectors are kept but
 * the most alike, or none. */
static void test_kept(device_test *d) {
    group("attention on directions: of both layers, with all vectors kept but one, and with none");
    for (int i = 0; i < 4; i++) {
        call c = make_call_of(1, 2, 2, 16, 2, true);
        block_shape s = random_shape(2, 16, true);
        s.n = 70;
        s.share = i % 2;
        block *b = make_block_of(&s, i / 2);
        int kept = b->k.shape.n_outlier, all = s.n * s.n_kv;
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
    group(merged ? "attention on directions: a row alone has the bits it has among others"
                 : "attention on codes: a row alone has the bits it has among others");
    for (int i = 0; i < 4; i++) {
        call c = make_call_of(2, 2, PICK(1, 4), 32, 5, merged);
        float *all = room(c.n_out * 4), *one = room(c.n_out * 4);
        run_there(&d->gpu, &c, true, all);
        for (int s = 0; s < 2; s++)
            for (int row = 0; row < c.seqs[s].n_rows; row++) {
                call alone = c;
                alone.args.n_seq = 1;
                alone.blocks[0] = c.blocks[s];
                alone.seqs[0] = c.seqs[s];
                alone.seqs[0].row0 += row;
                alone.seqs[0].n_rows = 1;
                run_there(&d->gpu, &alone, true, one);
                long at = (long)(c.seqs[s].row0 + row) * c.args.o.ld;
                same(one + at, all + at, (size_t)c.args.o.cols, "a row alone");
            }
        free(all);
        free(one);
        free_call(&c);
    }
}

int main(void) {
    static const char *const isa[] = {"exact", "auto"};
    for (int i = 0; i < 2; i++) {
        device_test d = device_open(isa[i]);
        for (int merged = 0; merged < 2; merged++) {
            test_codes(&d, merged);
            if (i == 0) test_many_heads(&d, merged);
            if (i == 0) test_alone(&d, merged);
        }
        test_kept(&d);
        device_close(&d);
    }
    return summary();
}

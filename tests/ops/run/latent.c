/* Attention on latent blocks: the plain path's bits, on every backend, and the plain path against
 * double precision. */
#include "common/convert.h"
#include "tests/ops/codes_case.h"
#include "tests/ops/device_mirror.h"
#include "tests/ops/latent_case.h"
#include "tests/ops/run/run.h"

typedef struct latent_call {
    fv_attn_packed_args args;
    fv_packed_seq seq[MAX_SEQ];
    block *block[MAX_SEQ];                                /* rows alone */
    fv_packed_part lead[MAX_SEQ], k[MAX_SEQ], v[MAX_SEQ]; /* lead: has the coefficients; may be k */
    uint8_t *group[MAX_SEQ];
    int coded; /* keys are: 1; rebuilt: 0; either: -1 */
    latent_basis *basis;
    float *out; /* o, lse, scores */
    size_t n_out;
} latent_call;

/* Makes a part of n rows that borrows coefficients, and has its own numbers for its own
 * directions. */
static void borrow(const fv_packed_part *lead, int n, fv_packed_kind kind, bool coded,
                   fv_packed_part *out) {
    *out = *lead;
    out->shape.kind = kind;
    out->shape.n = n;
    out->shape.borrows = true;
    out->shape.latent.coded = coded;
    out->base = lead->data;
    out->data = room(fv_packed_bytes(&out->shape) + 64);
}

/* Fills the keys with random codes. */
static void fill_codes(const fv_packed_part *k) {
    size_t tiles = fv_packed_tiles((size_t)k->shape.n);
    for (size_t i = 0; i < tiles * (size_t)k->shape.n_kv; i++) {
        uint8_t *at = fv_latent_coded(k, i / tiles, i % tiles);
        uint16_t *scale = fv_latent_coded_scale(k, at);
        for (; (void *)at < (void *)scale; at++) *at = (uint8_t)random_int(0, 255);
        for (int j = 0; j < FV_PACKED_TILE; j++) scale[j] = f16_of_f32(fabsf(random_normal()));
    }
}

static void write_own(latent_call *c, int i) {
    const fv_packed_shape *s = &c->lead[i].shape;
    size_t own = (size_t)s->latent.n_own;
    float *u = room((size_t)s->n * own * 4);
    for (size_t j = 0; j < (size_t)s->n * own; j++) u[j] = (float)random_int(-128, 127);
    fv_latent_write_own(s, u, c->lead[i].data);
    if (s->latent.exact) fv_latent_write_row(s, random_int(-1, s->n - 1), c->lead[i].data);
    for (int k = 0; k < 2; k++) {
        float *x = latent_random(fv_packed_width(s), 1);
        if (s->latent.exact) fv_latent_write_exact(s, x, k ? c->v[i].data : c->k[i].data);
        free(x);
        float *o = latent_random(own * fv_packed_width(s), 0.01f);
        fv_latent_write_directions(s, o, k ? c->v[i].data : c->k[i].data);
        free(o);
    }
    free(u);
}

/* Rows of either group; some tiles are of group 1 alone. */
static uint8_t *random_groups(int n) {
    uint8_t *group = room((size_t)n);
    for (int j = 0; j < n; j++) group[j] = (uint8_t)(j / FV_PACKED_TILE % 2 ? 1 : random_int(0, 1));
    return group;
}

/* Bits per row, with neither own directions nor exact tokens; 0: random bits, with any of these. */
static int row_bits_alone;

/* Makes a sequence whose layer has only the first n of n + more coefficient rows. */
static void make_seq(latent_call *c, int i, int n, int more, int each, int row_bits, int n_rows) {
    int D = c->args.d_head, R = c->basis->l.n_dir;
    bool coded = c->coded == 1 || (c->coded < 0 && random_int(0, 1));
    fv_packed_shape s = {.n = n + more,
                         .n_kv = c->args.n_kv,
                         .d_head = D,
                         .dtype = PICK(FV_F32, FV_BF16),
                         .latent.each_bits = (uint8_t)each,
                         .form = FV_PACKED_LATENT,
                         .latent.row_bits = row_bits,
                         .latent.n_own = row_bits_alone ? 0 : PICK(0, 0, 1, 3, FV_LATENT_OWN),
                         .latent.exact = row_bits_alone ? 0 : random_int(0, 1),
                         .latent.coded = coded && more == 0};
    block *b = c->block[i] = room(sizeof *b);
    float *z = latent_random((size_t)(n + more) * (size_t)R, 1);
    make_rows(b, n, D % 2 ? 0 : 1, D);
    if (random_int(0, 1)) b->rows.valid = b->alive;
    if (random_int(0, 2)) b->rows.group = c->group[i] = random_groups(n);
    fv_packed_part *lead = &c->lead[i];
    *lead = (fv_packed_part){.shape = s, .latent = &c->basis->l};
    lead->data = room(fv_packed_bytes(&s) + 64);
    must(fv_packed_check(&s));
    must(fv_latent_write(&c->basis->l, &s, z, lead->data));
    c->k[i] = *lead;
    if (coded && more) borrow(lead, n, FV_PACKED_K, true, &c->k[i]);
    borrow(lead, n, FV_PACKED_V, false, &c->v[i]);
    write_own(c, i);
    c->k[i].shape.n = n;
    if (coded) fill_codes(&c->k[i]);
    c->k[i].shape.latent.n_low = coded ? 0 : PICK(0, 1, 2, R / 2 + 1, R, R + 3);
    c->v[i].shape.latent.n_low = PICK(0, 1, 2, R / 2 + 1, R, R + 3);
    c->seq[i] = (fv_packed_seq){.row0 = i * n_rows,
                                .n_rows = n_rows,
                                .k = &c->k[i],
                                .v = &c->v[i],
                                .rows = &b->rows,
                                .score_rows = random_int(0, n_rows),
                                .score_ld = n + random_int(0, 3)};
    free(z);
}

/* Allocates o, lse and the scores of sequences that want them. */
static void make_out(latent_call *c, int M) {
    int H = c->args.n_head, D = c->args.d_head;
    size_t at = (size_t)M * (size_t)(H * D + H);
    c->n_out = at;
    for (int i = 0; i < c->args.n_seq; i++)
        c->n_out += (size_t)(H * c->seq[i].score_rows * c->seq[i].score_ld);
    c->out = latent_random(c->n_out, 1);
    c->args.o = fv_tensor_of(c->out, FV_F32, M, H * D);
    c->args.lse = fv_tensor_of(c->out + (size_t)M * (size_t)(H * D), FV_F32, M, H);
    for (int i = 0; i < c->args.n_seq; i++) {
        if (c->seq[i].score_rows) c->seq[i].score = c->out + at;
        at += (size_t)(H * c->seq[i].score_rows * c->seq[i].score_ld);
    }
}

static void make_call_with(latent_call *c, int coded, int n_seq, int n_kv, int group, int D, int R,
                           int n_rows, int n) {
    int H = n_kv * group, M = n_seq * n_rows;
    *c = (latent_call){
        .coded = coded,
        .args = {
            .n_head = H, .n_kv = n_kv, .d_head = D, .n_seq = n_seq, .scale = 1 / sqrtf((float)D)}};
    c->basis = latent_basis_new(n_kv, D, R);
    for (int i = 0; i < n_seq; i++)
        make_seq(c, i, n ? n : PICK(1, 3, 16, 63, 64, 65, 130), PICK(0, 0, 1, 40),
                 PICK(0, 0, 0, 1, 4, 5, 8), row_bits_alone ? row_bits_alone : random_int(1, 9 * R),
                 n_rows);
    c->args.q = tensor_new(FV_F32, M, H * D, 0);
    fill_normal(&c->args.q, 1.5f);
    make_out(c, M);
    c->args.seqs = c->seq;
}

/* Keys of any form. */
static void make_call_new(latent_call *c, int n_seq, int n_kv, int group, int D, int R, int n_rows,
                          int n) {
    make_call_with(c, -1, n_seq, n_kv, group, D, R, n_rows, n);
}

static void free_call_new(latent_call *c) {
    for (int i = 0; i < c->args.n_seq; i++) {
        block *b = c->block[i];
        if (c->k[i].data != c->lead[i].data) free(c->k[i].data);
        free(c->lead[i].data), free(c->v[i].data);
        free(c->group[i]);
        free(b->pos), free(b->first), free(b->alive), free(b->cos), free(b->sin), free(b);
    }
    latent_basis_free(c->basis);
    free(c->args.q.data);
    free(c->out);
}

/* Receives the seconds of a call while speed is measured; else NULL. */
static double *seconds;

/* Copies what a call references to the device; sequences share their directions. */
static void put_call(mirror *m, const latent_call *c, fv_latent_layer *l, latent_call *to,
                     fv_packed_rows *rows) {
    size_t half = (size_t)c->args.d_head / 2;
    size_t W = (size_t)(c->args.n_kv * c->args.d_head);
    size_t basis = (((size_t)l->n_dir + 1) * W + FV_PACKED_TILE) * 4;
    l->key = there(m, l->key, W * fv_latent_line(l->n_dir));
    l->affine = there(m, l->affine, 2 * W * 4);
    l->sigma = there(m, l->sigma, W * 4);
    l->value = there(m, l->value, basis);
    for (int i = 0; i < c->args.n_seq; i++) {
        size_t n = (size_t)c->seq[i].rows->n, anchors = (size_t)c->seq[i].rows->n_anchor;
        size_t angles = fv_packed_tiles(n) * FV_PACKED_TILE * half * 4;
        rows[i] = *c->seq[i].rows;
        rows[i].pos = there_if(m, rows[i].pos, n * 4);
        rows[i].first = there_if(m, rows[i].first, (anchors + 1) * 4);
        rows[i].valid = there_if(m, rows[i].valid, anchors * 4);
        rows[i].cos = there_if(m, rows[i].cos, angles);
        rows[i].sin = there_if(m, rows[i].sin, angles);
        rows[i].group = there_if(m, rows[i].group, n);
        to->lead[i].data = there(m, c->lead[i].data, fv_packed_bytes(&c->lead[i].shape));
        to->k[i].data = to->lead[i].data;
        to->v[i].base = to->lead[i].data;
        if (c->k[i].base) {
            to->k[i].base = to->lead[i].data;
            to->k[i].data = there(m, c->k[i].data, fv_packed_bytes(&c->k[i].shape));
        }
        to->v[i].data = there_if(m, c->v[i].data, fv_packed_bytes(&c->v[i].shape));
        to->k[i].latent = to->v[i].latent = l;
        to->seq[i].k = &to->k[i];
        to->seq[i].v = &to->v[i];
        to->seq[i].rows = &rows[i];
        if (c->seq[i].score) to->seq[i].score = moved(c->seq[i].score, c->out, to->out);
    }
    to->args.seqs = to->seq;
}

static void run_there(fv_backend *be, const latent_call *c, float *out) {
    mirror m = {.be = be};
    latent_call to = *c;
    fv_packed_rows rows[MAX_SEQ];
    fv_latent_layer l = c->basis->l;
    to.out = there(&m, c->out, c->n_out * 4);
    put_call(&m, c, &l, &to, rows);
    to.args.q.data = there(&m, c->args.q.data, tensor_bytes(&c->args.q));
    to.args.o.data = moved(c->args.o.data, c->out, to.out);
    if (c->args.lse.data) to.args.lse.data = moved(c->args.lse.data, c->out, to.out);
    must(be->ops->attn_latent(be, &to.args));
    device_test t = {.be = *be};
    if (seconds) *seconds = seconds_of(&t, be->ops->attn_latent, to.args);
    memset(to.seq, 0xff, sizeof to.seq); /* they have been consumed */
    back(&m, out, to.out, c->n_out * 4);
    mirror_free(&m);
}

/* Outputs that belong to no sequence must not change: they are in the same array. */
static void compare(device_test *d, latent_call *c) {
    float *got = room(c->n_out * 4);
    run_there(&d->be, c, got);
    must(d->plain.ops->attn_latent(&d->plain, &c->args));
    same(got, c->out, c->n_out, "attn_latent");
    free(got);
    free_call_new(c);
}

static void latent_once(device_test *d) {
    latent_call c;
    make_call_new(&c, random_int(1, MAX_SEQ), PICK(1, 2, 4), PICK(1, 2, 7),
                  PICK(1, 2, 8, 16, 17, 24, 64), PICK(1, 3, 16, 40, 70), PICK(1, 1, 2, 5), 0);
    if (random_int(0, 3) == 0) c.args.lse = (fv_tensor){0};
    compare(d, &c);
}

/* Uses more query rows than scores fit in memory at a time. */
static void test_many_rows(device_test *d) {
    latent_call c;
    group("attn_latent: more scores than there is room for, in turns");
    make_call_new(&c, 1, 1, 64, 2, 3, 270, 1000);
    compare(d, &c);
}

static void test_alone(device_test *d) {
    group("attn_latent: a row alone has the bits it has among others");
    for (int i = 0; i < 4; i++) {
        latent_call c;
        make_call_new(&c, 2, 2, PICK(1, 4), 32, 20, 5, 0);
        float *all = room(c.n_out * 4), *one = room(c.n_out * 4);
        run_there(&d->be, &c, all);
        for (int x = 0; x < 10; x++) {
            latent_call alone = c;
            alone.args.n_seq = 1;
            alone.seq[0] = c.seq[x / 5];
            alone.lead[0] = c.lead[x / 5];
            alone.k[0] = c.k[x / 5];
            alone.v[0] = c.v[x / 5];
            alone.seq[0].row0 += x % 5;
            alone.seq[0].n_rows = 1;
            alone.seq[0].score = NULL;
            run_there(&d->be, &alone, one);
            long at = (long)alone.seq[0].row0 * c.args.o.ld;
            same(one + at, all + at, (size_t)c.args.o.cols, "a row alone");
        }
        free(all);
        free(one);
        free_call_new(&c);
    }
}

/* Decodes row j with the directions that its group is read with; the others are 0. */
static void read_row(const latent_call *c, const fv_packed_part *part, int j, float *m) {
    const fv_latent_layer *l = &c->basis->l;
    fv_latent_layer few = *l;
    fv_packed_part one = *part;
    size_t R = (size_t)l->n_dir, W = fv_packed_width(&part->shape);
    float *decode = room(R * W * 4);
    uint8_t bits[FV_LATENT_MOST];
    size_t n = (size_t)fv_latent_bits(l, &part->shape, bits);
    bool low = c->block[0]->rows.group && c->block[0]->rows.group[j] &&
               j != fv_latent_exact(&part->shape, c->lead[0].data);
    memset(decode, 0, R * W * 4);
    size_t head = fv_latent_head_bytes(&part->shape), own = n + (size_t)part->shape.latent.n_own;
    size_t read = fv_latent_read_dirs(&part->shape, own + (size_t)part->shape.latent.exact, low);
    memcpy(decode, l->decode[part->shape.kind], (read < n ? read : n) * W * 4);
    one.base = c->lead[0].data; /* and own directions beside */
    one.shape.borrows = true;
    one.shape.latent.coded = false;
    one.data = room(head + 64);
    memcpy(one.data, part->data, head);
    for (size_t i = read < n ? n : read; i < own; i++) ((float *)one.data)[i - n] = 0;
    few.decode[part->shape.kind] = decode;
    one.latent = &few;
    fv_latent_read(&one, j, 1, m);
    free(one.data);
    free(decode);
}

/* o of one query row and head in double, from the rows that the parts decode to. */
static void near_double(device_test *d, int n_kv, int group, int D, int R) {
    latent_call c;
    make_call_with(&c, 0, 1, n_kv, group, D, R, 1, 70);
    block *b = c.block[0];
    size_t W = (size_t)(n_kv * D);
    float *k = room(70 * W * 4), *v = room(70 * W * 4);
    for (int j = 0; j < 70; j++) {
        read_row(&c, &c.k[0], j, k + (size_t)j * W);
        read_row(&c, &c.v[0], j, v + (size_t)j * W);
    }
    must(d->plain.ops->attn_latent(&d->plain, &c.args));
    for (int h = 0; h < n_kv * group; h++) {
        double o[64] = {0}, sum = 0, most = -INFINITY, s[70];
        for (int j = 0; j < 70; j++) {
            const float *kj = k + (size_t)j * W + (size_t)(h / group * D), *q = c.args.q.data;
            s[j] = 0;
            for (int i = 0; i < D / 2; i++) {
                double x = (double)kj[i], y = (double)kj[i + D / 2];
                double co = (double)b->cos[angle_at(j, i, D / 2)];
                double si = (double)b->sin[angle_at(j, i, D / 2)];
                s[j] += (double)q[h * D + i] * (x * co - y * si) +
                        (double)q[h * D + i + D / 2] * (y * co + x * si);
            }
            s[j] = is_alive(b, j) ? s[j] * (double)c.args.scale : -INFINITY;
            most = fmax(most, s[j]);
        }
        for (int j = 0; j < 70; j++) {
            double p = is_alive(b, j) ? exp(s[j] - most) : 0;
            sum += p;
            for (int i = 0; i < D; i++)
                o[i] += p * (double)v[(size_t)j * W + (size_t)(h / group * D + i)];
        }
        for (int i = 0; i < D && sum > 0; i++)
            check(fabs(o[i] / sum - (double)get(&c.args.o, 0, h * D + i)) < 2e-4,
                  "head %d, %d: %g and not %g", h, i, (double)get(&c.args.o, 0, h * D + i),
                  o[i] / sum);
    }
    free(k), free(v);
    free_call_new(&c);
}

/* Keys in codes that are 0 except one number of each head, which rounds to 2^-126 where its angle
 * is small; queries are large enough to show it. */
static void near_the_least_number(device_test *d) {
    latent_call c;
    const int D = 64, heads = 2;
    row_bits_alone = 100;
    make_call_with(&c, 1, 2, heads, 1, D, 16, 1, 70);
    row_bits_alone = 0;
    for (int i = 0; i < heads * D; i++) {
        bool it = i % D == D / 2 - 1;
        c.basis->sigma[i] = 0;
        c.basis->affine[2 * i] = it ? 0x1.ffp-127f : 0;
    }
    for (int i = 0; i < c.args.q.rows * heads * D; i++) ((float *)c.args.q.data)[i] *= 0x1p100f;
    compare(d, &c);
}

static void test_latent(device_test *d) {
    group("attn_latent: the bits of the plain path");
    for (int i = 0; i < (on_cpu(d) ? 60 : d->exact ? 30 : 8); i++) latent_once(d);
    if (d->exact) test_alone(d);
    if (d->exact && !on_cpu(d)) test_many_rows(d);
    if (!on_cpu(d)) return;
    group("attn_latent: near double");
    for (int i = 0; i < 4; i++) {
        near_double(d, 2, 2, 16, 30);
        near_double(d, 1, 3, 64, 12);
    }
    group("attn_latent in bf16: the bits of the plain path");
    compute_in(d, FV_COMPUTE_BF16);
    for (int i = 0; i < 30; i++) latent_once(d);
    for (int i = 0; i < 4; i++) near_the_least_number(d);
    compute_in(d, FV_COMPUTE_F32);
}

static void perf_latent_of(device_test *d, int coded, fv_compute compute) {
    latent_call c;
    row_bits_alone = 512;
    make_call_with(&c, coded, 1, 32, 1, 128, 128, 1, 2048);
    row_bits_alone = 0;
    compute_in(d, compute);
    float *out = room(c.n_out * 4);
    double time = 0;
    seconds = &time;
    run_there(&d->be, &c, out);
    seconds = NULL;
    report(time, 4.0 * 32 * 128 * 2048, (double)fv_packed_bytes(&c.k[0].shape),
           "2048 rows, 32 heads of 128, %d bits a row, keys %s, %s", c.k[0].shape.latent.row_bits,
           coded ? "in codes" : "rebuilt", fv_compute_name(compute));
    compute_in(d, FV_COMPUTE_F32);
    free(out);
    free_call_new(&c);
}

static void perf_latent(device_test *d) {
    for (int coded = 0; coded < 2; coded++) {
        perf_latent_of(d, coded, FV_COMPUTE_F32);
        if (on_cpu(d)) perf_latent_of(d, coded, FV_COMPUTE_BF16);
    }
}

const op op_attn_latent = {"attn_latent", "bits", test_latent, perf_latent};

/* ---- latent_codes ----------------------------------------------------------------------- */

static void codes_there(fv_backend *be, const latent_call *c, uint8_t *got) {
    mirror m = {.be = be};
    latent_call to = *c;
    fv_packed_rows rows[MAX_SEQ];
    fv_latent_layer l = c->basis->l;
    put_call(&m, c, &l, &to, rows);
    must(be->ops->latent_codes(be, &(fv_latent_codes_args){&to.k[0]}));
    back(&m, got, to.k[0].data, fv_packed_bytes(&c->k[0].shape));
    mirror_free(&m);
}

/* Data before the codes must not change. */
static void codes_once(device_test *d) {
    latent_call c;
    make_call_with(&c, 1, 1, PICK(1, 2, 9), 1, PICK(1, 2, 8, 17, 64), PICK(1, 3, 16, 40, 70), 1, 0);
    size_t bytes = fv_packed_bytes(&c.k[0].shape);
    uint8_t *got = room(bytes);
    codes_there(&d->be, &c, got);
    must(d->plain.ops->latent_codes(&d->plain, &(fv_latent_codes_args){&c.k[0]}));
    check(memcmp(got, c.k[0].data, bytes) == 0, "other codes, of %d rows", c.k[0].shape.n);
    free(got);
    free_call_new(&c);
}

/* Each number is at most half a step from its code's value, and the step is no longer than
 * needed. */
static void check_row(const latent_basis *b, const fv_packed_part *k, size_t g, size_t j,
                      const float *x) {
    size_t D = (size_t)k->shape.d_head, at = j % FV_PACKED_TILE;
    const uint8_t *tile = fv_latent_coded(k, g, j / FV_PACKED_TILE);
    float step = f32_of_f16(fv_latent_coded_scale(k, tile)[at]), most = 0;
    for (size_t d = 0; d < D; d++) {
        float sigma = b->sigma[g * D + d], is = (x[d] - b->mean[0][g * D + d]) / sigma;
        int code = tile[d * 8 + at / 2] >> at % 2 * 4 & 15;
        check(fabsf(is - ((float)code - 7.5f) * step) <= 0.502f * step,
              "row %zu, column %zu: %g as code %d of steps of %g", j, d, (double)is, code,
              (double)step);
        most = fmaxf(most, fabsf(is));
    }
    check(fabsf(most - 7.5f * step) <= 1e-3f * most, "row %zu: %g, in steps of %g", j, (double)most,
          (double)step);
}

static void codes_near(device_test *d) {
    latent_call c;
    float x[32];
    make_call_with(&c, 1, 1, 2, 1, 16, 30, 1, 70);
    fv_packed_part *k = &c.k[0];
    must(d->plain.ops->latent_codes(&d->plain, &(fv_latent_codes_args){k}));
    memset(k->data, 0,
           (size_t)k->shape.latent.n_own * sizeof(float)); /* codes have no own directions */
    for (int j = 0; j < 70; j++) {
        if (j == fv_latent_exact(&k->shape, c.lead[0].data)) continue;
        fv_latent_read(k, j, 1, x);
        for (size_t g = 0; g < 2; g++) check_row(c.basis, k, g, (size_t)j, x + 16 * g);
    }
    free_call_new(&c);
}

static void test_codes(device_test *d) {
    group("latent_codes: the bits of the plain path");
    for (int i = 0; i < (on_cpu(d) ? 40 : 10); i++) codes_once(d);
    if (!on_cpu(d)) return;
    group("latent_codes: near the numbers");
    for (int i = 0; i < 4; i++) codes_near(d);
}

static void perf_codes(device_test *d) {
    latent_call c;
    device_test t = {.be = d->be};
    mirror m = {.be = &d->be};
    fv_packed_rows rows[MAX_SEQ];
    make_call_with(&c, 1, 1, 32, 1, 128, 128, 1, 2048);
    latent_call to = c;
    fv_latent_layer l = c.basis->l;
    put_call(&m, &c, &l, &to, rows);
    fv_latent_codes_args a = {&to.k[0]};
    report(seconds_of(&t, d->be.ops->latent_codes, a), 2.0 * 128 * 32 * 128 * 2048,
           (double)fv_packed_bytes(&c.k[0].shape), "2048 rows, 32 heads of 128");
    mirror_free(&m);
    free_call_new(&c);
}

const op op_latent_codes = {"latent_codes", "bits", test_codes, perf_codes};

/* Attention on quantized, depth-merged and latent rows, as kernels/ops.h words it. */
#include "kernels/cpu/plain_packed.h"
#include "kernels/latent_read.h"
#include "kernels/packed_read.h"

typedef struct quantized {
    packed_query x;     /* first; its u [D] a key */
    codes_view k, v;    /* codes or directions, */
    latent_view latent; /* or coefficients: of keys and values */
} quantized;

static bool is_latent(const packed_query *x) { return x->seq->k->shape.form == FV_PACKED_LATENT; }

static void open_views(packed_query *x) {
    quantized *of = (quantized *)x;
    if (is_latent(x)) {
        latent_view_open(&of->latent, x->seq->k);
        x->n_z = 1 + of->latent.n;
        return;
    }
    of->k = codes_view_of(x->seq->k);
    of->v = codes_view_of(x->seq->v);
    x->n_z = (size_t)x->a->d_head;
}

/* z of row j, as one of the parts reads it: how many numbers. The mean's coefficient is 1. */
static size_t coefficients(const packed_query *x, const fv_packed_part *part, int32_t j, float *z) {
    const latent_view *v = &((const quantized *)x)->latent;
    const uint8_t *group = x->seq->rows->group;
    bool exact = latent_is_exact(v, (size_t)j);
    size_t n = fv_latent_read_dirs(&part->shape, v->n, group && group[j] && !exact);
    z[0] = exact ? 0.0f : 1.0f;
    latent_row(v, (size_t)j, z + 1, n);
    return 1 + n;
}

static void latent_key(const packed_query *x, int32_t j, float *k) {
    const fv_latent_layer *l = x->seq->k->latent;
    size_t D = (size_t)x->a->d_head, line = (size_t)l->n_dir + 1;
    size_t shared = 1 + ((const quantized *)x)->latent.n_dir, at = (size_t)x->g * D;
    const float *basis = l->key + (size_t)x->g * D * line;
    size_t n = coefficients(x, x->seq->k, j, x->t);
    for (size_t d = 0; d < D; d++, basis += line) {
        k[d] = 0.0f;
        for (size_t r = 0; r < n; r++)
            k[d] = fmaf(x->t[r],
                        r < shared ? basis[r] : latent_own_number(x->seq->k, r - shared, at + d),
                        k[d]);
    }
}

/* Row j of the keys, rotated by its anchor, times the query. */
static float score(packed_query *x, int32_t j) {
    size_t D = (size_t)x->a->d_head, half = D / 2, tile = (size_t)j / FV_PACKED_TILE;
    const fv_packed_rows *rows = x->seq->rows;
    const float *q = row_f32(&x->a->q, (int64_t)x->seq->row0 + x->row) + (size_t)x->h * D;
    float *k = x->u;
    if (is_latent(x))
        latent_key(x, j, k);
    else
        codes_row(&((const quantized *)x)->k, (size_t)x->g, (size_t)j, k);
    for (size_t i = 0; rows->cos && i < half; i++) {
        size_t at = (tile * half + i) * FV_PACKED_TILE + (size_t)j % FV_PACKED_TILE;
        float a = k[i], b = k[i + half], c = rows->cos[at], s = rows->sin[at];
        k[i] = fmaf(a, c, -(b * s));
        k[i + half] = fmaf(b, c, a * s);
    }
    return packed_products(x, 0.0f, q, k, D);
}

static size_t value(packed_query *x, int32_t j, float *to) {
    if (is_latent(x)) return coefficients(x, x->seq->v, j, to);
    codes_row(&((const quantized *)x)->v, (size_t)x->g, (size_t)j, to);
    return x->n_z;
}

static void output(const packed_query *x, size_t n, float *o) {
    const fv_latent_layer *l = x->seq->v->latent;
    size_t D = (size_t)x->a->d_head;
    if (!is_latent(x)) {
        memcpy(o, x->z, n * sizeof *o);
        return;
    }
    size_t shared = 1 + ((const quantized *)x)->latent.n_dir, at = (size_t)x->g * D;
    const float *basis = l->value + (size_t)x->g * ((size_t)l->n_dir + 1) * D;
    for (size_t r = 0; r < n; r++, basis += D)
        for (size_t d = 0; d < D; d++)
            o[d] = fmaf(x->z[r],
                        r < shared ? basis[d] : latent_own_number(x->seq->v, r - shared, at + d),
                        o[d]);
}

static void attend(const void *args, void *scratch, int64_t begin, int64_t end,
                   fv_compute compute) {
    static const packed_form form = {open_views, NULL, score, value, output};
    quantized of = {.x = {.form = &form, .compute = compute}};
    packed_attend_rows(&of.x, args, scratch, begin, end);
}

/* Codes have no rank: the plan is what a head needs. */
fv_cpu_plan fv_plain_attn_quantized_plan(const void *args) { return packed_plan(args); }

void fv_plain_attn_quantized(const void *args, void *scratch, int64_t begin, int64_t end) {
    attend(args, scratch, begin, end, FV_COMPUTE_F32);
}

fv_cpu_plan fv_plain_attn_quantized_bf16_plan(const void *args) { return packed_plan(args); }

void fv_plain_attn_quantized_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    attend(args, scratch, begin, end, FV_COMPUTE_BF16);
}

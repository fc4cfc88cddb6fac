/* Attention on coefficients, as kernels/ops.h words it. */
#include "kernels/cpu/plain/latent.h"
#include "kernels/cpu/plain/packed.h"

typedef struct coefficients {
    packed_query x; /* must be first; its u [D] holds a key, its t coefficients */
    latent_view latent;
} coefficients;

static void open_views(packed_query *x) {
    coefficients *of = (coefficients *)x;
    latent_view_open(&of->latent, x->seq->k);
    x->n_z = 1 + of->latent.n;
}

/* Number of coefficients with which a part reads row j. */
static size_t numbers(const packed_query *x, const fv_packed_part *part, int32_t j) {
    const latent_view *v = &((const coefficients *)x)->latent;
    const uint8_t *group = x->seq->rows->group;
    bool low = group && group[j] && !latent_is_exact(v, (size_t)j);
    return fv_latent_read_dirs(&part->shape, v->n, low);
}

/* Score of row j: the query times the rotated key. */
static float score(packed_query *x, int32_t j) {
    const latent_view *v = &((const coefficients *)x)->latent;
    const fv_latent_layer *l = v->l;
    bool coded = x->seq->k->shape.latent.coded;
    size_t D = (size_t)x->a->d_head, n = numbers(x, x->seq->k, j);
    size_t shared = n < v->n_dir ? n : v->n_dir;
    int8_t level[FV_LATENT_MOST];
    latent_row_levels(v, (size_t)j, level, shared);
    latent_row(v, (size_t)j, x->t, n);
    for (size_t d = 0, c = (size_t)x->g * D; d < D; d++, c++) {
        float k = coded ? plain_latent_coded(x->seq->k, (size_t)x->g, (size_t)j, d)
                        : fmaf(l->affine[2 * c + 1], plain_latent_sum(l, level, shared, c),
                               l->affine[2 * c]);
        if (latent_is_exact(v, (size_t)j)) k = 0.0f;
        for (size_t r = v->n_dir; r < n; r++)
            k = fmaf(x->t[r], latent_own_number(x->seq->k, r - v->n_dir, c), k);
        x->u[d] = k;
    }
    return packed_score_of_key(x, j, x->u);
}

/* Writes z of row j, after 1 as the mean's coefficient. */
static size_t value(packed_query *x, int32_t j, float *to) {
    const latent_view *v = &((const coefficients *)x)->latent;
    size_t n = numbers(x, x->seq->v, j);
    to[0] = latent_is_exact(v, (size_t)j) ? 0.0f : 1.0f;
    latent_row(v, (size_t)j, to + 1, n);
    return 1 + n;
}

static void output(const packed_query *x, size_t n, float *o) {
    const fv_latent_layer *l = x->seq->v->latent;
    size_t D = (size_t)x->a->d_head, at = (size_t)x->g * D;
    size_t shared = 1 + ((const coefficients *)x)->latent.n_dir;
    const float *basis = l->value + (size_t)x->g * ((size_t)l->n_dir + 1) * D;
    for (size_t r = 0; r < n; r++, basis += D)
        for (size_t d = 0; d < D; d++)
            o[d] = fmaf(x->z[r],
                        r < shared ? basis[d] : latent_own_number(x->seq->v, r - shared, at + d),
                        o[d]);
}

fv_cpu_plan fv_plain_attn_latent_plan(const void *args) { return packed_plan(args); }

void fv_plain_attn_latent(const void *args, void *scratch, int64_t begin, int64_t end) {
    static const packed_form form = {open_views, NULL, score, value, output};
    coefficients of = {.x = {.form = &form}};
    packed_attend_rows(&of.x, args, scratch, begin, end);
}

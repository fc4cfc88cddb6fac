/* Attention in rank space, as kernels/ops.h words it. */
#include "kernels/cpu/plain/packed.h"
#include "packed/read.h"

typedef struct lowrank {
    packed_query x; /* must be first; its q [D] is rotated, its t [R] latent */
    packed_view k, v;
} lowrank;

static void open_views(packed_query *x) {
    lowrank *of = (lowrank *)x;
    of->k = packed_view_of(x->seq->k);
    of->v = packed_view_of(x->seq->v);
    x->n_z = (size_t)(fv_packed_is_rows(&of->v.s) ? x->a->d_head : of->v.s.lowrank.rank);
}

/* t_a = B_k Rot(-a) q. */
static void latent(packed_query *x, int32_t anchor) {
    const packed_view *k = &((const lowrank *)x)->k;
    size_t D = (size_t)x->a->d_head, half = D / 2;
    const float *q = row_f32(&x->a->q, (int64_t)x->seq->row0 + x->row) + (size_t)x->h * D;
    const fv_packed_rows *rows = x->seq->rows;
    memcpy(x->q, q, D * sizeof *q);
    for (size_t i = 0; rows->cos && i < half; i++) {
        float c = rows->cos[(size_t)anchor * half + i], s = rows->sin[(size_t)anchor * half + i];
        x->q[i] = fmaf(q[i], c, q[i + half] * s);
        x->q[i + half] = fmaf(q[i + half], c, -(q[i] * s));
    }
    for (size_t r = 0; r < (size_t)k->s.lowrank.rank; r++) {
        for (size_t d = 0; d < D; d++) x->u[d] = packed_basis_number(k, (size_t)x->g, r, d);
        x->t[r] = packed_products(x, 0.0f, x->q, x->u, D);
    }
}

/* Reads row j of U, 0 beyond the rank at which the row is read. Returns that rank. */
static size_t numbers(const packed_query *x, const packed_view *part, int32_t j, float *u) {
    const uint8_t *group = x->seq->rows->group;
    bool low = group && group[j];
    void (*read)(const packed_view *, int, size_t, float *restrict) =
        part->s.kind == FV_PACKED_K ? packed_k_row : packed_v_row;
    read(part, 0, (size_t)j, u);
    if (low)
        memset(u + part->s.lowrank.rank2, 0, fv_packed_tier_rank(&part->s, 1) * sizeof *u);
    else
        read(part, 1, (size_t)j, u + part->s.lowrank.rank2);
    return (size_t)(low ? part->s.lowrank.rank2 : part->s.lowrank.rank);
}

static float score(packed_query *x, int32_t j) {
    const packed_view *k = &((const lowrank *)x)->k;
    numbers(x, k, j, x->u);
    return packed_products(x, 0.0f, x->t, x->u, (size_t)k->s.lowrank.rank);
}

/* Reads row j of values: its row of U, or its values where they are rows. */
static size_t value(packed_query *x, int32_t j, float *to) {
    const packed_view *v = &((const lowrank *)x)->v;
    if (!fv_packed_is_rows(&v->s)) return numbers(x, v, j, to);
    packed_row(v, (size_t)x->g, (size_t)j, to);
    return x->n_z;
}

static void output(const packed_query *x, size_t n, float *o) {
    const packed_view *v = &((const lowrank *)x)->v;
    size_t D = (size_t)x->a->d_head;
    if (fv_packed_is_rows(&v->s)) {
        memcpy(o, x->z, n * sizeof *o);
        return;
    }
    for (size_t d = 0; d < D; d++) {
        for (size_t r = 0; r < n; r++) x->u[r] = packed_basis_number(v, (size_t)x->g, r, d);
        o[d] = packed_products(x, 0.0f, x->z, x->u, n);
    }
}

fv_cpu_plan fv_plain_attn_lowrank_plan(const void *args) { return packed_plan(args); }

void fv_plain_attn_lowrank(const void *args, void *scratch, int64_t begin, int64_t end) {
    static const packed_form form = {open_views, latent, score, value, output};
    lowrank of = {.x = {.form = &form}};
    packed_attend_rows(&of.x, args, scratch, begin, end);
}

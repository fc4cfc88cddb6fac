/* Factors multiplied out in double, number by number; codes as attention reads them. */
#include "tests/support/packed_error.h"

#include <math.h>
#include <stdlib.h>

#include "packed/codes.h"
#include "packed/lowrank.h"

typedef struct factors {
    int32_t rank, width, d_head;
    float *u, *basis;
} factors;

/* Reads the tokens themselves, where they are codes. */
static bool read_codes(const fv_packed_part *p, factors *f) {
    if (p->shape.form == FV_PACKED_LOWRANK) return false;
    f->rank = f->width;
    f->u = malloc((size_t)(p->shape.n * f->width) * sizeof *f->u);
    f->basis = calloc((size_t)(f->width * f->width), sizeof *f->basis);
    fv_codes_read(p, 0, p->shape.n, f->u);
    for (int32_t i = 0; i < f->width; i++) f->basis[i * (f->width + 1)] = 1;
    return true;
}

/* Row j, head g: [D]. */
static void multiply(const factors *f, int32_t j, int32_t g, double *row) {
    for (int32_t d = 0; d < f->d_head; d++) {
        row[d] = 0;
        for (int32_t r = 0; r < f->rank; r++)
            row[d] +=
                (double)f->u[j * f->rank + r] * (double)f->basis[r * f->width + g * f->d_head + d];
    }
}

static void rotate(const fv_rope *rope, fv_rope_pos pos, double *row) {
    float cosine[FV_ROPE_MAX_HALF], sine[FV_ROPE_MAX_HALF];
    fv_rope_angles(rope, &pos, 1, cosine, sine);
    for (int32_t i = 0; i < rope->half; i++) {
        double x = row[i], y = row[i + rope->half], c = (double)cosine[i], s = (double)sine[i];
        row[i] = x * c - y * s;
        row[i + rope->half] = y * c + x * s;
    }
}

static const float *row_at(fv_kv *raw, int32_t layer, int32_t head, fv_kv_segment seg, bool value,
                           int32_t pos) {
    int32_t n = fv_kv_len(raw, layer, head, seg);
    const int32_t *at = fv_kv_positions(raw, layer, head, seg);
    for (int32_t i = 0; i < n; i++) {
        void *row;
        if (at[i] != pos) continue;
        fv_kv_contiguous(raw, layer, head, seg, value, i, i + 1, &row);
        return row;
    }
    return NULL;
}

/* Values kept as tokens. */
static double rows_error(fv_kv *raw, const fv_kv_packed *p, int32_t layer) {
    const fv_packed_shape *s = &p->part[FV_PACKED_V].shape;
    float *v = malloc((size_t)(s->n_kv * s->d_head) * sizeof *v);
    double off = 0, all = 0;
    for (int32_t j = 0; j < s->n; j++) {
        fv_packed_read_rows(&p->part[FV_PACKED_V], j, 1, v);
        for (int32_t g = 0; g < s->n_kv; g++) {
            const float *want = row_at(raw, layer, g, p->seg, true, p->pos[j]);
            for (int32_t d = 0; d < s->d_head; d++) {
                double x = want ? (double)want[d] : (double)NAN;
                off += pow(x - (double)v[g * s->d_head + d], 2);
                all += x * x;
            }
        }
    }
    free(v);
    return sqrt(off / all);
}

double packed_error(fv_kv *raw, const fv_kv_packed *p, int32_t layer, int kind,
                    const fv_rope_config *cfg) {
    const fv_packed_shape *s = &p->part[kind].shape;
    factors f = {.rank = s->form == FV_PACKED_LOWRANK ? s->lowrank.rank : 0,
                 .width = s->n_kv * s->d_head,
                 .d_head = s->d_head};
    if (fv_packed_is_rows(s)) return rows_error(raw, p, layer);
    if (!read_codes(&p->part[kind], &f)) {
        f.u = malloc((size_t)(s->n * f.rank) * sizeof *f.u);
        f.basis = malloc((size_t)(f.rank * f.width) * sizeof *f.basis);
        fv_packed_read_u(&p->part[kind], 0, s->n, f.u);
        fv_packed_read_basis(&p->part[kind], f.basis);
    }
    fv_rope rope;
    fv_rope_init(&rope, cfg, s->d_head);
    double off = 0, all = 0, row[2 * FV_ROPE_MAX_HALF];
    for (int32_t a = 0; a < p->rows.n_anchor; a++)
        for (int32_t j = p->first[a]; j < p->first[a + 1]; j++)
            for (int32_t g = 0; g < s->n_kv; g++) {
                const float *want = row_at(raw, layer, g, p->seg, kind == FV_PACKED_V, p->pos[j]);
                multiply(&f, j, g, row);
                bool own = s->form == FV_PACKED_QUANTIZED && p->seg == FV_SEG_TEXT;
                int32_t at = p->anchor ? p->anchor[a] : p->pos[j];
                if (kind == FV_PACKED_K && (p->anchor || own))
                    rotate(&rope, fv_rope_map_at(fv_kv_rope_map(raw), at), row);
                for (int32_t d = 0; d < s->d_head; d++) {
                    double x = want ? (double)want[d] : (double)NAN;
                    off += pow(x - row[d], 2);
                    all += x * x;
                }
            }
    free(f.u);
    free(f.basis);
    return sqrt(off / all);
}

/* Between rows and matrices: see row_matrix.h. */
#include "model/net/row_matrix.h"

#include <assert.h>

/* Image rows follow one another in the layer's extent; those of text lie in pages. */
static fv_status gather_head(fv_kv *kv, fv_backend *be, const fv_row_set *x, int32_t head,
                             fv_tensor y) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    for (int32_t row = 0, rows; row < x->n; row += rows) {
        void *at;
        rows = fv_kv_stretch(kv, x->layer, head, x->seg, x->value, row, x->n, &at);
        assert(rows == x->n || (x->seg == FV_SEG_TEXT && x->row[row] == row));
        fv_gather_args a = {.table = fv_tensor_of(at, s->dtype, rows, s->d_head),
                            .y = fv_tensor_rows(y, row, rows),
                            .ids = x->row};
        FV_TRY(be->ops->gather(be, &a));
    }
    return FV_OK;
}

fv_status fv_rows_gather(fv_kv *kv, fv_backend *be, const fv_row_set *x, fv_tensor m) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    for (int32_t g = 0; g < s->n_kv; g++) {
        fv_tensor y = {(float *)m.data + (size_t)g * (size_t)s->d_head, FV_F32, x->n, s->d_head,
                       m.ld};
        FV_TRY(gather_head(kv, be, x, g, y));
    }
    return FV_OK;
}

fv_status fv_rows_turn(fv_backend *be, const fv_rope *rope, const int32_t *anchor, bool back,
                       int32_t n_kv, fv_arena *room, fv_tensor m) {
    size_t n = (size_t)m.rows * (size_t)rope->half;
    float *c, *s;
    FV_TRY(FV_ARENA_NEW(room, n, c));
    FV_TRY(FV_ARENA_NEW(room, n, s));
    fv_rope_angles(rope, anchor, m.rows, c, s);
    for (size_t i = 0; back && i < n; i++) s[i] = -s[i];
    fv_rope_args a = {.x = m,
                      .cos = fv_tensor_of(c, FV_F32, m.rows, rope->half),
                      .sin = fv_tensor_of(s, FV_F32, m.rows, rope->half),
                      .n_head = n_kv};
    return be->ops->rope(be, &a);
}

fv_status fv_rows_rebuild(fv_backend *be, const fv_packed_part *part, const int32_t *row,
                          fv_arena *room, fv_tensor m) {
    size_t rank = (size_t)part->shape.rank, width = fv_packed_width(&part->shape);
    float *u, *basis;
    if (part->shape.form == FV_PACKED_CODES) {
        for (int32_t i = 0; i < m.rows; i++)
            fv_codes_read(part, row[i], 1, (float *)m.data + (size_t)i * (size_t)m.ld);
        return FV_OK;
    }
    FV_TRY(FV_ARENA_NEW(room, (size_t)m.rows * rank, u));
    FV_TRY(FV_ARENA_NEW(room, rank * width, basis));
    for (int32_t i = 0; i < m.rows; i++) fv_packed_read_u(part, row[i], 1, u + (size_t)i * rank);
    fv_packed_read_basis(part, basis);
    fv_combine_args a = {.x = fv_tensor_of(u, FV_F32, m.rows, (int32_t)rank),
                         .w = fv_tensor_of(basis, FV_F32, (int32_t)rank, (int32_t)width),
                         .y = m};
    return be->ops->combine(be, &a);
}

/* Converts between KV rows and matrices (row_matrix.h). */
#include "model/net/row_matrix.h"

#include <assert.h>

#include "packed/lowrank.h"

/* Visual tokens are contiguous in the layer's slab; text tokens are in blocks. */
static fv_status gather_head(fv_kv *kv, fv_backend *be, const fv_row_set *x, int32_t head,
                             fv_tensor y) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    for (int32_t row = 0, rows; row < x->n; row += rows) {
        void *at;
        int32_t from = x->row0 + row, end = x->row0 + x->n;
        rows = fv_kv_contiguous(kv, x->layer, head, x->seg, x->value, from, end, &at);
        assert(x->seg == FV_SEG_TEXT ? x->row[row] == row : rows == x->n && x->row0 == 0);
        fv_index_select_args a = {.table = fv_tensor_of(at, s->dtype, rows, s->d_head),
                                  .y = fv_tensor_rows(y, row, rows),
                                  .ids = x->row};
        FV_TRY(be->ops->index_select(be, &a));
    }
    return FV_OK;
}

fv_status fv_rows_gather(fv_kv *kv, fv_backend *be, const fv_row_set *x, fv_tensor m) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    for (int32_t g = 0; g < s->n_kv; g++) {
        fv_tensor y =
            fv_tensor_of((float *)m.data + (size_t)g * (size_t)s->d_head, FV_F32, x->n, s->d_head);
        y.ld = m.ld;
        FV_TRY(gather_head(kv, be, x, g, y));
    }
    return FV_OK;
}

fv_status fv_rows_angles(fv_matrices *in, const fv_rope *rope, const fv_rope_map *map,
                         const int32_t *anchor, bool back, int32_t rows, fv_row_angles *out) {
    size_t n = (size_t)rows * (size_t)rope->half;
    fv_rope_pos *pos;
    float *c, *s;
    FV_TRY(FV_ARENA_NEW(in->scratch, rows, pos));
    FV_TRY(FV_ARENA_NEW(in->scratch, n, c));
    FV_TRY(FV_ARENA_NEW(in->scratch, n, s));
    for (int32_t j = 0; j < rows; j++) pos[j] = fv_rope_map_at(map, anchor[j]);
    fv_rope_angles(rope, pos, rows, c, s);
    for (size_t i = 0; back && i < n; i++) s[i] = -s[i];
    FV_TRY(fv_matrix_send(in, c, rows, rope->half, &out->cos));
    return fv_matrix_send(in, s, rows, rope->half, &out->sin);
}

fv_status fv_rows_rotate_by(fv_backend *be, const fv_row_angles *by, int32_t n_kv, fv_tensor m) {
    fv_rope_args a = {.x = m,
                      .cos = fv_tensor_rows(by->cos, 0, m.rows),
                      .sin = fv_tensor_rows(by->sin, 0, m.rows),
                      .n_head = n_kv};
    return be->ops->rope(be, &a);
}

fv_status fv_rows_rotate(fv_matrices *in, const fv_rope *rope, const fv_rope_map *map,
                         const int32_t *anchor, bool back, int32_t n_kv, fv_tensor m) {
    fv_row_angles by;
    FV_TRY(fv_rows_angles(in, rope, map, anchor, back, m.rows, &by));
    return fv_rows_rotate_by(in->be, &by, n_kv, m);
}

/* Decodes rows on the host. */
static fv_status read_rows(fv_matrices *in, const fv_packed_part *part, const int32_t *row,
                           fv_tensor m) {
    fv_device *dev = in->be->device;
    size_t width = (size_t)m.cols, n = (size_t)m.rows;
    float *y;
    assert(m.ld == m.cols);
    FV_TRY(FV_ARENA_NEW(in->scratch, n * width, y));
    for (size_t i = 0; i < n; i++)
        fv_packed_format_of(part->shape.form)->read(part, row[i], 1, y + i * width);
    return dev->ops->copy_async(dev, m.data, y, n * width * sizeof *y);
}

fv_status fv_rows_rebuild(fv_matrices *in, const fv_packed_part *part, const int32_t *row,
                          fv_tensor m) {
    fv_matmul_nn_args a = {.y = m};
    float *u, *basis;
    if (fv_packed_format_of(part->shape.form)->read) return read_rows(in, part, row, m);
    size_t rank = (size_t)part->shape.lowrank.rank, width = fv_packed_width(&part->shape);
    FV_TRY(FV_ARENA_NEW(in->scratch, (size_t)m.rows * rank, u));
    FV_TRY(FV_ARENA_NEW(in->scratch, rank * width, basis));
    for (int32_t i = 0; i < m.rows; i++) fv_packed_read_u(part, row[i], 1, u + (size_t)i * rank);
    fv_packed_read_basis(part, basis);
    FV_TRY(fv_matrix_send(in, u, m.rows, (int32_t)rank, &a.x));
    FV_TRY(fv_matrix_send(in, basis, (int32_t)rank, (int32_t)width, &a.w));
    return in->be->ops->matmul_nn(in->be, &a);
}

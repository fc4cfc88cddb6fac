/* Updates the importance of packed rows, row by row. */
#include "kernels/cpu/plain/plain.h"

void fv_plain_importance(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_importance_args *a = args;
    (void)scratch;
    for (int64_t j = begin; j < end; j++) {
        float sum = 0.0f, *importance = row_f32(&a->importance, 0) + j;
        for (int64_t h = 0; h < a->n_head; h++)
            for (int64_t r = 0; r < a->n_rows; r++) {
                float lse = row_f32(&a->lse, r)[h];
                if (lse == -INFINITY) continue; /* the query row sees nothing */
                sum += exp_f32(a->score[(h * a->n_rows + r) * a->score_ld + j] - lse);
            }
        float mean = sum / ((float)a->n_head * (float)a->n_rows);
        float old = a->keep == 0.0f ? 0.0f : *importance;
        *importance = fmaf(a->keep, old, (1.0f - a->keep) * mean);
    }
}

fv_status fv_check_importance(const void *args, fv_cpu_rows *out) {
    const fv_importance_args *a = args;
    FV_TRY(need_f32(&a->lse, "importance's lse"));
    FV_TRY(need_f32(&a->importance, "importance"));
    assert(a->lse.rows == a->n_rows && a->lse.cols == a->n_head && a->n_rows > 0);
    assert(a->score_ld >= a->importance.cols);
    *out = (fv_cpu_rows){a->importance.cols, (int64_t)a->n_head * a->n_rows};
    return FV_OK;
}

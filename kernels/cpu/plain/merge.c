/* Two attentions over disjoint keys merged into one, head by head. */
#include "kernels/cpu/plain/plain.h"

void fv_plain_merge(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_merge_args *a = args;
    int32_t D = a->o.cols / a->n_head;
    (void)scratch;
    for (int64_t r = begin; r < end; r++)
        for (int32_t h = 0; h < a->n_head; h++) {
            float *o = row_f32(&a->o, r) + h * D, *lse = row_f32(&a->lse, r) + h, was = *lse;
            const float *o2 = row_f32(&a->o2, r) + h * D, lse2 = row_f32(&a->lse2, r)[h];
            bool none = was == -INFINITY, none2 = lse2 == -INFINITY;
            float m = was > lse2 ? was : lse2, w = exp_f32(was - m), w2 = exp_f32(lse2 - m);
            for (int32_t d = 0; d < D && !none2; d++)
                o[d] = none ? o2[d] : fmaf(w2, o2[d], w * o[d]) / (w + w2);
            if (!none2) *lse = none ? lse2 : m + log_f32(w + w2);
        }
}

fv_status fv_check_merge(const void *args, fv_cpu_rows *out) {
    const fv_merge_args *a = args;
    FV_TRY(need_f32(&a->o, "merge's o"));
    FV_TRY(need_f32(&a->o2, "merge's o2"));
    FV_TRY(need_f32(&a->lse, "merge's lse"));
    FV_TRY(need_f32(&a->lse2, "merge's lse2"));
    assert(same_shape(&a->o, &a->o2) && same_shape(&a->lse, &a->lse2));
    assert(a->lse.cols == a->n_head && a->lse.rows == a->o.rows && a->o.cols % a->n_head == 0);
    *out = (fv_cpu_rows){a->o.rows, a->o.cols};
    return FV_OK;
}

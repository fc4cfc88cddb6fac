/* Attention on tensor cores with keys and values in bf16, and which calls may take the tensor cores. */
#include "kernels/cuda/attention_tiled.cuh"

bool fv_cuda_attn_is_tiled(const fv_cuda *c, const fv_attn_args *a) {
    const bool wide = a->d_head > 256;
    if (c->exact || a->d_head % 8 || a->d_head > MOST_COLUMNS) return false;
    if (a->kv_dtype != FV_BF16) return a->kv_dtype == FV_F16 && !wide;
    return !wide || rows_scratch<head_of<MOST_COLUMNS, false, FV_BF16>>() <= c->shared_max;
}

fv_status fv_cuda_attention_tiled(fv_cuda *c, const fv_attn_args *a) {
    if (a->kv_dtype == FV_F16) return fv_cuda_attention_tiled_f16(c, a);
    if (a->d_head > 256) return launch<head_of<MOST_COLUMNS, false, FV_BF16>>(c, a);
    return launch_columns<FV_BF16>(c, a);
}

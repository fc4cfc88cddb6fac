/* Attention on tensor cores with keys and values in f16. */
#include "kernels/cuda/attention_tiled.cuh"

fv_status fv_cuda_attention_tiled_f16(fv_cuda *c, const fv_attn_args *a) {
    return launch_columns<FV_F16>(c, a);
}

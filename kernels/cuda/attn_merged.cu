/* Attention on directions that two layers share (kernels/ops.h; codes.cuh). */
#include "kernels/cuda/codes.cuh"

struct merged {
    static constexpr fv_packed_form id = FV_PACKED_MERGED;
    static const char *name() { return "attn_merged"; }

    /* Sets *kept to the index of the row's exact vector, or -1. */
    static __device__ __forceinline__ void begin(const codes_part &p, int32_t g, int32_t j,
                                                 int32_t *kept) {
        const uint16_t *channel = reinterpret_cast<const uint16_t *>(p.data + p.l.channel);
        uint32_t end, i = outliers_of(p, g, j, 1, &end);
        *kept = i < end && channel[i] == g ? (int32_t)i : -1;
    }

    /* Element d of head g of row j: from the exact vector `kept`, or the direction times its norm. */
    template <bool KEY>
    static __device__ __forceinline__ float element(const codes_part &p, int32_t g, int32_t j,
                                                    int32_t d, int32_t kept) {
        int32_t i;
        if (kept >= 0)
            return widened(p.data + p.l.value, p.s.dtype,
                           (size_t)kept * (size_t)p.s.d_head + (size_t)d);
        const char *line = line_of<KEY>(p, g, j, d, &i);
        const float *norm =
            reinterpret_cast<const float *>(p.data + p.l.pair) + (size_t)g * (size_t)p.norms;
        return norm[j] * widened(line, p.s.dtype, (size_t)i);
    }

    static __device__ __forceinline__ void end(const codes_part &, int32_t, int32_t, float *) {}
};

extern "C" fv_status fv_cuda_attn_merged(fv_backend *be, const fv_attn_packed_args *a) {
    return codes_attend<merged>(fv_cuda_of(be), a);
}

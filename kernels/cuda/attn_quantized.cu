/* Attention on codes (kernels/ops.h; codes.cuh). */
#include "kernels/cuda/codes.cuh"

struct quantized {
    static constexpr fv_packed_form id = FV_PACKED_QUANTIZED;
    static const char *name() { return "attn_quantized"; }

    static __device__ __forceinline__ void begin(const codes_part &, int32_t, int32_t, int32_t *) {}

    /* Decodes element d of head g of row j. */
    template <bool KEY>
    static __device__ __forceinline__ float element(const codes_part &p, int32_t g, int32_t j,
                                                    int32_t d, int32_t) {
        int32_t i;
        const char *line = line_of<KEY>(p, g, j, d, &i);
        if (!KEY && p.s.codes.bits == 16) return widened(line, p.s.dtype, i);
        const float *pair = reinterpret_cast<const float *>(p.data + p.l.pair) +
                            2 * (KEY ? (size_t)g * (size_t)p.s.d_head + (size_t)d : (size_t)j);
        return fmaf(pair[1], (float)packed_code(line, p.s.codes.bits, i), pair[0]);
    }

    /* Puts outliers in place of decoded codes in y [D]. */
    static __device__ __forceinline__ void end(const codes_part &p, int32_t g, int32_t j,
                                               float *y) {
        const uint16_t *channel = reinterpret_cast<const uint16_t *>(p.data + p.l.channel);
        int32_t c0 = g * p.s.d_head, c1 = c0 + p.s.d_head;
        uint32_t end, i = outliers_of(p, g, j, p.s.d_head, &end);
        for (; i < end && channel[i] < c1; i++)
            y[channel[i] - c0] = widened(p.data + p.l.value, p.s.dtype, i);
    }
};

extern "C" fv_status fv_cuda_attn_quantized(fv_backend *be, const fv_attn_packed_args *a) {
    return codes_attend<quantized>(fv_cuda_of(be), a);
}

/* Rotary frequencies and angles on the host. cosf and sinf of a request's few hundred positions
 * cost less than a thousandth of its prefill, so there is no table to keep. */
#include "model/net/rope.h"

#include <assert.h>
#include <math.h>

static float llama3_scale(const fv_rope_config *cfg, float f) {
    const float pi2 = 6.283185307179586f;
    float wavelength = pi2 / f;
    float low = (float)(cfg->original_max_position / cfg->low_freq_factor);
    float high = (float)(cfg->original_max_position / cfg->high_freq_factor);
    float scaled = f / (float)cfg->factor;
    if (wavelength > low) return scaled;
    if (wavelength < high) return f;
    float ramp = ((float)cfg->original_max_position / wavelength - (float)cfg->low_freq_factor) /
                 (float)(cfg->high_freq_factor - cfg->low_freq_factor);
    return (1 - ramp) * scaled + ramp * f;
}

void fv_rope_init(fv_rope *r, const fv_rope_config *cfg, int32_t d_head) {
    assert(d_head % 2 == 0 && d_head / 2 <= FV_ROPE_MAX_HALF);
    r->half = d_head / 2;
    for (int32_t i = 0; i < r->half; i++) {
        float f = 1.0f / powf((float)cfg->theta, (float)(2 * i) / (float)d_head);
        if (cfg->type == FV_ROPE_LINEAR) f /= (float)cfg->factor;
        if (cfg->type == FV_ROPE_LLAMA3) f = llama3_scale(cfg, f);
        r->freq[i] = f;
    }
}

void fv_rope_angles(const fv_rope *r, const int32_t *pos, int32_t n, float *cos_out,
                    float *sin_out) {
    for (int32_t j = 0; j < n; j++) {
        for (int32_t i = 0; i < r->half; i++) {
            float angle = (float)pos[j] * r->freq[i];
            cos_out[(size_t)j * (size_t)r->half + (size_t)i] = cosf(angle);
            sin_out[(size_t)j * (size_t)r->half + (size_t)i] = sinf(angle);
        }
    }
}

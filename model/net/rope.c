/* Rotary frequencies from the config of a network. */
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

/* The dimension that makes `turns` turns in the original context. */
static double yarn_dim(const fv_rope_config *cfg, int32_t d_head, double turns) {
    const double pi2 = 6.283185307179586;
    return d_head * log(cfg->original_max_position / (turns * pi2)) / (2 * log(cfg->theta));
}

/* YaRN's frequency i; f before scaling. */
static float yarn_scaled(const fv_rope_config *cfg, int32_t d_head, int32_t i, float f) {
    double low = yarn_dim(cfg, d_head, cfg->beta_fast),
           high = yarn_dim(cfg, d_head, cfg->beta_slow);
    if (cfg->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, d_head - 1);
    if (low == high) high += 0.001;
    float ramp = fminf(fmaxf(((float)i - (float)low) / (float)(high - low), 0), 1), keep = 1 - ramp;
    float scaled = f / (float)cfg->factor;
    return scaled * (1 - keep) + f * keep;
}

float fv_attention_scale(const fv_text_config *cfg) {
    float scale = 1.0f / sqrtf(cfg->query_scalar > 0 ? cfg->query_scalar : (float)cfg->d_head);
    if (cfg->score_scale > 0) scale = cfg->score_scale;
    if (cfg->rope.type != FV_ROPE_YARN) return scale;
    return scale * (float)(cfg->rope.attention_factor * cfg->rope.attention_factor);
}

void fv_rope_scale_queries(const fv_rope_config *cfg, const fv_rope_pos *pos, int32_t rows,
                           int32_t half, float *c, float *s) {
    for (int32_t r = 0; r < rows; r++) {
        const double spans = floor((double)pos[r].t / cfg->query_span);
        const float by = (float)(1 + cfg->query_beta * log(1 + spans));
        for (int32_t i = r * half; i < (r + 1) * half; i++) c[i] *= by, s[i] *= by;
    }
}

bool fv_rope_has_sections(const fv_rope_config *cfg) { return cfg->section[0] > 0; }

static uint8_t axis_of(const fv_rope_config *cfg, int32_t i) {
    int32_t axis = i % 3, t = cfg->section[0], h = cfg->section[1];
    if (!fv_rope_has_sections(cfg)) return 0;
    if (cfg->interleaved) return (uint8_t)(i < 3 * cfg->section[axis] ? axis : 0);
    return i < t ? 0 : i < t + h ? 1 : 2;
}

void fv_rope_init(fv_rope *r, const fv_rope_config *cfg, int32_t d_head) {
    assert(d_head % 2 == 0 && d_head / 2 <= FV_ROPE_MAX_HALF);
    const int32_t beside = cfg->beside ? cfg->beside : 1, half = d_head / 2 / beside;
    const int32_t rotary = cfg->rotary ? cfg->rotary : 2 * half;
    const int32_t angles = cfg->angles ? cfg->angles : rotary / 2;
    *r = (fv_rope){.half = d_head / 2};
    for (int32_t i = 0; i < angles; i++) {
        float f = 1.0f / powf((float)cfg->theta, (float)(2 * i) / (float)rotary);
        if (cfg->type == FV_ROPE_LINEAR) f /= (float)cfg->factor;
        if (cfg->type == FV_ROPE_LLAMA3) f = llama3_scale(cfg, f);
        if (cfg->type == FV_ROPE_YARN) f = yarn_scaled(cfg, rotary, i, f);
        r->freq[i] = f;
        r->axis[i] = axis_of(cfg, i);
    }
    for (int32_t i = half; i < half * beside; i++) r->freq[i] = r->freq[i - half];
}

/* Any text as a configuration file. The first byte says which: 'g' generation_config.json, 'p'
 * preprocessor_config.json, anything else config.json. An accepted one must give a network whose
 * tensors can be listed, with sizes that fit their types. */
#include <stdint.h>
#include <stdlib.h>

#include "common/log.h"
#include "model/config.h"
#include "model/families/tensor_specs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void expect(bool holds) {
    if (!holds) abort();
}

static void check_manifest(const fv_model_config *cfg) {
    fv_tensor_spec *entry = NULL;
    int32_t n = 0;
    expect(fv_tensor_specs_build(cfg, true, &entry, &n) == FV_OK && n > 0);
    for (int32_t i = 0; i < n; i++) {
        int32_t rows, cols;
        fv_tensor_specs_view(&entry[i], &rows, &cols);
        expect(rows > 0 && cols > 0);
        int64_t product = 1;
        for (int32_t k = 0; k < entry[i].n_dim; k++) product *= entry[i].shape[k];
        expect(product == (int64_t)rows * cols);
    }
    free(entry);
}

static void check_config(const char *json, size_t n) {
    fv_model_config cfg;
    if (fv_config_parse(json, n, "input", &cfg) != FV_OK) return;
    const fv_text_config *t = &cfg.text;
    expect(t->n_layer > 0 && t->n_layer <= FV_MAX_LAYERS && t->n_head % t->n_kv == 0);
    expect(t->d_head % 2 == 0 && t->d_model > 0 && t->d_ffn > 0 && t->max_position > 0);
    expect(t->rope.theta > 0 && t->rope.factor > 0 && t->act < FV_N_ACT);
    expect(cfg.n_eos >= 0 && cfg.n_eos <= FV_MAX_EOS && cfg.n_vocab_used == t->vocab);
    if (cfg.has_vision) {
        expect((cfg.image_token >= 0 && cfg.image_token <= t->vocab) ||
               cfg.image_token == FV_IMAGE_TOKEN_NAMED);
        expect(cfg.vision.n_feature_layer > 0 &&
               cfg.vision.n_feature_layer <= FV_MAX_FEATURE_LAYERS);
        for (int32_t i = 0; i < cfg.vision.n_feature_layer; i++)
            expect(cfg.vision.feature_layer[i] >= 0 &&
                   cfg.vision.feature_layer[i] <= cfg.vision.n_layer);
        expect(fv_vision_tokens(&cfg.vision) > 0);
        expect(cfg.vision.d_head * cfg.vision.n_head == cfg.vision.d_model);
    }
    check_manifest(&cfg);
}

static void check_generation(const char *json, size_t n) {
    fv_model_config cfg = {.n_eos = 1, .eos = {2}, .eos_is_default = n % 2};
    fv_generation_config g;
    if (fv_generation_parse(json, n, "input", &cfg, &g) != FV_OK) return;
    expect(g.top_p > 0 && g.top_p <= 1 && g.top_k >= 0 && g.repetition_penalty > 0);
    expect(g.temperature > 0 || !g.do_sample);
    expect(cfg.n_eos > 0 && cfg.n_eos <= FV_MAX_EOS);
}

static void check_image(const char *json, size_t n) {
    static const fv_layout_config tower = {.tile = 56,
                                           .patch = 14,
                                           .merge = 1,
                                           .n_pinpoint = 1,
                                           .pinpoint = {{112, 56}},
                                           .tiles_max = 2};
    fv_image_config c;
    static fv_layout l;
    for (int f = FV_LAYOUT_NONE + 1; f < FV_N_LAYOUT; f++) {
        fv_layout_config layout = tower;
        layout.family = (fv_layout_family)f;
        if (fv_image_config_parse(json, n, "input", &layout, &c) != FV_OK) continue;
        expect(c.resample >= 0 && c.resample <= 3);
        expect(c.std[0] != 0 && c.std[1] != 0 && c.std[2] != 0);
        expect(fv_layout_check(&layout) == FV_OK);
        fv_status st = fv_layout_image(&layout, 640, 480, 1, &l);
        bool fixed = f != FV_LAYOUT_IDEFICS3 && f != FV_LAYOUT_MISTRAL3 && f != FV_LAYOUT_QWEN_VL &&
                     f != FV_LAYOUT_QWEN3_VL && f != FV_LAYOUT_GLM4V &&
                     f != FV_LAYOUT_LIGHTON_OCR &&
                     f != FV_LAYOUT_PADDLEOCR_VL; /* others: too many tiles, rows, tokens */
        expect(st == FV_OK || (st == FV_EINVAL && !fixed));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static bool quiet;
    if (!quiet) quiet = fv_log_configure("error") == FV_OK;
    if (bytes == 0) return 0;
    const char *json = (const char *)data + 1;
    if (data[0] == 'g')
        check_generation(json, bytes - 1);
    else if (data[0] == 'p')
        check_image(json, bytes - 1);
    else
        check_config(json, bytes - 1);
    return 0;
}

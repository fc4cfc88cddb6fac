#ifndef FOVEA_TESTS_UNIT_MODEL_CONFIG_RIG_H
#define FOVEA_TESTS_UNIT_MODEL_CONFIG_RIG_H

/* Configs that are read, and such as are refused. */
#include <criterion/criterion.h>
#include <string.h>

#include "model/config.h"

static inline fv_model_config parse(const char *json) {
    fv_model_config cfg;
    cr_assert_eq(fv_config_parse(json, strlen(json), "config.json", &cfg), FV_OK, "%s: %s", json,
                 fv_last_error());
    return cfg;
}

typedef struct wrong {
    const char *json;
    fv_status st;
    const char *words;
} wrong;

static inline void refuse(const wrong *w) {
    fv_model_config cfg = {.n_eos = -7};
    fv_status st = fv_config_parse(w->json, strlen(w->json), "config.json", &cfg);
    cr_assert_eq(st, w->st, "%s gives %s (%s)", w->json, fv_status_name(st), fv_last_error());
    cr_assert_eq(strncmp(fv_last_error(), "config.json: ", 13), 0, "%s", fv_last_error());
    cr_assert_not_null(strstr(fv_last_error(), w->words), "'%s' lacks '%s'", fv_last_error(),
                       w->words);
    cr_assert_eq(cfg.n_eos, -7, "the output was touched");
}

#define REFUSE_ALL(list)                                                                           \
    for (size_t i_ = 0; i_ < sizeof(list) / sizeof *(list); i_++) refuse(&(list)[i_])

/* A LLaVA with `keys` added to its top level, its text or its vision part. */
#define LLAVA(top, text, vision)                                                                   \
    "{\"model_type\":\"llava\",\"image_token_index\":5," top                                       \
    "\"text_config\":{\"hidden_size\":64,\"num_attention_heads\":4" text                           \
    "},\"vision_config\":{\"hidden_size\":32,\"num_attention_heads\":2" vision "}}"
#define TOP(k) LLAVA(k ",", "", "")
#define TEXT(k) LLAVA("", "," k, "")
#define VISION(k) LLAVA("", "", "," k)

#endif

#ifndef FOVEA_MODEL_SYNTH_INTERNAL_H
#define FOVEA_MODEL_SYNTH_INTERNAL_H

/* Shared by the files synth*.c. */
#include "model/synth/synth.h"
#include "text/json.h"

/* Tokens that every synthetic vocabulary starts with: <unk>, <s>, </s> and the 256 bytes. */
enum { FV_SYNTH_RESERVED_IDS = 3 + 256 };

/* config.json as JSON (json_decref it) and as parsed. */
fv_status fv_synth_config_make(const fv_synth_options *opt, json_t **json, fv_model_config *cfg);

/* Ids below this are text; those from here to the image token are special tokens of the family. */
int32_t fv_synth_text_ids(const fv_model_config *cfg);

/* Id of <pad>, after <image> and <video>; -1 when the vocabulary has none left. */
int32_t fv_synth_pad_id(const fv_model_config *cfg);

/* What the family's classes in transformers begin with, "LlavaNext"; `llava` for LLaVA-1.5. */
const char *fv_synth_class(const fv_model_config *cfg, const char *llava);

/* generation_config.json, preprocessor and processor files into opt->dir. */
fv_status fv_synth_write_side_configs(const fv_synth_options *opt, const fv_model_config *cfg);

/* tokenizer.json, tokenizer_config.json, chat_template.jinja into `dir`. */
fv_status fv_synth_write_tokenizer(const char *dir, const fv_model_config *cfg);

/* The weight files into opt->dir. */
fv_status fv_synth_write_weights(const fv_synth_options *opt, const fv_model_config *cfg,
                                 fv_synth_report *out);

/* Writes json as <dir>/<name> and drops it; json == NULL means that making it failed. */
fv_status fv_synth_write_json(const char *dir, const char *name, json_t *json);

#endif

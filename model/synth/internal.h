#ifndef FOVEA_MODEL_SYNTH_INTERNAL_H
#define FOVEA_MODEL_SYNTH_INTERNAL_H

/* Declarations shared by the files of synth/ only. */
#include "model/synth/synth.h"
#include "text/json.h"

/* Tokens that every synthetic vocabulary starts with: <unk>, <s>, </s> and the 256 bytes. */
enum { FV_SYNTH_RESERVED_IDS = 3 + 256 };

/* Makes config.json as JSON (json_decref it) and parses it. */
fv_status fv_synth_config_make(const fv_synth_options *opt, json_t **json, fv_model_config *cfg);

/* Ids below this are text; ids from here to the image token are the family's special tokens. */
int32_t fv_synth_text_ids(const fv_model_config *cfg);

/* Id of <pad>, after <image> and <video>; -1 when the vocabulary has none left. */
int32_t fv_synth_pad_id(const fv_model_config *cfg);

/* Name of a separate tower's directory inside opt->dir. */
#define FV_SYNTH_TOWER "clip-vit-synthetic"

enum { FV_SYNTH_AHEAD_MAX = 4, FV_SYNTH_CLASS_MAX = 64 };

/* A special token, and its key in tokenizer_config.json; NULL: none. */
typedef struct fv_synth_token {
    const char *token, *key;
} fv_synth_token;

/* A family's tokenizer and the files beside it. */
typedef struct fv_synth_form {
    const char *family;
    const char *classes;         /* prefix of its processor classes; NULL: the model's */
    const char *image_processor; /* prefix of its image processor's class; NULL: the others' */
    const char *video_processor;
    const char *template[2], *shown; /* chat template before and after an image, and the image's
                                      * placeholder */
    fv_synth_token ahead[FV_SYNTH_AHEAD_MAX]; /* special tokens with the ids before the image
                                               * token's */
    int32_t n_ahead;                          /* number of these ids, including Idefics3's rows and
                                               * columns */
    fv_synth_token image, video;
    bool reads_video; /* transformers requires a video processor in its files */
} fv_synth_form;

const fv_synth_form *fv_synth_form_of(const fv_model_config *cfg);

/* Writes the class name for `kind`: "LlavaNext" and `kind`. */
void fv_synth_class(const fv_model_config *cfg, const char *kind, char out[FV_SYNTH_CLASS_MAX]);

/* ---- Gemma 4 (gemma4.c) ---- */

/* Sizes of a tower. */
typedef struct fv_synth_tower {
    int32_t d, d_ffn, n_layer, n_head, patch;
} fv_synth_tower;

/* Adds Gemma 4's keys to a text model's, and makes vision_config; adds ids of special tokens to
 * config.json, and sizes to the processor's file. */
void fv_synth_gemma4_text(json_t *t);
void fv_synth_gemma4_small(json_t *t);               /* what E2B and E4B have besides */
void fv_synth_gemma4_types(json_t *t, json_int_t n); /* layer_types of n layers */
json_t *fv_synth_gemma4_tower(const char *family, const fv_synth_tower *s);
void fv_synth_gemma4_ids(int32_t image_token, json_t *json);
void fv_synth_gemma4_processor(const fv_model_config *cfg, json_t *j);
void fv_synth_gemma4_sound(const fv_model_config *cfg, bool nested, json_t *j);

/* Writes generation_config.json, preprocessor and processor files into opt->dir; the preprocessor
 * of a separate tower into `tower`. */
fv_status fv_synth_write_side_configs(const fv_synth_options *opt, const char *tower,
                                      const fv_model_config *cfg);

/* Writes tokenizer.json, tokenizer_config.json and chat_template.jinja into `dir`. */
fv_status fv_synth_write_tokenizer(const char *dir, const fv_model_config *cfg);

/* Writes the weight files into opt->dir; the tower's into `tower` unless that is NULL. */
fv_status fv_synth_write_weights(const fv_synth_options *opt, const char *tower,
                                 const fv_model_config *cfg, fv_synth_report *out);

/* Writes json to <dir>/<name> and releases it; json == NULL means that making it failed. */
fv_status fv_synth_write_json(const char *dir, const char *name, json_t *json);

#endif

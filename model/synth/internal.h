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

/* Directory of a tower that has one, inside of opt->dir. */
#define FV_SYNTH_TOWER "clip-vit-synthetic"

enum { FV_SYNTH_AHEAD_MAX = 4, FV_SYNTH_CLASS_MAX = 64 };

/* A special token, and its key in tokenizer_config.json; NULL: none. */
typedef struct fv_synth_token {
    const char *token, *key;
} fv_synth_token;

/* What a family has in its tokenizer and in the files beside it. */
typedef struct fv_synth_form {
    const char *family;
    const char *classes;         /* how its processor's class begins; NULL: as the model's */
    const char *image_processor; /* the same of that one; NULL: as the others */
    const char *video_processor;
    const char *template[2], *shown; /* the chat template around an image, and the image there */
    fv_synth_token ahead[FV_SYNTH_AHEAD_MAX]; /* with the ids before the image token's */
    int32_t n_ahead;                          /* with Idefics3's rows and columns */
    fv_synth_token image, video;
    bool reads_video; /* transformers wants a video processor in its files */
} fv_synth_form;

const fv_synth_form *fv_synth_form_of(const fv_model_config *cfg);

/* "LlavaNext" and `kind`. */
void fv_synth_class(const fv_model_config *cfg, const char *kind, char out[FV_SYNTH_CLASS_MAX]);

/* generation_config.json, preprocessor and processor files into opt->dir; of a model with a tower apart,
 * the preprocessor's into its directory. */
fv_status fv_synth_write_side_configs(const fv_synth_options *opt, const char *tower,
                                      const fv_model_config *cfg);

/* tokenizer.json, tokenizer_config.json, chat_template.jinja into `dir`. */
fv_status fv_synth_write_tokenizer(const char *dir, const fv_model_config *cfg);

/* The weight files into opt->dir; those of the tower into `tower` unless it is NULL. */
fv_status fv_synth_write_weights(const fv_synth_options *opt, const char *tower,
                                 const fv_model_config *cfg, fv_synth_report *out);

/* Writes json as <dir>/<name> and drops it; json == NULL means that making it failed. */
fv_status fv_synth_write_json(const char *dir, const char *name, json_t *json);

#endif

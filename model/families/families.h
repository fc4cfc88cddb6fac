#ifndef FOVEA_MODEL_FAMILIES_FAMILIES_H
#define FOVEA_MODEL_FAMILIES_FAMILIES_H

/* FAMILIES: what a checkpoint's config.json may describe.
 *
 *   config.json --model_type--> a row of the table --its keys and defaults--> fv_model_config
 *
 * A family is one row here and one file of this folder, with its layout of images in layout/. All
 * rows are read by the same code: families.c the keys that all have, text_config.c the text model,
 * tower.c the vision tower, and the row's `parse` what is the family's own. No tensor is touched
 * here.
 *
 * Letters: N layers, H query heads, Hkv KV heads, D head dim, d model width, m FFN width. */
#include "common/status.h"
#include "layout/layout.h"
#include "model/families/name_mapping.h"
#include "model/net/config.h"

enum { FV_MAX_EOS = 16 };

/* A text model, and with vision a tower, features of some of its layers and a connector. */
typedef struct fv_model_config {
    const struct fv_family *family; /* of a text model alone, fv_family_text */
    bool has_vision;
    fv_vision_config vision;
    fv_text_config text;
    fv_layout_config layout; /* of images; what config.json has of it */
    bool newline;            /* rows of visual tokens may end with a newline embedding */
    bool leading_ones;       /* the tower's class token and positions have them as dimensions */
    bool tower_norm;         /* the files have the tower's last norm, used or not */
    bool video_tower;        /* the files have a second tower, for videos */
    bool pooling_head, mask_token;  /* the files have one of the tower, which is not used */
    int32_t image_token;            /* id of the image token; -1 without vision */
    int32_t video_token;            /* of the video token; -1: the model has no videos of its own */
    int32_t n_eos, eos[FV_MAX_EOS]; /* union of config and generation_config */
    bool eos_is_default;            /* config.json names none: eos is the family's default, which
                                     * ids in generation_config.json replace */
    int32_t n_vocab_used; /* ids from here to text.vocab - 1 are padding rows, never sampled;
                           * equals text.vocab until the tokenizer is known */
} fv_model_config;

/* What becomes of pixels (preprocessor_config.json, or nested in processor_config.json); which of them
 * go where is the layout's (layout/layout.h). */
typedef struct fv_image_config {
    bool do_rescale, do_normalize, do_convert_rgb;
    int32_t resample; /* 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic */
    double rescale_factor;
    float mean[3], std[3];
} fv_image_config;

struct json_t; /* text/json.h */

enum { FV_FAMILY_PROCESSORS = 4 };

/* A row of the table, which families.def lists. Defaults are those of the family's class in
 * transformers, for keys that files leave out. */
typedef struct fv_family {
    const char *name;         /* model_type */
    const char *architecture; /* the class, which files without model_type name */
    fv_layout_family layout;
    const char *text;  /* model_type of a text_config that names none */
    float text_eps;    /* rms_norm_eps without text_config */
    bool flat;         /* without text_config its keys are config.json's own */
    bool tower_apart;  /* its tower has a directory of its own (model/tower_directory.h) */
    bool tied;         /* tie_word_embeddings */
    const char *tower; /* model_type of a vision_config that names none ... */
    bool own_tower;    /* ... or whatever it names */
    /* Its keys, where they are not hidden_size, num_hidden_layers and num_attention_heads. */
    const char *tower_width, *tower_depth, *tower_heads;
    fv_vision_config vision; /* the tower without vision_config */
    int32_t image_token;     /* -1: the first id that is not in the vocabulary */
    const char *strategy;    /* vision_feature_select_strategy */
    int32_t feature_layer;
    const fv_tensor_names *names; /* NULL: LLaVA's, in any of their mappings, with CLIP's tower */
    /* The family's own keys of config.json's root, when text, tower and image token are there. */
    fv_status (*parse)(const struct json_t *root, const char *where, fv_model_config *cfg);
    /* Image processors: image_processor_type without its suffix, the sizes that their file gives, and
     * resampling, mean and standard deviation where it gives none. *layout has what config.json says. */
    const char *processor[FV_FAMILY_PROCESSORS];
    fv_status (*read_sizes)(const struct json_t *file, const char *where, fv_layout_config *layout);
    fv_image_config pixels;
    /* The sizes of a video's frames from the video processor's file; NULL: no videos. */
    fv_status (*read_video)(const struct json_t *file, const char *where, fv_layout_config *layout);
} fv_family;

extern const fv_family fv_family_text;

/* "llava, llava_next, ...", for people. */
const char *fv_family_names(void);

/* Row i; NULL after the last. */
const fv_family *fv_family_at(int32_t i);

/* By model_type or class; NULL: none with vision. */
const fv_family *fv_family_find(const char *name);

/* The text model's family by model_type or class; NULL: none. */
const char *fv_config_text_family(const char *name);
extern const char fv_config_text_families[]; /* "llama, ... and gemma3_text", for people */

/* Parses the text of config.json. `where` names the file in errors. Every key that is wrong
 * or unknown in a way that changes the result (family, activation, rope type, strategy,
 * shapes that do not divide) is named with what was expected: FV_EDATA for broken JSON or
 * types, FV_EUNSUPPORTED for what this engine does not do. */
fv_status fv_config_parse(const char *json, size_t n, const char *where, fv_model_config *out);

/* Parses preprocessor_config.json or processor_config.json (either, or nested under
 * "image_processor"): sizes to *layout, which has what config.json says, the rest to *out. n = 0 gives
 * the family's defaults. */
fv_status fv_image_config_parse(const char *json, size_t n, const char *where,
                                fv_layout_config *layout, fv_image_config *out);

/* Of the tower that reads images, or videos: Video-LLaVA has another of the same shape for these, and the text
 * model sees its class token. */
fv_vision_config fv_vision_config_of(const fv_model_config *cfg, bool video);

/* Parses video_preprocessor_config.json, or what processor_config.json nests under "video_processor", or,
 * where there is neither, the images' file, of a family that has read_video: sizes to *layout. Pixel
 * values must be made as those of images are, *image: FV_EUNSUPPORTED. */
fv_status fv_video_config_parse(const fv_family *family, const char *json, size_t n,
                                const char *where, const fv_image_config *image,
                                fv_layout_config *layout);

#endif

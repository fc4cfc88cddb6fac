#ifndef FOVEA_MODEL_FAMILIES_FAMILIES_H
#define FOVEA_MODEL_FAMILIES_FAMILIES_H

/* FAMILIES: the kinds of model that a checkpoint's config.json may describe.
 *
 *   config.json --model_type--> a row of the table --its keys and defaults--> fv_model_config
 *
 * A family is one row here and one file of this folder, with its layout of images in layout/. All
 * rows are read by the same code: families.c reads keys that all families have, text_config.c the
 * text model, tower.c the vision tower, and the row's `parse` the family's own keys. No tensor is
 * read here.
 *
 * Letters: N layers, H query heads, Hkv KV heads, D head dim, d model width, m FFN width. */
#include "common/status.h"
#include "layout/layout.h"
#include "model/families/name_mapping.h"
#include "model/net/config.h"

enum { FV_MAX_EOS = 16 };

/* Values of image_token in place of an id: the first id that is not in the vocabulary, and the id
 * that the tokenizer has for the layout's image token. */
enum { FV_IMAGE_TOKEN_BEYOND = -1, FV_IMAGE_TOKEN_NAMED = -2 };

/* A text model and, with has_vision, a tower, features of some of its layers and a connector. */
typedef struct fv_model_config {
    const struct fv_family *family; /* fv_family_text for a text-only model */
    bool has_vision;
    fv_vision_config vision;
    fv_text_config text;
    fv_layout_config layout; /* layout of images, as far as config.json describes it */
    bool newline;            /* rows of visual tokens may end with a newline embedding */
    bool leading_ones;       /* the tower's class token and positions have leading dimensions of
                              * 1 */
    bool tower_norm;         /* files have the tower's last norm, used or not */
    bool video_tower;        /* files have a second tower, for videos */
    bool packed_positions;   /* files have a second table of positions, which is unused */
    bool pooling_head, mask_token;  /* files have the tower's pooling head or mask token, which are
                                     * unused */
    int32_t image_token;            /* id of the image token; -1 without vision;
                                     * FV_IMAGE_TOKEN_NAMED: the tokenizer has it */
    int32_t video_token;            /* id of the video token; -1: the model reads no videos */
    int32_t n_eos, eos[FV_MAX_EOS]; /* union of config and generation_config */
    bool eos_is_default;            /* config.json names no eos: this is the family's default, which
                                     * ids in generation_config.json replace */
    char chat[32];        /* name of the chat template that config.json chooses; "": none */
    const char *chat_end; /* the token that ends a turn in it; NULL without */
    int32_t n_vocab_used; /* ids from here to text.vocab - 1 are padding rows and never sampled;
                           * equals text.vocab until the tokenizer is known */
} fv_model_config;

/* Preprocessing of pixel values (preprocessor_config.json, or nested in processor_config.json). The
 * layout decides which pixels go where (layout/layout.h). */
typedef struct fv_image_config {
    bool do_rescale, do_normalize, do_convert_rgb;
    int32_t resample; /* 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic */
    double rescale_factor;
    float mean[3], std[3];
    bool no_normalize; /* in a family's row: do_normalize is false unless the file says else */
} fv_image_config;

struct json_t; /* text/json.h */

enum { FV_FAMILY_PROCESSORS = 4 };

/* A row of the table in families.def. Defaults, for keys that files leave out, are those of the
 * family's class in transformers. */
typedef struct fv_family {
    const char *name;         /* model_type, unless files have another family's: */
    const char *type;         /* that; the family is then the one with the tower of the files */
    const char *architecture; /* class name, for files without model_type */
    fv_layout_family layout;
    const char *text;     /* model_type of a text_config that has none */
    const char *text_key; /* key of the text model's object; NULL: text_config */
    float text_eps;       /* rms_norm_eps without text_config */
    bool flat;            /* without text_config, its keys are at the root of config.json */
    bool tower_apart;     /* the tower has a directory of its own (model/tower_directory.h) */
    bool tied;            /* tie_word_embeddings */
    const char *tower;    /* model_type of a vision_config that has none, */
    bool own_tower;       /* or in place of any that it has */
    /* Names of the tower's keys if not hidden_size, num_hidden_layers and num_attention_heads. */
    const char *tower_width, *tower_depth, *tower_heads;
    fv_vision_config vision; /* the tower without vision_config */
    int32_t image_token;     /* an id, or one of FV_IMAGE_TOKEN_ */
    const char *strategy;    /* vision_feature_select_strategy */
    int32_t feature_layer;
    const fv_tensor_names *names; /* NULL: LLaVA's names in any mapping, with CLIP's tower */
    /* Parses the family's own keys at config.json's root; text, tower and image token are set. */
    fv_status (*parse)(const struct json_t *root, const char *where, fv_model_config *cfg);
    /* Image processors: image_processor_type without its suffix; the function that reads sizes from
     * its file, with *layout as config.json says; and resampling, mean and standard deviation if
     * the file has none. */
    const char *processor[FV_FAMILY_PROCESSORS];
    fv_status (*read_sizes)(const struct json_t *file, const char *where, fv_layout_config *layout);
    fv_image_config pixels;
    /* Reads the size of video frames from the video processor's file; NULL: no videos. */
    fv_status (*read_video)(const struct json_t *file, const char *where, fv_layout_config *layout);
} fv_family;

extern const fv_family fv_family_text;

/* "llava, llava_next, ...", for messages. */
const char *fv_family_names(void);

/* Row i; NULL after the last. */
const fv_family *fv_family_at(int32_t i);

/* Finds a row by name or class; NULL: no multimodal family has it. */
const fv_family *fv_family_find(const char *name);

/* `type`, if a family or text model has this name or class; otherwise the first of config.json's `architectures`
 * that one has, borrowed; `type` if none has. Derivatives may have a model_type of their own. */
const char *fv_family_known_type(const struct json_t *root, const char *type);

/* The model_type of the family's files. */
const char *fv_family_type(const fv_family *f);

/* Finds the text model's family by model_type or class; NULL: none. */
const char *fv_config_text_family(const char *name);
extern const char fv_config_text_families[]; /* "llama, ... and gemma3_text", for messages */

/* Parses the text of config.json. `where` names the file in errors. Every key that is wrong
 * or unknown in a way that changes the result (family, activation, rope type, strategy,
 * shapes that do not divide) is named with what was expected: FV_EDATA for broken JSON or wrong
 * types, FV_EUNSUPPORTED for features that the engine lacks. */
fv_status fv_config_parse(const char *json, size_t n, const char *where, fv_model_config *out);

/* Parses preprocessor_config.json or processor_config.json (at the root, or nested under
 * "image_processor"): sizes into *layout, which has config.json's values, the rest into *out. n = 0
 * gives the family's defaults. */
fv_status fv_image_config_parse(const char *json, size_t n, const char *where,
                                fv_layout_config *layout, fv_image_config *out);

/* Config of the tower that reads images, or videos: Video-LLaVA has a second tower of the same
 * shape for videos, whose class token is a visual token. */
fv_vision_config fv_vision_config_of(const fv_model_config *cfg, bool video);

/* Parses the sizes of video frames into *layout, for a family that has read_video: from
 * video_preprocessor_config.json, from "video_processor" in processor_config.json or, without
 * either, from the images' file. FV_EUNSUPPORTED if pixel values are not made as *image says. */
fv_status fv_video_config_parse(const fv_family *family, const char *json, size_t n,
                                const char *where, const fv_image_config *image,
                                fv_layout_config *layout);

#endif

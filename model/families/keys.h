#ifndef FOVEA_MODEL_FAMILIES_KEYS_H
#define FOVEA_MODEL_FAMILIES_KEYS_H

/* KEYS of a checkpoint's JSON files that several readers share. In errors, `where` names the file
 * and the part of it. */
#include "model/families/families.h"
#include "text/json.h"

enum { FV_CONFIG_WHERE_MAX = 512, FV_CONFIG_WIDTH_MAX = 1 << 17, FV_CONFIG_FFN_MAX = 1 << 20 };
enum { FV_CONFIG_HEADS_MAX = 1024 };

/* `key` of `obj`, or NULL when it is absent or null. */
const json_t *fv_config_member(const json_t *obj, const char *key);

/* Reads the name of an activation function; leaves *out alone when there is none.
 * FV_EUNSUPPORTED names one that the kernels do not have. */
fv_status fv_config_activation(const json_t *obj, const char *key, const char *where,
                               fv_activation *out);

/* Adds "eos_token_id" (an id or a list of ids) to cfg->eos without duplicates. *found: whether the
 * key exists. */
fv_status fv_config_add_eos(const json_t *obj, const char *where, fv_model_config *cfg,
                            bool *found);

/* FV_EUNSUPPORTED if the weights are quantized by a method that neither model/compressed.h nor model/stored.h
 * reads. */
fv_status fv_config_refuse_quantized(const json_t *obj, const char *where);

/* Fills *out from the keys of `obj` (config.json itself or its text_config) and the defaults
 * of `family`; *eos_default is the family's eos id, -1 for none. */
fv_status fv_config_text_parse(const json_t *obj, const char *family, const char *where,
                               fv_text_config *out, int32_t *eos_default);

/* Parses a vision_config into cfg->vision; NULL: the family's default tower. */
fv_status fv_config_tower_parse(const json_t *obj, const char *where, fv_model_config *cfg);

/* Parses the feature layers and strategy, and projector_hidden_act. */
fv_status fv_config_features_parse(const json_t *root, const char *where, fv_model_config *cfg);

/* Parses keys that the LLaVA families share: those of fv_config_features_parse, and the projector's
 * bias. */
fv_status fv_config_llava_parse(const json_t *root, const char *where, fv_model_config *cfg);
fv_status fv_config_llava_sizes(const json_t *obj, const char *where, fv_layout_config *l);

/* Keys of both of InternVL's layouts: downsample_ratio, and the sizes in the image processor's file. */
fv_status fv_config_ratio_parse(const json_t *root, const char *where, fv_vision_config *v);
fv_status fv_config_internvl_sizes(const json_t *obj, const char *where, fv_layout_config *l);

/* Parses keys that LLaVA-NeXT and LLaVA-OneVision share; without image_grid_pinpoints the n sizes
 * of `pinpoint` are used. */
fv_status fv_config_tiles_parse(const json_t *root, const char *where, int32_t n,
                                const fv_layout_size *pinpoint, fv_model_config *cfg);

/* Keys of towers of images of any size (Qwen-VL, GLM): requires a key to be absent or to have
 * this value, and `why` says so; reads video_token_id, by default the one after the family's image
 * token. */
fv_status fv_config_require(const json_t *obj, const char *key, const char *where, int32_t value,
                            const char *why);
fv_status fv_config_video_token(const json_t *root, const char *where, fv_model_config *cfg);

/* Reads the limits of an image's area in pixels, under the names of a size's edges or beside it; a
 * patch has `frames` frames. */
fv_status fv_config_read_areas(const json_t *obj, const char *where, const fv_layout_config *l,
                               int32_t frames, int32_t *least, int32_t *most);

/* ---- an image processor's file ---------------------------------------------------------------- */

/* Resampling, mean and standard deviation of CLIP's processor, which others copy, and of
 * Idefics3's. */
#define FV_PIXELS_CLIP                                                                             \
    .resample = 3, .mean = {0.48145466F, 0.4578275F, 0.40821073F},                                 \
    .std = {0.26862954F, 0.26130258F, 0.27577711F}
#define FV_PIXELS_LANCZOS .resample = 1, .mean = {0.5F, 0.5F, 0.5F}, .std = {0.5F, 0.5F, 0.5F}

/* Reads 'image_processor_type' under any of its names; leaves *type alone if absent. */
fv_status fv_config_read_type(const json_t *obj, const char *where, const char **type);

/* Reads a key whose value is a number of pixels. */
fv_status fv_config_read_edge(const json_t *obj, const char *key, const char *where, int32_t *edge);

/* Reads 'size': one number or {"shortest_edge"} to *edge; otherwise sets *edge to 0 and reads a box
 * to *box. */
fv_status fv_config_read_size(const json_t *obj, const char *where, int32_t *edge,
                              fv_layout_size *box);

/* FV_EUNSUPPORTED if 'do_resize' is false; for families whose images may have any size. */
fv_status fv_config_require_resize(const json_t *obj, const char *where);

/* Reads 'crop_size' in any of its forms. */
fv_status fv_config_read_crop(const json_t *obj, const char *where, fv_layout_size *crop);

/* Reads the sizes of LLaVA-NeXT and LLaVA-OneVision: tiles of the tower's size, and config.json's
 * pinpoints. */
fv_status fv_config_read_anyres(const json_t *obj, const char *where, fv_layout_config *l);

/* Parses Gemma 4's keys of heads, RoPE, windows and scales. t has the heads of sliding layers on entry;
 * `unified`: with the defaults of Gemma 4 12B's class. */
fv_status fv_config_gemma4(const json_t *obj, const char *where, bool unified, fv_text_config *t);

/* Parses the keys of recurrent layers (Gated DeltaNet). t has the file's layers on entry; on return a
 * layer is a repetition of their pattern (fv_recurrent_config). */
fv_status fv_config_recurrent(const json_t *obj, const char *where, fv_text_config *t);

#endif

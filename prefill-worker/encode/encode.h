#ifndef FOVEA_PREFILL_WORKER_ENCODE_ENCODE_H
#define FOVEA_PREFILL_WORKER_ENCODE_ENCODE_H

/* ENCODE: pixel values of images and videos -> embeddings for the text model, one image at a time (a video
 * counts as an image of several tiles); those of images seen before come from a cache. */
#include "prefill-worker/condense/condense.h"
#include "prefill-worker/image/cache.h"
#include "prefill-worker/image/image.h"

/* The images of one prompt. */
typedef struct fv_encoded {
    const fv_model_config *cfg; /* borrowed, as the layouts are */
    const fv_layout *layout;    /* [n_image] */
    int32_t n_image;
    int32_t n_added;  /* images added so far */
    int32_t n_cached; /* those of them that an earlier request had encoded */
    int32_t n_row;    /* tokens of the added images */
    fv_buf embeds;    /* [n_row, fv_vision_embed_width] F32, large enough for all images */
    int32_t n_span;   /* spans of the added images */
    int32_t *each;    /* [n_span] tokens of each span, in order */
    int32_t *source;  /* [n_row] which of all images' tokens each was; -1: merged from several */
    double s_vision;  /* seconds in the tower */
    /* Only with fv_encoded_keep_inputs: */
    float *pixels;    /* of each image [tiles, frames, 3, h, w], on the host */
    fv_buf features;  /* [fv_encoded_features of all images, feature width] F32 */
    int32_t n_source; /* private: tokens of the added images before the condense stage */
    fv_arena arena;   /* owns the arrays on the host */
} fv_encoded;         /* {0} is empty and may be freed */

fv_status fv_encoded_open(const fv_model_config *cfg, const fv_layout *layout, int32_t n,
                          fv_device *dev, fv_encoded *out);
void fv_encoded_free(fv_encoded *e);

/* Keeps pixel values as well, and with `features`, if images are not condensed, the tower's features. Call
 * it before the first image; images must then not come from the cache. */
fv_status fv_encoded_keep_inputs(fv_encoded *e, bool features);

/* Number of the tower's tokens in all tiles of the first n_image images. */
int32_t fv_encoded_features(const fv_encoded *e, int32_t n_image);

/* Adds the next image from tokens that were encoded before. */
fv_status fv_encoded_add(fv_encoded *e, const fv_image_rows *rows);

/* Encodes the next image, given the pixels of its tiles from fv_image_preprocess; condenses it, unless
 * `choice` is NULL; adds it, and puts its tokens into the cache. */
fv_status fv_encode_image(fv_vision *v, const float *pixels, const fv_choice *choice,
                          fv_image_cache *cache, const fv_image_key *key, fv_encoded *e);

#endif

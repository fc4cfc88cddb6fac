#ifndef FOVEA_PREFILL_WORKER_ENCODE_ENCODE_H
#define FOVEA_PREFILL_WORKER_ENCODE_ENCODE_H

/* ENCODE: pixel values of images and videos -> tokens of the text model, one by one (a video is an image
 * of several tiles here); those of images that came before are taken from a cache. */
#include "prefill-worker/condense/condense.h"
#include "prefill-worker/image/cache.h"
#include "prefill-worker/image/image.h"

/* The images of one prompt. */
typedef struct fv_encoded {
    const fv_model_config *cfg; /* borrowed, as the layouts are */
    const fv_layout *layout;    /* [n_image] */
    int32_t n_image;
    int32_t n_added;  /* images of which the tokens are there */
    int32_t n_cached; /* of those, that an earlier request had encoded */
    int32_t n_row;    /* their tokens */
    fv_buf embeds;    /* [n_row, fv_vision_embed_width] F32, large enough for all images */
    int32_t n_span;   /* of the images whose tokens are there */
    int32_t *each;    /* [n_span] tokens of each span of the images' layouts, in turn */
    int32_t *source;  /* [n_row] which of all images' tokens each was; -1: made of several */
    double s_vision;  /* seconds in the tower */
    /* With fv_encoded_watch: */
    float *pixels;    /* of each image [tiles, frames, 3, h, w], on the host */
    fv_buf features;  /* [fv_encoded_features of all images, feature width] F32 */
    int32_t n_source; /* private: tokens of the images added before the condense stage */
    fv_arena arena;   /* of what is on the host */
} fv_encoded;         /* {0} is empty and may be freed */

fv_status fv_encoded_open(const fv_model_config *cfg, const fv_layout *layout, int32_t n,
                          fv_device *dev, fv_encoded *out);
void fv_encoded_free(fv_encoded *e);

/* Before the first image: pixel values stay as well, and the tower's features, if they are wanted
 * and images are not condensed. Images must then not come from the cache. */
fv_status fv_encoded_watch(fv_encoded *e, bool features);

/* Tokens of the tiles of the first n images. */
int32_t fv_encoded_features(const fv_encoded *e, int32_t n_image);

/* Adds the next image as it was encoded before. */
fv_status fv_encoded_add(fv_encoded *e, const fv_image_rows *rows);

/* Encodes the next image, pixels of its tiles from fv_image_preprocess; condenses it, unless `choice`
 * is NULL; adds it, and keeps its tokens in the cache. */
fv_status fv_encode_image(fv_vision *v, const float *pixels, const fv_choice *choice,
                          fv_image_cache *cache, const fv_image_key *key, fv_encoded *e);

#endif

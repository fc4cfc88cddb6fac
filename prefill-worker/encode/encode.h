#ifndef FOVEA_PREFILL_WORKER_ENCODE_ENCODE_H
#define FOVEA_PREFILL_WORKER_ENCODE_ENCODE_H

/* ENCODE: pixel values of images -> tokens of the text model. */
#include "prefill-worker/condense/condense.h"
#include "prefill-worker/image/cache.h"
#include "prefill-worker/image/image.h"

typedef struct fv_encoded {
    int32_t n_image;
    float *pixels;   /* [n_image, 3, S, S] on the host, owned */
    fv_buf features; /* [n_image * visual tokens, feature width] F32; empty when not asked for */
    int32_t n_row; /* rows of all images: n_image * visual tokens, or what they were condensed to */
    fv_buf embeds; /* [n_row, d_text] F32 */
    int32_t n_added;  /* images of which the rows are there, by fv_encoded_add */
    int32_t n_cached; /* of those, that an earlier request had encoded */
    int32_t *each;    /* [n_image] rows of each image, and */
    int32_t *source;  /* [n_row] which of all images' rows each was, -1: made of several; both are
                       * NULL where images are not condensed */
    fv_arena arena;   /* of these lists */
    double s_vision;  /* seconds */
} fv_encoded;         /* {0} is empty and may be freed */

/* What is encoded, and how. */
typedef struct fv_encode_job {
    int32_t n;
    const float *const *pixels; /* [n] of [3, S, S] each, from fv_image_preprocess */
    const fv_choice *condense;  /* NULL: images keep their rows */
    bool want_features;         /* not with condense */
} fv_encode_job;

/* Encodes images in one batch; none give an empty result. FV_EINVAL when the
 * preprocessor's crop is not the size that the tower was built for. */
fv_status fv_encode_images(fv_vision *v, const fv_model_config *cfg, const fv_image_config *image,
                           const fv_encode_job *job, fv_device *dev, fv_encoded *out);
void fv_encoded_free(fv_encoded *e);

/* The same image by image, with those that came before from a cache. *out gets room for n, and
 * then the rows of each. */
fv_status fv_encoded_open(const fv_model_config *cfg, int32_t n, fv_device *dev, fv_encoded *out);
fv_status fv_encoded_add(fv_encoded *e, const fv_model_config *cfg, const fv_image_rows *rows);

/* Encodes the one image of the job, adds its rows, and keeps them in the cache. */
fv_status fv_encode_keep(fv_vision *v, const fv_model_config *cfg, const fv_image_config *fit,
                         const fv_encode_job *job, fv_image_cache *cache, const fv_image_key *key,
                         fv_encoded *out);

#endif

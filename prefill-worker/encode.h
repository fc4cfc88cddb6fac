#ifndef FOVEA_PREFILL_WORKER_ENCODE_H
#define FOVEA_PREFILL_WORKER_ENCODE_H

/* ENCODE: decoded pictures -> rows of the text model. */
#include "model/net/vision.h"
#include "prefill-worker/image.h"
#include "prefill-worker/image_cache.h"

typedef struct fv_encoded {
    int32_t n_image;
    float *pixels;   /* [n_image, 3, S, S] on the host, owned */
    fv_buf features; /* [n_image * visual tokens, feature width] F32; empty when not asked for */
    fv_buf embeds;   /* [n_image * visual tokens, d_text] F32 */
    double s_preprocess, s_vision; /* seconds */
} fv_encoded;                      /* {0} is empty and may be freed */

/* Preprocesses and encodes n images in one batch; n = 0 gives an empty result. FV_EINVAL when the
 * preprocessor's crop is not the size that the tower was built for. */
fv_status fv_encode_images(fv_vision *v, const fv_model_config *cfg, const fv_image_config *image,
                           const fv_image *images, int32_t n, bool want_features, fv_device *dev,
                           fv_encoded *out);
void fv_encoded_free(fv_encoded *e);

/* One picture, whose rows [visual tokens, d_text] go to `to` and, by the bytes of its `key`, into
 * the cache. Adds the seconds that it took. */
fv_status fv_encode_keep(fv_vision *v, const fv_model_config *cfg, const fv_image_config *fit,
                         const fv_image *image, fv_device *dev, fv_image_cache *cache,
                         const void *key, size_t n_key, void *to, double *s_preprocess,
                         double *s_vision);

#endif

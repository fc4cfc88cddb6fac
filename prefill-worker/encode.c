/* Preprocessing and the vision tower, for the images of one prompt. The thread that owns the
 * tower. */
#include "prefill-worker/encode.h"

#include <stdlib.h>

#include "common/clock.h"

static fv_status encode(fv_vision *v, const fv_model_config *cfg, const fv_image_config *image,
                        const fv_image *images, bool want_features, fv_device *dev, fv_encoded *e) {
    double t0 = fv_clock_s();
    size_t each = fv_image_pixels_count(image);
    e->pixels = malloc((size_t)e->n_image * each * sizeof *e->pixels);
    if (!e->pixels) return FV_FAIL(FV_ENOMEM, "out of memory for %d images", e->n_image);
    for (int32_t i = 0; i < e->n_image; i++)
        FV_TRY(fv_image_preprocess(&images[i], image, e->pixels + (size_t)i * each));
    double t1 = fv_clock_s();
    int32_t rows = e->n_image * fv_model_visual_tokens(cfg), d = cfg->text.d_model;
    int32_t width = fv_vision_feature_width(cfg);
    fv_tensor features = {0};
    if (want_features) {
        FV_TRY(fv_buf_alloc(dev, (size_t)rows * (size_t)width * sizeof(float), FV_BUF_DEVICE,
                            &e->features));
        features = fv_tensor_of(e->features.data, FV_F32, rows, width);
    }
    FV_TRY(fv_buf_alloc(dev, (size_t)rows * (size_t)d * sizeof(float), FV_BUF_DEVICE, &e->embeds));
    fv_tensor embeds = fv_tensor_of(e->embeds.data, FV_F32, rows, d);
    FV_TRY(fv_vision_encode(v, e->pixels, e->n_image, features, embeds));
    e->s_preprocess = t1 - t0;
    e->s_vision = fv_clock_s() - t1;
    return FV_OK;
}

fv_status fv_encode_images(fv_vision *v, const fv_model_config *cfg, const fv_image_config *image,
                           const fv_image *images, int32_t n, bool want_features, fv_device *dev,
                           fv_encoded *out) {
    fv_encoded e = {.n_image = n};
    if (n == 0) {
        *out = e;
        return FV_OK;
    }
    if (image->crop_h != cfg->vision.image || image->crop_w != cfg->vision.image)
        return FV_FAIL(FV_EINVAL,
                       "the preprocessor makes %dx%d pixels and the vision tower reads %dx%d: mend "
                       "crop_size in preprocessor_config.json",
                       image->crop_w, image->crop_h, cfg->vision.image, cfg->vision.image);
    fv_status st = encode(v, cfg, image, images, want_features, dev, &e);
    if (st != FV_OK) {
        fv_encoded_free(&e);
        return st;
    }
    *out = e;
    return FV_OK;
}

void fv_encoded_free(fv_encoded *e) {
    free(e->pixels);
    fv_buf_free(&e->features);
    fv_buf_free(&e->embeds);
    *e = (fv_encoded){0};
}

fv_status fv_encode_keep(fv_vision *v, const fv_model_config *cfg, const fv_image_config *fit,
                         const fv_image *image, fv_device *dev, fv_image_cache *cache,
                         const void *key, size_t n_key, void *to, double *s_preprocess,
                         double *s_vision) {
    fv_encoded e;
    FV_TRY(fv_encode_images(v, cfg, fit, image, 1, false, dev, &e));
    *s_preprocess += e.s_preprocess;
    *s_vision += e.s_vision;
    fv_status st = dev->ops->copy_async(dev, to, e.embeds.data, e.embeds.bytes);
    if (st == FV_OK) fv_image_cache_put(cache, key, n_key, &e.embeds);
    fv_encoded_free(&e);
    return st;
}

/* Pictures of a request -> rows of the text model. A picture that came before is not encoded again:
 * an exam asks about the same one under each policy, and in each turn of a dialog. The thread of
 * the engine. */
#include <stdlib.h>
#include <string.h>

#include "cli/local_internal.h"

/* What a picture is known by: its sides, then its pixels. */
static fv_status key_of(const fv_image *image, uint8_t **key, size_t *n) {
    int32_t sides[2] = {image->w, image->h};
    size_t pixels = (size_t)image->w * (size_t)image->h * 3;
    uint8_t *k = malloc(sizeof sides + pixels);
    if (!k) return FV_FAIL(FV_ENOMEM, "out of memory for a picture");
    memcpy(k, sides, sizeof sides);
    memcpy(k + sizeof sides, image->rgb, pixels);
    *key = k;
    *n = sizeof sides + pixels;
    return FV_OK;
}

static fv_status encode_to(fv_local *l, const fv_image *image, void *to, size_t bytes,
                           fv_encoded *out) {
    fv_device *dev = l->be.device;
    uint8_t *key;
    size_t n;
    FV_TRY(key_of(image, &key, &n));
    const fv_buf *rows = fv_image_cache_get(l->images, key, n);
    fv_status st = rows ? dev->ops->copy_async(dev, to, rows->data, bytes)
                        : fv_encode_keep(l->vision, fv_checkpoint_config(l->ck),
                                         fv_checkpoint_image(l->ck), image, dev, l->images, key, n,
                                         to, &out->s_preprocess, &out->s_vision);
    free(key);
    return st;
}

fv_status fv_local_encode(fv_local *l, const fv_image *images, int32_t n, fv_encoded *out) {
    const fv_model_config *cfg = fv_checkpoint_config(l->ck);
    size_t bytes = (size_t)fv_model_visual_tokens(cfg) * (size_t)cfg->text.d_model * sizeof(float);
    fv_encoded e = {.n_image = n};
    if (n > 0) FV_TRY(fv_buf_alloc(l->be.device, (size_t)n * bytes, FV_BUF_DEVICE, &e.embeds));
    fv_status st = FV_OK;
    for (int32_t i = 0; i < n && st == FV_OK; i++)
        st = encode_to(l, &images[i], (uint8_t *)e.embeds.data + (size_t)i * bytes, bytes, &e);
    if (st == FV_OK)
        *out = e;
    else
        fv_encoded_free(&e);
    return st;
}

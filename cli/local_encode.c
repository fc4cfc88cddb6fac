/* Images of a request -> rows of the text model. An image that came before is not encoded again:
 * an exam asks about the same one under each policy, and in each turn of a dialog. The thread of
 * the engine. */
#include <stdlib.h>
#include <string.h>

#include "cli/local_internal.h"

/* What an image is known by: its sides, then its pixels. */
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

static fv_status encode_next(fv_local *l, const fv_image *image, const fv_choice *condense,
                             fv_encoded *out) {
    const fv_model_config *cfg = fv_checkpoint_config(l->ck);
    char how[FV_POLICY_TEXT_MAX] = "";
    fv_policy only = {0};
    uint8_t *pixels;
    fv_image_key key = {.condense = how};
    if (condense) {
        only.stage[FV_STAGE_CONDENSE] = *condense;
        fv_policy_print(&only, how);
    }
    FV_TRY(key_of(image, &pixels, &key.n));
    key.image = pixels;
    fv_encode_job job = {.n = 1, .images = image, .condense = condense};
    const fv_image_rows *known = fv_image_cache_get(l->images, &key);
    out->n_cached += known != NULL;
    fv_status st = known ? fv_encoded_add(out, cfg, known)
                         : fv_encode_keep(l->vision, cfg, fv_checkpoint_image(l->ck), &job,
                                          l->images, &key, out);
    free(pixels);
    return st;
}

fv_status fv_local_encode(fv_local *l, const fv_image *images, int32_t n, const fv_choice *condense,
                          fv_encoded *out) {
    fv_encoded e = {0};
    if (n > 0) FV_TRY(fv_encoded_open(fv_checkpoint_config(l->ck), n, l->be.device, &e));
    fv_status st = FV_OK;
    for (int32_t i = 0; i < n && st == FV_OK; i++) st = encode_next(l, &images[i], condense, &e);
    if (st == FV_OK)
        *out = e;
    else
        fv_encoded_free(&e);
    return st;
}

/* The images of a job: read, unless the cache has their tokens; encoded; condensed, where the plan
 * says so. An image's pixels are gone before the next one is decoded: so the memory that images
 * take does not grow with their number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "prefill-worker/job/job.h"

static const fv_model_config *config_of(const fv_prefill_job *j) {
    return fv_checkpoint_config(j->engine->ck);
}

static const fv_choice *condense_of(const fv_prefill_job *j) {
    return j->plan.condense.acts ? &j->policy.stage[FV_STAGE_CONDENSE] : NULL;
}

/* An image by its bytes; a decoded one by its pixels, of which the sides are no part. */
static fv_image_key key_of(const fv_prefill_job *j, int32_t i) {
    const fv_job_image *image = &j->image[i];
    const fv_image *d = image->decoded;
    if (!d) return (fv_image_key){image->bytes, image->n, j->how[i]};
    return (fv_image_key){d->rgb, (size_t)d->w * (size_t)d->h * 3, j->how[i]};
}

static const fv_image_rows *cached(const fv_prefill_job *j, int32_t i) {
    fv_image_key key = key_of(j, i);
    return j->want_features ? NULL : fv_image_cache_get(j->cache, &key);
}

/* A broken image is the client's, and would be as broken the next time. */
static fv_status blame_client(fv_status st, int32_t i) {
    if (st == FV_EDATA || st == FV_EUNSUPPORTED) st = FV_EINVAL;
    return fv_fail_prefix(st, "image %d", i);
}

/* From the header of the file: nothing is decoded yet. */
static fv_status lay(const fv_prefill_job *j, int32_t i, fv_layout *out) {
    const fv_job_image *image = &j->image[i];
    fv_image_size size = {0};
    if (image->decoded)
        size = (fv_image_size){.w = image->decoded->w, .h = image->decoded->h};
    else
        FV_TRY(fv_image_size_check(image->bytes, image->n, NULL, &size));
    return fv_layout_image(&config_of(j)->layout, size.w, size.h, j->n_image, out);
}

fv_status fv_prefill_job_lay_images(fv_prefill_job *j) {
    if (j->n_image == 0 || !config_of(j)->has_vision) return FV_OK; /* the prompt refuses them */
    FV_TRY(FV_ARENA_NEW(&j->arena, j->n_image, j->layout));
    for (int32_t i = 0; i < j->n_image; i++) {
        fv_status st = lay(j, i, &j->layout[i]);
        if (st != FV_OK) return blame_client(st, i);
    }
    return FV_OK;
}

static fv_status open_images(fv_prefill_job *j) {
    char stage[FV_POLICY_TEXT_MAX] = "", how[FV_POLICY_TEXT_MAX + 128];
    fv_policy only = {0};
    if (j->pixels) return FV_OK;
    if (condense_of(j)) {
        only.stage[FV_STAGE_CONDENSE] = *condense_of(j);
        fv_policy_print(&only, stage);
    }
    FV_TRY(FV_ARENA_NEW(&j->arena, j->n_image, j->how));
    for (int32_t i = 0; i < j->n_image; i++) {
        const fv_image *d = j->image[i].decoded;
        const fv_layout *l = &j->layout[i]; /* may depend on the number of images */
        int n = snprintf(how, sizeof how, "%.64s/", j->owner ? j->owner : "");
        if (d) n += snprintf(how + n, sizeof how - (size_t)n, "%dx%d ", d->w, d->h);
        snprintf(how + n, sizeof how - (size_t)n, "%d/%d %s", l->n_visual, l->n_tile, stage);
        FV_TRY(fv_arena_strndup(&j->arena, how, strlen(how), &j->how[i]));
    }
    FV_TRY(FV_ARENA_NEW(&j->arena, j->n_image, j->unread));
    return FV_ARENA_NEW(&j->arena, j->n_image, j->pixels);
}

fv_status fv_prefill_job_unread(fv_prefill_job *j, int32_t *n) {
    *n = 0;
    if (j->n_image == 0) return FV_OK;
    FV_TRY(open_images(j));
    for (int32_t i = j->encoded.n_added; i < j->n_image; i++) {
        j->unread[i] = !j->pixels[i] && !cached(j, i);
        *n += j->unread[i];
    }
    return FV_OK;
}

/* ---- any thread --------------------------------------------------------------------------- */

static fv_status preprocess(const fv_prefill_job *j, int32_t i, const fv_image *image,
                            float *pixels) {
    return fv_image_preprocess(image, &j->layout[i], fv_checkpoint_image(j->engine->ck), pixels);
}

static fv_status read_image(const fv_prefill_job *j, int32_t i, float *pixels) {
    const fv_job_image *image = &j->image[i];
    fv_image decoded;
    if (image->decoded) return preprocess(j, i, image->decoded, pixels);
    FV_TRY(fv_image_decode(image->bytes, image->n, NULL, &decoded));
    fv_status st = preprocess(j, i, &decoded, pixels);
    fv_image_free(&decoded);
    return st;
}

/* The next one, or as many as there are. */
static int32_t next_unread(const fv_prefill_job *j) {
    int32_t i = 0;
    while (i < j->n_image && !j->unread[i]) i++;
    return i;
}

fv_status fv_prefill_job_read(fv_prefill_job *j, bool *more) {
    int32_t i = next_unread(j);
    double begin_s = fv_clock_s();
    float *pixels = malloc(fv_image_pixels_count(&j->layout[i]) * sizeof *pixels);
    *more = false;
    j->unread[i] = false;
    fv_status st =
        pixels ? read_image(j, i, pixels) : FV_FAIL(FV_ENOMEM, "out of memory for an image");
    j->s_preprocess += fv_clock_s() - begin_s;
    if (st != FV_OK) {
        free(pixels);
        return blame_client(st, i);
    }
    j->pixels[i] = pixels;
    *more = next_unread(j) < j->n_image;
    return FV_OK;
}

/* ---- the thread of the engine --------------------------------------------------------------- */

/* *there: false when it must be read again. */
static fv_status encode_next(fv_prefill_job *j, int32_t i, bool *there) {
    const fv_engine *e = j->engine;
    const fv_image_rows *known = cached(j, i);
    fv_image_key key = key_of(j, i);
    const float *pixels = j->pixels[i];
    *there = known || pixels;
    if (known) {
        j->encoded.n_cached++;
        return fv_encoded_add(&j->encoded, known);
    }
    if (!pixels) return FV_OK;
    fv_status st = fv_encode_image(e->vision, pixels, condense_of(j), j->cache, &key, &j->encoded);
    free(j->pixels[i]);
    j->pixels[i] = NULL;
    return st;
}

fv_status fv_prefill_job_encode(fv_prefill_job *j, bool *done) {
    const fv_engine *e = j->engine;
    fv_encoded *out = &j->encoded;
    *done = true;
    if (out->n_added == j->n_image) return FV_OK;
    if (out->n_image == 0) {
        FV_TRY(fv_encoded_open(config_of(j), j->layout, j->n_image, e->be.device, out));
        if (j->want_features) FV_TRY(fv_encoded_watch(out, !condense_of(j)));
    }
    while (*done && out->n_added < j->n_image) FV_TRY(encode_next(j, out->n_added, done));
    j->s_vision = out->s_vision;
    j->n_cached = out->n_cached;
    return FV_OK;
}

fv_status fv_prefill_job_encode_all(fv_prefill_job *j) {
    for (bool done = false, more; !done;) {
        int32_t n;
        FV_TRY(fv_prefill_job_unread(j, &n));
        for (more = n > 0; more;) FV_TRY(fv_prefill_job_read(j, &more));
        FV_TRY(fv_prefill_job_encode(j, &done));
    }
    return FV_OK;
}

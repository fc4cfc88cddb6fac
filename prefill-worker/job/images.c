/* The images and videos of a job: read, unless the cache has their tokens; encoded; condensed, where the
 * plan says so. A file's pixels are gone before the next one is decoded: so the memory that images take does
 * not grow with their number. */
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

static const fv_image_rows *cached(const fv_prefill_job *j, int32_t i) {
    return j->want_features ? NULL : fv_image_cache_get(j->cache, &j->key[i]);
}

/* A broken image is the caller's, and would be as broken the next time. */
static fv_status blame_caller(fv_status st, int32_t image) {
    return fv_fail_prefix(fv_fail_caller(st), "image %d", image);
}

/* ---- what there is -------------------------------------------------------------------------- */

static fv_status check_video(const fv_prefill_job *j, int32_t v, int32_t least) {
    const fv_job_video *video = &j->video[v];
    if (video->clip.n < 1) return FV_FAIL(FV_EINVAL, "video %d has no frames", v);
    if (video->first < least)
        return FV_FAIL(FV_EINVAL,
                       "video %d begins with image %d, which is a frame of the video before it", v,
                       video->first);
    if (video->first <= j->n_image && video->clip.n <= j->n_image - video->first) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "video %d has %d frames from image %d on, and the request has %d images", v,
                   video->clip.n, video->first, j->n_image);
}

static fv_status make_items(fv_prefill_job *j) {
    int32_t v = 0;
    j->n_item = 0;
    FV_TRY(FV_ARENA_NEW(&j->arena, j->n_image, j->item));
    for (int32_t i = 0; i < j->n_image; i += j->item[j->n_item++].n) {
        fv_job_item *item = &j->item[j->n_item];
        *item = (fv_job_item){.first = i, .n = 1};
        if (v == j->n_video) continue;
        FV_TRY(check_video(j, v, i));
        if (j->video[v].first != i) continue;
        item->video = &j->video[v++];
        item->n = item->video->clip.n;
    }
    return v < j->n_video ? check_video(j, v, j->n_image) : FV_OK;
}

/* From the header of the file: nothing is decoded yet. */
static fv_status size_of(const fv_prefill_job *j, int32_t i, fv_image_size *out) {
    const fv_job_image *image = &j->image[i];
    if (!image->decoded) return fv_image_size_check(image->bytes, image->n, NULL, out);
    *out = (fv_image_size){.w = image->decoded->w, .h = image->decoded->h};
    return FV_OK;
}

static fv_status lay(const fv_prefill_job *j, const fv_job_item *item, fv_layout *out) {
    const fv_layout_config *c = &config_of(j)->layout;
    fv_image_size size = {0}, next = {0};
    fv_status st = size_of(j, item->first, &size);
    if (st != FV_OK) return blame_caller(st, item->first);
    for (int32_t i = 1; i < item->n; i++) {
        st = size_of(j, item->first + i, &next);
        if (st == FV_OK && (next.w != size.w || next.h != size.h))
            st = FV_FAIL(FV_EINVAL,
                         "a frame of %d x %d pixels in a video of %d x %d: all frames of a video "
                         "must have one size",
                         next.w, next.h, size.w, size.h);
        if (st != FV_OK) return blame_caller(st, item->first + i);
    }
    if (item->video)
        st = fv_layout_video(c, size.w, size.h, &item->video->clip, out);
    else
        st = fv_layout_image(c, size.w, size.h, j->n_item, out);
    return st == FV_OK ? st : blame_caller(st, item->first);
}

fv_status fv_prefill_job_lay_images(fv_prefill_job *j) {
    FV_TRY(make_items(j));
    if (j->n_image == 0 || !config_of(j)->has_vision) return FV_OK; /* the prompt refuses them */
    FV_TRY(FV_ARENA_NEW(&j->arena, j->n_item, j->layout));
    for (int32_t i = 0; i < j->n_item; i++) FV_TRY(lay(j, &j->item[i], &j->layout[i]));
    return FV_OK;
}

/* An image by its bytes; a decoded one by its pixels, of which the sides are no part. */
static fv_image_key key_of_image(const fv_job_image *image) {
    const fv_image *d = image->decoded;
    if (!d) return (fv_image_key){.image = image->bytes, .n = image->n};
    return (fv_image_key){.image = d->rgb, .n = (size_t)d->w * (size_t)d->h * 3};
}

/* A video by the bytes of its frames, one after the other, each after its length. */
static fv_status join_frames(fv_prefill_job *j, const fv_job_item *item, fv_image_key *key) {
    size_t n = 0;
    void *all;
    for (int32_t i = 0; i < item->n; i++)
        n += sizeof n + key_of_image(&j->image[item->first + i]).n;
    FV_TRY(fv_arena_alloc(&j->arena, n, &all));
    *key = (fv_image_key){.image = all, .n = n};
    for (int32_t i = 0; i < item->n; i++) {
        fv_image_key frame = key_of_image(&j->image[item->first + i]);
        all = mempcpy(mempcpy(all, &frame.n, sizeof frame.n), frame.image, frame.n);
    }
    return FV_OK;
}

static fv_status make_key(fv_prefill_job *j, int32_t i, const char *stage) {
    const fv_job_item *item = &j->item[i];
    const fv_layout *l = &j->layout[i]; /* may depend on the number of images */
    char how[FV_POLICY_TEXT_MAX + 128], *kept;
    int n = snprintf(how, sizeof how, "%.64s/", j->owner ? j->owner : "");
    if (j->image[item->first].decoded)
        n += snprintf(how + n, sizeof how - (size_t)n, "%dx%d ", l->image_w, l->image_h);
    snprintf(how + n, sizeof how - (size_t)n, "%s%d/%d %s", l->video ? "video " : "", l->n_visual,
             l->n_tile, stage);
    FV_TRY(fv_arena_strndup(&j->arena, how, strlen(how), &kept));
    if (item->video)
        FV_TRY(join_frames(j, item, &j->key[i]));
    else
        j->key[i] = key_of_image(&j->image[item->first]);
    j->key[i].condense = kept;
    return FV_OK;
}

static fv_status open_images(fv_prefill_job *j) {
    char stage[FV_POLICY_TEXT_MAX] = "";
    fv_policy only = {0};
    if (j->pixels) return FV_OK;
    if (condense_of(j) && j->n_video)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "condense=%s: videos are not condensed: remove condense, or send the frames as images",
            condense_of(j)->method->name);
    if (condense_of(j)) {
        only.stage[FV_STAGE_CONDENSE] = *condense_of(j);
        fv_policy_print(&only, stage);
    }
    FV_TRY(FV_ARENA_NEW(&j->arena, j->n_item, j->key));
    for (int32_t i = 0; i < j->n_item; i++) FV_TRY(make_key(j, i, stage));
    FV_TRY(FV_ARENA_NEW(&j->arena, j->n_item, j->unread));
    return FV_ARENA_NEW(&j->arena, j->n_item, j->pixels);
}

fv_status fv_prefill_job_unread(fv_prefill_job *j, int32_t *n) {
    *n = 0;
    if (j->n_image == 0) return FV_OK;
    FV_TRY(open_images(j));
    for (int32_t i = j->encoded.n_added; i < j->n_item; i++) {
        j->unread[i] = !j->pixels[i] && !cached(j, i);
        *n += j->unread[i];
    }
    return FV_OK;
}

/* ---- any thread --------------------------------------------------------------------------- */

static fv_status read_image(const fv_prefill_job *j, const fv_job_image *image,
                            const fv_layout *layout, float *pixels) {
    const fv_image_config *c = fv_checkpoint_image(j->engine->ck);
    fv_image decoded;
    if (image->decoded) return fv_image_preprocess(image->decoded, layout, c, pixels);
    FV_TRY(fv_image_decode(image->bytes, image->n, NULL, &decoded));
    fv_status st = fv_image_preprocess(&decoded, layout, c, pixels);
    fv_image_free(&decoded);
    return st;
}

/* An image; or frames, of which the last is repeated until its tile is full. */
static fv_status read_item(const fv_prefill_job *j, int32_t i, float *pixels) {
    const fv_job_item *item = &j->item[i];
    const fv_layout *l = &j->layout[i];
    int32_t n = l->video ? l->n_tile * l->frames : 1;
    size_t each = fv_image_pixels_count(l) / (size_t)n;
    for (int32_t k = 0; k < n; k++, pixels += each) {
        if (k >= item->n) {
            memcpy(pixels, pixels - each, each * sizeof *pixels);
            continue;
        }
        fv_status st = read_image(j, &j->image[item->first + k], l, pixels);
        if (st != FV_OK) return blame_caller(st, item->first + k);
    }
    return FV_OK;
}

/* The next one, or as many as there are. */
static int32_t next_unread(const fv_prefill_job *j) {
    int32_t i = 0;
    while (i < j->n_item && !j->unread[i]) i++;
    return i;
}

fv_status fv_prefill_job_read(fv_prefill_job *j, bool *more) {
    int32_t i = next_unread(j);
    double begin_s = fv_clock_s();
    float *pixels = malloc(fv_image_pixels_count(&j->layout[i]) * sizeof *pixels);
    *more = false;
    j->unread[i] = false;
    fv_status st =
        pixels ? read_item(j, i, pixels) : FV_FAIL(FV_ENOMEM, "out of memory for an image");
    j->s_preprocess += fv_clock_s() - begin_s;
    if (st != FV_OK) {
        free(pixels);
        return st;
    }
    j->pixels[i] = pixels;
    *more = next_unread(j) < j->n_item;
    return FV_OK;
}

/* ---- the thread of the engine --------------------------------------------------------------- */

/* *there: false when it must be read again. */
static fv_status encode_next(fv_prefill_job *j, int32_t i, bool *there) {
    const fv_engine *e = j->engine;
    const fv_image_rows *known = cached(j, i);
    const float *pixels = j->pixels[i];
    *there = known || pixels;
    if (known) {
        j->encoded.n_cached++;
        return fv_encoded_add(&j->encoded, known);
    }
    if (!pixels) return FV_OK;
    fv_vision *tower = e->video && j->item[i].video ? e->video : e->vision;
    fv_status st =
        fv_encode_image(tower, pixels, condense_of(j), j->cache, &j->key[i], &j->encoded);
    free(j->pixels[i]);
    j->pixels[i] = NULL;
    return st;
}

fv_status fv_prefill_job_encode(fv_prefill_job *j, bool *done) {
    const fv_engine *e = j->engine;
    fv_encoded *out = &j->encoded;
    *done = true;
    if (out->n_added == j->n_item) return FV_OK;
    if (out->n_image == 0) {
        FV_TRY(fv_encoded_open(config_of(j), j->layout, j->n_item, e->be.device, out));
        if (j->want_features) FV_TRY(fv_encoded_watch(out, !condense_of(j)));
    }
    while (*done && out->n_added < j->n_item) FV_TRY(encode_next(j, out->n_added, done));
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

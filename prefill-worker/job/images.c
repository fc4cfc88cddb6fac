/* Reads the images and videos of a job whose tokens the cache does not have, encodes them, and condenses
 * them if the plan says so. A file's pixels are freed before the next one is decoded, so at most one decoded
 * image is in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "prefill-worker/job/job.h"

/* The cost, in pixels, of starting fovea-video for an image: such a process costs 40 ms before it decodes
 * anything, and a hostile file makes it run for longer than a JPEG of its size. So it is read with the large images, and
 * delays no small one. */
enum { PROCESS_COST = 16 << 20 };

static const fv_model_config *config_of(const fv_prefill_job *j) {
    return fv_checkpoint_config(j->engine->ck);
}

static const fv_choice *condense_of(const fv_prefill_job *j) {
    return j->plan.condense.acts ? &j->policy.stage[FV_STAGE_CONDENSE] : NULL;
}

static const fv_image_rows *cached(const fv_prefill_job *j, int32_t i) {
    return j->want_features ? NULL : fv_image_cache_get(j->cache, &j->key[i]);
}

/* Blames the caller: a broken image would be as broken on any other worker. */
static fv_status blame_caller(fv_status st, int32_t image) {
    return fv_fail_prefix(fv_fail_caller(st), "image %d", image);
}

/* ---- items --------------------------------------------------------------------------------- */

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

/* Reads the size from the file's header; nothing is decoded yet. */
static fv_status size_of(const fv_prefill_job *j, int32_t i, fv_image_size *out) {
    const fv_job_image *image = &j->image[i];
    if (!image->decoded) return fv_image_size_check(image->bytes, image->n, NULL, out);
    *out = (fv_image_size){.w = image->decoded->w, .h = image->decoded->h};
    return FV_OK;
}

static fv_status lay(const fv_prefill_job *j, const fv_job_item *item, fv_layout *out) {
    const fv_layout_config *c = item->video ? &config_of(j)->layout : &j->bounds;
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
    j->bounds = config_of(j)->layout;
    FV_TRY(fv_fail_caller(fv_layout_bound(&j->bounds, j->pixels_min, j->pixels_max)));
    FV_TRY(FV_ARENA_NEW(&j->arena, j->n_item, j->layout));
    for (int32_t i = 0; i < j->n_item; i++) FV_TRY(lay(j, &j->item[i], &j->layout[i]));
    return FV_OK;
}

/* Identifies an image by its bytes, or a decoded one by its pixels; make_key adds the latter's sides. */
static fv_image_key key_of_image(const fv_job_image *image) {
    const fv_image *d = image->decoded;
    if (!d) return (fv_image_key){.image = image->bytes, .n = image->n};
    return (fv_image_key){.image = d->rgb, .n = (size_t)d->w * (size_t)d->h * 3};
}

/* Identifies a video by the bytes of its frames, each after its length. */
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
    const fv_layout *l = &j->layout[i]; /* part of the key: it may depend on the number of images */
    char how[FV_POLICY_TEXT_MAX + 128], *kept;
    int n = snprintf(how, sizeof how, "%.64s/", j->owner ? j->owner : "");
    if (j->image[item->first].decoded)
        n += snprintf(how + n, sizeof how - (size_t)n, "%dx%d ", l->image_w, l->image_h);
    snprintf(how + n, sizeof how - (size_t)n, "%s%d/%d of %dx%d %s", l->video ? "video " : "",
             l->n_visual, l->n_tile, l->tile.w, l->tile.h, stage);
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
    for (int32_t i = j->n_skip + j->encoded.n_added; i < j->n_item; i++) {
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

/* Returns the next item to be read, or n_item. */
static int32_t next_unread(const fv_prefill_job *j) {
    int32_t i = 0;
    while (i < j->n_item && !j->unread[i]) i++;
    return i;
}

/* Returns how many images fill the item's tiles; for a video that may be more than its frames. */
static int32_t images_of(const fv_prefill_job *j, int32_t i) {
    const fv_layout *l = &j->layout[i];
    return l->video ? l->n_tile * l->frames : 1;
}

/* Reads image k of item i; repeats a video's last frame until its tile is full. */
static fv_status read_next(fv_prefill_job *j, int32_t i, int32_t k) {
    const fv_job_item *item = &j->item[i];
    int32_t n = images_of(j, i);
    size_t each = fv_image_pixels_count(&j->layout[i]) / (size_t)n;
    float *pixels = j->pixels[i] + (size_t)k * each;
    fv_status st = read_image(j, &j->image[item->first + k], &j->layout[i], pixels);
    if (st != FV_OK) return blame_caller(st, item->first + k);
    for (k++; k >= item->n && k < n; k++, pixels += each)
        memcpy(pixels + each, pixels, each * sizeof *pixels);
    return FV_OK;
}

/* Whether the image takes a process of its own to decode. */
static bool is_sandboxed(const fv_job_image *image) {
    fv_image_size size;
    return !image->decoded && fv_image_size_read(image->bytes, image->n, &size) == FV_OK &&
           fv_image_is_sandboxed(size.kind);
}

uint64_t fv_prefill_job_read_cost(const fv_prefill_job *j) {
    int32_t i = next_unread(j);
    const fv_layout *l = &j->layout[i];
    const fv_job_image *image = &j->image[j->item[i].first + j->n_frame];
    int64_t pixels = fv_layout_pixels(&config_of(j)->layout, l->image_w, l->image_h);
    return (uint64_t)pixels + image->n + (is_sandboxed(image) ? PROCESS_COST : 0);
}

fv_status fv_prefill_job_read(fv_prefill_job *j, bool *more) {
    int32_t i = next_unread(j);
    double begin_s = fv_clock_s();
    fv_status st = FV_OK;
    *more = false;
    if (j->n_frame == 0) {
        j->pixels[i] = malloc(fv_image_pixels_count(&j->layout[i]) * sizeof(float));
        if (!j->pixels[i]) st = FV_FAIL(FV_ENOMEM, "out of memory for an image");
    }
    if (st == FV_OK) st = read_next(j, i, j->n_frame);
    j->s_preprocess += fv_clock_s() - begin_s;
    if (st != FV_OK) {
        free(j->pixels[i]);
        j->pixels[i] = NULL;
        return st;
    }
    j->n_frame = j->n_frame + 1 < j->item[i].n ? j->n_frame + 1 : 0;
    j->unread[i] = j->n_frame > 0;
    *more = next_unread(j) < j->n_item;
    return FV_OK;
}

/* ---- the thread of the engine --------------------------------------------------------------- */

/* Encodes item i, or takes it from the cache. *there: false if it must be read again. */
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

bool fv_prefill_job_encoded(const fv_prefill_job *j) {
    return j->n_skip + j->encoded.n_added == j->n_item;
}

fv_status fv_prefill_job_encode_next(fv_prefill_job *j, bool *there) {
    const fv_engine *e = j->engine;
    fv_encoded *out = &j->encoded;
    if (out->n_image == 0) {
        FV_TRY(fv_encoded_open(config_of(j), j->layout + j->n_skip, j->n_item - j->n_skip,
                               e->be.device, out));
        if (j->want_features) FV_TRY(fv_encoded_keep_inputs(out, !condense_of(j)));
    }
    FV_TRY(encode_next(j, j->n_skip + out->n_added, there));
    j->s_vision = out->s_vision;
    j->n_cached = out->n_cached;
    return FV_OK;
}

fv_status fv_prefill_job_encode(fv_prefill_job *j, bool *done) {
    *done = true;
    while (*done && !fv_prefill_job_encoded(j)) FV_TRY(fv_prefill_job_encode_next(j, done));
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

/* The images of a task: counted, read, unless the cache has their rows; encoded; condensed, where
 * the plan says so.
 *
 * One thread reads, one image after the other: bytes -> pixels -> pixel values, and the pixels
 * are gone before the next one is decoded. So the memory that images take does not grow with
 * their number, and the computing thread goes on with those who have none. An image of each task
 * in turn: nobody waits for all of somebody else's. The thread has the tasks that the line has
 * prepared, at most a batch; that bounds the pixel values that wait. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "prefill-worker/service/internal.h"

static fv_image_key key_of(const fv_task *t, size_t i) {
    const ProtobufCBinaryData *data = &t->msg->request->images[i]->data;
    return (fv_image_key){data->data, data->len, t->condense};
}

/* A broken image is the client's, and would be as broken the next time. */
static fv_status blame_client(fv_status st, size_t i) {
    if (st == FV_EDATA || st == FV_EUNSUPPORTED) st = FV_EINVAL;
    return fv_fail_prefix(st, "image %zu", i);
}

/* ---- room for pixels: the loop thread, but for giving back ---------------------------------- */

static fv_status count_pixels(const fv_generate_message *r, uint64_t *out) {
    uint64_t n = 0;
    for (size_t i = 0; i < r->n_images; i++) {
        fv_image_size size;
        fv_status st =
            fv_image_size_check(r->images[i]->data.data, r->images[i]->data.len, NULL, &size);
        if (st != FV_OK) return blame_client(st, i);
        n += (uint64_t)fv_image_size_pixels(&size);
    }
    *out = n;
    return FV_OK;
}

fv_status fv_task_take_pixels(fv_task *t) {
    fv_prefill_worker *w = t->worker;
    uint64_t n = 0, held = atomic_load(&w->pixels_held);
    uint64_t most = (uint64_t)w->opt.pixels, each = (uint64_t)w->opt.pixels_request;
    FV_TRY(count_pixels(t->msg->request, &n));
    if (each && n > each)
        return FV_FAIL(FV_EINVAL,
                       "the images have %" PRIu64 " pixels together; at most %" PRIu64
                       " are taken: send fewer or smaller ones",
                       n, each);
    if (most && held && held + n > most)
        return FV_FAIL(FV_EBUSY,
                       "images of %" PRIu64 " pixels wait here already; try another worker, or "
                       "later",
                       held);
    t->n_pixels = n;
    atomic_fetch_add(&w->pixels_held, n);
    return FV_OK;
}

void fv_task_give_pixels(fv_task *t) {
    atomic_fetch_sub(&t->worker->pixels_held, t->n_pixels);
    t->n_pixels = 0;
}

/* ---- the reading thread --------------------------------------------------------------------- */

static fv_status read_image(fv_task *t, size_t i) {
    const fv_image_config *fit = fv_checkpoint_image(t->worker->line.engine->ck);
    const ProtobufCBinaryData *data = &t->msg->request->images[i]->data;
    double t0 = fv_clock_s();
    fv_image image;
    float *pixels = malloc(fv_image_pixels_count(fit) * sizeof *pixels);
    fv_status st = pixels ? fv_image_decode(data->data, data->len, NULL, &image)
                          : FV_FAIL(FV_ENOMEM, "out of memory for a picture");
    if (st == FV_OK) {
        st = fv_image_preprocess(&image, fit, pixels);
        fv_image_free(&image);
    }
    t->images.seconds += fv_clock_s() - t0;
    if (st != FV_OK) {
        free(pixels);
        return blame_client(st, i);
    }
    t->images.pixels[i] = pixels;
    return FV_OK;
}

/* The next one that is wanted, or as many as there are. */
static size_t next_wanted(const fv_task *t) {
    size_t i = 0, n = t->msg->request->n_images;
    while (i < n && !t->images.wanted[i]) i++;
    return i;
}

/* One image; then the others' turn, or back. */
static void read_next(fv_job *job) {
    fv_task *t = job->owner;
    fv_task_images *p = &t->images;
    fv_prefill_worker *w = t->worker;
    size_t i = next_wanted(t);
    p->wanted[i] = false;
    if (!atomic_load(&t->cancelled)) p->status = read_image(t, i);
    if (p->status != FV_OK) snprintf(p->text, sizeof p->text, "%s", fv_last_error());
    atomic_fetch_add_explicit(&w->n_read, 1, memory_order_relaxed);
    bool more = p->status == FV_OK && !atomic_load(&t->cancelled) &&
                next_wanted(t) < t->msg->request->n_images;
    if (more)
        fv_jobs_follow(w->reader, job);
    else
        fv_jobs_follow(w->jobs, &p->back); /* the task is not ours any more */
}

/* ---- the computing thread ------------------------------------------------------------------- */

/* The thread reads for all in turn: while it gets on, so do those whose turn is yet to come. */
static uint64_t images_read(const void *worker) {
    const fv_prefill_worker *w = worker;
    return atomic_load_explicit(&w->n_read, memory_order_relaxed);
}

/* The line looks at the task behind this. */
static void on_back(fv_job *job) { ((fv_task *)job->owner)->images.away = false; }

/* What is done to the rows of this task's images, as the cache knows it. */
static fv_status name_condense(fv_task *t) {
    char text[FV_POLICY_TEXT_MAX] = "";
    fv_policy only = {0};
    only.stage[FV_STAGE_CONDENSE] = t->policy.stage[FV_STAGE_CONDENSE];
    if (t->plan.condenses) fv_policy_print(&only, text);
    return fv_arena_strndup(&t->arena, text, strlen(text), &t->condense);
}

static fv_status open_images(fv_task *t) {
    fv_task_images *p = &t->images;
    size_t n = t->msg->request->n_images;
    if (p->pixels) return FV_OK;
    p->job = (fv_job){.run = read_next, .owner = t};
    p->back = (fv_job){.run = on_back, .owner = t};
    FV_TRY(name_condense(t));
    FV_TRY(FV_ARENA_NEW(&t->arena, n, p->wanted));
    return FV_ARENA_NEW(&t->arena, n, p->pixels);
}

fv_status fv_task_read_images(fv_task *t) {
    fv_task_images *p = &t->images;
    size_t n = t->msg->request->n_images, n_wanted = 0;
    if (n == 0) return FV_OK;
    FV_TRY(open_images(t));
    for (size_t i = (size_t)t->encoded.n_added; i < n; i++) {
        fv_image_key key = key_of(t, i);
        p->wanted[i] = !p->pixels[i] && !fv_image_cache_get(t->worker->line.cache, &key);
        n_wanted += p->wanted[i];
    }
    if (n_wanted == 0) {
        fv_task_give_pixels(t);
        return FV_OK;
    }
    t->state = FV_TASK_READING;
    t->reading_s = fv_clock_s();
    p->away = true;
    fv_task_works(t, images_read);
    fv_jobs_follow(t->worker->reader, &p->job);
    return FV_OK;
}

fv_status fv_task_images_read(fv_task *t) {
    fv_task_images *p = &t->images;
    fv_task_waits(t);
    fv_task_give_pixels(t);
    t->s_preprocess = p->seconds;
    return p->status == FV_OK ? FV_OK : FV_FAIL(p->status, "%s", p->text);
}

/* *there: false when it must be read again. */
static fv_status encode_next(fv_task *t, size_t i, bool *there) {
    const fv_engine *e = t->worker->line.engine;
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    fv_image_cache *cache = t->worker->line.cache;
    fv_image_key key = key_of(t, i);
    const fv_image_rows *known = fv_image_cache_get(cache, &key);
    float **pixels = &t->images.pixels[i];
    *there = known || *pixels;
    if (known) {
        t->encoded.n_cached++;
        return fv_encoded_add(&t->encoded, cfg, known);
    }
    if (!*pixels) return FV_OK;
    fv_encode_job job = {.n = 1,
                         .pixels = *pixels,
                         .condense =
                             t->plan.condenses ? &t->policy.stage[FV_STAGE_CONDENSE] : NULL};
    fv_status st =
        fv_encode_keep(e->vision, cfg, fv_checkpoint_image(e->ck), &job, cache, &key, &t->encoded);
    free(*pixels);
    *pixels = NULL;
    return st;
}

fv_status fv_task_encode(fv_task *t) {
    const fv_engine *e = t->worker->line.engine;
    size_t n = t->msg->request->n_images;
    bool there = true;
    if (n == 0) return FV_OK;
    if (t->encoded.n_image == 0)
        FV_TRY(fv_encoded_open(fv_checkpoint_config(e->ck), (int32_t)n, e->be.device, &t->encoded));
    while (there && (size_t)t->encoded.n_added < n)
        FV_TRY(encode_next(t, (size_t)t->encoded.n_added, &there));
    t->s_vision = t->encoded.s_vision;
    t->n_cached = t->encoded.n_cached;
    return there ? FV_OK : fv_task_read_images(t);
}

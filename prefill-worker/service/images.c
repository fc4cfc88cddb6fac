/* The images of a task: counted, read, unless the cache has their embeddings; encoded; condensed,
 * if the plan says so.
 *
 * One thread reads, one image after the other: bytes -> pixels -> pixel values, and the pixels are
 * freed before the next one is decoded. So the memory for images does not grow with their number,
 * and the computing thread continues with tasks without images. Tasks take turns, one image each,
 * so that none waits for all images of another. The thread has the prepared tasks of the queue, at
 * most a batch, which bounds the pixel values that wait. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "prefill-worker/service/internal.h"

/* ---- room for pixels: the loop thread, but for giving back ---------------------------------- */

static fv_status count_pixels(const fv_generate_message *r, uint64_t *out) {
    uint64_t n = 0;
    for (size_t i = 0; i < r->n_images; i++) {
        fv_image_size size;
        fv_status st =
            fv_image_size_check(r->images[i]->data.data, r->images[i]->data.len, NULL, &size);
        if (st != FV_OK) return fv_fail_prefix(st, "image %zu", i);
        n += (uint64_t)fv_image_size_pixels(&size);
    }
    *out = n;
    return FV_OK;
}

fv_status fv_task_take_pixels(fv_task *t) {
    fv_prefill_worker *w = t->worker;
    uint64_t n = 0, held = atomic_load(&w->pixels_held);
    uint64_t most = (uint64_t)w->opt.pixels, each = (uint64_t)w->opt.pixels_request;
    FV_TRY(fv_fail_caller(count_pixels(t->msg->request, &n)));
    if (each && n > each)
        return fv_fail_caller(FV_FAIL(FV_EINVAL,
                                      "the images have %" PRIu64
                                      " pixels in total; the limit is %" PRIu64
                                      ": send fewer or smaller ones",
                                      n, each));
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

/* One image; then the others' turn, or back. */
static void read_next(fv_job *job) {
    fv_task *t = job->owner;
    fv_task_images *p = &t->images;
    fv_prefill_worker *w = t->worker;
    bool more = false;
    if (!atomic_load(&t->cancelled))
        fv_error_take(&p->fault, fv_fail_caller(fv_prefill_job_read(&t->prefill, &more)));
    atomic_fetch_add_explicit(&w->n_read, 1, memory_order_relaxed);
    if (more && !atomic_load(&t->cancelled))
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

/* The queue checks the task after this. */
static void on_back(fv_job *job) { ((fv_task *)job->owner)->images.away = false; }

fv_status fv_task_read_images(fv_task *t) {
    fv_task_images *p = &t->images;
    int32_t n;
    FV_TRY(fv_prefill_job_unread(&t->prefill, &n));
    if (n == 0) {
        fv_task_give_pixels(t);
        return FV_OK;
    }
    p->job = (fv_job){.run = read_next, .owner = t};
    p->back = (fv_job){.run = on_back, .owner = t};
    t->state = FV_TASK_READING;
    t->reading_s = fv_clock_s();
    p->away = true;
    fv_task_works(t, images_read);
    fv_jobs_follow(t->worker->reader, &p->job);
    return FV_OK;
}

fv_status fv_task_images_read(fv_task *t) {
    const fv_task_images *p = &t->images;
    t->read_s = fv_clock_s();
    fv_task_waits(t);
    fv_task_give_pixels(t);
    return fv_error_raise(&p->fault);
}

fv_status fv_task_encode(fv_task *t) {
    bool done;
    if (t->prefill.s_vision == 0) t->encoding_s = fv_clock_s();
    /* What the tower cannot do for this policy or image is a mistake of the request. */
    FV_TRY(fv_fail_origin(fv_fail_caller(fv_prefill_job_encode(&t->prefill, &done)),
                          FV_ORIGIN_WORKER));
    return done ? FV_OK : fv_task_read_images(t);
}

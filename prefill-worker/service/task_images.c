/* Counts the images of a task, reads those whose embeddings the cache does not have, and encodes and
 * condenses them.
 *
 * Images are read one at a time: bytes -> pixels -> pixel values, and the pixels are freed before the
 * line (reading.h) decodes the next image. The computing thread meanwhile continues with other tasks.
 * After each of its images a task waits for its tenant's turn again. Only prepared tasks, about a batch,
 * are on the lines, which bounds the pixel values in memory. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "prefill-worker/service/internal.h"

/* ---- the limit of pixels: loop thread, except fv_task_give_pixels ---------------------------- */

static fv_status count_pixels(const fv_prefill_worker *w, const fv_generate_message *r,
                              uint64_t *out) {
    const fv_layout_config *layout = &fv_checkpoint_config(w->opt.engine->ck)->layout;
    uint64_t n = 0;
    for (size_t i = 0; i < r->n_images; i++) {
        fv_image_size size;
        fv_status st =
            fv_image_size_check(r->images[i]->data.data, r->images[i]->data.len, NULL, &size);
        if (st != FV_OK) return fv_fail_prefix(st, "image %zu", i);
        n += (uint64_t)fv_layout_pixels(layout, size.w, size.h);
    }
    *out = n;
    return FV_OK;
}

fv_status fv_task_take_pixels(fv_task *t) {
    fv_prefill_worker *w = t->worker;
    uint64_t n = 0, held = atomic_load(&w->pixels_held);
    uint64_t most = (uint64_t)w->opt.pixels, each = (uint64_t)w->opt.pixels_request;
    FV_TRY(fv_fail_caller(count_pixels(w, t->msg->request, &n)));
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

/* ---- a reading thread ----------------------------------------------------------------------- */

const char *fv_task_share(const fv_task *t) {
    return *t->msg->share ? t->msg->share : t->msg->tenant;
}

static void add_next(fv_task *t) {
    fv_unit *u = &t->images.unit;
    u->cost = (double)fv_prefill_job_read_cost(&t->prefill);
    fv_reading_add(t->worker->reading, u);
}

/* Reads one image; queues the next one, or returns the task to the computing thread. */
static void read_next(fv_unit *unit) {
    fv_task *t = unit->owner;
    fv_task_images *p = &t->images;
    fv_prefill_worker *w = t->worker;
    bool more = false;
    if (!atomic_load(&t->cancelled))
        fv_error_take(&p->fault, fv_fail_caller(fv_prefill_job_read(&t->prefill, &more)));
    atomic_fetch_add_explicit(&w->n_read, 1, memory_order_relaxed);
    if (more && !atomic_load(&t->cancelled))
        add_next(t);
    else
        fv_jobs_post_followup(w->jobs, &p->back); /* the task belongs to the computing thread now */
}

/* Hashes all images of the task, and returns it. */
static void hash_all(fv_unit *unit) {
    fv_task *t = unit->owner;
    fv_prefill_worker *w = t->worker;
    if (!atomic_load(&t->cancelled))
        fv_error_take(&t->images.fault, fv_prefill_job_digest(&t->prefill));
    atomic_fetch_add_explicit(&w->n_read, 1, memory_order_relaxed);
    fv_jobs_post_followup(w->jobs, &t->images.back);
}

/* ---- the computing thread ------------------------------------------------------------------- */

/* Counts images read for any task: while the lines make progress, tasks that wait for their turn count
 * as making progress, too. */
static uint64_t images_read(const void *worker) {
    const fv_prefill_worker *w = worker;
    return atomic_load_explicit(&w->n_read, memory_order_relaxed);
}

/* Marks the task's images as back; the queue checks the task after every job. */
static void on_back(fv_job *job) { ((fv_task *)job->owner)->images.away = false; }

static void send_images(fv_task *t, void (*run)(fv_unit *unit)) {
    fv_task_images *p = &t->images;
    p->unit =
        (fv_unit){.run = run, .owner = t, .who = fv_task_share(t), .weight = t->msg->tenant_weight};
    p->back = (fv_job){.run = on_back, .owner = t};
    t->state = FV_TASK_READING;
    t->reading_s = fv_clock_s();
    p->away = true;
    fv_task_works(t, images_read);
}

void fv_task_hash_images(fv_task *t, uint64_t bytes) {
    send_images(t, hash_all);
    t->images.hashing = true;
    t->images.unit.cost = (double)bytes;
    fv_reading_add(t->worker->reading, &t->images.unit);
}

fv_status fv_task_images_hashed(fv_task *t) {
    t->images.hashing = false;
    t->reading_s = 0; /* nothing is read yet */
    fv_task_waits(t);
    return fv_error_raise(&t->images.fault);
}

fv_status fv_task_read_images(fv_task *t) {
    int32_t n;
    FV_TRY(fv_prefill_job_unread(&t->prefill, &n));
    if (n == 0) {
        fv_task_give_pixels(t);
        return FV_OK;
    }
    send_images(t, read_next);
    add_next(t);
    return FV_OK;
}

fv_status fv_task_images_read(fv_task *t) {
    const fv_task_images *p = &t->images;
    t->read_s = fv_clock_s();
    fv_task_waits(t);
    fv_task_give_pixels(t);
    return fv_error_raise(&p->fault);
}

/* Blames the request for what the tower cannot do with its policy or image, otherwise the worker. */
static fv_status blame_encoding(fv_status st) {
    return fv_fail_origin(fv_fail_caller(st), FV_ORIGIN_WORKER);
}

static void begin_encoding(fv_task *t) {
    if (t->encoding_s == 0) t->encoding_s = fv_clock_s();
}

fv_status fv_task_encode_next(fv_task *t) {
    bool there;
    begin_encoding(t);
    FV_TRY(blame_encoding(fv_prefill_job_encode_next(&t->prefill, &there)));
    return there ? FV_OK : fv_task_read_images(t);
}

fv_status fv_task_encode(fv_task *t) {
    bool done;
    begin_encoding(t);
    FV_TRY(blame_encoding(fv_prefill_job_encode(&t->prefill, &done)));
    return done ? FV_OK : fv_task_read_images(t);
}

#ifndef FOVEA_ROUTER_ESTIMATE_H
#define FOVEA_ROUTER_ESTIMATE_H

/* ESTIMATE: how long a request will take, from measurements of the requests before it.
 *
 *     in the queue   work ahead of it                x  queue's seconds per unit of work
 *   + images         pixels ahead of it at the       x  seconds per pixel
 *                    worker, and its own
 *   + prefill        prompt tokens ahead of it at    x  seconds per prompt token
 *                    the worker, and its own
 *   + decode         tokens of its answer            x  seconds per token, a + b * answers at the
 *                                                       worker
 *
 * Units need not be exact, because each factor is fitted to the units that it is used with: seconds
 * per prompt token is the time from sending requests to a prefill worker until their first tokens,
 * over the tokens that were ahead of them and their own. Batching, a cache of images, requests of
 * other routers and a machine that is shared are all in that number.
 *
 * A factor that was never measured is 0 seconds: an unknown fleet accepts every request.
 * Pure functions; times are seconds of one clock. */
#include <stdbool.h>
#include <stdint.h>

/* The work of a request for the fleet: tokens, and pixels of images to be decoded. */
typedef struct fv_work {
    uint64_t prompt, answer, pixels;
} fv_work;

/* The ratio (sum of y) / (sum of x); older samples count less. {0}: nothing was measured. */
typedef struct fv_ratio {
    double x, y, last_s;
} fv_ratio;

/* A least-squares fit of y as a linear function of x; likewise. The fields are sums, w of the weights. */
typedef struct fv_trend {
    double w, x, y, xx, xy, last_s;
} fv_trend;

/* How fast a worker is, or all of them together. */
typedef struct fv_pace {
    fv_ratio prefill; /* seconds per prompt token, without the time for images */
    fv_ratio images;  /* seconds per pixel, to decode and resize */
    fv_ratio kept;    /* seconds per request, of those whose prompt is kept */
    fv_trend decode;  /* seconds per token of an answer, over the number of answers at the worker */
} fv_pace;

/* The fleet as one router sees it. */
typedef struct fv_estimate {
    fv_pace pace;
    fv_ratio drain; /* seconds that the queue took, per second of work that left it */
    fv_ratio ended; /* answers that ended before their limit, per token */
    fv_ratio text;  /* text tokens, per token of their upper bound */
} fv_estimate;

/* ---- adding measurements; `worker` may be NULL: it is gone ------------------------------- */

/* A first token came `seconds` after the request was sent to a worker; `tokens` are its prompt tokens and
 * those ahead of it there. */
void fv_estimate_prefilled(fv_estimate *e, fv_pace *worker, uint64_t tokens, double seconds,
                           double now_s);

/* A first token came `seconds` after a request was sent to a worker that keeps most of its prompt; n: it and those ahead
 * of it. */
void fv_estimate_kept(fv_estimate *e, fv_pace *worker, int32_t n, double seconds, double now_s);

/* No first token came in `seconds`, and the request was given up: prefill takes at least that long. */
void fv_estimate_late(fv_estimate *e, fv_pace *worker, uint64_t tokens, double seconds,
                      double now_s);

/* Images of this many pixels were decoded and resized in `seconds`. */
void fv_estimate_read(fv_estimate *e, fv_pace *worker, uint64_t pixels, double seconds,
                      double now_s);

/* n_token tokens came `seconds` after the one before them, from a worker with n_answer answers. */
void fv_estimate_tokens(fv_estimate *e, fv_pace *worker, int32_t n_answer, uint32_t n_token,
                        double seconds, double now_s);

/* An answer that may end before its limit has n_token tokens; ended: it ended there by itself. */
void fv_estimate_answer(fv_estimate *e, uint32_t n_token, bool ended, double now_s);

/* A text with an upper bound of `bound` tokens had `tokens`. */
void fv_estimate_text(fv_estimate *e, uint64_t bound, uint64_t tokens, double now_s);

/* While requests waited, this one left the queue `seconds` after the one before it. */
void fv_estimate_drained(fv_estimate *e, const fv_work *w, double seconds, double now_s);

/* ---- estimates -------------------------------------------------------------------------- */

/* The expected work of a request, without pixels. `text` and `max_tokens` are upper bounds; `full`: the answer
 * always has max_tokens. */
fv_work fv_estimate_work(const fv_estimate *e, uint64_t visual, uint64_t text, uint32_t max_tokens,
                         bool full);

/* The size of a request for fair queuing (router/queue.h), in tokens: pixels count as the tokens that are
 * prefilled in the same time. */
double fv_estimate_size(const fv_estimate *e, const fv_work *w);

/* Seconds to decode and resize this many pixels. */
double fv_estimate_images_s(const fv_estimate *e, const fv_pace *worker, uint64_t pixels);

/* Seconds until the first token, once the images are decoded. */
double fv_estimate_prefill_s(const fv_estimate *e, const fv_pace *worker, uint64_t tokens);

/* Seconds that n requests take, even if nothing of their prompts needs to be computed. */
double fv_estimate_kept_s(const fv_estimate *e, const fv_pace *worker, int32_t n);

/* Seconds from the first token to the last; n_answer includes this answer. */
double fv_estimate_decode_s(const fv_estimate *e, const fv_pace *worker, int32_t n_answer,
                            uint64_t tokens);

/* Seconds until the work `ahead` has left the queue. */
double fv_estimate_queue_s(const fv_estimate *e, const fv_work *ahead);

#endif

#ifndef FOVEA_ROUTER_ESTIMATE_H
#define FOVEA_ROUTER_ESTIMATE_H

/* ESTIMATE: how long a request will take, from what was measured of the requests before it.
 *
 *     in the queue   work ahead of it                x  seconds that the queue took per unit of
 * work
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
 * What was never measured counts as 0 seconds: a fleet of which nothing is known takes what comes.
 * Pure functions; times are seconds of one clock. */
#include <stdbool.h>
#include <stdint.h>

/* The work of a request for the fleet: tokens, and pixels of images to be decoded. */
typedef struct fv_work {
    uint64_t prompt, answer, pixels;
} fv_work;

/* (sum of y) / (sum of x); older samples count less. {0}: nothing was measured. */
typedef struct fv_ratio {
    double x, y, last_s;
} fv_ratio;

/* y as a linear function of x, by least squares; likewise. The fields are sums. */
typedef struct fv_trend {
    double w, x, y, xx, xy, last_s;
} fv_trend;

/* How fast a worker is, or all of them together. */
typedef struct fv_pace {
    fv_ratio prefill; /* seconds per prompt token, without what its images took */
    fv_ratio images;  /* seconds per pixel that is decoded and resized */
    fv_trend decode;  /* seconds per token of an answer, by answers at the worker */
} fv_pace;

/* The fleet as one router sees it. */
typedef struct fv_estimate {
    fv_pace pace;
    fv_ratio drain; /* seconds that the queue took, per second of work that left it */
    fv_ratio ended; /* answers that ended before their limit, per token */
    fv_ratio text;  /* tokens of text, per token of the bound on them */
} fv_estimate;

/* ---- what was measured; `worker` may be NULL: it is gone -------------------------------- */

/* A first token came `seconds` after the request was sent to a worker, where so many prompt tokens
 * were ahead of it or its own. */
void fv_estimate_prefilled(fv_estimate *e, fv_pace *worker, uint64_t tokens, double seconds,
                           double now_s);

/* None came in `seconds`, and the request was given up: prefill takes that long at least. */
void fv_estimate_late(fv_estimate *e, fv_pace *worker, uint64_t tokens, double seconds,
                      double now_s);

/* So many pixels of images were decoded and resized in `seconds`. */
void fv_estimate_read(fv_estimate *e, fv_pace *worker, uint64_t pixels, double seconds,
                      double now_s);

/* n_token tokens came `seconds` after the one before them, from a worker with n_answer answers. */
void fv_estimate_tokens(fv_estimate *e, fv_pace *worker, int32_t n_answer, uint32_t n_token,
                        double seconds, double now_s);

/* An answer that may end before its limit has n_token tokens now; did it? */
void fv_estimate_answer(fv_estimate *e, uint32_t n_token, bool ended, double now_s);

/* Text that was said to have at most `bound` tokens had so many. */
void fv_estimate_text(fv_estimate *e, uint64_t bound, uint64_t tokens, double now_s);

/* While requests waited, this one left the queue `seconds` after the one before it. */
void fv_estimate_drained(fv_estimate *e, const fv_work *w, double seconds, double now_s);

/* ---- what is to be expected ------------------------------------------------------------- */

/* Of `text` tokens and `max_tokens` only the bounds are known; `full`: the answer goes to its. */
fv_work fv_estimate_work(const fv_estimate *e, uint64_t visual, uint64_t text, uint32_t max_tokens,
                         bool full);

/* How large a request is for whoever shares a fleet with others, in tokens: pixels count as the tokens that
 * are prefilled in the time they take. */
double fv_estimate_size(const fv_estimate *e, const fv_work *w);

/* Seconds until so many pixels are read. */
double fv_estimate_images_s(const fv_estimate *e, const fv_pace *worker, uint64_t pixels);

/* Seconds until the first token, once the images are. */
double fv_estimate_prefill_s(const fv_estimate *e, const fv_pace *worker, uint64_t tokens);

/* Seconds from the first token to the last; the answer is one of the n_answer. */
double fv_estimate_decode_s(const fv_estimate *e, const fv_pace *worker, int32_t n_answer,
                            uint64_t tokens);

/* Seconds until so much has left the queue. */
double fv_estimate_queue_s(const fv_estimate *e, const fv_work *ahead);

#endif

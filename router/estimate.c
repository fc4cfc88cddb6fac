/* Exponentially decaying sums, and estimates from them. Pure functions. */
#include "router/estimate.h"

#include <math.h>

/* A sample's weight falls to 1/e in MEMORY_S, but each new sample takes away no more than 1/KEEP of it:
 * a busy fleet is judged by its last seconds, a slow one by its last few requests. */
static const double MEMORY_S = 5;
enum { KEEP = 8 };

/* Text tokens per token of their upper bound (one per byte), until measured. */
static const double TEXT_SHARE = 0.25;

/* The probability that a token ends its answer, until measured. Optimistic, so that a fleet about
 * which little is known accepts too much rather than too little. */
static const double ENDS = 1.0 / 16;

/* Pixels that take as long as a token, until both are measured. */
static const double PIXELS_TOKEN = 65536;

/* ---- sums ------------------------------------------------------------------------------- */

static double fade(double *last_s, double now_s) {
    double passed = now_s - *last_s;
    *last_s = now_s;
    return passed > 0 ? fmax(exp(-passed / MEMORY_S), 1 - 1.0 / KEEP) : 1;
}

static void ratio_add(fv_ratio *r, double x, double y, double now_s) {
    double f = fade(&r->last_s, now_s);
    r->x = f * r->x + x;
    r->y = f * r->y + y;
}

static double ratio(const fv_ratio *r, double unknown) { return r->x > 0 ? r->y / r->x : unknown; }

static void trend_add(fv_trend *t, double weight, double x, double y, double now_s) {
    double f = fade(&t->last_s, now_s);
    t->w = f * t->w + weight;
    t->x = f * t->x + weight * x;
    t->y = f * t->y + weight * y;
    t->xx = f * t->xx + weight * x * x;
    t->xy = f * t->xy + weight * x * y;
}

/* Evaluates the fit at x. The slope is clamped between 0 (another answer costs the others nothing) and
 * mean y / mean x (answers take turns). If x was nearly constant, the slope is unknown and taken as 0. */
static double trend_at(const fv_trend *t, double x) {
    if (t->w <= 0) return 0;
    double mean_x = t->x / t->w, mean_y = t->y / t->w;
    double var = t->xx / t->w - mean_x * mean_x;
    double cov = t->xy / t->w - mean_x * mean_y;
    double slope = var > 0.1 ? cov / var : 0;
    slope = fmin(fmax(slope, 0), mean_y / mean_x);
    return mean_y + slope * (x - mean_x);
}

/* ---- adding measurements ---------------------------------------------------------------- */

void fv_estimate_prefilled(fv_estimate *e, fv_pace *worker, uint64_t tokens, double seconds,
                           double now_s) {
    ratio_add(&e->pace.prefill, (double)tokens, seconds, now_s);
    if (worker) ratio_add(&worker->prefill, (double)tokens, seconds, now_s);
}

void fv_estimate_kept(fv_estimate *e, fv_pace *worker, int32_t n, double seconds, double now_s) {
    ratio_add(&e->pace.kept, n, seconds, now_s);
    if (worker) ratio_add(&worker->kept, n, seconds, now_s);
}

/* Counts against this worker only (the fleet, if it is gone): it does not say that workers without measurements
 * are as slow. */
void fv_estimate_late(fv_estimate *e, fv_pace *worker, uint64_t tokens, double seconds,
                      double now_s) {
    if (seconds <= fv_estimate_prefill_s(e, worker, tokens)) return;
    ratio_add(worker ? &worker->prefill : &e->pace.prefill, (double)tokens, seconds, now_s);
}

void fv_estimate_read(fv_estimate *e, fv_pace *worker, uint64_t pixels, double seconds,
                      double now_s) {
    ratio_add(&e->pace.images, (double)pixels, seconds, now_s);
    if (worker) ratio_add(&worker->images, (double)pixels, seconds, now_s);
}

void fv_estimate_tokens(fv_estimate *e, fv_pace *worker, int32_t n_answer, uint32_t n_token,
                        double seconds, double now_s) {
    double each = seconds / n_token, n = n_answer > 0 ? n_answer : 1;
    trend_add(&e->pace.decode, n_token, n, each, now_s);
    if (worker) trend_add(&worker->decode, n_token, n, each, now_s);
}

void fv_estimate_answer(fv_estimate *e, uint32_t n_token, bool ended, double now_s) {
    ratio_add(&e->ended, n_token, ended, now_s);
}

void fv_estimate_text(fv_estimate *e, uint64_t bound, uint64_t tokens, double now_s) {
    ratio_add(&e->text, (double)bound, (double)tokens, now_s);
}

/* Seconds of a busy fleet that this work costs: the unit of the queue. */
static double cost(const fv_estimate *e, const fv_work *w) {
    const fv_trend *t = &e->pace.decode;
    double token_s = t->x > 0 ? t->y / t->x : 0; /* one answer's share of a step */
    return (double)w->prompt * ratio(&e->pace.prefill, 0) + (double)w->answer * token_s +
           (double)w->pixels * ratio(&e->pace.images, 0);
}

void fv_estimate_drained(fv_estimate *e, const fv_work *w, double seconds, double now_s) {
    ratio_add(&e->drain, cost(e, w), seconds, now_s);
}

/* ---- estimates -------------------------------------------------------------------------- */

/* The expected length of an answer of at most n tokens: (1 - (1 - h)^n) / h, if each token is the last with
 * probability h. Answers that were cut off by their limits are counted correctly in h: they have tokens and
 * no end. */
static double expected_tokens(const fv_estimate *e, double n) {
    double h = ratio(&e->ended, ENDS);
    if (h < 1e-9) return n;
    return h < 1 ? -expm1(n * log1p(-h)) / h : 1;
}

fv_work fv_estimate_work(const fv_estimate *e, uint64_t visual, uint64_t text, uint32_t max_tokens,
                         bool full) {
    double n_text = (double)text * ratio(&e->text, TEXT_SHARE);
    double n_answer = full ? max_tokens : expected_tokens(e, max_tokens);
    uint64_t prompt = visual + (uint64_t)ceil(n_text);
    return (fv_work){.prompt = prompt ? prompt : 1, /* no request is free */
                     .answer = (uint64_t)ceil(n_answer)};
}

double fv_estimate_size(const fv_estimate *e, const fv_work *w) {
    double token_s = ratio(&e->pace.prefill, 0), pixel_s = ratio(&e->pace.images, 0);
    double each = token_s > 0 && pixel_s > 0 ? fmin(pixel_s / token_s, 1) : 1 / PIXELS_TOKEN;
    return fmax((double)(w->prompt + w->answer) + (double)w->pixels * each, 1);
}

double fv_estimate_images_s(const fv_estimate *e, const fv_pace *worker, uint64_t pixels) {
    const fv_ratio *r = worker && worker->images.x > 0 ? &worker->images : &e->pace.images;
    return (double)pixels * ratio(r, 0);
}

double fv_estimate_prefill_s(const fv_estimate *e, const fv_pace *worker, uint64_t tokens) {
    const fv_ratio *r = worker && worker->prefill.x > 0 ? &worker->prefill : &e->pace.prefill;
    return (double)tokens * ratio(r, 0);
}

double fv_estimate_kept_s(const fv_estimate *e, const fv_pace *worker, int32_t n) {
    const fv_ratio *r = worker && worker->kept.x > 0 ? &worker->kept : &e->pace.kept;
    return n * ratio(r, 0);
}

double fv_estimate_decode_s(const fv_estimate *e, const fv_pace *worker, int32_t n_answer,
                            uint64_t tokens) {
    const fv_trend *t = worker && worker->decode.w > 0 ? &worker->decode : &e->pace.decode;
    return tokens > 1 ? (double)(tokens - 1) * trend_at(t, n_answer) : 0;
}

double fv_estimate_queue_s(const fv_estimate *e, const fv_work *ahead) {
    return cost(e, ahead) * ratio(&e->drain, 0);
}

/* router/estimate.c, router/deadline.c: a fleet in virtual time. Requests arrive at random times,
 * are admitted, wait and are sent on as router/dispatch.c does it; workers prefill in batches and
 * decode in steps whose time grows with the batch. Nobody waits for the simulated milliseconds, so
 * each run gives the same numbers. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "router/balancer.h"
#include "router/deadline.h"
#include "router/reservation.h"

TestSuite(router_deadline, .timeout = 240);

/* ---- the simulation --------------------------------------------------------------------- */

enum { BEGIN_S = 100, SECONDS = 60 };
enum { BATCH = 4, DECODE_MAX = 64, QUEUE_MAX = 256, JOBS = 1 << 16 };

typedef struct setup {
    int32_t n_p, n_d;          /* workers */
    double prefill_s, batch_s; /* per prompt token; per batch besides */
    double step_s, answer_s;   /* of a decode step; per answer in it */
    double noise;              /* prefill takes 1 - noise .. 1 + noise of that */
    bool shared;               /* prefill and decode share one machine */
    uint32_t prompt, answer;   /* tokens of a request */
    double deadline_s;
    double slow_s; /* for this long, from the tenth second on, everything takes five times as
                    * long */
} setup;

typedef enum state { QUEUED, PREFILL, DECODE, OVER } state;

typedef struct job {
    state state;
    double came_s, left_at_s, token_s;
    fv_work work;
    uint32_t n_token;
    fv_reservation p, d;
} job;

typedef struct worker {
    fv_registered_worker member;
    fv_introduction intro;
    int32_t line[64], n_line, n_batch; /* jobs; the first n_batch are being prefilled */
    int32_t answers[4096], n_answer;
    double until_s; /* of the batch or step; 0: idle */
} worker;

typedef struct world {
    const setup *s;
    fv_estimate e;
    worker p[4], d[4];
    job *jobs; /* [JOBS] */
    int32_t n_job, queue[QUEUE_MAX], n_queue, n_running;
    fv_work queued;
    double now_s, waiting_since_s;
    uint64_t random;
    bool trusts; /* everything, as a router without estimates does */
    int32_t n_good, n_late, n_refused, n_expired, n_wasted;
} world;

static world w;
static job jobs[JOBS];

static double uniform(void) {
    w.random ^= w.random << 13;
    w.random ^= w.random >> 7;
    w.random ^= w.random << 17;
    return ((double)(w.random >> 11) + 1) * 0x1p-53;
}

static void open_worker(worker *x, Fovea__Inference__V1__Role role, fv_registered_worker **list) {
    fovea__fleet__v1__introduction__init(&x->intro);
    x->intro.name = (char *)"worker";
    x->member.intro = &x->intro;
    x->member.role = role;
    x->member.state = FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_READY;
    fv_breaker_init(&x->member.breaker, 7);
    x->member.next = *list;
    *list = &x->member;
}

static fv_registered_worker *first;

static void open_world(const setup *s) {
    memset(&w, 0, sizeof w);
    w.s = s;
    w.random = 88172645463325252u;
    w.now_s = BEGIN_S;
    w.jobs = jobs;
    first = NULL;
    for (int32_t i = 0; i < s->n_p; i++)
        open_worker(&w.p[i], FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL, &first);
    for (int32_t i = 0; i < s->n_d; i++)
        open_worker(&w.d[i], FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE, &first);
}

/* ---- the router ------------------------------------------------------------------------- */

static void end_job(job *j, bool good) {
    bool late = !good && w.now_s >= j->left_at_s;
    if (late && j->state == PREFILL && j->p.worker)
        fv_estimate_late(&w.e, &j->p.worker->pace, j->p.prompt_ahead, w.now_s - j->p.taken_s,
                         w.now_s);
    if (j->state == PREFILL || j->state == DECODE) {
        w.n_running--;
        w.n_wasted += !good;
    }
    fv_reservation_give(&j->p, FV_OUTCOME_UNKNOWN, w.now_s);
    fv_reservation_give(&j->d, FV_OUTCOME_UNKNOWN, w.now_s);
    w.n_good += good;
    w.n_late += late;
    j->state = OVER;
}

static void leave_queue(int32_t at) {
    job *j = &w.jobs[w.queue[at]];
    w.queued.prompt -= j->work.prompt;
    w.queued.answer -= j->work.answer;
    w.n_queue--;
    memmove(&w.queue[at], &w.queue[at + 1], (size_t)(w.n_queue - at) * sizeof w.queue[0]);
}

static bool hopeless(job *j, double seconds) {
    if (w.trusts || w.n_running == 0) return false;
    return fv_deadline_start(seconds, j->left_at_s - w.now_s, w.now_s - j->came_s) != FV_OK;
}

static worker *least(worker *of, int32_t n) {
    worker *best = &of[0];
    for (int32_t i = 1; i < n; i++)
        if (of[i].member.n_taken < best->member.n_taken) best = &of[i];
    return best;
}

static void dispatch(void) {
    static const fv_worker_need portion;
    while (w.n_queue > 0) {
        job *j = &w.jobs[w.queue[0]];
        worker *p = least(w.p, w.s->n_p), *d = least(w.d, w.s->n_d);
        if (p->member.n_taken >= FV_PREFILL_MAX) {
            if (w.waiting_since_s == 0) w.waiting_since_s = w.now_s;
            return;
        }
        double seconds = fv_deadline_prefill_s(&w.e, &p->member, &j->work) +
                         fv_deadline_decode_s(&w.e, &d->member, &j->work);
        leave_queue(0);
        if (hopeless(j, seconds)) {
            w.n_expired++;
            end_job(j, false);
            continue;
        }
        if (w.waiting_since_s > 0) {
            fv_estimate_drained(&w.e, &j->work, w.now_s - w.waiting_since_s, w.now_s);
            w.waiting_since_s = w.now_s;
        }
        j->state = PREFILL;
        w.n_running++;
        fv_reservation_take(&j->p, &p->member, &portion, w.now_s);
        fv_reservation_queue_prompt(&j->p, j->work.prompt);
        fv_reservation_take(&j->d, &d->member, &portion, w.now_s);
        p->line[p->n_line++] = (int32_t)(j - w.jobs);
    }
    w.waiting_since_s = 0;
}

static bool come(void) {
    const setup *s = w.s;
    cr_assert_lt(w.n_job, JOBS);
    job *j = &w.jobs[w.n_job];
    *j = (job){.state = QUEUED, .came_s = w.now_s, .left_at_s = w.now_s + s->deadline_s};
    j->work = fv_estimate_work(&w.e, s->prompt, 0, s->answer, true);
    bool idle = w.n_queue + w.n_running == 0;
    fv_outlook o = fv_deadline_look(&w.e, first, &w.queued, &j->work);
    double retry_s;
    bool taken = w.trusts || idle || fv_deadline_admit(&o, s->deadline_s, &retry_s) == FV_OK;
    if (!taken || w.n_queue == QUEUE_MAX) {
        w.n_refused++;
        return false;
    }
    w.queue[w.n_queue++] = w.n_job++;
    w.queued.prompt += j->work.prompt;
    w.queued.answer += j->work.answer;
    return true;
}

/* Removes requests whose deadline has passed, and queued ones that cannot meet it. */
static void expire(int32_t oldest) {
    static const fv_work nothing = {0};
    for (int32_t i = 0; i < w.n_queue; i++) {
        job *j = &w.jobs[w.queue[i]];
        fv_outlook o = fv_deadline_look(&w.e, first, &nothing, &j->work);
        bool over = w.now_s >= j->left_at_s;
        if (!over && !hopeless(j, o.fleet_s)) continue;
        w.n_expired++;
        leave_queue(i--);
        end_job(j, false);
    }
    for (int32_t i = oldest; i < w.n_job; i++)
        if (w.jobs[i].state != OVER && w.now_s >= w.jobs[i].left_at_s) end_job(&w.jobs[i], false);
}

/* ---- the workers ------------------------------------------------------------------------ */

static bool busy(const worker *of, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (of[i].until_s > 0) return true;
    return false;
}

static void drop_over(worker *p) {
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_line; i++)
        if (i < p->n_batch || w.jobs[p->line[i]].state == PREFILL) p->line[n++] = p->line[i];
    p->n_line = n;
}

static double slow(void) {
    double at_s = w.now_s - BEGIN_S - 10;
    return at_s >= 0 && at_s < w.s->slow_s ? 5 : 1;
}

static void begin_batch(worker *p) {
    uint64_t tokens = 0;
    drop_over(p);
    if (p->until_s > 0 || p->n_line == 0) return;
    p->n_batch = p->n_line < BATCH ? p->n_line : BATCH;
    for (int32_t i = 0; i < p->n_batch; i++) tokens += w.jobs[p->line[i]].work.prompt;
    double s = w.s->batch_s + w.s->prefill_s * (double)tokens;
    s *= 1 + w.s->noise * (2 * uniform() - 1);
    p->until_s = w.now_s + s * slow() * (w.s->shared && busy(w.d, w.s->n_d) ? 1.5 : 1);
}

static void end_batch(worker *p) {
    for (int32_t i = 0; i < p->n_batch; i++) {
        job *j = &w.jobs[p->line[i]];
        if (j->state != PREFILL) continue; /* wasted */
        fv_estimate_prefilled(&w.e, &j->p.worker->pace, j->p.prompt_ahead, w.now_s - j->p.taken_s,
                              w.now_s);
        fv_reservation_prompt_done(&j->p);
        fv_reservation_give(&j->p, FV_OUTCOME_WORKED, w.now_s);
        j->state = DECODE;
        j->n_token = 1;
        j->token_s = w.now_s;
        worker *d = (worker *)j->d.worker; /* its first field */
        d->answers[d->n_answer++] = p->line[i];
    }
    memmove(p->line, p->line + p->n_batch, (size_t)(p->n_line - p->n_batch) * sizeof p->line[0]);
    p->n_line -= p->n_batch;
    p->n_batch = 0;
    p->until_s = 0;
}

static int32_t n_closed; /* answers after which the same client sends again */

static void end_step(worker *d) {
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_answer; i++) {
        job *j = &w.jobs[d->answers[i]];
        if (j->state != DECODE) continue;
        d->answers[n++] = d->answers[i];
        if (i >= DECODE_MAX) continue; /* the batch is full */
        fv_estimate_tokens(&w.e, &d->member.pace, d->member.n_taken, 1, w.now_s - j->token_s,
                           w.now_s);
        j->token_s = w.now_s;
        if (++j->n_token < j->work.answer) continue;
        end_job(j, w.now_s < j->left_at_s);
        n_closed++;
        n--;
    }
    d->n_answer = n;
    d->until_s = 0;
}

static void begin_step(worker *d) {
    int32_t n = d->n_answer < DECODE_MAX ? d->n_answer : DECODE_MAX;
    if (d->until_s > 0 || n == 0) return;
    double s = w.s->step_s + w.s->answer_s * n;
    d->until_s = w.now_s + s * slow() * (w.s->shared && busy(w.p, w.s->n_p) ? 2 : 1);
}

static void work(void) {
    for (int32_t i = 0; i < w.s->n_p; i++)
        if (w.p[i].until_s > 0 && w.now_s >= w.p[i].until_s) end_batch(&w.p[i]);
    for (int32_t i = 0; i < w.s->n_d; i++)
        if (w.d[i].until_s > 0 && w.now_s >= w.d[i].until_s) end_step(&w.d[i]);
    dispatch();
    for (int32_t i = 0; i < w.s->n_p; i++) begin_batch(&w.p[i]);
    for (int32_t i = 0; i < w.s->n_d; i++) begin_step(&w.d[i]);
}

/* ---- loads ------------------------------------------------------------------------------ */

static bool trusts; /* world.trusts of the open loop */
static const double STEP_S = 1e-3;
enum { STEPS = 1000 };

/* Answers per second of this many clients that each wait for their answer. */
static double closed_loop(const setup *s, int32_t n_client) {
    setup patient = *s;
    patient.deadline_s = 1e6;
    open_world(&patient);
    w.trusts = true;
    n_closed = n_client;
    for (int i = 0; i < SECONDS * STEPS; i++, w.now_s += STEP_S) {
        for (; n_closed > 0; n_closed--) come();
        work();
    }
    return (double)w.n_good / SECONDS;
}

static double saturation(const setup *s) {
    double best = 0;
    for (int32_t n = 4; n <= 64; n *= 2) best = fmax(best, closed_loop(s, n));
    return best;
}

/* Answers in time per second when requests arrive at random times, `rate` per second, from an idle
 * fleet on; of those that arrived after from_s seconds. */
static double goodput(const setup *s, double rate, double from_s) {
    int32_t oldest = 0, before = 0;
    open_world(s);
    w.trusts = trusts;
    double due_s = w.now_s;
    for (int i = 0; i < SECONDS * STEPS; i++, w.now_s += STEP_S) {
        if (i == (int)(from_s * STEPS)) before = w.n_good;
        for (; due_s <= w.now_s; due_s -= log(uniform()) / rate) come();
        while (oldest < w.n_job && w.jobs[oldest].state == OVER) oldest++;
        if (i % 50 == 0) expire(oldest);
        work();
    }
    return (w.n_good - before) / (SECONDS - from_s);
}

static const setup setups[] = {
    /* prefill is the bottleneck */
    {1, 1, 0.0004, 0.002, 0.004, 0.0005, 0.2, false, 200, 16, 5, 0},
    /* decode is */
    {1, 1, 0.00002, 0.002, 0.004, 0.004, 0.2, false, 200, 32, 5, 0},
    /* both, on one machine */
    {1, 1, 0.0004, 0.002, 0.005, 0.001, 0.2, true, 200, 16, 5, 0},
    /* more workers */
    {2, 2, 0.0004, 0.002, 0.004, 0.002, 0.3, false, 200, 32, 5, 0},
    /* deadlines not much longer than the work that workers have accepted */
    {1, 1, 0.0004, 0.002, 0.004, 0.0005, 0.2, false, 200, 16, 1.5, 0},
};
enum { N_SETUP = sizeof setups / sizeof setups[0] };

Test(router_deadline, goodput_stays_when_far_more_comes_than_can_be_answered) {
    static const double loads[] = {2, 5, 10, 20};
    for (size_t i = 0; i < N_SETUP; i++) {
        double full = saturation(&setups[i]);
        for (size_t l = 0; l < 4; l++) {
            double part = goodput(&setups[i], loads[l] * full, 0) / full;
            cr_assert_geq(part, 0.9, "setup %zu at %gx: %.3f of %.2f/s; of %d begun %d were late",
                          i, loads[l], part, full, w.n_job, w.n_late);
        }
    }
}

/* The same fleet without estimates, which starts everything. */
Test(router_deadline, without_estimates_it_does_not) {
    for (size_t i = 0; i < N_SETUP; i++) {
        double full = saturation(&setups[i]);
        trusts = true;
        double part = goodput(&setups[i], 10 * full, 0) / full;
        trusts = false;
        cr_assert_lt(part, 0.3, "setup %zu: %.3f", i, part);
    }
}

Test(router_deadline, below_capacity_nearly_everything_is_answered) {
    for (size_t i = 0; i < N_SETUP; i++) {
        double full = saturation(&setups[i]);
        goodput(&setups[i], 0.5 * full, 0);
        cr_assert_leq(w.n_refused + w.n_expired + w.n_late, w.n_job / 50,
                      "setup %zu: of %d requests %d were refused, %d expired", i, w.n_job,
                      w.n_refused, w.n_expired);
    }
}

Test(router_deadline, what_was_slow_for_a_while_is_not_thought_slow_for_ever) {
    for (size_t i = 0; i < N_SETUP; i++) {
        setup s = setups[i];
        double full = saturation(&s);
        s.slow_s = 10;
        double part = goodput(&s, 2 * full, 10 + s.slow_s + s.deadline_s) / full;
        cr_assert_geq(part, 0.9, "setup %zu: %.3f", i, part);
    }
}

/* Nothing can be in time here; workers must stay free for requests that can. */
Test(router_deadline, requests_that_no_fleet_could_answer_in_time_cost_little) {
    setup s = setups[0];
    s.deadline_s = 0.05;
    goodput(&s, 100, 0);
    cr_assert_eq(w.n_good, 0);
    cr_assert_geq(w.n_refused, 0.85 * 100 * SECONDS);
}

/* ---- the parts -------------------------------------------------------------------------- */

static fv_estimate e;

static void forget(void) { memset(&e, 0, sizeof e); }

Test(router_deadline, of_what_nothing_is_known_nothing_is_refused) {
    forget();
    fv_work work = fv_estimate_work(&e, 1000, 1000, 1000, true);
    setup s = setups[0];
    open_world(&s);
    fv_outlook o = fv_deadline_look(&e, first, &work, &work);
    double retry_s;
    cr_assert_eq(o.queue_s + o.fleet_s + o.alone_s, 0);
    cr_assert_eq(fv_deadline_admit(&o, 0.001, &retry_s), FV_OK);
    cr_assert_eq(fv_deadline_start(o.fleet_s, 0.001, 1), FV_OK);
}

Test(router_deadline, a_refusal_says_when_it_would_do_or_that_it_never_would) {
    fv_outlook o = {.queue_s = 4, .fleet_s = 2, .alone_s = 1};
    double retry_s = 0;
    cr_assert_eq(fv_deadline_admit(&o, 10, &retry_s), FV_OK);
    cr_assert_eq(fv_deadline_admit(&o, 5, &retry_s), FV_EBUSY);
    cr_assert(strstr(fv_last_error(), "about 6.0 s now"), "%s", fv_last_error());
    cr_assert_gt(retry_s, 1);
    cr_assert_lt(retry_s, 5);
    cr_assert_eq(fv_deadline_admit(&o, 0.9, &retry_s), FV_ENOMEM);
    cr_assert(strstr(fv_last_error(), "allow more time"), "%s", fv_last_error());
}

Test(router_deadline, prefill_takes_what_is_ahead_at_the_measured_pace) {
    forget();
    fv_pace pace = {0};
    fv_estimate_prefilled(&e, &pace, 100, 1, 10);
    fv_estimate_prefilled(&e, NULL, 300, 9, 10);
    cr_assert_float_eq(fv_estimate_prefill_s(&e, &pace, 50), 0.5, 1e-9);
    cr_assert_float_eq(fv_estimate_prefill_s(&e, NULL, 50), 1.25, 1e-9, "all together");
    fv_estimate_late(&e, &pace, 100, 0.5, 10);
    cr_assert_float_eq(fv_estimate_prefill_s(&e, &pace, 50), 0.5, 1e-9, "that says nothing new");
    fv_estimate_late(&e, &pace, 100, 3, 10);
    cr_assert_float_eq(fv_estimate_prefill_s(&e, &pace, 50), 1, 1e-9);
}

Test(router_deadline, old_measurements_fade_but_not_before_new_ones_come) {
    forget();
    fv_estimate_prefilled(&e, NULL, 100, 1, 10);
    cr_assert_float_eq(fv_estimate_prefill_s(&e, NULL, 100), 1, 1e-9);
    for (int i = 0; i < 1000; i++) fv_estimate_prefilled(&e, NULL, 100, 3, 11 + 0.1 * i);
    cr_assert_float_eq(fv_estimate_prefill_s(&e, NULL, 100), 3, 0.01);
    /* an hour later; a single exception does not count for all */
    fv_estimate_prefilled(&e, NULL, 100, 30, 4000);
    cr_assert_lt(fv_estimate_prefill_s(&e, NULL, 100), 10);
}

Test(router_deadline, a_token_takes_longer_the_more_answers_there_are_as_far_as_was_seen) {
    forget();
    for (int n = 1; n <= 9; n++) fv_estimate_tokens(&e, NULL, n, 1, 0.010 + 0.002 * n, 10);
    cr_assert_float_eq(fv_estimate_decode_s(&e, NULL, 20, 101), 100 * 0.050, 1e-6);
    cr_assert_eq(fv_estimate_decode_s(&e, NULL, 20, 1), 0, "the first comes from prefill");
    forget(); /* always the same number: nothing is known of more */
    for (int i = 0; i < 9; i++) fv_estimate_tokens(&e, NULL, 4, 2, 0.040, 10);
    cr_assert_float_eq(fv_estimate_decode_s(&e, NULL, 40, 101), 100 * 0.020, 1e-6);
    forget(); /* more answers cannot make it faster */
    for (int n = 1; n <= 9; n++) fv_estimate_tokens(&e, NULL, n, 1, 0.10 - 0.01 * n, 10);
    cr_assert_float_eq(fv_estimate_decode_s(&e, NULL, 100, 101), 100 * 0.05, 1e-6);
}

Test(router_deadline, answers_are_expected_to_be_as_long_as_others_were) {
    forget();
    cr_assert_leq(fv_estimate_work(&e, 0, 0, 1000, false).answer, 16, "nothing is known");
    cr_assert_eq(fv_estimate_work(&e, 0, 0, 1000, true).answer, 1000, "it goes to its limit");
    for (int i = 0; i < 400; i++) fv_estimate_answer(&e, 20, true, 10 + 0.1 * i);
    uint64_t n = fv_estimate_work(&e, 0, 0, 1000, false).answer;
    cr_assert(n >= 18 && n <= 22, "%d", (int)n);
    cr_assert_leq(fv_estimate_work(&e, 0, 0, 4, false).answer, 4);
    /* as many that were cut off at 20: those would have continued */
    for (int i = 0; i < 800; i++) fv_estimate_answer(&e, 20, i % 2, 50 + 0.1 * i);
    n = fv_estimate_work(&e, 0, 0, 1000, false).answer;
    cr_assert(n >= 36 && n <= 44, "%d", (int)n);
    for (int i = 0; i < 400; i++) fv_estimate_answer(&e, 20, false, 200 + 0.1 * i);
    cr_assert_geq(fv_estimate_work(&e, 0, 0, 1000, false).answer, 900);
}

Test(router_deadline, tokens_of_text_are_learned_from_what_its_bytes_came_to) {
    forget();
    cr_assert_eq(fv_estimate_work(&e, 576, 400, 1, true).prompt, 676);
    fv_estimate_text(&e, 100, 50, 10);
    cr_assert_eq(fv_estimate_work(&e, 576, 400, 1, true).prompt, 776);
    for (int i = 0; i < 99; i++) fv_estimate_text(&e, 100, 0, 11 + i);
    cr_assert_eq(fv_estimate_work(&e, 0, 0, 1, true).prompt, 1, "or it would never take time");
}

Test(router_deadline, pixels_count_as_the_tokens_that_take_as_long) {
    const fv_work work = {.prompt = 10, .answer = 5, .pixels = 1000000}, text = {.prompt = 1};
    forget();
    cr_assert_float_eq(fv_estimate_size(&e, &work), 15 + 1e6 / 65536, 1e-6, "nothing was measured");
    fv_estimate_prefilled(&e, NULL, 100, 1, 10);
    fv_estimate_read(&e, NULL, 4000000, 4, 10);
    cr_assert_float_eq(fv_estimate_size(&e, &work), 15 + 100, 1e-6);
    cr_assert_float_eq(fv_estimate_size(&e, &text), 1, 1e-6);
    fv_estimate_read(&e, NULL, 100, 1e9, 10);
    cr_assert_float_eq(fv_estimate_size(&e, &work), 15 + 1e6, 1e-6, "a pixel is a token at most");
}

Test(router_deadline, images_are_read_ahead_of_the_prompt) {
    forget();
    fv_estimate_prefilled(&e, NULL, 100, 1, 10);
    fv_estimate_read(&e, NULL, 1000, 1, 10);
    setup s = setups[0];
    open_world(&s);
    fv_work work = {.prompt = 100, .answer = 1, .pixels = 2000}, text = {.prompt = 100};
    cr_assert_float_eq(fv_deadline_prefill_s(&e, &w.p[0].member, &work), 3, 1e-9);
    w.p[0].member.pixels_taken = 5000;
    cr_assert_float_eq(fv_deadline_prefill_s(&e, &w.p[0].member, &work), 8, 1e-9);
    cr_assert_float_eq(fv_deadline_prefill_s(&e, &w.p[0].member, &text), 1, 1e-9);
}

Test(router_deadline, requests_of_other_routers_are_ahead_too) {
    forget();
    fv_estimate_prefilled(&e, NULL, 100, 1, 10);
    setup s = setups[0];
    open_world(&s);
    fv_work work = {.prompt = 100, .answer = 1};
    cr_assert_float_eq(fv_deadline_prefill_s(&e, &w.p[0].member, &work), 1, 1e-9);
    w.p[0].member.n_foreign = 3;
    cr_assert_float_eq(fv_deadline_prefill_s(&e, &w.p[0].member, &work), 4, 1e-9);
}

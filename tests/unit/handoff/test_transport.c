/* handoff/transport_inproc.c and tests/support/transport_fault.c, in front of a sink that records
 * what it receives. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/transport_fault.h"

enum { FRAMES = 5 };

/* "O" offer, "F<seq>:<bytes>" frame, "C<n>" commit, "A" abort; of hand-off `epoch`. */
typedef struct recorder {
    fv_sink base;
    char log[512];
    uint64_t epoch;
    fv_refusal offer, frame;
} recorder;

static void note(recorder *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(recorder *r, const char *fmt, ...) {
    va_list args;
    size_t n = strlen(r->log);
    va_start(args, fmt);
    vsnprintf(r->log + n, sizeof r->log - n, fmt, args);
    va_end(args);
}

static fv_status rec_offer(fv_sink *sink, const fv_hello *hello, fv_grant *out) {
    recorder *r = (recorder *)sink;
    note(r, "O%u ", hello->n_text);
    if (r->offer != FV_REFUSED_NONE) return FV_REFUSE(NO_ROOM, "the pool is full");
    *out = (fv_grant){.ticket.epoch = ++r->epoch, .bytes = 1000};
    return FV_OK;
}

static fv_status rec_frame(fv_sink *sink, const fv_ticket *ticket, uint64_t seq,
                           const fv_piece *piece, int32_t n) {
    recorder *r = (recorder *)sink;
    note(r, "%sF%d:", ticket->epoch == r->epoch ? "" : "old-", (int)seq);
    for (int32_t i = 0; i < n; i++)
        note(r, "%.*s", (int)piece[i].bytes, (const char *)piece[i].data);
    note(r, " ");
    return r->frame == FV_REFUSED_NONE ? FV_OK : FV_REFUSE(CHECKSUM, "a bad frame");
}

static fv_status rec_commit(fv_sink *sink, const fv_ticket *ticket, uint64_t n) {
    recorder *r = (recorder *)sink;
    (void)ticket;
    note(r, "C%d ", (int)n);
    return FV_OK;
}

static void rec_abort(fv_sink *sink, const fv_ticket *ticket) {
    recorder *r = (recorder *)sink;
    note(r, ticket->epoch == r->epoch ? "A " : "old-A ");
}

static recorder sink_new(void) {
    static const fv_sink_ops ops = {
        .offer = rec_offer, .frame = rec_frame, .commit = rec_commit, .abort = rec_abort};
    return (recorder){.base.ops = &ops};
}

/* ---- one hand-off ---------------------------------------------------------------------- */

static int n_reply;
static fv_reply last_reply;

static void on_reply(void *user, const fv_reply *reply) {
    (void)user;
    n_reply++;
    last_reply = *reply;
}

static fv_transfer *begin(fv_transport *t) {
    fv_transfer *x;
    fv_hello hello = {.n_text = 7, .policy = ""};
    cr_assert_eq(t->ops->open(t, &hello, NULL, on_reply, NULL, &x), FV_OK);
    return x;
}

/* Frames "aa", "bb", ... in two pieces each. */
static fv_status hand_off(fv_transport *t) {
    static const char text[] = "aabbccddee";
    fv_status st = FV_OK;
    fv_transfer *x = begin(t);
    for (uint64_t i = 0; i < FRAMES && st == FV_OK; i++) {
        fv_piece piece[2] = {{text + 2 * i, 1}, {text + 2 * i + 1, 1}};
        st = x->ops->push(x, i, piece, 2);
    }
    if (st == FV_OK) x->ops->commit(x, FRAMES, on_reply, NULL);
    x->ops->end(x, true, NULL, NULL);
    return st;
}

static fv_transport *in_process(recorder *r) {
    fv_transport *t;
    cr_assert_eq(fv_transport_inproc(&r->base, &t), FV_OK);
    return t;
}

Test(transport, in_process_calls_the_sink_in_order) {
    recorder r = sink_new();
    fv_transport *t = in_process(&r);
    cr_assert_str_eq(t->ops->name, "inproc");
    cr_assert_eq(hand_off(t), FV_OK);
    cr_assert_str_eq(r.log, "O7 F0:aa F1:bb F2:cc F3:dd F4:ee C5 ");
    cr_assert_eq(n_reply, 2, "open and commit are answered");
    fv_transport_close(t, NULL, NULL);
}

Test(transport, a_refused_offer_arrives_with_its_sentence) {
    recorder r = sink_new();
    fv_transport *t = in_process(&r);
    r.offer = FV_REFUSED_NO_ROOM;
    fv_transfer *x = begin(t);
    cr_assert_eq(last_reply.refusal, FV_REFUSED_NO_ROOM);
    cr_assert_eq(last_reply.status, FV_EBUSY);
    cr_assert_str_eq(last_reply.text, "the pool is full");
    x->ops->end(x, true, NULL, NULL);
    cr_assert_str_eq(r.log, "O7 ", "nothing is there to give up");
    fv_transport_close(t, NULL, NULL);
}

Test(transport, a_refused_frame_is_a_failed_push) {
    recorder r = sink_new();
    fv_transport *t = in_process(&r);
    r.frame = FV_REFUSED_CHECKSUM;
    cr_assert_eq(hand_off(t), FV_EDATA);
    cr_assert_str_eq(fv_last_error(), "a bad frame");
    cr_assert_str_eq(r.log, "O7 F0:aa A ");
    fv_transport_close(t, NULL, NULL);
}

Test(transport, end_without_commit_gives_up) {
    recorder r = sink_new();
    fv_transport *t = in_process(&r);
    fv_transfer *x = begin(t);
    x->ops->end(x, true, NULL, NULL);
    cr_assert_str_eq(r.log, "O7 A ");
    fv_transport_close(t, NULL, NULL);
    fv_transport_close(NULL, NULL, NULL);
}

/* ---- faults ---------------------------------------------------------------------------- */

static int32_t n_fired, n_delay;

static void on_delay(void *user) {
    (void)user;
    n_delay++;
}

/* Logs what the sink receives in n hand-offs with this fault. The seed decides which frame is hit. */
static void log_of(fv_fault fault, uint64_t seed, int n, char *log) {
    recorder r = sink_new();
    fv_fault_options opt = {
        .fault = fault, .seed = seed, .n_frame = FRAMES, .delay = on_delay, .fired = &n_fired};
    fv_transport *t;
    cr_assert_eq(fv_transport_fault(in_process(&r), &opt, &t), FV_OK);
    while (n-- > 0) cr_assert_eq(hand_off(t), FV_OK);
    fv_transport_close(t, NULL, NULL);
    strcpy(log, r.log);
}

/* A seed for which frame 2 is dropped. */
static uint64_t seed_for_the_middle(void) {
    char log[512];
    for (uint64_t seed = 1; seed < 1000; seed++) {
        log_of(FV_FAULT_DROP, seed, 1, log);
        if (!strstr(log, "F2")) return seed;
    }
    cr_assert_fail("no seed hits frame 2");
    return 0;
}

Test(transport, faults_do_what_they_are_called) {
    static const struct {
        fv_fault fault;
        int n;
        const char *log;
    } rows[] = {
        {FV_FAULT_NONE, 1, "O7 F0:aa F1:bb F2:cc F3:dd F4:ee C5 "},
        {FV_FAULT_DUPLICATE, 1, "O7 F0:aa F1:bb F2:cc F2:cc F3:dd F4:ee C5 "},
        {FV_FAULT_DROP, 1, "O7 F0:aa F1:bb F3:dd F4:ee C5 "},
        {FV_FAULT_DELAY, 1, "O7 F0:aa F1:bb F2:cc F3:dd F4:ee C5 "},
        {FV_FAULT_REPLAY, 2,
         "O7 F0:aa F1:bb F2:cc F3:dd F4:ee C5 O7 F0:aa F1:bb F2:cc old-F2:cc F3:dd F4:ee C5 "},
        {FV_FAULT_SILENCE, 1, "O7 F0:aa F1:bb A "},
    };
    uint64_t seed = seed_for_the_middle();
    char log[512];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        n_fired = 0;
        log_of(rows[i].fault, seed, rows[i].n, log);
        cr_assert_str_eq(log, rows[i].log, "%s: %s", fv_fault_name(rows[i].fault), log);
        cr_assert_eq(n_fired, rows[i].fault != FV_FAULT_NONE);
    }
    cr_assert_eq(n_delay, 1);
}

Test(transport, a_changed_frame_is_changed_a_little_and_the_others_not) {
    static const char clean[] = "O7 F0:aa F1:bb F2:cc F3:dd F4:ee C5 ";
    uint64_t seed = seed_for_the_middle();
    char log[512];
    log_of(FV_FAULT_BIT_FLIP, seed, 1, log);
    int bits = 0;
    cr_assert_eq(strlen(log), strlen(clean));
    for (size_t i = 0; clean[i]; i++) bits += __builtin_popcount((unsigned)(log[i] ^ clean[i]));
    cr_assert_eq(bits, 1, "%s", log);
    log_of(FV_FAULT_TRUNCATE, seed, 1, log);
    cr_assert(strstr(log, "F2:c ") || strstr(log, "F2: "), "%s", log);
    log_of(FV_FAULT_EXTEND, seed, 1, log);
    cr_assert(strstr(log, "F2:cc"), "%s", log);
}

Test(transport, reordering_swaps_two_frames) {
    char log[512];
    for (uint64_t seed = 0; seed < 20; seed++) {
        log_of(FV_FAULT_REORDER, seed, 1, log);
        bool swapped = strstr(log, "F1:bb F0:aa") || strstr(log, "F2:cc F1:bb") ||
                       strstr(log, "F3:dd F2:cc") || strstr(log, "F4:ee F3:dd");
        cr_assert(swapped && strstr(log, "C5"), "%s", log);
    }
}

Test(transport, the_same_seed_gives_the_same_fault) {
    char one[512], two[512], other[512];
    int differ = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        log_of(FV_FAULT_BIT_FLIP, seed, 1, one);
        log_of(FV_FAULT_BIT_FLIP, seed, 1, two);
        log_of(FV_FAULT_BIT_FLIP, seed + 100, 1, other);
        cr_assert_str_eq(one, two);
        differ += strcmp(one, other) != 0;
    }
    cr_assert_gt(differ, 10);
}

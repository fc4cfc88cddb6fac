/* An image crosses the network once: the decode worker keeps prompts, and the prefill worker sends what it lacks. */
#include <stdio.h>
#include <string.h>

#include "tests/e2e/prefill_rig.h"

#define OTHER "USER: <image>\nwhat else is in this picture, and why? ASSISTANT:"
enum { MANY = 6, BYTES = 1 << 24 };

static heard p, d;
static asking a;

TestSuite(handoff_prefixes, .init = make_checkpoint, .fini = drop_checkpoint, .timeout = 240);

static void open_keeping(size_t prefill_bytes, size_t decode_bytes) {
    fv_prefill_worker_options prefill = workers.p;
    fv_decode_options decode = workers.d;
    workers = (prefill_rig){.p = prefill, .d = decode};
    workers.p.prefix_bytes = prefill_bytes;
    workers.d.prefix_bytes = decode_bytes;
    open_workers();
    ask_about_image(&a, workers.target);
}

static void forget(heard *h) {
    fv_arena_fini(&h->arena);
    *h = (heard){0};
}

/* Asks about the image, and has the answer decoded; p and d have both halves. */
static const Fovea__Inference__V1__Transfer *ask(const char *text) {
    forget(&p);
    forget(&d);
    a.prompt.text = (char *)(uintptr_t)text;
    run_well(&p, &a);
    decode(&d, p.begun->ticket);
    cr_assert_eq(d.n_id, N_TOKEN - 1);
    return p.report->transfer;
}

Test(handoff_prefixes, a_second_question_is_answered_alike_and_sends_no_image) {
    uint64_t first[2], digest[2][N_TOKEN - 1], whole;
    static const char *const text[] = {QUESTION, OTHER};
    open_keeping(BYTES, 0); /* what is expected */
    for (int i = 0; i < 2; i++) {
        const Fovea__Inference__V1__Transfer *t = ask(text[i]);
        cr_assert_eq(t->tokens_kept, 0);
        whole = t->bytes_sent;
        first[i] = first_digest(&p);
        memcpy(digest[i], d.digest, sizeof digest[i]);
    }
    close_workers();

    for (int again = 0; again < 2; again++) { /* a worker that starts anew has kept nothing */
        open_keeping(BYTES, BYTES);
        for (int i = 0; i < 6; i++) {
            const Fovea__Inference__V1__Transfer *t = ask(text[i % 2]);
            cr_assert_eq(first_digest(&p), first[i % 2]);
            cr_assert_arr_eq(d.digest, digest[i % 2], sizeof digest[0]);
            if (i == 0) {
                cr_assert_eq(t->tokens_kept, 0);
                continue;
            }
            cr_assert_geq(t->tokens_kept, p.report->n_visual);
            cr_assert_lt(t->tokens_kept, p.report->n_prompt);
            cr_assert_lt(t->bytes_sent + t->bytes_kept / 2, whole);
        }
        wait_for_nothing_held();
        Fovea__Inference__V1__Load l = fv_decode_worker_load(workers.decode);
        cr_assert_eq(l.n_prefixes_found, 5);
        cr_assert_gt(l.bytes_prefixes_idle, 0);
        close_workers();
    }
}

Test(handoff_prefixes, requests_that_come_together_are_answered_as_alone) {
    static heard many[MANY], alone[MANY];
    static asking asks[MANY];
    static char texts[MANY][80];
    for (int kept = 0; kept < 2; kept++) {
        heard *h = kept ? many : alone;
        int n_whole = 0; /* that were sent with the image */
        open_keeping(BYTES, kept ? BYTES : 0);
        for (int i = 0; i < MANY; i++) {
            ask_about_image(&asks[i], workers.target);
            snprintf(texts[i], sizeof texts[i], "USER: <image>\nwhat is thing %d? ASSISTANT:", i);
            asks[i].prompt.text = texts[i];
            begin(&h[i], &asks[i]);
        }
        for (int i = 0; i < MANY; i++) {
            net_wait(&workers.net, &h[i].over);
            cr_assert_eq(h[i].end.status, FV_OK, "%s", h[i].why);
            n_whole += h[i].report->transfer->tokens_kept < h[i].report->n_visual;
            forget(&d);
            decode(&d, h[i].begun->ticket);
            cr_assert_eq(d.n_id, N_TOKEN - 1);
            memcpy(h[i].digest, d.digest, sizeof d.digest);
        }
        cr_assert_eq(n_whole, kept ? 1 : MANY);
        wait_for_nothing_held();
        close_workers();
    }
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(first_digest(&many[i]), first_digest(&alone[i]));
        cr_assert_arr_eq(many[i].digest, alone[i].digest, sizeof many[i].digest);
    }
}

/* Evicting requests get copies, and condensed images are kept like others. */
Test(handoff_prefixes, an_image_under_a_policy_is_sent_once_too) {
    static const char *const policies[] = {"evict=h2o,heavy=0.3", "evict=tova,keep=0.5",
                                           "condense=prumerge"};
    enum { N = sizeof policies / sizeof *policies };
    uint64_t first[N], digest[N][N_TOKEN - 1];
    for (int with = 0; with < 2; with++) {
        open_keeping(BYTES, with ? BYTES : 0);
        for (int i = 0; i < N; i++) {
            fv_arena arena = {0};
            ask_about_image(&a, workers.target);
            ask_under(&a, policies[i], &arena);
            a.g.cache_salt = (char *)(uintptr_t)policies[i]; /* it finds what it has left itself */
            if (with) cr_assert_eq(ask(QUESTION)->tokens_kept, 0, "%s", policies[i]);
            const Fovea__Inference__V1__Transfer *t = ask(OTHER);
            fv_arena_fini(&arena);
            if (!with) {
                first[i] = first_digest(&p);
                memcpy(digest[i], d.digest, sizeof digest[i]);
                continue;
            }
            cr_assert_geq(t->tokens_kept, p.report->n_visual, "%s", policies[i]);
            cr_assert_eq(first_digest(&p), first[i], "%s", policies[i]);
            cr_assert_arr_eq(d.digest, digest[i], sizeof digest[i], "%s", policies[i]);
        }
        wait_for_nothing_held();
        close_workers();
    }
}

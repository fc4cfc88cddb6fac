/* decode-worker/schedule/memory.c: answers that grow in a pool which is too small for all of them. Preempted
 * ones are replayed, as a router does, and have the same tokens. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "kv/share.h"
#include "tests/support/scheduler_rig.h"
#include "tests/support/thorough.h"

enum { CLIENTS = 8, SLOTS = 4, PREEMPTIONS = 2, MOST = 200 };

static scheduler_rig rig;

/* A client, and the router that replays for it. */
typedef struct client {
    asked a;
    asked_prompt prompt;
    const char *tenant;
    uint64_t tenant_bytes;
    int32_t max_tokens, n, n_preempted;
    int32_t ids[MOST], want[MOST];
    uint64_t digest[MOST], want_digest[MOST];
    bool waits, live, over, cancelled;
} client;
static client clients[CLIENTS];
static bool whole; /* no answer grows */

TestSuite(memory, .timeout = 240);

static void clients_init(int n) {
    static const char *const policies[] = {"",
                                           "pack=quant,compress_text=all,bits_text=4,recompress=16",
                                           "evict=h2o,heavy=0.3,recent=0.3"};
    memset(clients, 0, sizeof clients);
    for (int i = 0; i < n; i++) {
        client *c = &clients[i];
        c->prompt = (asked_prompt){.policy = policies[i % 3],
                                   .sampling = fv_sampling_default(),
                                   .salt = i,
                                   .arrived_s = fv_clock_s() + i};
        c->prompt.sampling.temperature = 1;
        c->prompt.sampling.seed = (uint64_t)(100 + i);
        c->max_tokens = 100;
        c->tenant = "";
    }
}

static bool begin(client *c) {
    static const int32_t none[1];
    c->a = (asked){.answer = {.tenant = c->tenant,
                              .tenant_bytes = c->tenant_bytes,
                              .max_tokens = c->max_tokens,
                              .ignore_eos = true,
                              .digests = true,
                              .n_replay = c->n,
                              .replay = (const uint32_t *)(c->n ? c->ids : none)}};
    asked_prompt p = c->prompt;
    p.n_replay = c->n;
    p.replay = c->ids;
    if (whole || c->n_preempted >= PREEMPTIONS) p.reserve = 0;
    c->live = scheduler_try(&rig, &c->a, &p);
    c->waits = !c->live;
    if (c->live) c->ids[c->n++] = c->a.first.id;
    return c->live;
}

static const client *eldest(void) {
    const client *best = NULL;
    for (const client *c = clients; c < clients + CLIENTS; c++)
        if (c->live && c->prompt.reserve && c->n_preempted < PREEMPTIONS &&
            (!best || c->prompt.arrived_s < best->prompt.arrived_s))
            best = c;
    return best;
}

/* Takes what came for a client since the last call. */
static void take(client *c) {
    if (!c->live) return;
    int32_t have = c->a.answer.n_replay + 1;
    for (int32_t i = c->n - have; i < c->a.n; i++) {
        c->ids[c->n] = c->a.token[i].id;
        c->digest[c->n++] = c->a.digest[i];
    }
    if (!c->a.over) return;
    c->live = false;
    if (c->a.status == FV_OK) {
        c->over = true;
        return;
    }
    cr_assert_eq(c->a.status, FV_EBUSY, "%s", fv_last_error());
    cr_assert_eq(c->a.report.refusal, FV_REFUSED_PREEMPTED);
    c->n_preempted++;
    c->waits = true;
}

static void step(void) {
    const client *first = eldest();
    fv_scheduler_step(rig.answers);
    for (client *c = clients; c < clients + CLIENTS; c++) take(c);
    cr_assert(!first || !first->waits, "the eldest was preempted");
}

/* The eldest that waits begins, unless answers wait for memory. */
static void let_one_begin(void) {
    client *best = NULL;
    for (client *c = clients; c < clients + CLIENTS; c++)
        if (c->waits && (!best || c->prompt.arrived_s < best->prompt.arrived_s)) best = c;
    if (best && !fv_scheduler_is_short(rig.answers)) begin(best);
}

static bool any_left(void) {
    for (const client *c = clients; c < clients + CLIENTS; c++)
        if (c->live || c->waits) return true;
    return false;
}

static void run_all(void) {
    for (int i = 0; i < 20000 && any_left(); i++) {
        let_one_begin();
        step();
    }
    cr_assert(!any_left(), "somebody waits for ever");
}

/* The answers of all in a pool without a limit; then a pool of this part of what they held at the end together. */
static void open_after_reference(int n, double part) {
    size_t bytes = 0;
    whole = true;
    scheduler_rig_open_with(&rig, SLOTS, 0);
    for (int i = 0; i < n; i++) {
        client *c = &clients[i];
        cr_assert(begin(c));
        bytes += fv_kv_bytes_held(c->a.answer.session->kv); /* for all of its tokens */
    }
    run_all();
    for (int i = 0; i < n; i++) {
        client *c = &clients[i];
        cr_assert_eq(c->n, c->max_tokens);
        memcpy(c->want, c->ids, sizeof c->want);
        memcpy(c->want_digest, c->digest, sizeof c->want_digest);
        c->n = 0;
        c->over = false;
    }
    scheduler_rig_close(&rig);
    whole = false;
    scheduler_rig_open_with(&rig, SLOTS, (size_t)(part * (double)bytes));
}

static void assert_right(const client *c) {
    for (int32_t i = 0; i < c->n; i++)
        cr_assert_eq(c->ids[i], c->want[i], "client %d: token %d", (int)(c - clients), i);
    /* The prefill side makes the first token of an attempt, without a digest here. */
    for (int32_t i = 0; i < c->n; i++)
        cr_assert(c->digest[i] == c->want_digest[i] || c->digest[i] == 0 || c->want_digest[i] == 0);
    if (c->over) cr_assert_eq(c->n, c->max_tokens);
}

static uint64_t preempted(void) { return fv_scheduler_preempted_for_memory(rig.answers); }

/* ---- growth ------------------------------------------------------------------------------- */

Test(memory, an_answer_grows_beyond_what_was_reserved_and_ends_where_it_would) {
    clients_init(3);
    for (int i = 0; i < 3; i++) clients[i].prompt.reserve = 1 + 30 * i;
    open_after_reference(3, 1.5);
    for (int i = 0; i < 3; i++) clients[i].waits = true;
    run_all();
    for (int i = 0; i < 3; i++) assert_right(&clients[i]);
    cr_assert_eq(preempted(), 0);
    scheduler_rig_close(&rig);
}

Test(memory, the_youngest_gives_way_and_is_right_afterwards) {
    clients_init(3);
    for (int i = 0; i < 3; i++) {
        clients[i].prompt.policy = "";
        clients[i].prompt.reserve = 8;
        clients[i].max_tokens = 150;
    }
    open_after_reference(3, 0.7);
    for (int i = 0; i < 3; i++) cr_assert(begin(&clients[i]), "%s", fv_last_error());
    for (int i = 0; i < 1000 && preempted() == 0; i++) step();
    cr_assert(clients[2].waits && clients[0].live && clients[1].live);
    run_all();
    for (int i = 0; i < 3; i++) assert_right(&clients[i]);
    cr_assert_eq(clients[0].n_preempted, 0);
    scheduler_rig_close(&rig);
}

Test(memory, one_that_is_whole_is_never_preempted) {
    clients_init(3);
    for (int i = 0; i < 3; i++) {
        clients[i].prompt.policy = "";
        clients[i].prompt.reserve = i == 2 ? 0 : 8;
        clients[i].max_tokens = 150;
    }
    open_after_reference(3, 0.75);
    for (int i = 2; i >= 0; i--) cr_assert(begin(&clients[i]), "%s", fv_last_error());
    run_all();
    for (int i = 0; i < 3; i++) assert_right(&clients[i]);
    cr_assert_eq(clients[2].n_preempted, 0);
    scheduler_rig_close(&rig);
}

Test(memory, kept_conversations_go_first) {
    clients_init(3);
    for (int i = 0; i < 3; i++) {
        clients[i].prompt.policy = "";
        clients[i].prompt.reserve = 8;
        clients[i].max_tokens = 150;
    }
    open_after_reference(3, 0.7);
    clients[2].max_tokens = 5; /* it ends early, and is kept */
    cr_assert(begin(&clients[2]));
    clients[2].a.answer.keep_s = 100;
    run_all();
    cr_assert_eq(fv_conversations_kept(rig.conversations), 1);
    for (int i = 0; i < 2; i++) cr_assert(begin(&clients[i]), "%s", fv_last_error());
    run_all();
    cr_assert_eq(preempted(), 0);
    cr_assert_eq(fv_conversations_kept(rig.conversations), 0);
    for (int i = 0; i < 2; i++) assert_right(&clients[i]);
    scheduler_rig_close(&rig);
}

Test(memory, an_answer_that_needs_more_than_the_pool_ends_and_says_so) {
    clients_init(1);
    clients[0].prompt.reserve = 8;
    clients[0].max_tokens = 150;
    open_after_reference(1, 0.7);
    client *c = &clients[0];
    cr_assert(begin(c));
    for (int i = 0; i < 1000 && !c->a.over; i++) fv_scheduler_step(rig.answers);
    cr_assert_eq(c->a.status, FV_ENOMEM);
    cr_assert_eq(c->a.report.refusal, FV_REFUSED_TOO_LARGE);
    c->live = false;
    scheduler_rig_close(&rig);
}

/* The tables of a share are in the pool beside what the answer was sized for. */
Test(memory, an_answer_that_only_its_share_leaves_too_little_is_replayed) {
    clients_init(1);
    clients[0].prompt.reserve = 8;
    clients[0].max_tokens = 150;
    open_after_reference(1, 1);
    client *c = &clients[0];
    cr_assert(begin(c));
    fv_kv *kv = c->a.answer.session->kv;
    fv_kv_share *share;
    cr_assert_eq(fv_kv_share_make(kv, fv_kv_len(kv, 0, 0, FV_SEG_TEXT),
                                  fv_kv_len(kv, 0, 0, FV_SEG_VISUAL), &share),
                 FV_OK);
    for (int i = 0; i < 1000 && c->live; i++) {
        fv_scheduler_step(rig.answers);
        take(c);
    }
    cr_assert_eq(preempted(), 1);
    cr_assert(c->waits, "it is not too large");
    fv_kv_share_unref(share);
    run_all();
    assert_right(c);
    cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
    scheduler_rig_close(&rig);
}

/* Two answers under each policy, of which one is preempted and replayed. */
Test(memory, a_preemption_changes_nothing_under_any_kind_of_policy) {
    static const char *const policies[] = {"prune=fastv,layer=1,keep=0.5",
                                           "select=snapkv",
                                           "select=streaming",
                                           "select=lookm",
                                           "pack=svd",
                                           "pack=svd,compress_text=all",
                                           "pack=quant,bits=4",
                                           "pack=quant,compress_text=all,bits_text=4,recompress=32",
                                           "pack=minicache",
                                           "evict=vta,tau=60,layer=1,shallow=rank_by_first_tap",
                                           "pack=svd;expand=attention;evict=importance",
                                           "evict=h2o,heavy=0.2,recent=0.2",
                                           "evict=scissorhands",
                                           "evict=tova",
                                           "lazy=gla"};
    int n = 0;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p += (size_t)sanitized_step(2)) {
        clients_init(2);
        for (int i = 0; i < 2; i++) {
            clients[i].prompt.policy = policies[p];
            clients[i].prompt.image = true;
            clients[i].prompt.reserve = 1;
            clients[i].max_tokens = 150;
        }
        open_after_reference(2, 0.75);
        for (int i = 0; i < 2; i++)
            begin(&clients[i]); /* or it waits: codes are reserved in larger pieces */
        run_all();
        for (int i = 0; i < 2; i++) assert_right(&clients[i]);
        n += clients[1].n_preempted;
        scheduler_rig_close(&rig);
    }
    cr_assert_geq(n, 8 / sanitized_step(2), "%d were preempted", n);
}

/* ---- tenants ------------------------------------------------------------------------------ */

Test(memory, the_tenant_that_holds_most_gives_way_before_one_with_a_younger_answer) {
    clients_init(4);
    for (int i = 0; i < 4; i++) {
        clients[i].prompt.policy = "";
        clients[i].prompt.reserve = 8;
        clients[i].max_tokens = 150;
        clients[i].tenant = i == 3 ? "small" : "large";
    }
    open_after_reference(4, 0.7);
    for (int i = 0; i < 4; i++) cr_assert(begin(&clients[i]), "%s", fv_last_error());
    for (int i = 0; i < 1000 && preempted() == 0; i++) step();
    cr_assert(clients[2].waits, "the youngest of the larger tenant");
    cr_assert(clients[3].live);
    run_all();
    for (int i = 0; i < 4; i++) assert_right(&clients[i]);
    scheduler_rig_close(&rig);
}

/* "large" has the longer prompts, but they are in shares, as those of all answers whose prompts are kept. */
Test(memory, prompts_that_are_shared_count_for_the_tenants_that_use_them) {
    fv_kv_share *share[4];
    clients_init(4);
    for (int i = 0; i < 4; i++) {
        clients[i].prompt.policy = "";
        clients[i].prompt.image = i < 2;
        clients[i].prompt.reserve = i < 2 ? 8 : 40;
        clients[i].max_tokens = 150;
        clients[i].tenant = i < 2 ? "large" : "small";
    }
    open_after_reference(4, 0.75);
    for (int i = 0; i < 4; i++) {
        cr_assert(begin(&clients[i]), "%s", fv_last_error());
        fv_kv *kv = clients[i].a.answer.session->kv;
        size_t before = fv_kv_bytes_with_part(kv);
        cr_assert_eq(fv_kv_share_make(kv, fv_kv_len(kv, 0, 0, FV_SEG_TEXT),
                                      fv_kv_len(kv, 0, 0, FV_SEG_VISUAL), &share[i]),
                     FV_OK);
        cr_assert_geq(fv_kv_bytes_with_part(kv), before);
        cr_assert_lt(fv_kv_bytes_held(kv), before);
    }
    for (int i = 0; i < 1000 && preempted() == 0; i++) step();
    cr_assert(clients[1].waits, "the youngest of the tenant that holds most");
    for (int i = 0; i < 4; i++) fv_kv_share_unref(share[i]);
    run_all();
    for (int i = 0; i < 4; i++) assert_right(&clients[i]);
    cr_assert_eq(fv_kv_pool_used(rig.pool), 0);
    scheduler_rig_close(&rig);
}

Test(memory, a_tenants_limit_costs_its_own_answers_and_nobody_elses) {
    clients_init(3);
    for (int i = 0; i < 3; i++) {
        clients[i].prompt.policy = "";
        clients[i].prompt.reserve = 8;
        clients[i].max_tokens = 150;
        clients[i].tenant = "";
    }
    open_after_reference(3, 2);
    size_t each = 0;
    for (int i = 0; i < 3; i++) {
        cr_assert(begin(&clients[i]), "%s", fv_last_error());
        each = fv_kv_bytes_held(clients[i].a.answer.session->kv);
    }
    /* The rig's stores have the owner "", as all of these. */
    for (int i = 0; i < 3; i++) clients[i].a.answer.tenant_bytes = 3 * each + each / 2;
    for (int i = 0; i < 3; i++) clients[i].tenant_bytes = 3 * each + each / 2;
    for (int i = 0; i < 1000 && preempted() == 0; i++) step();
    cr_assert(clients[2].waits);
    cr_assert_not(fv_scheduler_is_short(rig.answers), "others may begin");
    for (int i = 0; i < 2; i++) fv_scheduler_drop(rig.answers, &clients[i].a.answer);
    scheduler_rig_close(&rig);
}

/* ---- histories ---------------------------------------------------------------------------- */

static uint32_t state;
static int draw(int n) {
    state = state * 1664525u + 1013904223u;
    return (int)((state >> 8) % (uint32_t)n);
}

/* Clients come, ask for different lengths, stop reading, and leave, in a pool that holds a part of them. */
static int history(uint32_t seed) {
    int n = 0;
    state = seed;
    clients_init(CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        client *c = &clients[i];
        c->max_tokens = 20 + draw(140);
        c->prompt.reserve = 1 + draw(60);
        c->tenant = draw(3) ? "a" : "b";
        c->prompt.arrived_s = 1000 + draw(1000);
    }
    open_after_reference(CLIENTS, 0.3 + 0.1 * draw(3));
    for (int i = 0; i < CLIENTS; i++) clients[i].waits = true;
    for (int i = 0; i < 20000 && any_left(); i++) {
        client *c = &clients[draw(CLIENTS)];
        if (draw(3) == 0) let_one_begin();
        if (draw(200) == 0 && c->live) {
            fv_scheduler_drop(rig.answers, &c->a.answer);
            c->live = false;
            c->cancelled = true;
        }
        if (draw(20) == 0 && c->live && c->a.n > 0)
            fv_scheduler_hold(rig.answers, &c->a.answer, true);
        if (draw(4) == 0)
            for (int j = 0; j < CLIENTS; j++)
                if (clients[j].live) fv_scheduler_hold(rig.answers, &clients[j].a.answer, false);
        step();
    }
    cr_assert(!any_left(), "somebody waits for ever: seed %u", seed);
    for (int i = 0; i < CLIENTS; i++) {
        assert_right(&clients[i]);
        cr_assert(clients[i].over || clients[i].cancelled);
        cr_assert_leq(clients[i].n_preempted, PREEMPTIONS, "seed %u", seed);
        n += clients[i].n_preempted;
    }
    scheduler_rig_close(&rig); /* which asserts that nothing is held */
    return n;
}

Test(memory, no_history_changes_an_answer_or_leaks_or_preempts_the_eldest) {
    int n = 0;
    for (uint32_t seed = 1; seed <= (thorough() ? 200u : 12u); seed++) n += history(seed);
    cr_assert_gt(n, 6, "%d preemptions", n);
}

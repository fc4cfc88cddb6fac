/* The prefill worker's computing thread and its tenants: a short prompt waits for a pass of another tenant's long
 * one, and a long one for its turn. The network's passes are watched and held up, and counted instead of timed. */
#include <pthread.h>
#include <string.h>

#include "tests/e2e/prefill_rig.h"

enum { CHUNK = 16, LONG_WORDS = 60, SEEN_MAX = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool entered, gate;
static int32_t seen[SEEN_MAX], n_seen; /* rows of each pass through each layer */
static int32_t n_change;               /* on the loop thread: requests that started or ended */
static heard p, q, again;
static asking a, b;

TestSuite(prefill_shares, .init = make_checkpoint, .fini = drop_checkpoint, .timeout = 240);

/* The first pass waits at the gate. */
static fv_status watch(void *user, const fv_forward_batch *pass, int32_t layer,
                       const fv_attn_args *attn) {
    (void)user, (void)layer, (void)attn;
    int32_t rows = 0;
    for (int32_t i = 0; i < pass->n_seq; i++) rows += pass->seq[i].n_rows;
    pthread_mutex_lock(&mutex);
    if (n_seen < SEEN_MAX) seen[n_seen++] = rows;
    entered = true;
    while (!gate) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    return FV_OK;
}

static bool has_entered(void) {
    pthread_mutex_lock(&mutex);
    bool is = entered;
    pthread_mutex_unlock(&mutex);
    return is;
}

static void open_gate(void) {
    pthread_mutex_lock(&mutex);
    gate = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

/* Asks for one token after a prompt of n times the same words. */
static void ask_in_words(asking *x, const char *tenant, char *text, int n) {
    text[0] = '\0';
    for (int i = 0; i < n; i++) strcat(text, "what is it? ");
    ask_about_image(x, "");
    x->prompt.text = text;
    x->g.n_images = 0;
    x->g.max_tokens = 1;
    x->m.tenant = (char *)(uintptr_t)tenant;
}

static void on_change(void *user) {
    (void)user;
    n_change++;
}

/* Sends the short prompt during the first pass of A's long prompt. Returns how many layers of
 * passes ran before the short one's first. */
static int32_t a_short_one_comes(const char *tenant) {
    static char text[2][LONG_WORDS * 16];
    int32_t before = 0;
    workers.p.chunk = CHUNK;
    workers.p.on_change = on_change;
    open_workers();
    fv_decoder_watch(workers.engine.dec, watch, NULL);
    ask_in_words(&a, "a", text[0], LONG_WORDS);
    ask_in_words(&b, tenant, text[1], 1);
    begin(&p, &a);
    while (!has_entered()) net_sleep(&workers.net, 1);
    int32_t n = n_change;
    begin(&q, &b);
    while (n_change == n) net_sleep(&workers.net, 1);
    open_gate();
    net_wait(&workers.net, &p.over);
    net_wait(&workers.net, &q.over);
    cr_assert_eq(p.end.status, FV_OK, "%s", p.why);
    cr_assert_eq(q.end.status, FV_OK, "%s", q.why);
    cr_assert_lt(q.report->n_prompt, CHUNK);
    while (before < n_seen && seen[before] != (int32_t)q.report->n_prompt) before++;
    cr_assert_lt(before, n_seen);
    return before;
}

Test(prefill_shares, a_short_prompt_runs_between_two_passes_of_another_tenants_long_one) {
    int32_t before = a_short_one_comes("b");
    cr_assert_leq(before, 1, "%d", before);
    cr_assert_gt(n_seen, 50, "%d: the long one went on after it", n_seen);
    run_well(&again, &a);
    cr_assert_eq(first_digest(&again), first_digest(&p), "it changes no bit of the long one");
    fv_arena_fini(&again.arena);
    again = (heard){0};
    run_well(&again, &b);
    cr_assert_eq(first_digest(&again), first_digest(&q));
    close_workers();
}

Test(prefill_shares, a_tenants_own_prompts_run_one_after_another) {
    int32_t before = a_short_one_comes("a");
    cr_assert_gt(before, 50, "%d", before);
    close_workers();
}

/* Random histories of requests against a prefill and a decode worker that keep prompts and answers in little memory and on a
 * disk that is soon full: chats that go on and that branch, questions about the same images, several at once, policies that
 * share and that do not, requests that are given up, workers that start anew. Every digest is that of the same request without
 * a cache, and nothing is left at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kv/tier/disk.h"
#include "serving/policy_message.h"
#include "tests/e2e/prefill_rig.h"
#include "tests/support/tensor_file.h"
#include "tests/support/thorough.h"

enum {
    DOCS = 6,
    QUESTIONS = 6,
    DEPTH = 4,
    IDS = 600,
    AT_ONCE = 4,
    SLOTS = 4096,
    REQUESTS = 8,
    ANEW = 20
};

static const char *const policies[] = {"",
                                       "",
                                       "",
                                       "",
                                       "evict=h2o",
                                       "select=csp,heavy=1,nsoftmax_decode=1",
                                       "pack=svd,rank_k=4,rank_v=4,gain=0",
                                       "select=snapkv,capacity=24",
                                       "prune=random,layer=1,keep=0.5,seed=3"};

enum { POLICIES = sizeof policies / sizeof *policies };

static uint64_t state;
static uint32_t image_id;

static int32_t below(int32_t n) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (int32_t)((x ^ (x >> 31)) % (uint64_t)n);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* A request that may be made: turn `depth` of a chat about a document. */
typedef struct wish {
    int32_t doc, question, depth, policy;
} wish;

typedef struct outcome {
    bool known;
    uint32_t id[N_TOKEN];
    uint64_t digest[N_TOKEN];
} outcome;

static outcome truths[DOCS][QUESTIONS][DEPTH][POLICIES];

typedef struct asked {
    wish wish;
    asking a;
    Fovea__Inference__V1__TokenIds list;
    uint32_t ids[IDS];
    fv_arena arena; /* the policy's message */
    heard p, d;
} asked;

static void add(asked *x, int32_t n, uint32_t from) {
    for (int32_t i = 0; i < n; i++) {
        uint32_t id = 3 + (from * 31 + (uint32_t)(i * i) * 7 + (uint32_t)i) % 80;
        x->ids[x->list.n_id++] = id == image_id ? id + 1 : id;
    }
}

static const outcome *truth_of(wish w);

/* The document, then questions and answers in turn. Documents 0 and 1 begin alike, and 5 has no image. */
static void write_prompt(asked *x) {
    wish w = x->wish;
    fovea__inference__v1__token_ids__init(&x->list);
    x->list.id = x->ids;
    add(x, 70, w.doc < 2 ? 0 : (uint32_t)w.doc);
    if (w.doc == 1) add(x, 9, 1);
    if (w.doc != 5) x->ids[x->list.n_id++] = image_id;
    for (int32_t turn = 0; turn <= w.depth; turn++) {
        wish before = {w.doc, w.question, turn - 1, 0};
        const outcome *said = turn > 0 ? truth_of(before) : NULL;
        for (int32_t i = 0; said && i < N_TOKEN; i++) /* it may have said "<image>" */
            x->ids[x->list.n_id++] = said->id[i] == image_id ? image_id + 1 : said->id[i];
        add(x, 3 + 17 * ((w.question + turn) % QUESTIONS), (uint32_t)(100 + w.question + turn));
    }
    cr_assert_leq(x->list.n_id, IDS);
}

static void prepare(asked *x, wish w, bool cache) {
    fv_policy policy;
    *x = (asked){.wish = w};
    ask_about_image(&x->a, workers.target);
    write_prompt(x);
    x->a.prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    x->a.prompt.ids = &x->list;
    x->a.g.n_images = w.doc != 5;
    x->a.g.cache_off = !cache;
    x->a.m.may_leave_rest = below(4) > 0;
    cr_assert_eq(fv_policy_parse(policies[w.policy], &policy), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_policy_to_message(&policy, &x->arena, &x->a.g.policy), FV_OK);
}

static void forget(asked *x) {
    fv_arena_fini(&x->p.arena);
    fv_arena_fini(&x->d.arena);
    fv_arena_fini(&x->arena);
}

/* Has the answer decoded, and collects it. */
static outcome finish(asked *x) {
    outcome got = {.known = true};
    int32_t n = 0;
    net_wait(&workers.net, &x->p.over);
    cr_assert_eq(x->p.end.status, FV_OK, "%s", x->p.why);
    if (x->p.first) {
        const Fovea__Inference__V1__Token *t = x->p.first->tokens->tokens[0];
        got.id[n] = t->id;
        got.digest[n++] = t->digest;
    }
    cr_assert_neq(x->p.begun->first_by_decode, n == 1);
    decode(&x->d, x->p.begun->ticket);
    cr_assert_eq(x->d.n_id, N_TOKEN - n);
    memcpy(got.id + n, x->d.id, (size_t)(N_TOKEN - n) * sizeof *got.id);
    memcpy(got.digest + n, x->d.digest, (size_t)(N_TOKEN - n) * sizeof *got.digest);
    return got;
}

/* The outcome of a request without a cache. */
static const outcome *truth_of(wish w) {
    outcome *t = &truths[w.doc][w.question][w.depth][w.policy];
    asked *x;
    if (t->known) return t;
    cr_assert((x = malloc(sizeof *x)));
    prepare(x, w, false);
    begin(&x->p, &x->a);
    *t = finish(x);
    forget(x);
    free(x);
    return t;
}

/* ---- histories --------------------------------------------------------------------------------- */

static char folder[512];
static fv_kv_tier *disk;
static uint64_t n_cached, n_left, n_fetched, n_given_up;

static void open_all(void) {
    prefill_rig fresh = {.p = workers.p, .d = workers.d};
    workers = fresh;
    cr_assert_eq(fv_kv_disk_open(folder, (uint64_t)1 << (16 + below(5)), NULL, &disk), FV_OK, "%s",
                 fv_last_error());
    workers.p.prefix_bytes = (size_t)1 << (15 + below(6));
    workers.d.prefix_bytes = (size_t)1 << (14 + below(8));
    workers.d.grants.attach_s = 8; /* a hand-off may be complete just when its call is cancelled */
    workers.p.tier[0] = disk;
    workers.p.n_tier = below(3) > 0;
    open_workers();
}

static void close_all(void) {
    wait_for_nothing_held();
    n_given_up += fv_decode_worker_load(workers.decode).n_prefixes_given_up;
    close_workers();
    disk->ops->close(disk);
}

static void give_up(asked *x) {
    for (int i = below(20); i > 0 && !x->p.over; i--) net_sleep(&workers.net, 1);
    if (x->p.call) fv_rpc_call_cancel(x->p.call);
    net_wait(&workers.net, &x->p.over);
    if (x->p.end.status == FV_OK)
        (void)finish(x); /* too late: it is there, and waits for its reader */
}

static void count(const asked *x) {
    const Fovea__Inference__V1__Report *r = x->p.report;
    n_cached += r->n_prompt_cached > 0;
    n_left += x->p.begun->first_by_decode;
    n_fetched += r->n_prompt_fetched > 0;
}

/* Asks up to four at once, one of which may be given up. */
static void round_of(asked *list, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        wish w = {below(DOCS), below(QUESTIONS), below(DEPTH), below(POLICIES)};
        if (i > 0 && below(2)) w.doc = list[0].wish.doc;
        (void)truth_of(w);
        prepare(&list[i], w, true);
    }
    for (int32_t i = 0; i < n; i++) begin(&list[i].p, &list[i].a);
    int32_t gone = below(4) ? n : below(n);
    for (int32_t i = 0; i < n; i++) {
        if (i == gone) {
            give_up(&list[i]);
            continue;
        }
        outcome got = finish(&list[i]);
        const outcome *want = truth_of(list[i].wish);
        wish w = list[i].wish;
        cr_assert_arr_eq(got.digest, want->digest, sizeof got.digest,
                         "document %d, question %d, turn %d, policy '%s', %u of %u tokens kept",
                         w.doc, w.question, w.depth, policies[w.policy],
                         list[i].p.report->n_prompt_cached, list[i].p.report->n_prompt);
        cr_assert_arr_eq(got.id, want->id, sizeof got.id);
        count(&list[i]);
    }
    for (int32_t i = 0; i < n; i++) forget(&list[i]);
}

static uint32_t find_image_id(void) {
    fv_tokenizer *tok;
    cr_assert_eq(fv_tokenizer_open(checkpoint, &tok), FV_OK, "%s", fv_last_error());
    int32_t id = fv_tokenizer_id(tok, "<image>");
    fv_tokenizer_free(tok);
    return (uint32_t)id;
}

static void begin_suite(void) {
    make_checkpoint();
    scratch_dir(folder, sizeof folder);
    image_id = find_image_id();
}

TestSuite(cache_histories, .init = begin_suite, .fini = drop_checkpoint, .timeout = 36000);

Test(cache_histories, no_digest_differs_from_a_run_without_any_cache) {
    static asked list[AT_ONCE];
    const char *most = getenv("FOVEA_HISTORIES");
    int n = most ? atoi(most) : thorough() ? 10000 : 20;
    for (int h = 0; h < n; h++) {
        if (h % ANEW == 0) {
            state = (uint64_t)h;
            open_all();
        }
        for (int left = REQUESTS; left > 0;) {
            int32_t at_once = 1 + below(left < AT_ONCE ? left : AT_ONCE);
            round_of(list, at_once);
            left -= at_once;
        }
        if (h % ANEW == ANEW - 1 || h == n - 1) close_all();
    }
    fprintf(stderr,
            "%d histories: %llu hits, %llu on the decode worker alone, %llu from the disk, %llu "
            "prompts given up\n",
            n, (unsigned long long)n_cached, (unsigned long long)n_left,
            (unsigned long long)n_fetched, (unsigned long long)n_given_up);
    cr_assert_gt(n_cached, 0);
    cr_assert_gt(n_left, 0);
    cr_assert_gt(n_given_up, 0);
}

/* Prompts that a decode worker keeps, over a connection: the second question about an image is sent without it. */
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/decode_rig.h"

TestSuite(decode_prefixes, .init = write_checkpoint, .fini = remove_checkpoint, .timeout = 240);

enum {
    BEFORE = 4,            /* text tokens before the image */
    AFTER = TEXT - BEFORE, /* between it and the question */
    PREFIX_BYTES = 1 << 20
};

static fv_decode_options keeping(void) {
    fv_decode_options opt = fv_decode_options_default();
    opt.prefix_bytes = PREFIX_BYTES;
    return opt;
}

/* A prompt that ends with a question of its own. */
static void prefill_question(handoff *h, int32_t question, const char *policy) {
    const int32_t more[] = {question, question + 1};
    h->chained = true;
    prefill(h, policy, TOKENS, 2, more);
    h->first.step = 1; /* they are no answer */
}

static void answer_well(answer *a, handoff *h) {
    static answer want;
    memset(&want, 0, sizeof want);
    memset(a, 0, sizeof *a);
    ask(a, h, h->max_tokens);
    UNTIL(a->over);
    cr_assert_eq(a->status, FV_OK, "%s", a->why);
    expect(h, h->max_tokens, &want);
    assert_same(a, &want);
}

Test(decode_prefixes, another_question_about_an_image_is_answered_alike_and_sent_without_it) {
    static handoff h[4];
    static answer a;
    fv_decode_options opt = keeping();
    open_all(&opt);
    for (int i = 0; i < 4; i++) {
        prefill_question(&h[i], 7 + 3 * i, "");
        send_all(&h[i]);
        cr_assert_eq(h[i].sent.tokens_kept, i == 0 ? 0 : BEFORE + VISUAL + AFTER);
        if (i > 0) cr_assert_lt(h[i].sent.bytes, h[0].sent.bytes - h[i].sent.bytes_kept / 2);
        if (i != 1) answer_well(&a, &h[i]); /* the second one waits while others come and go */
    }
    answer_well(&a, &h[1]);
    UNTIL(worker_is_empty());
    Fovea__Inference__V1__Load l = fv_decode_worker_load(rig.worker);
    cr_assert_eq(l.n_prefixes_found, 3);
    cr_assert_eq(l.n_prefixes_missed, 1);
    cr_assert_eq(l.tokens_kept, 3 * (BEFORE + VISUAL + AFTER));
    cr_assert_eq(l.bytes_not_sent, 3 * h[1].sent.bytes_kept);
    cr_assert_geq(l.n_prefixes, 1);
    UNTIL(fv_decode_worker_load(rig.worker).bytes_prefixes_idle ==
          fv_decode_worker_load(rig.worker).bytes_prefixes);
    cr_assert_gt(l.bytes_prefixes, 0);
    for (int i = 0; i < 4; i++) handoff_free(&h[i]);
    close_all();
}

Test(decode_prefixes, tenants_and_lossy_policies_do_not_share) {
    static const struct {
        const char *tenant, *policy;
    } asked[] = {
        {"a", ""}, {"b", ""}, {"a", "evict=vta"}, {"a", "pack=svd,rank_k=4,rank_v=4,gain=0"}};
    static handoff h[4];
    fv_decode_options opt = keeping();
    open_all(&opt);
    for (int i = 0; i < 4; i++) {
        h[i].tenant = asked[i].tenant;
        prefill_question(&h[i], 7, asked[i].policy);
        send_all(&h[i]);
        cr_assert_eq(h[i].sent.tokens_kept, 0, "%s %s", asked[i].tenant, asked[i].policy);
        release(&h[i].ticket);
    }
    for (int i = 0; i < 4; i++) handoff_free(&h[i]);
    close_all();
}

Test(decode_prefixes, links_that_make_no_sense_are_refused) {
    static handoff h[2];
    fv_decode_options opt = keeping();
    open_all(&opt);
    for (int i = 0; i < 2; i++) {
        prefill_question(&h[i], 7, "");
        if (i == 0) h[i].link[1].n_text = 0; /* it ends before the first one */
        if (i == 1) h[i].link[h[i].n_link - 1].n_visual = 1000;
        tell(&h[i], run_ship);
        UNTIL(atomic_load(&h[i].state) == 2);
        cr_assert_eq(h[i].status, FV_EINVAL, "%s", h[i].why);
        cr_assert(strstr(h[i].why, "link "), "%s", h[i].why);
        handoff_free(&h[i]);
    }
    close_all();
}

Test(decode_prefixes, a_leaving_worker_drops_them) {
    static handoff h;
    static answer a;
    fv_decode_options opt = keeping();
    open_all(&opt);
    prefill_question(&h, 7, "");
    send_all(&h);
    answer_well(&a, &h);
    fv_decode_worker_drain(rig.worker);
    UNTIL(fv_decode_worker_idle(rig.worker));
    UNTIL(fv_decode_worker_load(rig.worker).n_prefixes == 0);
    handoff_free(&h);
    close_all();
}

/* ---- a prompt that is on its way -------------------------------------------------------------- */

static void hold(handoff *h) {
    prefill_question(h, 7, "");
    h->hold = true;
    tell(h, run_ship);
    UNTIL(atomic_load(&h->state) >= 1);
    cr_assert_eq(atomic_load(&h->state), 1, "%s", h->why);
}

static void ask_behind(handoff *h, int32_t question) {
    prefill_question(h, question, "");
    h->wait_ms = 20000;
    tell(h, run_ship);
}

Test(decode_prefixes, questions_that_come_before_the_first_is_there_wait_for_its_image) {
    static handoff first, others[3];
    static answer a;
    fv_decode_options opt = keeping();
    opt.behind_s = 100;
    open_all(&opt);
    hold(&first);
    for (int i = 0; i < 3; i++) ask_behind(&others[i], 20 + 3 * i);
    run_loop_ms(200);
    for (int i = 0; i < 3; i++) cr_assert_eq(atomic_load(&others[i].state), 0, "it waits");
    tell(&first, run_let_go);
    UNTIL(atomic_load(&first.state) == 2);
    for (int i = 0; i < 3; i++) {
        UNTIL(atomic_load(&others[i].state) == 2);
        cr_assert_eq(others[i].status, FV_OK, "%s", others[i].why);
        cr_assert_eq(others[i].sent.tokens_kept, BEFORE + VISUAL);
        answer_well(&a, &others[i]);
    }
    answer_well(&a, &first);
    for (int i = 0; i < 3; i++) handoff_free(&others[i]);
    handoff_free(&first);
    close_all();
}

Test(decode_prefixes, nobody_waits_longer_than_allowed_or_for_a_hand_off_that_has_ended) {
    static handoff first, other;
    fv_decode_options opt = keeping();
    opt.behind_s = 0.1;
    open_all(&opt);
    hold(&first);
    ask_behind(&other, 20);
    UNTIL(atomic_load(&other.state) == 2);
    cr_assert_eq(other.status, FV_OK, "%s", other.why);
    cr_assert_eq(other.sent.tokens_kept, 0, "the first one sends nothing");
    release(&other.ticket);
    handoff_free(&other);
    tell(&first, run_abandon);
    UNTIL(atomic_load(&first.state) == 2);
    handoff_free(&first);
    close_all();

    rig.exporting = NULL;
    memset(&first, 0, sizeof first);
    memset(&other, 0, sizeof other);
    opt.behind_s = 100;
    open_all(&opt);
    hold(&first);
    ask_behind(&other, 20);
    run_loop_ms(100);
    cr_assert_eq(atomic_load(&other.state), 0);
    tell(&first, run_abandon);
    UNTIL(atomic_load(&other.state) == 2);
    cr_assert_eq(other.status, FV_OK, "%s", other.why);
    release(&other.ticket);
    handoff_free(&other);
    handoff_free(&first);
    close_all();
}

Test(decode_prefixes, a_leaving_worker_refuses_those_that_wait) {
    static handoff first, other;
    fv_decode_options opt = keeping();
    opt.behind_s = 100;
    open_all(&opt);
    hold(&first);
    ask_behind(&other, 20);
    run_loop_ms(100);
    fv_decode_worker_drain(rig.worker);
    UNTIL(atomic_load(&other.state) == 2);
    cr_assert_eq(other.status, FV_EBUSY, "%s", other.why);
    tell(&first, run_abandon);
    UNTIL(atomic_load(&first.state) == 2);
    handoff_free(&other);
    handoff_free(&first);
    close_all();
}

/* ---- conversations ------------------------------------------------------------------------- */

enum { TURNS = 3, TALKS = 3 };

typedef struct talk {
    handoff h;
    answer turn[TURNS];
    uint8_t name[16];
} talk;

static Fovea__Inference__V1__Prompt prompt_message;
static Fovea__Inference__V1__TokenIds ids_message;

static request next_turn(talk *t, int32_t number) {
    static uint32_t ids[5];
    request m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    fovea__inference__v1__prompt__init(&prompt_message);
    fovea__inference__v1__token_ids__init(&ids_message);
    for (uint32_t i = 0; i < 5; i++) ids[i] = 3 + (uint32_t)number * 31 + i * 7;
    ids_message.id = ids;
    ids_message.n_id = 5;
    prompt_message.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    prompt_message.ids = &ids_message;
    m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION;
    m.conversation = (ProtobufCBinaryData){sizeof t->name, t->name};
    m.prompt = &prompt_message;
    m.max_tokens = TOKENS;
    m.ignore_eos = m.digests = true;
    return m;
}

static void take_turn(talk *t, int32_t number) {
    answer *a = &t->turn[number];
    request m = number ? next_turn(t, number) : request_for(&t->h.ticket, t->h.max_tokens);
    m.keep_ms = 60000;
    ask_with(a, &m, 20000);
    UNTIL(a->over);
    cr_assert_eq(a->status, FV_OK, "%s", a->why);
    memcpy(t->name, a->kept.name, sizeof t->name);
}

/* Several conversations about one image, whose turns take turns. */
static void talk_all(talk *t, size_t prefix_bytes) {
    fv_decode_options opt = keeping();
    opt.prefix_bytes = prefix_bytes;
    rig.exporting = NULL;
    open_all(&opt);
    for (int32_t number = 0; number < TURNS; number++)
        for (int32_t i = 0; i < TALKS; i++) {
            if (number == 0) prefill_question(&t[i].h, 7 + 3 * i, "");
            if (number == 0) send_all(&t[i].h);
            if (number == 0 && i > 0)
                cr_assert_eq(t[i].h.sent.tokens_kept, prefix_bytes ? BEFORE + VISUAL + AFTER : 0);
            take_turn(&t[i], number);
        }
    UNTIL(fv_decode_worker_load(rig.worker).n_kept == TALKS);
    cr_assert_eq(fv_decode_worker_load(rig.worker).bytes_prefixes_idle, 0, "they use it");
    fv_decode_worker_drain(rig.worker);
    UNTIL(fv_decode_worker_idle(rig.worker));
    for (int32_t i = 0; i < TALKS; i++) handoff_free(&t[i].h);
    close_all();
}

Test(decode_prefixes, conversations_over_a_kept_image_have_the_bits_of_others) {
    static talk alone[TALKS], shared[TALKS];
    talk_all(alone, 0);
    talk_all(shared, PREFIX_BYTES);
    for (int32_t i = 0; i < TALKS; i++)
        for (int32_t number = 0; number < TURNS; number++)
            assert_same(&shared[i].turn[number], &alone[i].turn[number]);
}

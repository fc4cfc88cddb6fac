/* Kept conversations, as a router sees them on a decode worker: each turn is bit for bit what a
 * full prefill of all ids gives, and nothing is left when a conversation ends. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/decode_rig.h"
#include "tests/support/recompress_turn.h"

TestSuite(decode_conversations, .init = write_checkpoint, .fini = remove_checkpoint,
          .timeout = 240);

/* A conversation and all its ids, from which the expected turns are computed: those of the
 * prefilled prompt first. */
typedef struct session {
    handoff h;
    answer got, want;
    int32_t n, ids[MORE]; /* after the prompt */
    uint8_t name[16];
    uint32_t new_ids[64];
} session;

static void note(session *t, int32_t id) {
    cr_assert_lt(t->n, MORE);
    t->ids[t->n++] = id;
}

/* The generation was kept and can be continued. */
static void note_kept(session *t) {
    cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
    cr_assert_eq(t->got.kept.n_name, 16);
    memcpy(t->name, t->got.kept.name, sizeof t->name);
    for (int32_t i = 0; i < t->got.n; i++) note(t, (int32_t)t->got.ids[i]);
}

static void begin_session_under(session *t, const char *policy, uint32_t keep_ms) {
    prefill_and_send(&t->h, policy, TOKENS);
    request m = request_for(&t->h.ticket, TOKENS);
    m.keep_ms = keep_ms;
    ask_with(&t->got, &m, 20000);
    UNTIL(t->got.over);
    t->n = 0;
    note(t, t->h.first.id);
    note_kept(t);
}

static void begin_session(session *t, uint32_t keep_ms) { begin_session_under(t, "", keep_ms); }

static Fovea__Inference__V1__Prompt prompt_message;
static Fovea__Inference__V1__TokenIds ids_message;

/* A follow-up of n new ids, a function of `seed`. */
static request follow_up(session *t, int32_t n, int32_t seed) {
    request m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    fovea__inference__v1__prompt__init(&prompt_message);
    fovea__inference__v1__token_ids__init(&ids_message);
    for (int32_t i = 0; i < n; i++) t->new_ids[i] = (uint32_t)(3 + (seed * 31 + i * 7) % 200);
    ids_message.id = t->new_ids;
    ids_message.n_id = (size_t)n;
    prompt_message.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    prompt_message.ids = &ids_message;
    m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION;
    m.conversation = (ProtobufCBinaryData){sizeof t->name, t->name};
    m.prompt = &prompt_message;
    m.max_tokens = TOKENS;
    m.ignore_eos = true;
    m.digests = true;
    m.keep_ms = 60000;
    return m;
}

static void send_follow_up(session *t, const request *m) {
    memset(&t->got, 0, sizeof t->got);
    ask_with(&t->got, m, 20000);
}

static void ask_on(session *t, int32_t n, int32_t seed) {
    request m = follow_up(t, n, seed);
    send_follow_up(t, &m);
    for (int32_t i = 0; i < n; i++) note(t, (int32_t)t->new_ids[i]);
}

/* The expected tokens at this point of the conversation: a full prefill of all ids, then
 * decoding. */
static void measure(const session *t, answer *want) {
    static handoff whole;
    memset(&whole, 0, sizeof whole);
    memset(want, 0, sizeof *want);
    prefill(&whole, "", 0, t->n, t->ids);
    want->ids[want->n] = (uint32_t)whole.first.id;
    want->digest[want->n++] = whole.first_digest;
    expect(&whole, TOKENS, want);
    handoff_free(&whole);
}

/* The follow-up has finished with the tokens that a full prefill gives. */
static void check_on(session *t, int32_t n_new) {
    UNTIL(t->got.over);
    cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
    measure(t, &t->want);
    cr_assert_eq(t->got.index0, 0);
    cr_assert_eq(t->got.n, TOKENS);
    cr_assert_arr_eq(t->got.ids, t->want.ids, TOKENS * sizeof *t->got.ids);
    cr_assert_arr_eq(t->got.digest, t->want.digest, TOKENS * sizeof *t->got.digest);
    cr_assert_eq(t->got.bytes_end, t->want.bytes_end);
    cr_assert_eq(t->got.report.n_prompt, (uint32_t)n_new + 1);
    cr_assert_eq(t->got.report.n_text, (uint32_t)n_new + 1);
    cr_assert_eq(t->got.report.n_images, 0);
    cr_assert_eq(t->got.report.bytes, t->got.report.bytes_raw, "nothing was dropped");
    cr_assert_not(t->got.report.transfer);
    note_kept(t);
}

static void fails(session *t, grpc_status_code code, const char *words) {
    UNTIL(t->got.over);
    cr_assert_eq(t->got.code, code, "%s", t->got.why);
    cr_assert(strstr(t->got.why, words), "%s", t->got.why);
    cr_assert_eq(t->got.n, 0);
}

/* The next turn is the same as if nothing had happened. */
static void goes_on_well(session *t) {
    ask_on(t, 5, 99);
    check_on(t, 5);
}

static void set_over(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                     grpc_byte_buffer *reply) {
    (void)call;
    (void)reply;
    cr_assert_eq(end->status, FV_OK, "%s", end->text);
    *(bool *)user = true;
}

static void forget(const uint8_t name[16]) {
    Fovea__Handoff__V1__ForgetRequest m = FOVEA__HANDOFF__V1__FORGET_REQUEST__INIT;
    bool over = false;
    m.conversation = (ProtobufCBinaryData){16, (uint8_t *)(uintptr_t)name};
    fv_rpc_metadata token = token_for("/fovea.handoff.v1.Decode/Forget", NULL);
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Decode/Forget",
                               .request = &m.base,
                               .deadline_ms = 20000,
                               .metadata = &token,
                               .n_metadata = 1};
    need(fv_rpc_unary_with(rig.channel, &opt, set_over, &over, NULL));
    UNTIL(over);
}

static session sessions[3];

static void end_sessions(int n) {
    for (int i = 0; i < n; i++) {
        forget(sessions[i].name);
        handoff_free(&sessions[i].h);
    }
    close_all(); /* waits until the pool is empty */
}

Test(decode_conversations, five_turns_on_a_kept_image_are_those_of_a_full_prefill) {
    static const int32_t news[] = {9, 1, 30, 2}; /* ids that come with each turn */
    open_all(NULL);
    begin_session(&sessions[0], 60000);
    cr_assert_eq(sessions[0].got.kept.keep_ms, 60000);
    for (int turn = 0; turn < 4; turn++) {
        ask_on(&sessions[0], news[turn], turn);
        check_on(&sessions[0], news[turn]);
        UNTIL(fv_decode_worker_load(rig.worker).n_kept == 1);
    }
    end_sessions(1);
}

Test(decode_conversations, a_recurrent_state_is_kept_from_turn_to_turn) {
    static const int32_t news[] = {9, 1, 30};
    remove_checkpoint();
    write_checkpoint_of("qwen3_5");
    open_all(NULL);
    for (int i = 0; i < 2; i++) begin_session(&sessions[i], 60000);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 2; i++) ask_on(&sessions[i], news[turn], turn + i);
        for (int i = 0; i < 2; i++) check_on(&sessions[i], news[turn]);
    }
    end_sessions(2);
}

/* EMA steps continue after the first answer, computed by hand on the KV that was sent. */
static void assert_rows_go_on_leaving(const char *policy) {
    enum { NEW = 7 };
    session *t = &sessions[0];
    static answer first, want;
    open_all(NULL);
    begin_session_under(t, policy, 60000);
    cr_assert_gt(t->got.report.entries_evicted, 0);
    expect(&t->h, TOKENS, &first);
    t->h.evict.before += TOKENS;
    uint64_t gone = fv_evict_count(t->h.kv);
    ask_on(t, NEW, 3);
    UNTIL(t->got.over);
    cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
    int32_t ids[ROWS + MORE], n = ROWS + t->n;
    memcpy(ids, t->h.ids, ROWS * sizeof *ids);
    memcpy(ids + ROWS, t->ids, (size_t)t->n * sizeof *ids);
    expect_after(&t->h, ids, n, n, n - NEW - 1, TOKENS, &want);
    cr_assert_eq(t->got.n, TOKENS);
    cr_assert_arr_eq(t->got.ids, want.ids, TOKENS * sizeof *want.ids);
    cr_assert_arr_eq(t->got.digest, want.digest, TOKENS * sizeof *want.digest);
    cr_assert_eq(t->got.bytes_end, want.bytes_end);
    cr_assert_eq(t->got.report.entries_evicted, fv_evict_count(t->h.kv) - gone);
    cr_assert_gt(t->got.report.entries_evicted, 0);
    note_kept(t);
    end_sessions(1);
}

Test(decode_conversations, eviction_continues_in_later_turns) {
    assert_rows_go_on_leaving("evict=vta,tau=30,layer=1,shallow=rank_by_first_tap");
}

Test(decode_conversations, attention_sums_continue_in_later_turns) {
    assert_rows_go_on_leaving("evict=h2o,heavy=0.3");
}

Test(decode_conversations, streaming_heads_are_cut_in_later_turns) {
    assert_rows_go_on_leaving("evict=scissorhands,keep=0.4,drop=0.1");
}

Test(decode_conversations, tova_continues_in_later_turns) {
    assert_rows_go_on_leaving("evict=tova,keep=0.5");
}

/* By hand, on the KV that was sent: it holds all ids so far except the last. */
static void follow_by_hand(session *t, int32_t n_new, answer *want) {
    int32_t ids[ROWS + MORE], n = ROWS + t->n;
    memset(want, 0, sizeof *want);
    memcpy(ids, t->h.ids, ROWS * sizeof *ids);
    memcpy(ids + ROWS, t->ids, (size_t)t->n * sizeof *ids);
    expect_after(&t->h, ids, n, n, n - n_new - 1, TOKENS, want);
}

/* The end of the turn, by hand; the worker must hold and report the same. */
static void assert_recompressed(session *t, const char *policy) {
    fv_recompress_report r = recompress_turn(rig.p_engine.dec, t->h.kv, policy);
    cr_assert_eq(t->got.report.recompressed.rows, r.rows);
    cr_assert_eq(t->got.report.recompressed.n_layer, (uint32_t)r.n_layer);
    cr_assert_eq(t->got.report.recompressed.bytes_freed, r.bytes);
    cr_assert_eq(t->got.report.recompressed.error, r.error);
    cr_assert_eq(t->got.bytes_end,
                 fv_kv_bytes(t->h.kv, FV_SEG_VISUAL) + fv_kv_bytes(t->h.kv, FV_SEG_TEXT));
    UNTIL(fv_decode_worker_load(rig.worker).bytes_held == fv_kv_bytes_held(t->h.kv));
}

/* The text of the prompt is too short to be compressed at first; its keys are compressed together
 * with those of the first turn that makes it worthwhile, and later keys join once there are 30. */
Test(decode_conversations, text_keys_are_compressed_again_in_later_turns) {
    static const char policy[] =
        "pack=svd,rank_k=4,rank_v=4,gain=0.5,recompress=30,compress_text=keys,rank_text=6";
    static const int32_t news[] = {9, 18, 1, 20, 25};
    session *t = &sessions[0];
    static answer want;
    uint64_t rows = 0, times = 0;
    open_all(NULL);
    begin_session_under(t, policy, 60000);
    expect(&t->h, TOKENS, &want);
    assert_recompressed(t, policy);
    for (int turn = 0; turn < 5; turn++) {
        ask_on(t, news[turn], turn);
        UNTIL(t->got.over);
        cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
        follow_by_hand(t, news[turn], &want);
        cr_assert_eq(t->got.n, TOKENS);
        cr_assert_arr_eq(t->got.ids, want.ids, TOKENS * sizeof *want.ids);
        cr_assert_arr_eq(t->got.digest, want.digest, TOKENS * sizeof *want.digest);
        assert_recompressed(t, policy);
        note_kept(t);
        rows += t->got.report.recompressed.rows;
        times += t->got.report.recompressed.rows > 0;
    }
    cr_assert(times >= 2 && times < 5, "%lu times", times);
    cr_assert_eq(fv_decode_worker_load(rig.worker).tokens_recompressed, rows);
    end_sessions(1);
}

/* Text becomes codes in the middle of answers and of later prompts, whatever else a step
 * computes. */
static void text_becomes_codes(const char *policy, int32_t prompt_tokens) {
    static const int32_t news[] = {9, 18, 1, 20, 40};
    session *t = &sessions[0];
    static answer want;
    uint64_t rows = 0;
    fv_decode_options opt = fv_decode_options_default();
    opt.prompt_tokens = prompt_tokens;
    open_all(&opt);
    begin_session_under(t, policy, 60000);
    memset(&want, 0, sizeof want);
    expect(&t->h, TOKENS, &want);
    for (int turn = 0; turn < 5; turn++) {
        t->h.text.report = (fv_recompress_report){0};
        ask_on(t, news[turn], turn);
        UNTIL(t->got.over);
        cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
        follow_by_hand(t, news[turn], &want);
        cr_assert_eq(t->got.n, TOKENS);
        cr_assert_arr_eq(t->got.ids, want.ids, TOKENS * sizeof *want.ids);
        cr_assert_arr_eq(t->got.digest, want.digest, TOKENS * sizeof *want.digest);
        cr_assert_eq(t->got.bytes_end, want.bytes_end);
        cr_assert_eq(t->got.report.recompressed.rows, t->h.text.report.rows);
        cr_assert_eq(t->got.report.recompressed.bytes_freed, t->h.text.report.bytes);
        cr_assert_eq(t->got.report.recompressed.error, t->h.text.report.error);
        note_kept(t);
        rows += t->h.text.report.rows;
    }
    cr_assert_gt(rows, 0);
    UNTIL(fv_decode_worker_load(rig.worker).bytes_held == fv_kv_bytes_held(t->h.kv));
    end_sessions(1);
}

Test(decode_conversations, text_becomes_codes_in_answers_and_in_later_prompts) {
    text_becomes_codes("pack=quant,compress_text=all,bits_text=4,recompress=16", 256);
}

Test(decode_conversations, text_becomes_codes_in_steps_of_few_rows) {
    text_becomes_codes("pack=quant,compress_text=keys,recompress=32", 3);
}

Test(decode_conversations, concurrent_conversations_in_small_chunks_do_not_mix) {
    fv_decode_options opt = fv_decode_options_default();
    opt.prompt_tokens = 3;
    open_all(&opt);
    for (int i = 0; i < 3; i++) begin_session(&sessions[i], 60000);
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < 3; i++) ask_on(&sessions[i], 11 + 4 * i, 10 * i + turn);
        for (int i = 0; i < 3; i++) check_on(&sessions[i], 11 + 4 * i);
    }
    end_sessions(3);
}

Test(decode_conversations, a_chat_goes_on_with_the_users_turn_and_a_text_as_it_is) {
    Fovea__Inference__V1__Turn turn = FOVEA__INFERENCE__V1__TURN__INIT, *turns[] = {&turn};
    Fovea__Inference__V1__Chat chat = FOVEA__INFERENCE__V1__CHAT__INIT;
    static const char *const said[] = {"</s>USER: What now? ASSISTANT:", " And then?"};
    open_all(NULL);
    begin_session(&sessions[0], 60000);
    turn.role = (char *)"user";
    turn.text = (char *)"What now?";
    chat.template_ = (char *)"vicuna";
    chat.turns = turns;
    chat.n_turns = 1;
    for (int form = 0; form < 2; form++) {
        session *t = &sessions[0];
        int32_t *ids, n;
        request m = follow_up(t, 0, 0);
        prompt_message.form_case = form ? FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT
                                        : FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
        if (form)
            prompt_message.text = (char *)(uintptr_t)said[1];
        else
            prompt_message.chat = &chat;
        need(fv_tokenizer_encode_after(rig.p_engine.tok, t->ids[t->n - 1], said[form],
                                       strlen(said[form]), NULL, &ids, &n));
        send_follow_up(t, &m);
        for (int32_t i = 0; i < n; i++) note(t, ids[i]);
        free(ids);
        check_on(t, n);
    }
    end_sessions(1);
}

Test(decode_conversations, a_follow_up_that_is_refused_leaves_its_conversation_as_it_was) {
    open_all(NULL);
    uint32_t image = (uint32_t)fv_checkpoint_config(rig.p_engine.ck)->image_token;
    session *t = &sessions[0];
    begin_session(t, 60000);
    request m = follow_up(t, 0, 0);
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "the prompt is empty");
    m = follow_up(t, 3, 0);
    t->new_ids[1] = image;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "cannot add images");
    m = follow_up(t, 3, 0);
    t->new_ids[1] = 1u << 30;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "the model has ids");
    static uint32_t long_ids[1 << 16];
    int32_t context = fv_checkpoint_config(rig.p_engine.ck)->text.max_position;
    cr_assert_leq(context, 1 << 16);
    m = follow_up(t, 3, 0);
    ids_message.id = long_ids;
    ids_message.n_id = (size_t)context;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "the checkpoint's context is");
    static char long_text[1000001];
    memset(long_text, 'a', sizeof long_text - 1);
    m = follow_up(t, 0, 0);
    prompt_message.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt_message.text = long_text;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "the text has 1000000 bytes");
    Fovea__Inference__V1__Sampling sampling = FOVEA__INFERENCE__V1__SAMPLING__INIT;
    sampling.temperature = -1;
    m = follow_up(t, 3, 0);
    m.sampling = &sampling;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_INVALID_ARGUMENT, "temperature");
    goes_on_well(t);
    end_sessions(1);
}

Test(decode_conversations, an_unknown_conversation_is_not_found) {
    uint8_t old[16];
    open_all(NULL);
    session *t = &sessions[0];
    begin_session(t, 60000);
    memcpy(old, t->name, sizeof old);
    goes_on_well(t);
    cr_assert_neq(memcmp(old, t->name, sizeof old), 0, "each answer's end has its own name");
    request m = follow_up(t, 3, 0);
    m.conversation.data = old;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_NOT_FOUND, "send it again in full");
    forget(t->name);
    m = follow_up(t, 3, 0);
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_NOT_FOUND, "send it again in full");
    end_sessions(1);
}

Test(decode_conversations, what_is_kept_lasts_for_its_lease_and_no_longer) {
    fv_decode_options opt = fv_decode_options_default();
    opt.keep_s_max = 0.3;
    open_all(&opt);
    session *t = &sessions[0];
    begin_session(t, 60000);
    cr_assert_eq(t->got.kept.keep_ms, 300, "no longer than the worker allows");
    UNTIL(worker_is_empty());
    request m = follow_up(t, 3, 0);
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_NOT_FOUND, "no longer keeps");
    end_sessions(1);
}

Test(decode_conversations, without_keep_ms_nothing_is_kept_after_a_follow_up_either) {
    open_all(NULL);
    session *t = &sessions[0];
    begin_session(t, 60000);
    request m = follow_up(t, 3, 0);
    m.keep_ms = 0;
    send_follow_up(t, &m);
    UNTIL(t->got.over);
    cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
    cr_assert_eq(t->got.kept.n_name, 0);
    cr_assert_eq(t->got.kept.keep_ms, 0);
    UNTIL(worker_is_empty());
    end_sessions(1);
}

Test(decode_conversations, one_call_at_a_time_goes_on_with_a_conversation) {
    open_all(NULL);
    session *t = &sessions[0];
    static session other;
    begin_session(t, 60000);
    for (int tries = 0; tries < 5; tries++) { /* a busy machine may miss the moment */
        request m = follow_up(t, 3, tries);
        m.max_tokens = MANY;
        send_follow_up(t, &m);
        UNTIL(t->got.n > 2);
        m.max_tokens = TOKENS;
        send_follow_up(&other, &m);
        UNTIL(t->got.over && other.got.over);
        cr_assert_eq(t->got.status, FV_OK, "%s", t->got.why);
        cr_assert_eq(t->got.n, MANY);
        memcpy(t->name, t->got.kept.name, sizeof t->name);
        if (other.got.code != GRPC_STATUS_NOT_FOUND) break;
    }
    fails(&other, GRPC_STATUS_INVALID_ARGUMENT, "another request is continuing");
    end_sessions(1);
}

Test(decode_conversations, a_follow_up_cancelled_in_the_middle_ends_its_conversation) {
    open_all(NULL);
    session *t = &sessions[0];
    begin_session(t, 60000);
    request m = follow_up(t, 3, 1);
    m.max_tokens = MANY;
    send_follow_up(t, &m);
    UNTIL(t->got.n > 2);
    fv_rpc_call_cancel(t->got.call);
    UNTIL(t->got.over);
    UNTIL(worker_is_empty());
    m = follow_up(t, 3, 1);
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_NOT_FOUND, "no longer keeps");
    end_sessions(1);
}

Test(decode_conversations, a_follow_up_cancelled_before_it_began_leaves_its_conversation) {
    static handoff busy;
    static answer a;
    fv_decode_options opt = fv_decode_options_default();
    opt.batch_max = 1;
    open_all(&opt);
    session *t = &sessions[0];
    begin_session(t, 60000);
    prefill_and_send(&busy, "", MANY);
    ask(&a, &busy, MANY);
    UNTIL(a.n > 0);
    request m = follow_up(t, 3, 1);
    send_follow_up(t, &m);
    UNTIL(fv_decode_worker_load(rig.worker).n_queued == 1 || a.over);
    cr_assert_not(a.over, "it was too quick: make it longer");
    fv_rpc_call_cancel(t->got.call);
    UNTIL(t->got.over);
    UNTIL(fv_decode_worker_load(rig.worker).n_kept == 1);
    fv_rpc_call_cancel(a.call);
    UNTIL(a.over);
    goes_on_well(t);
    handoff_free(&busy);
    end_sessions(1);
}

Test(decode_conversations, a_follow_up_without_memory_is_busy_and_loses_nothing) {
    fv_decode_options opt = fv_decode_options_default();
    fv_kv_shape shape;
    open_all(NULL); /* how much memory does one need? */
    shape = fv_engine_kv_shape(&rig.p_engine, FV_F32);
    close_all();
    rig.exporting = NULL;
    opt.kv_bytes = 2 * fv_kv_text_bytes(&shape, ROWS + TOKENS + FV_KV_BLOCK, 0);
    open_all(&opt);
    session *t = &sessions[0];
    begin_session(t, 60000);
    UNTIL(fv_decode_worker_load(rig.worker).n_kept == 1);
    uint64_t kept = fv_decode_worker_load(rig.worker).bytes_kept;
    request m = follow_up(t, 3, 1);
    m.max_tokens = MANY;
    send_follow_up(t, &m);
    fails(t, GRPC_STATUS_RESOURCE_EXHAUSTED, "the KV pool is full");
    UNTIL(fv_decode_worker_load(rig.worker).bytes_held == kept);
    goes_on_well(t);
    end_sessions(1);
}

Test(decode_conversations, a_draining_worker_drops_conversations) {
    open_all(NULL);
    session *t = &sessions[0];
    begin_session(t, 60000);
    prefill_and_send(&sessions[1].h, "", TOKENS);
    fv_decode_worker_drain(rig.worker);
    fv_decode_worker_drain(rig.worker);
    UNTIL(fv_decode_worker_load(rig.worker).n_kept == 0);
    request m = request_for(&sessions[1].h.ticket, TOKENS);
    m.keep_ms = 60000;
    ask_with(&sessions[1].got, &m, 20000);
    UNTIL(sessions[1].got.over);
    cr_assert_eq(sessions[1].got.status, FV_OK, "%s", sessions[1].got.why);
    cr_assert_eq(sessions[1].got.kept.n_name, 0);
    end_sessions(2);
}

Test(decode_conversations, an_answer_for_which_its_tenant_may_not_have_the_memory_is_refused) {
    static session t;
    open_all(NULL);
    t.h.tenant = "acme";
    begin_session(&t, 60000);
    request m = follow_up(&t, 5, 1);
    m.tenant = (char *)"acme";
    m.tenant_kv_bytes = fv_decode_worker_load(rig.worker).bytes_held;
    m.max_tokens = MORE;
    send_follow_up(&t, &m);
    UNTIL(t.got.over);
    cr_assert_eq(t.got.status, FV_EBUSY, "%s", t.got.why);
    cr_assert_str_eq(t.got.refusal, "tenant_full");
    m.tenant_kv_bytes *= 100;
    m.keep_ms = 0;
    send_follow_up(&t, &m);
    UNTIL(t.got.over);
    cr_assert_eq(t.got.status, FV_OK, "it was kept: %s", t.got.why);
    handoff_free(&t.h);
    close_all();
}

/* Several questions in one conversation with a fleet: follow-ups continue from the kept KV, their
 * answers are bit for bit those of the whole conversation sent again, and without kept KV the whole
 * conversation is sent. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/client/request.h"
#include "cli/client/session.h"
#include "options/programs.h"
#include "tests/support/fleet.h"

#define FOVEA FOVEA_BIN "/fovea"
#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"

static command_result r;
static fleet f;

static void open_fleet(void) { fleet_open(&f, "talk"); }
static void close_fleet(void) { fleet_close(&f); }

TestSuite(session, .init = open_fleet, .fini = close_fleet, .timeout = 300);

static void need(fv_status st) { cr_assert_eq(st, FV_OK, "%s", fv_last_error()); }

/* ---- fovea ask --then ------------------------------------------------------------------- */

static json_t *ask_many(const char *args) {
    json_error_t err;
    command_run(&r, FOVEA " ask --to %s --json --ignore-eos --max-tokens 6 %s", f.address, args);
    cr_assert_eq(r.status, 0, "%s: %s", args, r.err);
    json_t *list = json_loads(r.out, 0, &err);
    cr_assert_not_null(list, "%s", err.text);
    cr_assert(json_is_array(list));
    return list;
}

static int64_t tokens_of(const json_t *list, size_t i, const char *key) {
    const json_t *report = json_object_get(json_array_get(list, i), "report");
    return json_integer_value(json_object_get(json_object_get(report, "tokens"), key));
}

static const char *transport_of(const json_t *list, size_t i) {
    const json_t *report = json_object_get(json_array_get(list, i), "report");
    return json_string_value(json_object_get(json_object_get(report, "handoff"), "transport"));
}

Test(session, a_question_that_follows_brings_only_itself) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "--decode 2");
    json_t *list = ask_many("--image " IMAGE " 'what is it?' --then 'and then?' --then 'why?'");
    cr_assert_eq(json_array_size(list), 3);
    cr_assert_eq(tokens_of(list, 0, "images"), 1);
    cr_assert_str_eq(transport_of(list, 0), "grpc");
    for (size_t i = 1; i < 3; i++) {
        cr_assert_eq(tokens_of(list, i, "images"), 0);
        cr_assert_eq(tokens_of(list, i, "visual"), 0);
        cr_assert_eq(tokens_of(list, i, "generated"), 6);
        cr_assert_gt(tokens_of(list, i, "prompt"), 1);
        cr_assert_str_eq(transport_of(list, i), "none");
    }
    json_decref(list);
    fleet_wait_idle(&f); /* the last answer was not to be kept */
    list = ask_many("--policy pack=svd,gain=0,compress_text=keys,rank_text=6,recompress=5 "
                    "'what is it?' --then 'and then?' --then 'why?'");
    for (size_t i = 0; i < 3; i++) {
        const json_t *report = json_object_get(json_array_get(list, i), "report");
        const json_t *again = json_object_get(report, "recompressed");
        cr_assert_eq(again != NULL, i < 2, "at the end of turns that are kept");
        if (again) cr_assert_gt(json_integer_value(json_object_get(again, "bytes_freed")), 0);
    }
    json_decref(list);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(session, where_nothing_is_kept_the_whole_conversation_goes_again) {
    setenv("FOVEA_KEEP_MS_MAX", "0", 1);
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    json_t *list = ask_many("--image " IMAGE " 'what is it?' --then 'and then?' --then 'why?'");
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(tokens_of(list, i, "images"), 1);
        cr_assert_str_eq(transport_of(list, i), "grpc");
        if (i) cr_assert_gt(tokens_of(list, i, "prompt"), tokens_of(list, i - 1, "prompt"));
    }
    json_decref(list);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(session, answers_are_streamed_one_after_the_other) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    command_run(&r,
                FOVEA " ask --to %s --ignore-eos --max-tokens 4 --raw --image " IMAGE
                      " '<image> a' --then ' b' --then ' c'",
                f.address);
    cr_assert_eq(r.status, 0, "%s", r.err);
    int n = 0;
    for (const char *at = r.err; (at = strstr(at, "4 out, finish: length")) != NULL; at++) n++;
    cr_assert_eq(n, 3, "%s", r.err);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(session, then_needs_a_fleet) {
    fleet_synth(&f, "tiny");
    command_run(&r, FOVEA " ask --checkpoint %s/ck hello --then again", f.dir);
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "--then needs --to HOST:PORT"), "%s", r.err);
}

/* ---- bit for bit ------------------------------------------------------------------------ */

enum { ANSWER = 6, TURNS = 5, IDS_MAX = 400, KEEP_MS = 60000 };

typedef struct chat {
    uint32_t ids[IDS_MAX]; /* prompts and answers so far */
    size_t n;
    fv_remote_outcome last;
} chat;

typedef struct reply {
    uint32_t ids[ANSWER];
    int32_t n;
    fv_report report;
} reply;

static fv_remote *remote;
static fv_arena arena;
static Fovea__Inference__V1__Image *test_image;

static fv_status on_token(void *user, const fv_sampled *token) {
    reply *a = user;
    cr_assert_lt(a->n, ANSWER);
    a->ids[a->n++] = (uint32_t)token->id;
    return FV_OK;
}

/* Sends ids as a prompt: in the conversation that c->last names, or in a new one. */
static fv_status ask_ids(chat *c, uint32_t *ids, size_t n, bool goes_on, uint32_t keep_ms,
                         reply *out) {
    Fovea__Inference__V1__GenerateRequest m = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    Fovea__Inference__V1__Prompt p = FOVEA__INFERENCE__V1__PROMPT__INIT;
    Fovea__Inference__V1__TokenIds list = FOVEA__INFERENCE__V1__TOKEN_IDS__INIT;
    fv_ask_hooks hooks = {.user = out, .token = on_token};
    fv_remote_outcome before = c->last;
    list.id = ids;
    list.n_id = n;
    p.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    p.ids = &list;
    m.prompt = &p;
    m.max_tokens = ANSWER;
    m.ignore_eos = true;
    m.digests = true;
    m.keep_ms = keep_ms;
    m.images = &test_image;
    m.n_images = goes_on ? 0 : 1;
    if (goes_on) m.conversation = (ProtobufCBinaryData){before.n_conversation, before.conversation};
    *out = (reply){0};
    return fv_remote_ask(remote, &m, &hooks, &c->last, &out->report);
}

static void note(chat *c, const uint32_t *ids, size_t n) {
    cr_assert_leq(c->n + n, IDS_MAX);
    memcpy(c->ids + c->n, ids, n * sizeof *ids);
    c->n += n;
}

/* The next turn continues the last; the expected answer is that of a full prefill. */
static void take_turn(chat *c, int turn, int seed) {
    static reply got, want;
    static chat whole;
    uint32_t ids[40];
    size_t n = (size_t)(5 + 7 * turn);
    for (size_t i = 0; i < n; i++) ids[i] = 3 + (uint32_t)(seed * 37 + (int)i * 11) % 200;
    need(ask_ids(c, ids, n, true, KEEP_MS, &got));
    cr_assert_gt(c->last.n_conversation, 16);
    cr_assert_str_empty(c->last.prefill, "no prefill worker took part");
    cr_assert_eq(got.report.n_image, 0);
    cr_assert_str_eq(got.report.transport, "none");
    note(c, ids, n);
    whole = *c;
    need(ask_ids(&whole, whole.ids, whole.n, false, 0, &want));
    cr_assert_eq(want.report.n_image, 1);
    cr_assert_eq(got.n, ANSWER);
    cr_assert_arr_eq(got.ids, want.ids, sizeof got.ids);
    cr_assert_arr_eq(got.report.digest, want.report.digest, ANSWER * sizeof *got.report.digest);
    note(c, got.ids, ANSWER);
    fv_report_free(&got.report);
    fv_report_free(&want.report);
}

static void begin_chat(chat *c, uint32_t image_token, uint32_t about) {
    static reply a;
    uint32_t ids[] = {5, image_token, about, 9, 11};
    need(ask_ids(c, ids, 5, false, KEEP_MS, &a));
    cr_assert_gt(c->last.n_conversation, 16);
    note(c, ids, 5);
    note(c, a.ids, ANSWER);
    fv_report_free(&a.report);
}

static uint32_t image_token(void) {
    fv_tokenizer *tok;
    char dir[512];
    snprintf(dir, sizeof dir, "%s/ck", f.dir);
    need(fv_tokenizer_open(dir, &tok));
    int32_t id = fv_tokenizer_id(tok, "<image>");
    cr_assert_geq(id, 0);
    fv_tokenizer_free(tok);
    return (uint32_t)id;
}

static void connect_client(void) {
    need(fv_request_image(IMAGE, &arena, &test_image));
    need(fv_remote_open(&(fv_remote_options){.target = f.address}, &remote));
}

static void disconnect_client(void) {
    fv_remote_close(remote);
    fv_arena_fini(&arena);
}

Test(session, two_chats_of_five_turns_on_kept_images_are_those_of_full_prefills) {
    static chat chats[2];
    fleet_synth(&f, "tiny");
    fleet_start(&f, "--prefill 1 --decode 2");
    connect_client();
    for (int i = 0; i < 2; i++) begin_chat(&chats[i], image_token(), (uint32_t)(20 + i));
    for (int turn = 1; turn < TURNS; turn++)
        for (int i = 0; i < 2; i++) take_turn(&chats[i], turn, 10 * i + turn);
    for (int i = 0; i < 2; i++) { /* a last turn, after which nothing is kept */
        static reply bye;
        uint32_t id = 7;
        need(ask_ids(&chats[i], &id, 1, true, 0, &bye));
        cr_assert_eq(chats[i].last.n_conversation, 0);
        fv_report_free(&bye.report);
    }
    fleet_wait_idle(&f);
    disconnect_client();
    fleet_stop(&f);
}

/* Positions after the image are less than their indices; the conversation keeps the difference. */
Test(session, a_chat_on_an_image_with_positions_in_a_grid_is_that_of_full_prefills) {
    static chat c;
    fleet_synth(&f, "tiny --text-family qwen2_vl_text");
    fleet_start(&f, "");
    connect_client();
    begin_chat(&c, image_token(), 20);
    for (int turn = 1; turn < 3; turn++) take_turn(&c, turn, turn);
    disconnect_client();
    fleet_stop(&f);
}

/* The fleet's decode worker dies, and another one replaces it. */
static void lose_decode_worker(void) {
    int pid = 0;
    command_run(&r, "pgrep -P %d -f fovea-decode", f.pid);
    cr_assert_eq(sscanf(r.out, "%d", &pid), 1);
    kill(pid, SIGKILL);
    for (int i = 0; i < 2400 && fleet_count(&f).n_decode > 0; i++) usleep(25000);
    for (int i = 0; i < 2400 && fleet_count(&f).n_decode < 1; i++) usleep(50000);
    cr_assert_eq(fleet_count(&f).n_decode, 1);
}

Test(session, what_is_lost_with_its_worker_is_not_found) {
    static chat c;
    static reply a;
    uint32_t id = 7;
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    connect_client();
    begin_chat(&c, image_token(), 20);
    lose_decode_worker();
    cr_assert_eq(ask_ids(&c, &id, 1, true, 0, &a), FV_ENOTFOUND, "%s", fv_last_error());
    cr_assert_eq(a.n, 0);
    disconnect_client();
    fleet_stop(&f);
}

static void ask_in(fv_session *t, const char *question, int32_t n_image) {
    static const fv_ask_hooks none;
    fv_report_source source;
    fv_report report = {0};
    need(fv_session_ask(t, question, true, &none, &source, &report));
    cr_assert_eq(report.n_image, n_image);
    cr_assert_eq(report.n_generated, 6);
    fv_report_free(&report);
}

Test(session, a_client_whose_conversation_is_lost_sends_the_whole_of_it_and_goes_on) {
    fv_options *o;
    fv_session *t;
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    char *argv[] = {(char *)"ask", (char *)"--to",         f.address,   (char *)"--image",
                    (char *)IMAGE, (char *)"--max-tokens", (char *)"6", (char *)"--ignore-eos"};
    need(fv_program_parse(FV_PROGRAM_ASK, 8, argv, &o));
    need(fv_session_open(o, &t));
    ask_in(t, "what is it?", 1);
    ask_in(t, "and then?", 0);
    lose_decode_worker();
    ask_in(t, "why?", 1);
    ask_in(t, "since when?", 0);
    fv_session_close(t);
    fv_options_free(o);
    fleet_stop(&f);
}

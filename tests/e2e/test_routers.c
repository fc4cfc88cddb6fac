/* Two routers, one fleet: whose requests get room, and what clients notice of a router that ends.
 * The programs as they are; the clients here retry what is UNAVAILABLE at the next address, as a
 * client of gRPC with a retry policy does, and nothing else. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "inference.pb-c.h"
#include "tests/support/crew.h"
#include "wire/rpc_client.h"

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__GenerateEvent event_message;

enum { ADDRESSES = 2, AGAIN_MS = 20, PATIENCE_MS = 60000, DEADLINE_MS = 60000 };

static crew c;
static uv_loop_t loop;
static fv_bridge *bridge;

static void run_ms(uint64_t ms) {
    uint64_t until = uv_now(&loop) + ms;
    while (uv_now(&loop) < until) uv_run(&loop, UV_RUN_ONCE);
}

/* ---- clients ---------------------------------------------------------------------------- */

/* It asks, again and again until it is stopped, one request at a time. */
typedef struct caller {
    fv_rpc_channel *to[ADDRESSES];
    int at; /* where it asks now */
    uint32_t ids[8], max_tokens, keep_ms;
    uint8_t conversation[128];
    size_t n_conversation; /* it goes on with this one */
    fv_rpc_call *call;
    uv_timer_t again;
    bool stop, once;
    int n_done, n_retry, n_row, n_row_most, n_failed; /* n_row: retries of this request */
    uint32_t n_token, first_id;
    bool finished;
    uint64_t bytes_bound;
    double began_s, slowest_s;
    char why[FV_RPC_TEXT_MAX], decode_worker[80];
    uint8_t kept[128];
    size_t n_kept;
} caller;

static fv_rpc_channel *channel_to(const char *address) {
    fv_rpc_channel *ch;
    cr_assert_eq(fv_rpc_channel_open(bridge, address, NULL, &ch), FV_OK, "%s", fv_last_error());
    return ch;
}

static void ask(caller *k);

static fv_status on_event(fv_rpc_call *call, grpc_byte_buffer *message) {
    caller *k = fv_rpc_call_user(call);
    ProtobufCMessage *m;
    FV_TRY(
        fv_rpc_call_unpack(call, &fovea__inference__v1__generate_event__descriptor, message, &m));
    const event_message *e = (const event_message *)m;
    switch (e->event_case) {
    case FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED:
        k->bytes_bound = e->accepted->bytes_bound;
        snprintf(k->decode_worker, sizeof k->decode_worker, "%s", e->accepted->decode_worker);
        break;
    case FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS:
        cr_assert_eq(e->tokens->index, k->n_token, "no token is missing, and none comes twice");
        if (k->n_token == 0) k->first_id = e->tokens->tokens[0]->id;
        k->n_token += (uint32_t)e->tokens->n_tokens;
        break;
    case FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED:
        k->finished = true;
        k->n_kept = e->finished->conversation.len;
        cr_assert_leq(k->n_kept, sizeof k->kept);
        if (k->n_kept) memcpy(k->kept, e->finished->conversation.data, k->n_kept);
        break;
    default: break;
    }
    return FV_OK;
}

static void begin(caller *k) {
    k->n_row = 0;
    k->began_s = fv_clock_s();
    ask(k);
}

static void on_again(uv_timer_t *t) {
    caller *k = t->data;
    if (k->n_row)
        ask(k);
    else
        begin(k);
}

static void on_end(fv_rpc_call *call, const fv_rpc_end *end) {
    caller *k = fv_rpc_call_user(call);
    k->call = NULL;
    if (end->status == FV_OK && k->finished && k->n_token == k->max_tokens) {
        double s = fv_clock_s() - k->began_s;
        if (s > k->slowest_s) k->slowest_s = s;
        k->n_done++;
        k->n_row = 0;
        if (!k->once && !k->stop) uv_timer_start(&k->again, on_again, 0, 0);
    } else if (end->code == GRPC_STATUS_UNAVAILABLE && k->n_token == 0) {
        k->n_retry++;
        if (++k->n_row > k->n_row_most) k->n_row_most = k->n_row;
        if (k->to[1]) k->at = !k->at;
        uv_timer_start(&k->again, on_again, AGAIN_MS, 0);
    } else {
        k->n_failed++;
        snprintf(k->why, sizeof k->why, "code %d, %u tokens: %s", (int)end->code, k->n_token,
                 end->text);
    }
}

static void ask(caller *k) {
    static const fv_rpc_events events = {.on_message = on_event, .on_end = on_end};
    request_message req = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    Fovea__Inference__V1__TokenIds ids = FOVEA__INFERENCE__V1__TOKEN_IDS__INIT;
    for (uint32_t i = 0; i < 8; i++) k->ids[i] = 5 + 3 * i;
    ids.n_id = 8;
    ids.id = k->ids;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    prompt.ids = &ids;
    req.prompt = &prompt;
    req.max_tokens = k->max_tokens;
    req.ignore_eos = true;
    req.keep_ms = k->keep_ms;
    req.conversation = (ProtobufCBinaryData){k->n_conversation, k->conversation};
    k->n_token = 0;
    k->finished = false;
    fv_rpc_call_options opt = {.path = "/fovea.inference.v1.Inference/Generate",
                               .events = &events,
                               .user = k,
                               .deadline_ms = DEADLINE_MS,
                               .request = &req.base,
                               .half_close = true};
    cr_assert_eq(fv_rpc_call_open(k->to[k->at], &opt, &k->call), FV_OK, "%s", fv_last_error());
}

static void caller_start(caller *k, uint32_t max_tokens, bool once, const char *a, const char *b) {
    k->max_tokens = max_tokens;
    k->once = once;
    k->to[0] = channel_to(a);
    if (b) k->to[1] = channel_to(b);
    uv_timer_init(&loop, &k->again);
    k->again.data = k;
    begin(k);
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t until_ = uv_now(&loop) + PATIENCE_MS;                                             \
        while (!(condition) && uv_now(&loop) < until_) uv_run(&loop, UV_RUN_ONCE);                 \
        cr_assert(condition);                                                                      \
    } while (0)

static bool is_idle(const caller *k) { return !k->call && !uv_is_active((uv_handle_t *)&k->again); }

static void caller_stop(caller *k) {
    k->stop = true;
    UNTIL(is_idle(k));
    cr_assert_eq(k->n_failed, 0, "%s", k->why);
}

static void caller_close(caller *k) {
    for (int i = 0; i < ADDRESSES; i++)
        if (k->to[i]) fv_rpc_channel_close(k->to[i]);
    uv_close((uv_handle_t *)&k->again, NULL);
    run_ms(10); /* it is closed then */
}

/* ---- the rig ---------------------------------------------------------------------------- */

static uv_timer_t tick;
static void on_tick(uv_timer_t *t) { (void)t; }

static void open_all(void) {
    crew_open(&c, "routers", "tiny");
    uv_loop_init(&loop);
    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 5, 5);
    cr_assert_eq(fv_bridge_open(&loop, &bridge), FV_OK);
}

static void set_flag(void *flag) { *(bool *)flag = true; }

static void close_all(void) {
    bool over = false;
    uv_close((uv_handle_t *)&tick, NULL);
    fv_bridge_close(bridge, set_flag, &over);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    crew_close(&c);
}

TestSuite(routers, .init = open_all, .fini = close_all, .timeout = 300);

static void start_two(void) {
    crew_start_second(&c);
    crew_start(&c, 1, 1);
    char words[100];
    snprintf(words, sizeof words, "router=%s event=joined", c.second_fleet);
    program_wait_said(&c.prefill[0], words);
    program_wait_said(&c.decode[0], words);
}

/* ---- two routers ------------------------------------------------------------------------ */

/* What a request takes, as its first event says. */
static uint64_t bytes_of(uint32_t max_tokens) {
    caller k = {0};
    caller_start(&k, max_tokens, true, c.f.address, NULL);
    UNTIL(k.n_done == 1 || k.n_failed);
    caller_stop(&k);
    caller_close(&k);
    return k.bytes_bound;
}

Test(routers, small_requests_of_one_do_not_starve_large_ones_of_the_other) {
    enum { SMALL = 4, LARGE_TOKENS = 300, SMALL_TOKENS = 40, LARGES = 3 };
    static caller small[SMALL], large;
    crew_start(&c, 1, 1);
    uint64_t bytes_large = bytes_of(LARGE_TOKENS), bytes_small = bytes_of(SMALL_TOKENS);
    crew_stop(&c);
    cr_assert_gt(bytes_large, 2 * bytes_small);
    /* Small requests alone never leave so much free. */
    snprintf(c.decode_args, sizeof c.decode_args, "--kv-bytes %" PRIu64,
             bytes_large + bytes_small / 2);
    start_two();
    for (int i = 0; i < SMALL; i++)
        caller_start(&small[i], SMALL_TOKENS, false, c.second_address, NULL);
    UNTIL(small[0].n_done + small[1].n_done + small[2].n_done + small[3].n_done >= 8);
    caller_start(&large, LARGE_TOKENS, false, c.f.address, NULL);
    UNTIL(large.n_done >= LARGES || large.n_failed);
    caller_stop(&large);
    for (int i = 0; i < SMALL; i++) {
        int before = small[i].n_done;
        UNTIL(small[i].n_done > before || small[i].n_failed); /* nor the other way round */
        caller_stop(&small[i]);
        cr_assert_eq(small[i].n_retry, 0);
        caller_close(&small[i]);
    }
    cr_assert_eq(large.n_retry, 0);
    caller_close(&large);
    crew_wait_idle(&c, 1, 1);
    cr_assert_not(program_said(&c.router, "event=replay"));
    cr_assert_not(program_said(&c.second, "event=replay"));
    crew_stop(&c);
}

Test(routers, a_kept_conversation_is_found_through_either) {
    static caller first, second;
    start_two();
    first.keep_ms = 60000;
    caller_start(&first, 5, true, c.f.address, NULL);
    UNTIL(first.n_done == 1 || first.n_failed);
    caller_stop(&first);
    cr_assert_gt(first.n_kept, 16);
    memcpy(second.conversation, first.kept, first.n_kept);
    second.n_conversation = first.n_kept;
    caller_start(&second, 5, true, c.second_address, NULL);
    UNTIL(second.n_done == 1 || second.n_failed);
    caller_stop(&second);
    cr_assert_str_eq(second.decode_worker, first.decode_worker);
    caller_close(&first);
    caller_close(&second);
    crew_stop(&c);
}

Test(routers, one_that_is_found_by_two_addresses_is_joined_once) {
    strcpy(c.fleet, "0.0.0.0:0");
    crew_start_router(&c);
    const char *port = strrchr(c.fleet, ':');
    char both[64];
    snprintf(both, sizeof both, "127.0.0.1%s,127.0.0.2%s", port, port);
    strcpy(c.fleet, both);
    c.n_decode = 1;
    crew_start_decode(&c, 0);
    program_wait_said(&c.decode[0], "event=joined");
    program_wait_said(&c.decode[0], "joined by another address");
    cr_assert_eq(fleet_count(&c.f).n_decode, 1);
    cr_assert_not(program_said(&c.router, "event=join-refused"));
    crew_stop(&c);
}

/* ---- routers that end ------------------------------------------------------------------- */

enum { LOAD = 6 };
static caller load[LOAD];

static void start_load(const char *a, const char *b) {
    for (int i = 0; i < LOAD; i++)
        caller_start(&load[i], 4 + 8 * (uint32_t)i, false, i % 2 && b ? b : a, i % 2 && b ? a : b);
}

static int load_done(void) {
    int n = 0;
    for (int i = 0; i < LOAD; i++) {
        cr_assert_eq(load[i].n_failed, 0, "%s", load[i].why);
        n += load[i].n_done;
    }
    return n;
}

static void more_load(int n) {
    int until = load_done() + n;
    UNTIL(load_done() >= until);
}

static void stop_load(void) {
    for (int i = 0; i < LOAD; i++) caller_stop(&load[i]);
    for (int i = 0; i < LOAD; i++) caller_close(&load[i]);
}

/* While the clients go on. */
static void wait_end(program *p) {
    siginfo_t info = {0};
    for (double until_s = fv_clock_s() + 60; fv_clock_s() < until_s && info.si_pid == 0;) {
        run_ms(20);
        cr_assert_eq(waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    }
    cr_assert_eq(program_wait(p), 0);
}

static void end_router(program *p) {
    program_kill(p, SIGTERM);
    wait_end(p);
}

Test(routers, both_are_replaced_under_load_and_nobody_is_refused) {
    start_two();
    start_load(c.f.address, c.second_address);
    more_load(20);
    end_router(&c.router);
    more_load(20); /* all of it by the other one */
    crew_start_router(&c);
    program_wait_said(&c.router, "worker=decode-0 event=joined");
    program_wait_said(&c.router, "worker=prefill-0 event=joined");
    end_router(&c.second);
    more_load(20);
    crew_start_second(&c);
    program_wait_said(&c.second, "worker=prefill-0 event=joined");
    more_load(20);
    stop_load();
    /* Where one has gone, the next address answers: nobody goes back and forth. */
    for (int i = 0; i < LOAD; i++)
        cr_assert_leq(load[i].n_row_most, 2, "%d in a row", load[i].n_row_most);
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

Test(routers, the_next_one_takes_the_address_while_the_last_one_finishes_what_it_has) {
    static caller slow, next;
    strcpy(c.decode_args, "--hang-at decode-running");
    crew_start(&c, 1, 1);
    caller_start(&slow, 5, true, c.f.address, NULL);
    UNTIL(slow.n_token > 0);
    program old = c.router;
    program_kill(&old, SIGTERM);
    program_wait_said(&old, "event=drain");
    run_ms(200);
    crew_start_router(&c); /* aborts when it cannot listen */
    cr_assert(program_runs(&old), "it has a request yet");
    caller_start(&next, 1, true, c.f.address, NULL);
    UNTIL(next.n_done == 1 || next.n_failed);
    caller_stop(&next);
    cr_assert_not(slow.finished);
    program_kill(&c.decode[0], SIGKILL);
    c.decode_args[0] = '\0';
    crew_start_decode(&c, 0); /* joins the next one alone: the last one listens no more */
    UNTIL(slow.n_done == 1 || slow.n_failed);
    caller_stop(&slow); /* what was left of it, the prefill worker could do */
    wait_end(&old);
    caller_close(&slow);
    caller_close(&next);
    crew_stop(&c);
}

Test(routers, one_alone_is_replaced_under_load_and_clients_wait_for_no_more_than_its_start) {
    strcpy(c.router_args, "--grace-ms 20000");
    crew_start(&c, 1, 1);
    start_load(c.f.address, NULL);
    more_load(20);
    program old = c.router;
    program_kill(&old, SIGTERM);
    program_wait_said(&old, "event=drain");
    run_ms(200);
    crew_start_router(&c);
    more_load(20);
    wait_end(&old);
    stop_load();
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

Test(routers, one_that_lingers_is_not_ready_and_still_answers) {
    strcpy(c.router_args, "--linger-ms 1500");
    crew_start(&c, 1, 1);
    start_load(c.f.address, NULL);
    more_load(10);
    program old = c.router;
    program_kill(&old, SIGTERM);
    program_wait_said(&old, "event=linger");
    more_load(5);
    cr_assert_not(program_said(&old, "event=drain"));
    for (int i = 0; i < LOAD; i++) cr_assert_eq(load[i].n_retry, 0, "it still answers");
    program_wait_said(&old, "event=drain");
    run_ms(200);
    crew_start_router(&c);
    more_load(5);
    wait_end(&old);
    stop_load();
    crew_stop(&c);
}

/* Both workers under ThreadSanitizer: loop and computing threads, hand-offs between them over
 * loopback. Prefill requests of two kinds at once; some are cancelled at once, some later, some are
 * over before. What was handed off and not collected is given up when the decode worker closes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode-worker/worker.h"
#include "handoff.pb-c.h"
#include "model/synth.h"
#include "prefill-worker/worker.h"
#include "tests/support/command.h"
#include "tests/support/net.h"

/* gRPC is not built for ThreadSanitizer: see race_rpc.c. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "ignore_noninstrumented_modules=1"; }

enum { CALLS = 16, ROUNDS = 3 };

typedef struct pair {
    net net;
    fv_engine prefill_engine, decode_engine;
    fv_prefill_worker *prefill;
    fv_decode_worker *decode;
    fv_rpc_service services[1 + FV_DECODE_SERVICES];
    fv_rpc_server *server;
    fv_rpc_channel *channel;
    char target[64];
} pair;

typedef struct asked {
    fv_rpc_call *call;
    int32_t n;
    bool over;
    fv_status status;
} asked;

static char dir[512];

static void open_engine(fv_engine *e, bool vision) {
    fv_engine_options opt = {
        .checkpoint = dir, .backend = "cpu", .isa = "auto", .threads = 2, .vision = vision};
    NET_CHECK(fv_engine_open(&opt, e) == FV_OK);
}

static void open_pair(pair *p) {
    net_open(&p->net);
    open_engine(&p->prefill_engine, true);
    open_engine(&p->decode_engine, false);
    fv_prefill_worker_options prefill = {.bridge = p->net.bridge,
                                         .engine = &p->prefill_engine,
                                         .name = "p",
                                         .kv_dtype = FV_F32,
                                         .queue = CALLS,
                                         .batch = 4};
    NET_CHECK(fv_prefill_worker_open(&prefill, &p->prefill) == FV_OK);
    fv_decode_options decode = fv_decode_options_default();
    decode.engine = &p->decode_engine;
    decode.name = "d";
    decode.kv_dtype = FV_F32;
    NET_CHECK(fv_decode_worker_open(p->net.bridge, &decode, &p->decode) == FV_OK);
    p->services[0] = fv_prefill_worker_service(p->prefill);
    fv_decode_worker_services(p->decode, p->services + 1);
    fv_rpc_server_options opt = {
        .listen = "127.0.0.1:0", .services = p->services, .n_service = 1 + FV_DECODE_SERVICES};
    NET_CHECK(fv_rpc_server_open(p->net.bridge, &opt, &p->server) == FV_OK);
    snprintf(p->target, sizeof p->target, "127.0.0.1:%d", fv_rpc_server_port(p->server));
    NET_CHECK(fv_rpc_channel_open(p->net.bridge, p->target, NULL, &p->channel) == FV_OK);
}

static void set(void *flag) { *(bool *)flag = true; }

static void close_pair(pair *p) {
    bool stopped = false, prefill = false, decode = false;
    fv_rpc_channel_close(p->channel);
    fv_rpc_server_stop(p->server, 5000, set, &stopped);
    net_wait(&p->net, &stopped);
    fv_prefill_worker_close(p->prefill, set, &prefill);
    net_wait(&p->net, &prefill);
    fv_decode_worker_close(p->decode, set, &decode);
    net_wait(&p->net, &decode);
    net_close(&p->net, 1000);
    fv_engine_close(&p->prefill_engine);
    fv_engine_close(&p->decode_engine);
}

static fv_status on_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    (void)message;
    ((asked *)fv_rpc_call_user(c))->n++;
    return FV_OK;
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    asked *a = fv_rpc_call_user(c);
    a->call = NULL;
    a->over = true;
    a->status = end->status;
}

static void ask(pair *p, asked *a, bool hand_off) {
    static const fv_rpc_events events = {.on_message = on_message, .on_end = on_end};
    Fovea__Handoff__V1__PrefillRequest m = FOVEA__HANDOFF__V1__PREFILL_REQUEST__INIT;
    Fovea__Inference__V1__GenerateRequest g = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"what is there to see?";
    g.request_id = (char *)"r";
    g.prompt = &prompt;
    g.max_tokens = hand_off ? 8 : 1;
    g.ignore_eos = true;
    m.request = &g;
    if (hand_off) m.decode_address = p->target;
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Prefill/Prefill",
                               .events = &events,
                               .user = a,
                               .deadline_ms = 10000,
                               .request = &m.base,
                               .half_close = true};
    NET_CHECK(fv_rpc_call_open(p->channel, &opt, &a->call) == FV_OK);
}

static void round_of_calls(pair *p) {
    asked all[CALLS] = {0};
    for (int i = 0; i < CALLS; i++) ask(p, &all[i], i % 4 != 3);
    for (int i = 0; i < CALLS; i += 3) {
        if (i % 2) net_sleep(&p->net, i);
        if (all[i].call) fv_rpc_call_cancel(all[i].call);
    }
    for (int i = 0; i < CALLS; i++) {
        net_wait(&p->net, &all[i].over);
        bool cancelled = i % 3 == 0; /* perhaps too late */
        NET_CHECK(all[i].status == FV_OK || (cancelled && all[i].status == FV_ECANCELLED));
        NET_CHECK(cancelled || all[i].n >= 2);
    }
}

int main(void) {
    static pair p;
    static command_result r;
    fv_synth_report report;
    snprintf(dir, sizeof dir, "%s/race-%d", FOVEA_TEST_TMP, (int)getpid());
    fv_synth_options opt = {.dir = dir, .shape = "tiny", .dtype = FV_F32, .seed = 5};
    NET_CHECK(fv_synth_write(&opt, &report) == FV_OK);
    for (int life = 0; life < 2; life++) {
        p = (pair){0};
        open_pair(&p);
        for (int i = 0; i < ROUNDS; i++) round_of_calls(&p);
        close_pair(&p);
    }
    command_run(&r, "rm -rf '%s'", dir);
    printf("race_workers: %d calls\n", 2 * ROUNDS * CALLS);
    return 0;
}

/* Both workers under ThreadSanitizer: loop and computing threads, hand-offs between them over
 * loopback, generation, conversations that continue (some with text keys that are compressed again
 * at the end of each turn), images through the reading thread, answers that are held to a form, whose
 * grammars another thread compiles, and prompts that both workers keep and reuse, the prefill worker on its
 * disk too, over a restart. Requests of these kinds run concurrently; some are cancelled at once, some later,
 * some finish first. Hand-offs that were never attached and conversations that were never continued are dropped
 * when the decode worker closes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "decode-worker/service/worker.h"
#include "handoff.pb-c.h"
#include "kv/tier/disk.h"
#include "model/synth/synth.h"
#include "prefill-worker/service/worker.h"
#include "serving/policy_message.h"
#include "tests/support/command.h"
#include "tests/support/net.h"
#include "tests/support/tokens.h"

/* gRPC is not built for ThreadSanitizer: see race_rpc.c. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "ignore_noninstrumented_modules=1"; }

enum { CALLS = 16, ROUNDS = 3, TURNS = 2, N_IMAGE = 3 };

typedef struct pair {
    net net;
    fv_engine prefill_engine, decode_engine;
    fv_kv_tier *disk; /* of the prefill worker */
    fv_prefill_worker *prefill;
    fv_decode_worker *decode;
    fv_callers *prefill_callers, *decode_callers;
    fv_rpc_service services[1 + FV_DECODE_SERVICES];
    fv_rpc_server *server;
    fv_rpc_channel *channel;
    char target[64];
    fv_arena arena;
    Fovea__Inference__V1__Policy *packs; /* of every other request */
    char *image[N_IMAGE];                /* for others */
    size_t n_image[N_IMAGE];
} pair;

typedef struct asked {
    pair *p;
    fv_rpc_call *call;
    bool hand_off, breaks_off; /* in the middle of its conversation */
    int form;                  /* the number of its form; 0: none */
    fv_ticket ticket;
    uint8_t name[16]; /* of what was kept after the last answer */
    bool kept;
    int32_t n, turn;
    bool over;
    fv_status status;
} asked;

static char dir[512];

static void open_engine(fv_engine *e, bool vision) {
    fv_engine_options opt = {
        .checkpoint = dir, .backend = "cpu", .isa = "auto", .threads = 2, .vision = vision};
    NET_CHECK(fv_engine_open(&opt, e) == FV_OK);
}

static void open_disk(fv_kv_tier **out) {
    char folder[640];
    NET_CHECK(fv_path_join(dir, "disk", folder, sizeof folder) == FV_OK);
    NET_CHECK(fv_dir_make(folder) == FV_OK);
    NET_CHECK(fv_kv_disk_open(folder, 1 << 20, NULL, out) == FV_OK);
}

static void open_pair(pair *p) {
    net_open(&p->net);
    open_disk(&p->disk);
    open_engine(&p->prefill_engine, true);
    open_engine(&p->decode_engine, false);
    p->prefill_callers = test_callers("p");
    p->decode_callers = test_callers("d");
    fv_prefill_worker_options prefill = {.bridge = p->net.bridge,
                                         .callers = p->prefill_callers,
                                         .engine = &p->prefill_engine,
                                         .name = "p",
                                         .kv_dtype = FV_F32,
                                         .cache_bytes = 1 << 14, /* for one or two images */
                                         .prefix_bytes = 1 << 19,
                                         .tier = {p->disk},
                                         .n_tier = 1,
                                         .queue = CALLS,
                                         .batch = 4};
    NET_CHECK(fv_prefill_worker_open(&prefill, &p->prefill) == FV_OK);
    fv_decode_options decode = fv_decode_options_default();
    decode.engine = &p->decode_engine;
    decode.name = "d";
    decode.callers = p->decode_callers;
    decode.kv_dtype = FV_F32;
    decode.prefix_bytes = 1 << 18;
    NET_CHECK(fv_decode_worker_open(p->net.bridge, &decode, &p->decode) == FV_OK);
    p->services[0] = fv_prefill_worker_service(p->prefill);
    fv_decode_worker_services(p->decode, p->services + 1);
    fv_rpc_server_options opt = {
        .listen = "127.0.0.1:0", .services = p->services, .n_service = 1 + FV_DECODE_SERVICES};
    NET_CHECK(fv_rpc_server_open(p->net.bridge, &opt, &p->server) == FV_OK);
    fv_policy packs;
    NET_CHECK(fv_policy_parse("pack=svd,gain=0,compress_text=keys,rank_text=6,recompress=8",
                              &packs) == FV_OK);
    NET_CHECK(fv_policy_to_message(&packs, &p->arena, &p->packs) == FV_OK);
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
    p->disk->ops->close(p->disk);
    fv_decode_worker_close(p->decode, set, &decode);
    net_wait(&p->net, &decode);
    net_close(&p->net, 1000);
    fv_callers_close(p->prefill_callers);
    fv_callers_close(p->decode_callers);
    fv_engine_close(&p->prefill_engine);
    fv_engine_close(&p->decode_engine);
    fv_arena_fini(&p->arena);
}

static fv_status on_prefilled(fv_rpc_call *c, grpc_byte_buffer *message) {
    asked *a = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__prefill_event__descriptor, message, &m));
    const Fovea__Handoff__V1__PrefillEvent *e = (const Fovea__Handoff__V1__PrefillEvent *)m;
    a->n++;
    if (e->event_case == FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_BEGUN) {
        memcpy(a->ticket.id, e->begun->ticket->id.data, sizeof a->ticket.id);
        a->ticket.epoch = e->begun->ticket->epoch;
    }
    return FV_OK;
}

static fv_status on_decoded(fv_rpc_call *c, grpc_byte_buffer *message) {
    asked *a = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__generate_event__descriptor, message, &m));
    const Fovea__Inference__V1__GenerateEvent *e = (const Fovea__Inference__V1__GenerateEvent *)m;
    if (e->event_case != FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED) return FV_OK;
    a->kept = e->finished->conversation.len == sizeof a->name;
    if (a->kept) memcpy(a->name, e->finished->conversation.data, sizeof a->name);
    return FV_OK;
}

static void decode(asked *a);
static void forget(asked *a);

/* Runs prefill, an answer, TURNS follow-ups and the end, unless cancelled before. */
static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    asked *a = fv_rpc_call_user(c);
    a->call = NULL;
    a->status = end->status;
    if (end->status == FV_OK && a->hand_off && a->turn <= TURNS) {
        NET_CHECK(a->turn == 0 || a->kept);
        decode(a);
        if (a->turn++ == 1 && a->breaks_off) fv_rpc_call_cancel(a->call);
    } else if (end->status == FV_OK && a->kept) {
        forget(a);
    } else {
        a->over = true;
    }
}

static void begin(asked *a, const char *path, const fv_rpc_events *events,
                  const ProtobufCMessage *m, fv_rpc_metadata token) {
    fv_rpc_call_options opt = {.path = path,
                               .metadata = &token,
                               .n_metadata = 1,
                               .events = events,
                               .user = a,
                               .deadline_ms = 60000,
                               .request = m,
                               .half_close = true};
    NET_CHECK(fv_rpc_call_open(a->p->channel, &opt, &a->call) == FV_OK);
}

/* The rules of a request, and what they point to. */
typedef struct rules {
    Fovea__Inference__V1__TokenRules message;
    Fovea__Inference__V1__Constraint constraint;
    char text[64];
} rules;

/* Returns the message of a form, which each number has of its own; NULL for 0. */
static Fovea__Inference__V1__TokenRules *fill_rules(int form, rules *r) {
    if (form == 0) return NULL;
    fovea__inference__v1__token_rules__init(&r->message);
    fovea__inference__v1__constraint__init(&r->constraint);
    snprintf(r->text, sizeof r->text, "[a-z ]{3,%d}", 16 + form);
    r->constraint.kind_case = FOVEA__INFERENCE__V1__CONSTRAINT__KIND_REGEX;
    r->constraint.regex = r->text;
    r->message.constraint = &r->constraint;
    return &r->message;
}

/* Asks for the hand-off's answer, or for another turn of the kept conversation. */
static void decode(asked *a) {
    static const fv_rpc_events events = {.on_message = on_decoded, .on_end = on_end};
    Fovea__Handoff__V1__DecodeRequest m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    Fovea__Handoff__V1__Ticket ticket = FOVEA__HANDOFF__V1__TICKET__INIT;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)" and what else is there?";
    ticket.id = (ProtobufCBinaryData){sizeof a->ticket.id, a->ticket.id};
    ticket.epoch = a->ticket.epoch;
    if (a->turn == 0) {
        m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET;
        m.ticket = &ticket;
    } else {
        m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION;
        m.conversation = (ProtobufCBinaryData){sizeof a->name, a->name};
        m.prompt = &prompt;
    }
    rules r;
    m.rules = fill_rules(a->form, &r);
    m.max_tokens = 8;
    m.ignore_eos = true;
    m.keep_ms = 60000;
    static const char path[] = "/fovea.handoff.v1.Decode/Decode";
    begin(a, path, &events, &m.base, test_metadata(a->p->decode_callers, "d", path, NULL, NULL));
}

static void on_forgotten(void *user, const fv_rpc_end *end, fv_rpc_call *c,
                         grpc_byte_buffer *reply) {
    asked *a = user;
    (void)c, (void)reply;
    NET_CHECK(end->status == FV_OK);
    a->over = true;
}

static void forget(asked *a) {
    Fovea__Handoff__V1__ForgetRequest m = FOVEA__HANDOFF__V1__FORGET_REQUEST__INIT;
    m.conversation = (ProtobufCBinaryData){sizeof a->name, a->name};
    static const char path[] = "/fovea.handoff.v1.Decode/Forget";
    fv_rpc_metadata token = test_metadata(a->p->decode_callers, "d", path, NULL, NULL);
    fv_rpc_call_options opt = {.path = path,
                               .request = &m.base,
                               .deadline_ms = 60000,
                               .metadata = &token,
                               .n_metadata = 1};
    NET_CHECK(fv_rpc_unary_with(a->p->channel, &opt, on_forgotten, a, NULL) == FV_OK);
}

static void open_images(pair *p) {
    static const char *const names[N_IMAGE] = {"larger.jpg", "rgb_8.png", "lossy.webp"};
    for (int i = 0; i < N_IMAGE; i++) {
        char path[512];
        snprintf(path, sizeof path, FOVEA_TEST_DATA "/golden/image/%s", names[i]);
        NET_CHECK(fv_file_read(path, 1 << 20, &p->image[i], &p->n_image[i]) == FV_OK);
    }
}

static void ask(pair *p, asked *a, bool hand_off, bool packs, bool looks) {
    static const fv_rpc_events events = {.on_message = on_prefilled, .on_end = on_end};
    Fovea__Handoff__V1__PrefillRequest m = FOVEA__HANDOFF__V1__PREFILL_REQUEST__INIT;
    Fovea__Inference__V1__GenerateRequest g = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"what is there to see?";
    Fovea__Inference__V1__Image image[N_IMAGE], *images[N_IMAGE];
    for (int i = 0; i < N_IMAGE; i++) {
        fovea__inference__v1__image__init(&image[i]);
        image[i].data = (ProtobufCBinaryData){p->n_image[i], (uint8_t *)p->image[i]};
        images[i] = &image[i];
    }
    if (looks) {
        prompt.text = (char *)"<image><image><image>what is there to see?";
        g.images = images;
        g.n_images = N_IMAGE;
    }
    g.request_id = (char *)"r";
    g.prompt = &prompt;
    g.max_tokens = hand_off ? 8 : 1;
    g.ignore_eos = true;
    g.policy = packs ? p->packs : NULL;
    rules r;
    g.rules = fill_rules(a->form, &r);
    m.request = &g;
    if (hand_off) m.decode_address = p->target;
    a->p = p;
    a->hand_off = hand_off;
    static const char path[] = "/fovea.handoff.v1.Prefill/Prefill";
    m.open_token = (char *)(uintptr_t)test_token(p->decode_callers, "d",
                                                 "/fovea.handoff.v1.Handoff/Open", "r", NULL);
    begin(a, path, &events, &m.base,
          test_metadata(p->prefill_callers, "p", path, "r", m.decode_address));
}

static void round_of_calls(pair *p, int round) {
    asked all[CALLS] = {0};
    for (int i = 0; i < CALLS; i++) {
        all[i].breaks_off = i % 5 == 1;
        all[i].form = i % 3 == 2 ? 0 : 1 + i / 6 + round; /* several at a time have the same one */
        ask(p, &all[i], i % 4 != 3, i % 2, i % 4 == 2);
    }
    for (int i = 0; i < CALLS; i += 3) {
        if (i % 2) net_sleep(&p->net, i);
        if (all[i].call) fv_rpc_call_cancel(all[i].call);
    }
    for (int i = 0; i < CALLS; i++) {
        net_wait(&p->net, &all[i].over);
        bool cancelled = i % 3 == 0 || all[i].breaks_off; /* perhaps too late */
        NET_CHECK(all[i].status == FV_OK || (cancelled && all[i].status == FV_ECANCELLED));
        NET_CHECK(cancelled || all[i].n >= 2);
    }
}

int main(void) {
    static pair p;
    static command_result r;
    fv_synth_report report;
    uint64_t from_disk = 0;
    snprintf(dir, sizeof dir, "%s/race-%d", FOVEA_TEST_TMP, (int)getpid());
    fv_synth_options opt = {.dir = dir, .shape = "tiny", .dtype = FV_F32, .seed = 5};
    NET_CHECK(fv_synth_write(&opt, &report) == FV_OK);
    for (int life = 0; life < 2; life++) {
        p = (pair){0};
        open_pair(&p);
        open_images(&p);
        for (int i = 0; i < ROUNDS; i++) round_of_calls(&p, life * ROUNDS + i);
        NET_CHECK(fv_decode_worker_load(p.decode).tokens_recompressed > 0);
        fv_tier_counters disk = p.disk->ops->count(p.disk);
        NET_CHECK(disk.n_damaged == 0 && disk.n_failed == 0);
        from_disk += disk.n_hit;
        close_pair(&p);
        for (int i = 0; i < N_IMAGE; i++) free(p.image[i]);
    }
    command_run(&r, "rm -rf '%s'", dir);
    printf("race_workers: %d calls, %llu segments from the disk\n", 2 * ROUNDS * CALLS,
           (unsigned long long)from_disk);
    return 0;
}

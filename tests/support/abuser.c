/* A forked child with a loop and some channels, and a slot for each request in flight. */
#include "tests/support/abuser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/file.h"
#include "inference.pb-c.h"
#include "policy/policy.h"
#include "rpc/client.h"
#include "serving/policy_message.h"

enum { N_CHANNEL = 4, PATIENCE_MS = 300 };

typedef Fovea__Inference__V1__GenerateRequest request_message;

typedef enum fate {
    FATE_CANCEL_LATER,
    FATE_CANCEL_AT_ACCEPTED,
    FATE_CANCEL_AT_TOKEN,
    FATE_ABORT,
    FATE_DEADLINE,
    FATE_NONE, /* it may finish, if the process lives that long */
    N_FATE
} fate;

typedef struct client {
    uv_loop_t loop;
    fv_bridge *bridge;
    fv_rpc_channel *channel[N_CHANNEL];
    char *image;
    size_t n_image;
    uint64_t random;
    int32_t left;
    abuse sum;
} client;

typedef struct slot {
    client *c;
    fv_rpc_call *call; /* NULL: over */
    uv_timer_t timer;
    fate fate;
    int32_t at_token, n_token;
    char id[40], abort_token[64];
} slot;

static void check(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "abuser: %s: %s\n", what, fv_last_error());
    _exit(1);
}

/* splitmix64 (Steele, Lea, Flood 2014) */
static uint64_t draw(client *c, uint64_t below) {
    uint64_t z = (c->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

/* ---- a request --------------------------------------------------------------------------- */

static void fill_policy(client *c, fv_arena *a, request_message *m) {
    static const char *const texts[] = {"", "prune=vtw,layer=1", "select=streaming,sink=2",
                                        "prune=random,layer=1,keep=0.5;select=streaming,sink=2"};
    fv_policy policy;
    check(fv_policy_parse(texts[draw(c, 4)], &policy) == FV_OK, "policy");
    check(fv_policy_to_message(&policy, a, &m->policy) == FV_OK, "policy");
}

static void fill_sampling(client *c, fv_arena *a, request_message *m) {
    if (draw(c, 2)) return;
    check(FV_ARENA_NEW(a, 1, m->sampling) == FV_OK, "memory");
    fovea__inference__v1__sampling__init(m->sampling);
    m->sampling->temperature = 1;
    m->sampling->top_k = (uint32_t)draw(c, 50);
    m->sampling->seed = draw(c, 1000);
}

static void fill_images(client *c, fv_arena *a, request_message *m) {
    m->n_images = draw(c, 3);
    check(FV_ARENA_NEW(a, m->n_images + 1, m->images) == FV_OK, "memory");
    for (size_t i = 0; i < m->n_images; i++) {
        check(FV_ARENA_NEW(a, 1, m->images[i]) == FV_OK, "memory");
        fovea__inference__v1__image__init(m->images[i]);
        m->images[i]->data = (ProtobufCBinaryData){c->n_image, (uint8_t *)c->image};
    }
}

static void fill(client *c, fv_arena *a, slot *s, request_message *m) {
    static const char *const texts[] = {"what is it?", "<image>well", "<image>two<image>s"};
    Fovea__Inference__V1__Prompt *p;
    fill_images(c, a, m);
    fill_policy(c, a, m);
    fill_sampling(c, a, m);
    check(FV_ARENA_NEW(a, 1, p) == FV_OK, "memory");
    fovea__inference__v1__prompt__init(p);
    p->form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    p->text = (char *)(uintptr_t)texts[m->n_images];
    m->prompt = p;
    m->request_id = s->id;
    m->max_tokens = 1 + (uint32_t)draw(c, draw(c, 4) ? 24 : 150);
    m->ignore_eos = draw(c, 2);
    m->digests = draw(c, 2);
    m->n_logprobs = (uint32_t)draw(c, 4);
    m->keep_ms = draw(c, 4) ? 0 : 50; /* conversations, which nobody continues */
}

/* ---- endings ----------------------------------------------------------------------------- */

static void begin(slot *s);

static void on_aborted(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    (void)user, (void)end, (void)c, (void)reply; /* the request may have ended already: fine */
}

static void on_timer(uv_timer_t *t) {
    slot *s = t->data;
    if (s->fate == FATE_CANCEL_LATER) {
        if (s->call) fv_rpc_call_cancel(s->call);
    } else if (s->fate == FATE_ABORT) {
        Fovea__Inference__V1__AbortRequest m = FOVEA__INFERENCE__V1__ABORT_REQUEST__INIT;
        m.request_id = s->id;
        m.abort_token = s->abort_token;
        if (!s->abort_token[0]) return; /* it is still queued */
        check(fv_rpc_unary(s->c->channel[0], "/fovea.inference.v1.Inference/Abort", &m.base, 60000,
                           on_aborted, NULL, NULL) == FV_OK,
              "abort");
    }
}

static fv_status on_message(fv_rpc_call *call, grpc_byte_buffer *message) {
    slot *s = fv_rpc_call_user(call);
    ProtobufCMessage *m;
    FV_TRY(
        fv_rpc_call_unpack(call, &fovea__inference__v1__generate_event__descriptor, message, &m));
    const Fovea__Inference__V1__GenerateEvent *e = (const Fovea__Inference__V1__GenerateEvent *)m;
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED)
        snprintf(s->abort_token, sizeof s->abort_token, "%s", e->accepted->abort_token);
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED &&
        s->fate == FATE_CANCEL_AT_ACCEPTED)
        fv_rpc_call_cancel(call);
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS &&
        s->fate == FATE_CANCEL_AT_TOKEN && s->n_token++ == s->at_token)
        fv_rpc_call_cancel(call);
    return FV_OK;
}

static void on_end(fv_rpc_call *call, const fv_rpc_end *end) {
    slot *s = fv_rpc_call_user(call);
    abuse *sum = &s->c->sum;
    uv_timer_stop(&s->timer);
    s->call = NULL;
    switch (end->code) {
    case GRPC_STATUS_OK: sum->done++; break;
    case GRPC_STATUS_CANCELLED: sum->cancelled++; break;
    case GRPC_STATUS_DEADLINE_EXCEEDED: sum->deadline++; break;
    case GRPC_STATUS_ABORTED: sum->aborted++; break;
    case GRPC_STATUS_RESOURCE_EXHAUSTED: sum->busy++; break;
    default:
        sum->other++;
        fprintf(stderr, "abuser: a request ended with %s: %s\n", fv_rpc_code_name(end->code),
                end->text);
    }
    begin(s);
}

static void begin(slot *s) {
    static const fv_rpc_events events = {.on_message = on_message, .on_end = on_end};
    client *c = s->c;
    if (c->left == 0) return;
    c->left--;
    fv_arena a = {0};
    request_message m = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    s->fate = (fate)draw(c, N_FATE);
    s->at_token = (int32_t)draw(c, 20);
    s->n_token = 0;
    s->abort_token[0] = '\0';
    snprintf(s->id, sizeof s->id, "abuse-%d-%d", (int)getpid(), ++c->sum.begun);
    fill(c, &a, s, &m);
    uint64_t ms = draw(c, 1 + draw(c, PATIENCE_MS)); /* most events happen early */
    fv_rpc_call_options opt = {.path = "/fovea.inference.v1.Inference/Generate",
                               .events = &events,
                               .user = s,
                               .deadline_ms = s->fate == FATE_DEADLINE ? 1 + (int64_t)ms : 120000,
                               .request = &m.base,
                               .half_close = true};
    check(fv_rpc_call_open(c->channel[draw(c, N_CHANNEL)], &opt, &s->call) == FV_OK, "call");
    uv_timer_start(&s->timer, on_timer, ms, 0);
    fv_arena_fini(&a);
}

/* ---- the process ------------------------------------------------------------------------- */

static void run_client(const char *address, const char *image, uint64_t seed, int32_t n,
                       int32_t n_parallel, int out) {
    static client c;
    c.random = seed;
    c.left = n;
    slot *slots = calloc((size_t)n_parallel, sizeof *slots);
    check(slots != NULL, "memory");
    check(fv_file_read(image, 1 << 24, &c.image, &c.n_image) == FV_OK, "picture");
    check(uv_loop_init(&c.loop) == 0 && fv_bridge_open(&c.loop, &c.bridge) == FV_OK, "loop");
    for (int i = 0; i < N_CHANNEL; i++)
        check(fv_rpc_channel_open(c.bridge, address, NULL, &c.channel[i]) == FV_OK, "channel");
    for (int32_t i = 0; i < n_parallel; i++) {
        slots[i].c = &c;
        uv_timer_init(&c.loop, &slots[i].timer);
        slots[i].timer.data = &slots[i];
        begin(&slots[i]);
    }
    while (c.left > 0) uv_run(&c.loop, UV_RUN_ONCE);
    for (int32_t i = 0; i < n_parallel; i++) c.sum.dropped += slots[i].call != NULL;
    check(write(out, &c.sum, sizeof c.sum) == sizeof c.sum, "report");
    _exit(0); /* the kernel closes the connections, whatever is in flight */
}

static void add(abuse *sum, const abuse *x) {
    sum->begun += x->begun;
    sum->done += x->done;
    sum->cancelled += x->cancelled;
    sum->deadline += x->deadline;
    sum->aborted += x->aborted;
    sum->dropped += x->dropped;
    sum->busy += x->busy;
    sum->other += x->other;
}

void abuse_run(const char *address, const char *image, uint64_t seed, int32_t n, int32_t n_parallel,
               abuse *sum) {
    int ends[2], status;
    abuse mine;
    if (pipe(ends) != 0) abort();
    pid_t pid = fork();
    if (pid < 0) abort();
    if (pid == 0) run_client(address, image, seed, n, n_parallel, ends[1]);
    close(ends[1]);
    bool reported = read(ends[0], &mine, sizeof mine) == sizeof mine;
    close(ends[0]);
    if (waitpid(pid, &status, 0) != pid || !reported) abort();
    add(sum, &mine);
}

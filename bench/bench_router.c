/* Measures the cost of the router with fake workers, so that no model runs.
 *
 * 1. Requests per second, compared with a bare relay (relay.h) that makes the same calls on gRPC
 *    core and nothing else. Router and relay are separate processes. Workers and clients share this
 *    process; on few cores they are most of the work and slow both alike, so CPU time per request
 *    of the router or relay alone is measured too. A router with metrics and traces of every
 *    request, and one with TLS certificates on both sides, are compared with the plain router.
 * 2. The latency that relaying adds to a token on an idle system: a worker stamps each token when
 *    it sends it; clients receive from this worker directly, through the relay and through the
 *    router, one token at a time, in turn.
 *
 * All variants take turns in every round. The output is the median over the rounds; ratios are the
 * median of the rounds' ratios.
 *
 *     bench_router --rounds 7 --json results/router.json */
#include <grpc/byte_buffer_reader.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/program.h"
#include "bench/relay.h"
#include "cli/bench/samples.h"
#include "common/clock.h"
#include "otlp.pb-c.h"
#include "tests/support/certs.h"
#include "tests/support/fake_worker.h"
#include "tests/support/fleet_token.h"
#include "tests/support/net.h"

enum { ROUTER_CERT, PREFILL, DECODE, CLIENT, N_PEER };
enum { RELAY, ROUTER, OBSERVED, MTLS, N_WAY };
enum { N_PATH = 3, MAX_CLIENT = 256, N_LEVEL = 3 };
enum { DEADLINE_MS = 60000, TOKEN_GAP_MS = 1, TOKENS_PER_STREAM = 1000 };

static const int32_t levels[N_LEVEL] = {1, 16, 64};
static const char *const path_names[N_PATH] = {"direct", "relay", "router"};
static const char *const way_names[N_WAY] = {"relay", "router", "with metrics and traces",
                                             "with TLS on both sides"};
static const char *const peer_names[N_PEER] = {"router", "prefill", "decode", "client"};
/* The baseline of each variant. */
static const int base_of[N_WAY] = {[ROUTER] = RELAY, [OBSERVED] = ROUTER, [MTLS] = ROUTER};

typedef struct child {
    pid_t pid;
    char address[64], fleet[64];
} child;

typedef struct bench {
    uv_loop_t loop;
    fv_bridge *bridge;
    fake_worker prefill[N_WAY], decode[N_WAY]; /* the relay uses the router's */
    child way[N_WAY];
    fv_rpc_channel *channel[N_WAY], *direct; /* direct: to the router's decode worker */
    fv_rpc_server *collector;
    fv_tls *tls[N_PEER];
    char certs[32]; /* a folder, removed at the end */
    bool collector_stopped;
    int32_t n_token, n_request, rounds;
    uv_timer_t timer;
    /* results */
    fv_samples rate[N_LEVEL][N_WAY], cpu_s[N_LEVEL][N_WAY];
    fv_samples ratio[N_LEVEL][N_WAY], cpu_ratio[N_LEVEL][N_WAY]; /* to base_of; RELAY has none */
    fv_samples delay_s[N_PATH];
} bench;

/* ---- processes ---------------------------------------------------------------------------- */

/* Starts a program and reads its address from stdout; a router prints first the address where
 * workers join. */
static void spawn(child *c, char *const *args) {
    int out[2];
    NET_CHECK(pipe(out) == 0);
    c->pid = fork();
    NET_CHECK(c->pid >= 0);
    if (c->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        close(out[1]);
        execv(args[0], args);
        _exit(127);
    }
    close(out[1]);
    FILE *f = fdopen(out[0], "r");
    char line[256];
    NET_CHECK(f);
    while (!c->address[0] && fgets(line, sizeof line, f)) {
        (void)sscanf(line, "workers join on %63s", c->fleet);
        (void)sscanf(line, "listening on %63s", c->address);
    }
    NET_CHECK(c->address[0]);
    fclose(f);
}

static void end(const child *c) {
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
}

static size_t pack_decode_request(uint32_t max_tokens, uint8_t *out) {
    static uint8_t id[] = "the ticket's id";
    Fovea__Handoff__V1__DecodeRequest m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    Fovea__Handoff__V1__Ticket ticket = FOVEA__HANDOFF__V1__TICKET__INIT;
    ticket.id = (ProtobufCBinaryData){16, id};
    ticket.epoch = 7;
    m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET;
    m.ticket = &ticket;
    m.max_tokens = max_tokens;
    return fovea__handoff__v1__decode_request__pack(&m, out);
}

/* ---- collector and certificates ----------------------------------------------------------- */

/* Accepts every export unread: a collector's work is not the router's cost. */
static fv_status on_export(fv_rpc_call *c, grpc_byte_buffer *message) {
    Fovea__Otlp__V1__ExportReply reply = FOVEA__OTLP__V1__EXPORT_REPLY__INIT;
    (void)message;
    fv_rpc_call_finish(c, fv_rpc_call_send(c, &reply.base));
    return FV_OK;
}

static void open_collector(bench *b) {
    static const fv_rpc_method methods[] = {
        {.path = "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
         .events = {.on_message = on_export}}};
    static const fv_rpc_service service = {methods, 1, NULL, NULL};
    fv_rpc_server_options opt = {.listen = "127.0.0.1:0", .services = &service, .n_service = 1};
    NET_CHECK(fv_rpc_server_open(b->bridge, &opt, &b->collector) == FV_OK);
}

static void on_collector_stopped(void *user) { ((bench *)user)->collector_stopped = true; }

static void make_certificates(char dir[32]) {
    static const char *const sans[N_PEER] = {"DNS:fovea-router", "DNS:fovea-prefill",
                                             "DNS:fovea-decode", "DNS:somebody.example"};
    snprintf(dir, 32, "/tmp/bench_router.XXXXXX");
    NET_CHECK(mkdtemp(dir) != NULL);
    certs_authority(dir, "ca");
    for (int i = 0; i < N_PEER; i++) certs_issue(dir, "ca", peer_names[i], sans[i], 24);
}

static void open_tls(bench *b, const char *dir) {
    char cert[64], key[64], ca[64];
    snprintf(ca, sizeof ca, "%s/ca.crt", dir);
    for (int i = 0; i < N_PEER; i++) {
        snprintf(cert, sizeof cert, "%s/%s.crt", dir, peer_names[i]);
        snprintf(key, sizeof key, "%s/%s.key", dir, peer_names[i]);
        NET_CHECK(fv_tls_open(&(fv_tls_files){cert, key, ca}, &b->tls[i]) == FV_OK);
    }
}

/* ---- opening and closing ------------------------------------------------------------------ */

/* Starts a router with n further arguments. */
static void start_router(child *c, const char *bin, const char *const *more, int n) {
    enum { N_ARG = 9, N_MORE = 8 };
    char path[4200];
    snprintf(path, sizeof path, "%s/fovea-router", bin);
    /* Fake workers report only once; the log level is that of `fovea up`. */
    const char *args[N_ARG + N_MORE + 1] = {
        path,          "--fleet-token-file", FLEET_TOKEN, "--listen",
        "127.0.0.1:0", "--silence-ms",       "600000",    "--log",
        "error"};
    for (int i = 0; i < n; i++) args[N_ARG + i] = more[i];
    spawn(c, (char *const *)args);
}

static void start_routers(bench *b, const char *bin, const char *certs) {
    char collector[32], cert[64], key[64], ca[64];
    snprintf(collector, sizeof collector, "127.0.0.1:%d", fv_rpc_server_port(b->collector));
    snprintf(cert, sizeof cert, "%s/router.crt", certs);
    snprintf(key, sizeof key, "%s/router.key", certs);
    snprintf(ca, sizeof ca, "%s/ca.crt", certs);
    const char *observed[] = {"--metrics", "0", "--otlp", collector};
    const char *tls[] = {"--tls-cert", cert, "--tls-key",       key,
                         "--tls-ca",   ca,   "--tls-client-ca", ca};
    start_router(&b->way[ROUTER], bin, NULL, 0);
    start_router(&b->way[OBSERVED], bin, observed, sizeof observed / sizeof *observed);
    start_router(&b->way[MTLS], bin, tls, sizeof tls / sizeof *tls);
}

static void start_relay(bench *b, child *c, const char *self) {
    char n[16];
    snprintf(n, sizeof n, "%d", b->n_token);
    char *args[] = {(char *)self,
                    (char *)"--tokens",
                    n,
                    (char *)"--relay",
                    b->prefill[ROUTER].address,
                    (char *)"--relay",
                    b->decode[ROUTER].address,
                    NULL};
    spawn(c, args);
}

static void open_worker(bench *b, int way, fake_worker *w, const char *name,
                        Fovea__Inference__V1__Role role, fv_tls *tls) {
    w->name = name;
    w->role = role;
    if (way == MTLS) w->tls = tls;
    w->no_tokens = way == ROUTER; /* the relay, which shares these workers, sends no call tokens */
    fake_open(w, b->bridge, b->way[way].fleet);
    while (!w->welcome) uv_run(&b->loop, UV_RUN_ONCE);
}

static void open_channel(bench *b, const char *target, fv_tls *tls, fv_rpc_channel **out) {
    fv_rpc_channel_options opt = {.tls = tls, .server_name = tls ? "fovea-router" : NULL};
    NET_CHECK(fv_rpc_channel_open(b->bridge, target, &opt, out) == FV_OK);
}

static void open_all(bench *b, const char *bin, const char *self) {
    NET_CHECK(uv_loop_init(&b->loop) == 0);
    uv_timer_init(&b->loop, &b->timer);
    b->timer.data = b;
    NET_CHECK(fv_bridge_open(&b->loop, &b->bridge) == FV_OK);
    open_collector(b);
    make_certificates(b->certs);
    start_routers(b, bin, b->certs);
    open_tls(b, b->certs);
    for (int way = ROUTER; way < N_WAY; way++) {
        open_worker(b, way, &b->prefill[way], "p0", FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL,
                    b->tls[PREFILL]);
        open_worker(b, way, &b->decode[way], "d0", FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE,
                    b->tls[DECODE]);
    }
    start_relay(b, &b->way[RELAY], self);
    open_channel(b, b->decode[ROUTER].address, NULL, &b->direct);
    for (int way = 0; way < N_WAY; way++)
        open_channel(b, b->way[way].address, way == MTLS ? b->tls[CLIENT] : NULL, &b->channel[way]);
}

static void close_all(bench *b) {
    for (int i = 0; i < N_WAY; i++) end(&b->way[i]);
    for (int i = 0; i < N_WAY; i++) fv_rpc_channel_close(b->channel[i]);
    fv_rpc_channel_close(b->direct);
    fv_rpc_server_stop(b->collector, 0, on_collector_stopped, b);
    while (!b->collector_stopped) uv_run(&b->loop, UV_RUN_ONCE);
    for (int i = ROUTER; i < N_WAY; i++) {
        fake_close(&b->prefill[i]);
        fake_close(&b->decode[i]);
        while (!b->prefill[i].stopped || !b->decode[i].stopped) uv_run(&b->loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&b->timer, NULL);
    fv_bridge_close(b->bridge, NULL, NULL);
    net_loop_close(&b->loop);
    for (int i = 0; i < N_PEER; i++) fv_tls_close(b->tls[i]);
    char remove[64];
    snprintf(remove, sizeof remove, "rm -r %s", b->certs);
    NET_CHECK(system(remove) == 0);
}

/* ---- requests per second ------------------------------------------------------------------ */

typedef struct crowd {
    bench *b;
    fv_rpc_channel *channel;
    int32_t n_begun, n_over, n_message;
} crowd;

static void ask(crowd *c);

static fv_status on_message(fv_rpc_call *call, grpc_byte_buffer *message) {
    (void)message;
    ((crowd *)fv_rpc_call_user(call))->n_message++;
    return FV_OK;
}

static void on_end(fv_rpc_call *call, const fv_rpc_end *e) {
    crowd *c = fv_rpc_call_user(call);
    if (e->status != FV_OK) fprintf(stderr, "bench_router: %s\n", e->text);
    NET_CHECK(e->status == FV_OK);
    c->n_over++;
    if (c->n_begun < c->b->n_request) ask(c);
}

static void begin(fv_rpc_channel *channel, const fv_rpc_events *events, void *user,
                  uint32_t max_tokens) {
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    Fovea__Inference__V1__GenerateRequest m = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    fv_rpc_call *call;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"hello";
    m.prompt = &prompt;
    m.max_tokens = max_tokens;
    fv_rpc_call_options opt = {.path = "/fovea.inference.v1.Inference/Generate",
                               .events = events,
                               .user = user,
                               .deadline_ms = DEADLINE_MS,
                               .request = &m.base,
                               .half_close = true};
    NET_CHECK(fv_rpc_call_open(channel, &opt, &call) == FV_OK);
}

static void ask(crowd *c) {
    static const fv_rpc_events events = {.on_message = on_message, .on_end = on_end};
    c->n_begun++;
    begin(c->channel, &events, c, (uint32_t)c->b->n_token);
}

/* Sends all requests with n_client clients; returns requests/s and CPU seconds per request. */
static void run_crowd(bench *b, int way, int32_t n_client, double *rate, double *cpu) {
    crowd c = {.b = b, .channel = b->channel[way]};
    double cpu0 = bench_cpu_s(b->way[way].pid), t0 = fv_clock_s();
    for (int32_t i = 0; i < n_client; i++) ask(&c);
    while (c.n_over < b->n_request) uv_run(&b->loop, UV_RUN_ONCE);
    *rate = b->n_request / (fv_clock_s() - t0);
    *cpu = (bench_cpu_s(b->way[way].pid) - cpu0) / b->n_request;
    /* one message before the tokens, and one after them */
    NET_CHECK(c.n_message == b->n_request * (b->n_token + 2));
}

static void measure_rates(bench *b, bool record) {
    for (int l = 0; l < N_LEVEL; l++) {
        double rate[N_WAY], cpu[N_WAY];
        for (int way = 0; way < N_WAY; way++) run_crowd(b, way, levels[l], &rate[way], &cpu[way]);
        if (!record) continue;
        for (int way = 0; way < N_WAY; way++) {
            NET_CHECK(fv_samples_add(&b->rate[l][way], rate[way]) == FV_OK);
            NET_CHECK(fv_samples_add(&b->cpu_s[l][way], cpu[way]) == FV_OK);
            int base = base_of[way];
            NET_CHECK(fv_samples_add(&b->ratio[l][way], rate[way] / rate[base]) == FV_OK);
            NET_CHECK(fv_samples_add(&b->cpu_ratio[l][way], cpu[way] / cpu[base]) == FV_OK);
        }
    }
}

/* ---- latency of one token ----------------------------------------------------------------- */

/* Open streams, one per path; tokens go out one at a time. */
typedef struct streams {
    bench *b;
    fv_rpc_call *worker[N_PATH]; /* the decode worker's end of each stream */
    int32_t n_open, n_over;
    int32_t n_heard[N_PATH]; /* stamped tokens */
    bool heard;
    int32_t next, n_sent; /* path of the next token */
} streams;

typedef struct listener {
    streams *s;
    int path;
} listener;

static const char stamp_key[] = "sent at ";

/* Returns the number after the stamp key; 0: the message has none. */
static double read_stamp(grpc_byte_buffer *message) {
    grpc_byte_buffer_reader reader;
    NET_CHECK(grpc_byte_buffer_reader_init(&reader, message));
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    const char *at =
        memmem(GRPC_SLICE_START_PTR(all), GRPC_SLICE_LENGTH(all), stamp_key, sizeof stamp_key - 1);
    double stamp = 0;
    char text[32] = "";
    if (at) {
        size_t left = (size_t)((const char *)GRPC_SLICE_END_PTR(all) - at) - (sizeof stamp_key - 1);
        memcpy(text, at + sizeof stamp_key - 1, left < sizeof text ? left : sizeof text - 1);
        stamp = strtod(text, NULL);
    }
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    return stamp;
}

static fv_status on_stream_message(fv_rpc_call *call, grpc_byte_buffer *message) {
    const listener *l = fv_rpc_call_user(call);
    double now = fv_clock_s(), stamp = read_stamp(message);
    if (stamp == 0) return FV_OK;
    NET_CHECK(fv_samples_add(&l->s->b->delay_s[l->path], now - stamp) == FV_OK);
    l->s->n_heard[l->path]++;
    l->s->heard = true;
    return FV_OK;
}

static void on_stream_end(fv_rpc_call *call, const fv_rpc_end *e) {
    const listener *l = fv_rpc_call_user(call);
    NET_CHECK(e->status == FV_OK);
    l->s->n_over++;
}

static const fv_rpc_events stream_events = {.on_message = on_stream_message,
                                            .on_end = on_stream_end};

static void on_take(void *user, fv_rpc_call *c) {
    streams *s = user;
    s->worker[s->n_open++] = c;
}

static void open_stream(streams *s, listener *l) {
    bench *b = s->b;
    uint8_t request[128];
    int32_t n_open = s->n_open;
    if (l->path == 0) {
        fv_rpc_call *call;
        size_t n = pack_decode_request((uint32_t)b->n_token, request);
        fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Decode/Decode",
                                   .events = &stream_events,
                                   .user = l,
                                   .deadline_ms = DEADLINE_MS};
        NET_CHECK(fv_rpc_call_open(b->direct, &opt, &call) == FV_OK);
        NET_CHECK(fv_rpc_call_send_buffer(call, net_bytes(request, n)) == FV_OK);
        fv_rpc_call_close_send(call);
    } else {
        begin(b->channel[l->path == 1 ? RELAY : ROUTER], &stream_events, l, (uint32_t)b->n_token);
    }
    while (s->n_open == n_open) uv_run(&b->loop, UV_RUN_ONCE);
}

/* Sends the next token once the last one has arrived. */
static void on_token_time(uv_timer_t *t) {
    streams *s = t->data;
    char text[64];
    if (!s->heard) return;
    if (s->n_sent == N_PATH * TOKENS_PER_STREAM) {
        uv_timer_stop(t);
        for (int i = 0; i < N_PATH; i++) fake_send_finished(s->worker[i]);
        return;
    }
    s->heard = false;
    snprintf(text, sizeof text, "%s%.9f", stamp_key, fv_clock_s());
    fake_send_token(s->worker[s->next], 2 + (uint32_t)s->n_heard[s->next], text);
    s->n_sent++;
    s->next = (s->next + 1) % N_PATH;
}

static void measure_delay(bench *b) {
    streams s = {.b = b, .heard = true};
    listener listeners[N_PATH];
    int32_t n_token = b->n_token;
    b->n_token = TOKENS_PER_STREAM + 2;
    b->decode[ROUTER].take = on_take;
    b->decode[ROUTER].user = &s;
    for (int i = 0; i < N_PATH; i++) {
        listeners[i] = (listener){&s, i};
        open_stream(&s, &listeners[i]);
    }
    b->timer.data = &s;
    uv_timer_start(&b->timer, on_token_time, TOKEN_GAP_MS, TOKEN_GAP_MS);
    while (s.n_over < N_PATH) uv_run(&b->loop, UV_RUN_ONCE);
    for (int i = 0; i < N_PATH; i++) NET_CHECK(s.n_heard[i] == TOKENS_PER_STREAM);
    b->decode[ROUTER].take = NULL;
    b->n_token = n_token;
}

/* ---- report ------------------------------------------------------------------------------- */

static double median(fv_samples *s) { return fv_samples_quantile(s, 0.5); }

static json_t *rates_json(bench *b) {
    json_t *list = json_array();
    for (int l = 0; l < N_LEVEL; l++)
        for (int way = 0; way < N_WAY; way++)
            json_array_append_new(
                list,
                json_pack("{s:i, s:s, s:f, s:f, s:s, s:f, s:f}", "clients", levels[l], "way",
                          way_names[way], "per_s", median(&b->rate[l][way]), "cpu_us",
                          1e6 * median(&b->cpu_s[l][way]), "to", way_names[base_of[way]], "ratio",
                          median(&b->ratio[l][way]), "cpu_ratio", median(&b->cpu_ratio[l][way])));
    return list;
}

static json_t *delays_json(bench *b) {
    json_t *o = json_object();
    for (int i = 0; i < N_PATH && b->delay_s[i].n > 0; i++)
        json_object_set_new(o, path_names[i],
                            json_pack("{s:I, s:f, s:f, s:f}", "tokens", (json_int_t)b->delay_s[i].n,
                                      "p50_us", 1e6 * fv_samples_quantile(&b->delay_s[i], 0.5),
                                      "p90_us", 1e6 * fv_samples_quantile(&b->delay_s[i], 0.9),
                                      "p99_us", 1e6 * fv_samples_quantile(&b->delay_s[i], 0.99)));
    return o;
}

static json_t *to_json(bench *b) {
    return json_pack("{s:i, s:i, s:i, s:o, s:o}", "rounds", b->rounds, "tokens", b->n_token,
                     "requests", b->n_request, "requests_per_s", rates_json(b), "token_delay",
                     delays_json(b));
}

static void print(bench *b) {
    printf("requests/s, %d tokens each, %d requests in each of %d rounds\n", b->n_token,
           b->n_request, b->rounds);
    for (int l = 0; l < N_LEVEL; l++) {
        printf("%d clients\n", levels[l]);
        for (int way = 0; way < N_WAY; way++) {
            printf("  %-24s %7.0f/s  CPU per request %5.0f us", way_names[way],
                   median(&b->rate[l][way]), 1e6 * median(&b->cpu_s[l][way]));
            if (way != RELAY)
                printf("   to the %s: requests/s %.3f, CPU %.3f", way_names[base_of[way]],
                       median(&b->ratio[l][way]), median(&b->cpu_ratio[l][way]));
            putchar('\n');
        }
    }
    if (b->delay_s[0].n == 0) return;
    printf("a token's way from worker to client, nothing else under way, %zu tokens each\n",
           b->delay_s[0].n);
    double p50 = fv_samples_quantile(&b->delay_s[0], 0.5);
    double p99 = fv_samples_quantile(&b->delay_s[0], 0.99);
    for (int i = 0; i < N_PATH; i++)
        printf("%-7s  p50 %6.0f us  p99 %6.0f us    added: p50 %6.0f us, p99 %6.0f us\n",
               path_names[i], 1e6 * fv_samples_quantile(&b->delay_s[i], 0.5),
               1e6 * fv_samples_quantile(&b->delay_s[i], 0.99),
               1e6 * (fv_samples_quantile(&b->delay_s[i], 0.5) - p50),
               1e6 * (fv_samples_quantile(&b->delay_s[i], 0.99) - p99));
}

static void free_samples(bench *b) {
    for (int l = 0; l < N_LEVEL; l++) {
        for (int way = 0; way < N_WAY; way++) {
            fv_samples_free(&b->rate[l][way]);
            fv_samples_free(&b->cpu_s[l][way]);
            fv_samples_free(&b->ratio[l][way]);
            fv_samples_free(&b->cpu_ratio[l][way]);
        }
    }
    for (int i = 0; i < N_PATH; i++) fv_samples_free(&b->delay_s[i]);
}

/* Runs this program as the relay. */
static void be_relay(const char *prefill, const char *decode, uint32_t n_token) {
    uint8_t request[128];
    size_t n = pack_decode_request(n_token, request);
    relay_run(prefill, decode, request, n);
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"rounds", NULL, FV_OPTION_INT, "N", "15", "rounds, of which the median", 1, 1000},
        {"requests", NULL, FV_OPTION_INT, "N", "300", "in each round", MAX_CLIENT, 1000000},
        {"tokens", NULL, FV_OPTION_INT, "N", "16", "of each answer", 2, 200},
        {"rates-only", NULL, FV_OPTION_FLAG, NULL, NULL, "without the latency of tokens", 0, 0},
        {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the numbers as JSON", 0, 0},
        {"relay", NULL, FV_OPTION_LIST, "ADDRESS", NULL,
         "be the relay between a prefill and a decode worker; given twice", 0, 0},
    };
    enum { N_OPTION = sizeof table / sizeof *table };
    fv_options *o = bench_options(table, N_OPTION, argc, argv, "bench_router [options]",
                                  "The router against a bare relay, with metrics and traces, and "
                                  "with TLS; with made-up workers.");
    const char *const *workers;
    static bench b;
    b.rounds = (int32_t)fv_options_int(o, "rounds");
    b.n_request = (int32_t)fv_options_int(o, "requests");
    b.n_token = (int32_t)fv_options_int(o, "tokens");
    if (fv_options_list(o, "relay", &workers) == 2)
        be_relay(workers[0], workers[1], (uint32_t)b.n_token);
    open_all(&b, FOVEA_BIN, argv[0]);
    measure_rates(&b, false);
    for (int32_t i = 0; i < b.rounds; i++) {
        measure_rates(&b, true);
        if (!fv_options_flag(o, "rates-only")) measure_delay(&b);
    }
    close_all(&b);
    print(&b);
    bench_write_json(o, to_json(&b));
    free_samples(&b);
    fv_options_free(o);
    return 0;
}

/* Compares a hand-off over gRPC with raw TCP on the loopback interface, in one run.
 *
 *   raw       one thread writes to a TCP socket in pieces of 1 MiB, another reads into the
 *             destination buffer
 *   hand-off  a KV store of the same size goes to a decode worker in another process; timed from
 *             the request for memory to the reply that all data is verified in the worker's KV pool
 *
 * The two alternate, so that a slow moment of the machine affects both. The output is the median
 * over the rounds; the ratio is the median of the pairs' ratios. The first hand-off is listed
 * separately because it uses untouched memory and a new connection. CPU time is listed too, since
 * other load on the machine changes it less. The KV shape is that of a model with 32 layers and 8
 * KV heads of 128.
 *
 *     bench_handoff --rounds 15 --megabytes 100 --json results/handoff.json */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/program.h"
#include "common/clock.h"
#include "decode-worker/service/worker.h"
#include "model/synth/synth.h"
#include "prefill-worker/export/export.h"
#include "transport/grpc.h"

enum { MAX_ROUND = 1001, PIECE = 1 << 20 };

static const char config[] =
    "{\"model_type\": \"llava\", \"image_token_index\": 1000, \"image_seq_length\": 576,"
    " \"text_config\": {\"model_type\": \"llama\", \"vocab_size\": 1024, \"hidden_size\": 64,"
    " \"intermediate_size\": 64, \"num_hidden_layers\": 32, \"num_attention_heads\": 8,"
    " \"num_key_value_heads\": 8, \"head_dim\": 128, \"max_position_embeddings\": 65536,"
    " \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"eos_token_id\": 2, \"bos_token_id\": 1,"
    " \"rope_theta\": 10000.0},"
    " \"vision_config\": {\"model_type\": \"clip_vision_model\", \"hidden_size\": 32,"
    " \"intermediate_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
    " \"image_size\": 336, \"patch_size\": 14, \"projection_dim\": 32},"
    " \"vision_feature_select_strategy\": \"default\", \"vision_feature_layer\": -2}";

static void die(const char *what) {
    fprintf(stderr, "bench_handoff: %s\n", what);
    exit(1);
}

static void must(bool good, const char *what) {
    if (!good) die(what);
}

static void make_checkpoint(char *dir) {
    char file[96];
    snprintf(file, sizeof file, "%s/shape.json", dir);
    FILE *f = fopen(file, "w");
    must(f && fputs(config, f) >= 0 && fclose(f) == 0, "cannot write into the temporary folder");
    fv_synth_options opt = {.dir = dir, .config_file = file, .dtype = FV_BF16, .force = true};
    fv_synth_report report;
    bench_must(fv_synth_write(&opt, &report));
}

static void open_engine(const char *dir, fv_engine *e) {
    fv_engine_options opt = {
        .checkpoint = dir, .backend = "cpu", .isa = "auto", .compute = "f32", .threads = 1};
    bench_must(fv_engine_open(&opt, e));
}

/* Created before the fork, so both processes share them: the sender acts as its own router. */
static const fv_key fleet = {{1}};
static fv_callers *callers;

static void make_token(char out[FV_CALL_TOKEN_MAX]) {
    fv_key key;
    fv_call_to to = {"/fovea.handoff.v1.Handoff/Open", "bench", fv_callers_incarnation(callers)};
    fv_call_token t = {.made_ms = fv_callers_clock_ms(callers), .valid_ms = FV_CALL_VALID_MS};
    bench_must(fv_call_key(&fleet, &key));
    bench_must(fv_call_token_write(&key, &to, &t, out));
}

/* ---- the decode worker's process --------------------------------------------------------- */

static void serve(const char *dir, fv_dtype dtype, int say) {
    static uv_loop_t loop;
    static fv_engine engine;
    static fv_rpc_service services[FV_DECODE_SERVICES];
    fv_bridge *bridge;
    fv_decode_worker *worker;
    fv_rpc_server *server;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    uv_loop_init(&loop);
    bench_must(fv_bridge_open(&loop, &bridge));
    open_engine(dir, &engine);
    fv_decode_options opt = fv_decode_options_default();
    opt.engine = &engine;
    opt.callers = callers;
    opt.kv_dtype = dtype;
    bench_must(fv_decode_worker_open(bridge, &opt, &worker));
    fv_decode_worker_services(worker, services);
    fv_rpc_server_options so = {
        .listen = "127.0.0.1:0", .services = services, .n_service = FV_DECODE_SERVICES};
    bench_must(fv_rpc_server_open(bridge, &so, &server));
    int32_t port = fv_rpc_server_port(server);
    must(write(say, &port, sizeof port) == sizeof port, "cannot say the port");
    uv_run(&loop, UV_RUN_DEFAULT); /* until it is killed */
}

/* ---- raw TCP ---------------------------------------------------------------------------- */

typedef struct raw {
    int in, out; /* sockets */
    char *from, *to;
    size_t bytes;
    double done_s;
} raw;

static void *raw_send(void *arg) {
    raw *r = arg;
    for (size_t at = 0; at < r->bytes;) {
        size_t n = r->bytes - at < PIECE ? r->bytes - at : PIECE;
        ssize_t sent = write(r->out, r->from + at, n);
        if (sent < 0) die(strerror(errno));
        at += (size_t)sent;
    }
    return NULL;
}

static void *raw_receive(void *arg) {
    raw *r = arg;
    for (size_t at = 0; at < r->bytes;) {
        size_t n = r->bytes - at < PIECE ? r->bytes - at : PIECE;
        ssize_t got = read(r->in, r->to + at, n);
        if (got <= 0) die("the raw connection broke");
        at += (size_t)got;
    }
    r->done_s = fv_clock_s();
    return NULL;
}

static void raw_open(raw *r, size_t bytes) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(listener, (struct sockaddr *)&a, n) == 0 && listen(listener, 1) == 0 &&
             getsockname(listener, (struct sockaddr *)&a, &n) == 0,
         "no port is free");
    r->out = socket(AF_INET, SOCK_STREAM, 0);
    must(connect(r->out, (struct sockaddr *)&a, n) == 0, "cannot connect to loopback");
    r->in = accept(listener, NULL, NULL);
    close(listener);
    r->bytes = bytes;
    r->from = malloc(bytes);
    r->to = malloc(bytes);
    must(r->from && r->to, "out of memory");
    memset(r->from, 1, bytes);
    memset(r->to, 2, bytes);
}

static double raw_round(raw *r) {
    pthread_t sender = 0, receiver = 0;
    double t = fv_clock_s();
    must(pthread_create(&receiver, NULL, raw_receive, r) == 0 &&
             pthread_create(&sender, NULL, raw_send, r) == 0,
         "cannot start a thread");
    pthread_join(sender, NULL);
    pthread_join(receiver, NULL);
    return r->done_s - t;
}

/* ---- the hand-off ----------------------------------------------------------------------- */

typedef struct sender {
    uv_loop_t loop;
    fv_bridge *bridge;
    fv_jobs *jobs;
    fv_transport *transport;
    fv_engine engine;
    fv_kv_pool *pool;
    fv_kv *kv;
    int32_t n, *ids;
    uint8_t *seg;
    fv_plan plan;
    /* of the current round */
    fv_job job;
    fv_export *ship;
    bool sent, over; /* over: used by the loop */
    fv_export_report report;
    fv_rpc_op told;
} sender;

static void on_told(fv_rpc_op *op, bool ok) {
    (void)ok;
    ((sender *)op->owner)->over = true;
}

static void on_gone(void *user) {
    sender *s = user;
    s->told = (fv_rpc_op){.done = on_told, .owner = s};
    fv_bridge_post(s->bridge, &s->told, true);
}

static void begin(fv_job *job) {
    sender *s = job->owner;
    char token[FV_CALL_TOKEN_MAX];
    make_token(token);
    fv_export_request req = {.model = s->engine.fingerprint,
                             .kv = s->kv,
                             .plan = &s->plan,
                             .n = s->n,
                             .ids = s->ids,
                             .seg = s->seg,
                             .max_tokens = 64,
                             .sampling = {.repetition_penalty = 1, .top_p = 1},
                             .asking = {.open_token = token}};
    s->sent = false;
    bench_must(fv_export_begin(s->transport, &req, &s->ship));
}

/* Continues the hand-off after the replies so far. */
static double go_on(void *user) {
    sender *s = user;
    bool granted = false, done = false;
    if (!s->ship) return -1;
    bench_must(fv_export_granted(s->ship, &granted));
    if (granted && !s->sent) {
        s->sent = true;
        bench_must(fv_export_layers(s->ship, s->plan.shape.n_layer));
        bench_must(fv_export_end(s->ship, &(fv_first_token){.id = 5, .step = 1}));
    }
    bench_must(fv_export_done(s->ship, &done));
    if (!done) return -1;
    fv_export *ship = s->ship;
    s->report = fv_export_get_report(ship);
    s->ship = NULL;
    fv_export_close(ship, false, on_gone, s); /* the worker frees its copy */
    return -1;
}

static double handoff_round(sender *s) {
    double t = fv_clock_s();
    s->over = false;
    s->job = (fv_job){.run = begin, .owner = s};
    bench_must(fv_jobs_post(s->jobs, &s->job));
    while (!s->over) uv_run(&s->loop, UV_RUN_ONCE);
    return s->report.committed_s - t;
}

/* Fills a store; three quarters of its rows are visual. */
static void fill_store(sender *s, fv_dtype dtype, size_t bytes) {
    fv_kv_shape shape = fv_engine_kv_shape(&s->engine, dtype);
    size_t heads = (size_t)shape.n_layer * (size_t)shape.n_kv;
    size_t half = (size_t)shape.d_head * fv_dtype_bytes(dtype);
    s->n = (int32_t)((bytes + 2 * heads * half - 1) / (2 * heads * half));
    int32_t visual = s->n * 3 / 4;
    s->ids = calloc((size_t)s->n, sizeof *s->ids);
    s->seg = malloc((size_t)s->n);
    int32_t *pos = malloc((size_t)s->n * sizeof *pos);
    must(s->ids && s->seg && pos, "out of memory");
    for (int32_t i = 0; i < s->n; i++) {
        pos[i] = i;
        s->seg[i] = i < visual ? FV_SEG_VISUAL : FV_SEG_TEXT;
    }
    bench_must(fv_kv_pool_open(s->engine.be.device, &shape, 0, &s->pool));
    bench_must(fv_kv_open(s->pool, &s->kv));
    for (int32_t l = 0; l < shape.n_layer; l++) {
        bench_must(fv_kv_extent(s->kv, l, visual));
        bench_must(fv_kv_reserve(s->kv, l, s->n - visual));
        bench_must(fv_kv_append(s->kv, l, FV_SEG_VISUAL, pos, visual));
        bench_must(fv_kv_append(s->kv, l, FV_SEG_TEXT, pos + visual, s->n - visual));
        for (int32_t i = 0; i < shape.n_kv * FV_N_SEG * 2; i++) {
            fv_kv_segment seg = i / 2 % 2 ? FV_SEG_TEXT : FV_SEG_VISUAL;
            int32_t len = fv_kv_len(s->kv, l, i / 4, seg);
            for (int32_t row = 0, rows; row < len; row += rows) {
                void *at;
                rows = fv_kv_contiguous(s->kv, l, i / 4, seg, i % 2, row, len, &at);
                memset(at, 'a' + i % 26, (size_t)rows * half);
            }
        }
    }
    free(pos);
    fv_policy exact;
    fv_plan_shape plan = {.n_layer = shape.n_layer,
                          .n_kv = shape.n_kv,
                          .d_head = shape.d_head,
                          .bytes_value = (int32_t)fv_dtype_bytes(shape.dtype),
                          .n_visual = visual,
                          .n_text = s->n - visual};
    bench_must(fv_policy_parse("", &exact));
    bench_must(fv_plan_make(&exact, &plan, &s->plan));
}

static void sender_open(sender *s, const char *dir, int32_t port, fv_dtype dtype, size_t bytes) {
    char target[32];
    snprintf(target, sizeof target, "127.0.0.1:%d", port);
    uv_loop_init(&s->loop);
    bench_must(fv_bridge_open(&s->loop, &s->bridge));
    open_engine(dir, &s->engine);
    fill_store(s, dtype, bytes);
    bench_must(fv_jobs_start(&(fv_jobs_options){.limit = 4, .work = go_on, .user = s}, &s->jobs));
    fv_transport_grpc_options opt = {.bridge = s->bridge, .jobs = s->jobs, .target = target};
    bench_must(fv_transport_grpc(&opt, &s->transport));
}

static void on_closed(void *flag) { *(bool *)flag = true; }

static void sender_close(sender *s) {
    bool closed = false, over = false;
    fv_transport_close(s->transport, on_closed, &closed);
    while (!closed) uv_run(&s->loop, UV_RUN_ONCE);
    fv_jobs_stop(s->jobs);
    fv_kv_close(s->kv);
    fv_kv_pool_close(s->pool);
    fv_engine_close(&s->engine);
    fv_bridge_close(s->bridge, on_closed, &over);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    must(uv_loop_close(&s->loop) == 0, "handles are left on the loop");
    free(s->ids);
    free(s->seg);
}

/* ---- the report ------------------------------------------------------------------------- */

typedef struct figures {
    double raw_gbs, handoff_gbs, ratio, first_gbs;
    double raw_cpu, sender_cpu, receiver_cpu, first_cpu; /* CPU seconds per GB; first_cpu: the
                                                          * receiver's */
    size_t bytes;
    uint64_t sent, frames;
} figures;

static json_t *report(const figures *f, const char *dtype, int rounds) {
    printf("%zu bytes of KV as %s, %d rounds, medians\n", f->bytes, dtype, rounds);
    printf("%-42s %5.2f GB/s            %.2f CPU s/GB\n", "raw TCP over loopback", f->raw_gbs,
           f->raw_cpu);
    printf("%-42s %5.2f GB/s %.2f of raw %.2f CPU s/GB, sender %.2f, receiver %.2f\n",
           "hand-off over gRPC, until all is checked", f->handoff_gbs, f->ratio,
           f->sender_cpu + f->receiver_cpu, f->sender_cpu, f->receiver_cpu);
    printf("%-42s %5.2f GB/s                           receiver %.2f\n",
           "  the first one, into new memory", f->first_gbs, f->first_cpu);
    printf("%llu bytes sent in %llu frames\n", (unsigned long long)f->sent,
           (unsigned long long)f->frames);
    return json_pack("{s:I, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "bytes",
                     (json_int_t)f->bytes, "dtype", dtype, "rounds", rounds, "raw_gbs", f->raw_gbs,
                     "handoff_gbs", f->handoff_gbs, "ratio", f->ratio, "first_gbs", f->first_gbs,
                     "raw_cpu_s_per_gb", f->raw_cpu, "sender_cpu_s_per_gb", f->sender_cpu,
                     "receiver_cpu_s_per_gb", f->receiver_cpu);
}

static void measure(raw *r, sender *s, pid_t worker, int rounds, figures *out) {
    static double raw_s[MAX_ROUND], handoff_s[MAX_ROUND], ratio[MAX_ROUND];
    double bytes = (double)out->bytes, mine = 0, theirs = 0, plain = 0;
    raw_round(r);
    theirs = -bench_cpu_s(worker);
    out->first_gbs = bytes / handoff_round(s) / 1e9;
    out->first_cpu = (theirs + bench_cpu_s(worker)) * 1e9 / bytes;
    theirs = -bench_cpu_s(worker);
    for (int i = 0; i < rounds; i++) {
        plain -= bench_cpu_s(0);
        raw_s[i] = raw_round(r);
        plain += bench_cpu_s(0);
        mine -= bench_cpu_s(0);
        handoff_s[i] = handoff_round(s);
        mine += bench_cpu_s(0);
        ratio[i] = raw_s[i] / handoff_s[i];
    }
    theirs += bench_cpu_s(worker);
    out->raw_cpu = plain * 1e9 / bytes / rounds;
    out->sender_cpu = mine * 1e9 / bytes / rounds;
    out->receiver_cpu = theirs * 1e9 / bytes / rounds;
    out->raw_gbs = bytes / bench_median(raw_s, rounds) / 1e9;
    out->handoff_gbs = bytes / bench_median(handoff_s, rounds) / 1e9;
    out->ratio = bench_median(ratio, rounds);
    out->sent = s->report.bytes;
    out->frames = s->report.frames;
}

static const fv_option table[] = {
    {"rounds", NULL, FV_OPTION_INT, "N", "15", "pairs of measurements", 1, MAX_ROUND},
    {"megabytes", NULL, FV_OPTION_INT, "N", "100", "size of the store", 1, 4000},
    {"dtype", NULL, FV_OPTION_STRING, "TYPE", "bf16", "rows as f32, bf16 or f16", 0, 0},
    {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the numbers there too", 0, 0},
};
enum { N_OPTION = sizeof table / sizeof *table };

static void run(const fv_options *o) {
    static sender s;
    static raw r;
    char dir[] = "/tmp/bench-handoff-XXXXXX", command[64];
    int pipe_of[2], rounds = (int)fv_options_int(o, "rounds");
    int32_t port = 0;
    fv_dtype dtype;
    size_t bytes = (size_t)fv_options_int(o, "megabytes") * 1000000;
    bench_must(fv_engine_kv_dtype(fv_options_string(o, "dtype"), FV_COMPUTE_F32, &dtype));
    must(mkdtemp(dir) && pipe(pipe_of) == 0, "cannot make a temporary folder");
    make_checkpoint(dir);
    bench_must(fv_callers_open(&fleet, &callers));
    fv_callers_set_name(callers, "bench");
    pid_t child = fork(); /* fork before gRPC starts threads */
    if (child == 0) serve(dir, dtype, pipe_of[1]);
    must(child > 0 && read(pipe_of[0], &port, sizeof port) == sizeof port,
         "the decode worker did not start");
    sender_open(&s, dir, port, dtype, bytes);
    figures f = {.bytes = fv_kv_bytes(s.kv, FV_SEG_VISUAL) + fv_kv_bytes(s.kv, FV_SEG_TEXT)};
    raw_open(&r, f.bytes);
    measure(&r, &s, child, rounds, &f);
    kill(child, SIGTERM);
    waitpid(child, NULL, 0);
    bench_write_json(o, report(&f, fv_options_string(o, "dtype"), rounds));
    sender_close(&s);
    free(r.from);
    free(r.to);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0) fprintf(stderr, "bench_handoff: %s is left\n", dir);
}

int main(int argc, char **argv) {
    fv_options *o = bench_options(table, N_OPTION, argc, argv, "bench_handoff [options]",
                                  "A hand-off over gRPC against raw TCP.");
    run(o);
    fv_options_free(o);
    return 0;
}

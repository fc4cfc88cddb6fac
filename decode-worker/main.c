/* fovea-decode: options, the daemon, the decode worker in it, and its place in a fleet. */
#include "decode-worker/service/worker.h"
#include "kernels/backends/open.h"
#include "serving/worker/model_info.h"
#include "serving/worker/registration.h"
#include "transport/peer_option.h"

static const fv_option table[] = {
    FV_DAEMON_OPTIONS,
    FV_DAEMON_WORKER_OPTIONS,
    {"checkpoint", "FOVEA_CHECKPOINT", FV_OPTION_STRING, "DIR", NULL,
     "Hugging Face checkpoint directory", 0, 0},
    FV_REGISTRATION_OPTIONS,
    {"kv-dtype", "FOVEA_KV_DTYPE", FV_OPTION_STRING, "TYPE", "f32",
     "data type of keys and values: f32, bf16 or f16; the same in the whole fleet", 0, 0},
    {"kv-bytes", "FOVEA_KV_BYTES", FV_OPTION_INT, "N", "0",
     "size of the KV pool in bytes; 0: unlimited", 0, 9e15},
    {"batch", "FOVEA_BATCH", FV_OPTION_INT, "N", "64",
     "maximum number of running requests; others wait", 1, 4096},
    {"prompt-tokens", "FOVEA_PROMPT_TOKENS", FV_OPTION_INT, "N", "256",
     "maximum prompt tokens of continued conversations per step", 1, 1 << 16},
    {"queue", "FOVEA_QUEUE", FV_OPTION_INT, "N", "256",
     "maximum number of waiting requests; excess requests are rejected", 1, 1 << 16},
    {"waiting", "FOVEA_WAITING", FV_OPTION_INT, "N", "256",
     "maximum number of hand-offs waiting for memory, oldest request first; excess hand-offs are "
     "rejected",
     1, 1 << 16},
    {"memory-wait-ms", "FOVEA_MEMORY_WAIT_MS", FV_OPTION_INT, "MS", "30000",
     "maximum time a hand-off waits for memory", 0, 3600000},
    {"lease-ms", "FOVEA_LEASE_MS", FV_OPTION_INT, "MS", "30000",
     "silence of a prefill worker after which its grant expires", 10, 3600000},
    {"attach-ms", "FOVEA_ATTACH_MS", FV_OPTION_INT, "MS", "30000",
     "time for the router to attach to a hand-off", 10, 3600000},
    {"keep-ms-max", "FOVEA_KEEP_MS_MAX", FV_OPTION_INT, "MS", "600000",
     "maximum time a conversation is kept after an answer; 0: never", 0, 86400000},
    {"keep-bytes", "FOVEA_KEEP_BYTES", FV_OPTION_INT, "N", "0",
     "share of the KV pool for kept conversations, in bytes; 0: half of --kv-bytes", 0, 9e15},
    {"threads", "FOVEA_THREADS", FV_OPTION_INT, "N", "0", "number of compute threads; 0: all cores",
     0, 1024},
    {"device", "FOVEA_DEVICE", FV_OPTION_STRING, "NAME", "auto", "auto, cpu or cuda", 0, 0},
    {"gpu", "FOVEA_GPU", FV_OPTION_INT, "N", "0", "index of the GPU, with --device cuda", 0, 1023},
    {"gpu-trace", "FOVEA_CUDA_TRACE", FV_OPTION_STRING, "FILE", NULL,
     "write GPU time by kernel to FILE on exit; disables CUDA graphs", 0, 0},
    {"plugin-dir", "FOVEA_PLUGIN_DIR", FV_OPTION_STRING, "DIR", NULL,
     "directory containing libfovea_cuda.so; default: the program's directory", 0, 0},
    FV_PEER_OPTIONS,
    {"isa", "FOVEA_ISA", FV_OPTION_STRING, "NAME", "auto",
     "CPU: auto, plain, avx2, avx512 or amx, with the same result; CUDA: auto or exact", 0, 0},
};
enum { N_TABLE = sizeof table / sizeof table[0] };

typedef struct program {
    const fv_options *options;
    fv_registration place;
    fv_daemon *daemon;
    fv_engine engine;
    fv_dtype kv_dtype;
    fv_decode_worker *worker;
    fv_arena arena; /* of the introduction */
    char name[FV_WORKER_NAME_MAX + 1];
} program;

/* ---- the end, in its order --------------------------------------------------------------- */

static void on_worker_closed(void *user) { fv_daemon_end(((program *)user)->daemon); }

static void on_left(void *user) {
    program *p = user;
    if (p->worker)
        fv_decode_worker_close(p->worker, on_worker_closed, p);
    else
        fv_daemon_end(p->daemon);
}

static void drain(void *user) {
    program *p = user;
    fv_decode_worker_drain(p->worker);
    fv_registration_drain(&p->place);
}

static bool idle(void *user) {
    fv_decode_load load = fv_decode_worker_load(((program *)user)->worker);
    return load.n_running == 0 && load.n_queued == 0 && load.bytes_granted + load.bytes_held == 0;
}

static void stopped(void *user) { fv_registration_leave(&((program *)user)->place, on_left); }

/* ---- the fleet -------------------------------------------------------------------------- */

static void measure(void *user, Fovea__Inference__V1__Load *load) {
    fv_decode_load l = fv_decode_worker_load(((program *)user)->worker);
    load->n_running = l.n_running;
    load->n_queued = l.n_queued;
    load->bytes_capacity = l.bytes_capacity;
    load->bytes_granted = l.bytes_granted;
    load->bytes_held = l.bytes_held;
    load->bytes_waiting = l.bytes_waiting;
    load->n_waiting = l.n_waiting;
    load->bytes_kept = l.bytes_kept;
    load->n_kept = l.n_kept;
    load->bytes_grpc = l.bytes_grpc;
    load->bytes_nccl = l.bytes_nccl;
    load->n_fallback = l.n_fallback;
    load->n_pairs = l.n_pairs;
    load->n_pairs_failed = l.n_pairs_failed;
    load->n_done = l.n_done;
    load->n_failed = l.n_failed;
    load->tokens_out = l.tokens_out;
    load->entries_evicted = l.entries_evicted;
    load->tokens_recompressed = l.tokens_recompressed;
    load->seconds_busy = l.seconds_busy;
}

static fv_status introduce(void *user, const char *address, Fovea__Fleet__V1__Introduction **out) {
    program *p = user;
    fv_model_info_options opt = {.name = p->name,
                                 .role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE,
                                 .address = address,
                                 .kv_dtype = p->kv_dtype,
                                 .keep_ms_max =
                                     (uint32_t)fv_options_int(p->options, "keep-ms-max")};
    return fv_info(&p->engine, &opt, &p->arena, out);
}

static fv_vital_signs signs(void *user) {
    return fv_decode_worker_signs(((program *)user)->worker);
}

static void on_lost(void *user, const char *why) {
    fv_registration_device_lost(&((program *)user)->place, why);
}

static void on_health(void *user, bool healthy) {
    fv_registration_health(&((program *)user)->place, healthy);
}

static void on_change(void *user) { fv_registration_touch(&((program *)user)->place); }

/* ---- the beginning ---------------------------------------------------------------------- */

static fv_status open_worker(program *p) {
    const fv_options *o = p->options;
    fv_plugin_set_dir(fv_options_string(o, "plugin-dir"));
    fv_engine_options engine = {.checkpoint = fv_options_string(o, "checkpoint"),
                                .backend = fv_options_string(o, "device"),
                                .isa = fv_options_string(o, "isa"),
                                .gpu = (int32_t)fv_options_int(o, "gpu"),
                                .gpu_trace = fv_options_string(o, "gpu-trace"),
                                .threads = (int32_t)fv_options_int(o, "threads")};
    if (!engine.checkpoint)
        return FV_FAIL(FV_EINVAL,
                       "--checkpoint DIR is needed: a Hugging Face checkpoint directory");
    FV_TRY(fv_registration_open(&p->place));
    FV_TRY(fv_engine_kv_dtype(fv_options_string(o, "kv-dtype"), &p->kv_dtype));
    FV_TRY(fv_engine_open(&engine, &p->engine));
    fv_peer_choice pairs;
    FV_TRY(fv_peer_choose(o, p->engine.be.ops->name, p->engine.be.ops->pairs, &pairs));
    fv_decode_options opt = fv_decode_options_default();
    opt.pairs = pairs.ops;
    opt.pairs_most = pairs.most;
    opt.engine = &p->engine;
    opt.name = p->name;
    opt.callers = fv_registration_callers(&p->place);
    opt.kv_dtype = p->kv_dtype;
    opt.kv_bytes = (size_t)fv_options_int(o, "kv-bytes");
    opt.batch_max = (int32_t)fv_options_int(o, "batch");
    opt.prompt_tokens = (int32_t)fv_options_int(o, "prompt-tokens");
    opt.queue_max = (int32_t)fv_options_int(o, "queue");
    opt.keep_s_max = 1e-3 * (double)fv_options_int(o, "keep-ms-max");
    opt.keep_bytes = (size_t)fv_options_int(o, "keep-bytes");
    opt.probe_s = 1e-3 * (double)fv_options_int(o, "probe-ms");
    opt.waiting_max = (int32_t)fv_options_int(o, "waiting");
    opt.wait_s_max = 1e-3 * (double)fv_options_int(o, "memory-wait-ms");
    opt.on_change = on_change;
    opt.user = p;
    opt.grants.lease_s = 1e-3 * (double)fv_options_int(o, "lease-ms");
    opt.grants.attach_s = 1e-3 * (double)fv_options_int(o, "attach-ms");
    FV_TRY(fv_decode_worker_open(fv_daemon_bridge(p->daemon), &opt, &p->worker));
    p->place.pulse = fv_decode_worker_pulse(p->worker);
    return FV_OK;
}

static fv_status serve(program *p) {
    fv_rpc_service services[FV_DECODE_SERVICES];
    fv_decode_worker_services(p->worker, services);
    fv_daemon_listener listener = {.option = "listen",
                                   .words = "listening on",
                                   .services = services,
                                   .n_service = FV_DECODE_SERVICES};
    FV_TRY(fv_daemon_serve(p->daemon, &listener, 1));
    return fv_daemon_name(p->daemon, "decode", p->name);
}

static fv_status run(const fv_options *o) {
    program p = {.options = o};
    fv_daemon_hooks hooks = {.user = &p,
                             .drain = drain,
                             .idle = idle,
                             .stopped = stopped,
                             .signs = signs,
                             .on_health = on_health,
                             .on_lost = on_lost};
    FV_TRY(fv_daemon_open(o, &hooks, &p.daemon));
    p.place = (fv_registration){
        .o = o, .daemon = p.daemon, .introduce = introduce, .measure = measure, .user = &p};
    fv_status st = open_worker(&p);
    if (st == FV_OK) {
        st = serve(&p);
        if (st != FV_OK) fv_registration_give_up(&p.place, st);
        fv_daemon_run(p.daemon); /* also when it does not serve: to close all that was opened */
    }
    fv_daemon_close(p.daemon);
    fv_registration_close(&p.place);
    fv_arena_fini(&p.arena);
    fv_engine_close(&p.engine);
    return p.place.status == FV_OK ? st : fv_registration_verdict(&p.place);
}

int main(int argc, char **argv) {
    static const fv_daemon_program self = {
        .name = "fovea-decode",
        .usage = "fovea-decode --checkpoint DIR --fleet-token-file FILE --router HOST:PORT "
                 "[options]",
        .about = "Receives prefilled requests from prefill workers and generates their answers.",
        .table = table,
        .n_option = N_TABLE,
        .run = run};
    return fv_daemon_main(&self, argc, argv);
}

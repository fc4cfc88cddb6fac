/* fovea-prefill: options -> a prefill worker that serves, and a member of a fleet. Loop thread. */
#include "common/arena.h"
#include "kernels/backends/open.h"
#include "prefill-worker/image/image.h"
#include "prefill-worker/service/worker.h"
#include "serving/worker/model_info.h"
#include "serving/worker/registration.h"
#include "transport/peer_option.h"

/* clang-format off */
static const fv_option table[] = {
    FV_DAEMON_OPTIONS,
    FV_DAEMON_WORKER_OPTIONS,
    {"checkpoint", "FOVEA_CHECKPOINT", FV_OPTION_STRING, "DIR", NULL,
     "Hugging Face checkpoint directory", 0, 0},
    FV_REGISTRATION_OPTIONS,
    {"kv-dtype", "FOVEA_KV_DTYPE", FV_OPTION_STRING, "TYPE", "f32",
     "data type of keys and values: f32, bf16 or f16", 0, 0},
    {"kv-bytes", "FOVEA_KV_BYTES", FV_OPTION_INT, "N", "0",
     "size of the KV pool in bytes; 0: unlimited", 0, 9e15},
    {"cache-bytes", "FOVEA_CACHE_BYTES", FV_OPTION_INT, "N", "268435456",
     "size of the cache of encoded images in bytes; 0: no cache", 0, 9e15},
    {"pixels", "FOVEA_PIXELS", FV_OPTION_INT, "N", "536870912",
     "limit of pixels waiting to be decoded; excess requests are rejected", 1, 1e12},
    {"request-pixels", "FOVEA_REQUEST_PIXELS", FV_OPTION_INT, "N", "268435456",
     "limit of pixels per request, over all its images", 1, 1e12},
    {"queue", "FOVEA_QUEUE", FV_OPTION_INT, "N", "32",
     "maximum number of requests; excess requests are rejected", 1, 65536},
    {"batch", "FOVEA_BATCH", FV_OPTION_INT, "N", "4",
     "maximum number of requests in a prefill batch", 1, FV_PREFILL_BATCH_MAX},
    {"chunk", "FOVEA_CHUNK", FV_OPTION_INT, "N", "512",
     "prefill chunk size in tokens; 0: the whole prompt; affects memory and speed, never the result", 0, 1 << 20},
    {"export-layers", "FOVEA_EXPORT_LAYERS", FV_OPTION_INT, "N", "0",
     "layers sent together, while later ones are computed; 0: an eighth of them", 0, 256},
    {"threads", "FOVEA_THREADS", FV_OPTION_INT, "N", "0", "number of compute threads; 0: all cores", 0, 1024},
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
/* clang-format on */
enum { N_OPTION = sizeof table / sizeof *table };

typedef struct server {
    const fv_options *o;
    fv_registration place;
    fv_daemon *daemon;
    fv_engine engine;
    fv_prefill_worker *worker;
    fv_arena arena; /* of the introduction */
    char name[FV_WORKER_NAME_MAX + 1];
} server;

/* ---- in the fleet ----------------------------------------------------------------------- */

static void on_change(void *user) { fv_registration_touch(&((server *)user)->place); }

static void measure(void *user, Fovea__Inference__V1__Load *load) {
    fv_prefill_worker_load(((server *)user)->worker, load);
}

static fv_status introduce(void *user, const char *address, Fovea__Fleet__V1__Introduction **out) {
    server *s = user;
    fv_model_info_options opt = {
        .name = s->name, .role = FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL, .address = address};
    FV_TRY(fv_engine_kv_dtype(fv_options_string(s->o, "kv-dtype"), &opt.kv_dtype));
    FV_TRY(fv_info(&s->engine, &opt, &s->arena, out));
    fv_image_limits lim = fv_image_limits_default();
    Fovea__Inference__V1__Limits *said = (*out)->model->limits;
    said->bytes_image = lim.bytes_max;
    said->side_max = (uint32_t)lim.side_max;
    said->pixels_max = (uint64_t)lim.pixels_max;
    said->pixels_request = (uint64_t)fv_options_int(s->o, "request-pixels");
    return FV_OK;
}

static fv_vital_signs signs(void *user) {
    return fv_prefill_worker_signs(((server *)user)->worker);
}

static void on_lost(void *user, const char *why) {
    fv_registration_device_lost(&((server *)user)->place, why);
}

static void on_health(void *user, bool healthy) {
    fv_registration_health(&((server *)user)->place, healthy);
}

/* ---- the end ---------------------------------------------------------------------------- */

static void on_drain(void *user) { fv_registration_drain(&((server *)user)->place); }

static void on_worker_closed(void *user) {
    server *s = user;
    s->worker = NULL;
    fv_daemon_end(s->daemon);
}

static void on_left(void *user) {
    server *s = user;
    fv_prefill_worker_close(s->worker, on_worker_closed, s);
}

static void on_stopped(void *user) { fv_registration_leave(&((server *)user)->place, on_left); }

/* ---- the beginning ---------------------------------------------------------------------- */

static fv_status open_worker(server *s) {
    const fv_options *o = s->o;
    fv_plugin_set_dir(fv_options_string(o, "plugin-dir"));
    fv_engine_options engine = {.checkpoint = fv_options_string(o, "checkpoint"),
                                .backend = fv_options_string(o, "device"),
                                .isa = fv_options_string(o, "isa"),
                                .gpu = (int32_t)fv_options_int(o, "gpu"),
                                .gpu_trace = fv_options_string(o, "gpu-trace"),
                                .threads = (int32_t)fv_options_int(o, "threads"),
                                .vision = true};
    if (!engine.checkpoint)
        return FV_FAIL(FV_EINVAL, "--checkpoint DIR is needed: a Hugging Face checkpoint directory "
                                  "(`fovea synth` makes one to try with)");
    FV_TRY(fv_registration_open(&s->place));
    fv_prefill_worker_options opt = {.bridge = fv_daemon_bridge(s->daemon),
                                     .engine = &s->engine,
                                     .callers = fv_registration_callers(&s->place),
                                     .name = s->name,
                                     .kv_bytes = (size_t)fv_options_int(o, "kv-bytes"),
                                     .cache_bytes = (size_t)fv_options_int(o, "cache-bytes"),
                                     .pixels = fv_options_int(o, "pixels"),
                                     .pixels_request = fv_options_int(o, "request-pixels"),
                                     .queue = (int32_t)fv_options_int(o, "queue"),
                                     .batch = (int32_t)fv_options_int(o, "batch"),
                                     .chunk = (int32_t)fv_options_int(o, "chunk"),
                                     .export_layers = (int32_t)fv_options_int(o, "export-layers"),
                                     .probe_s = 1e-3 * (double)fv_options_int(o, "probe-ms"),
                                     .on_change = on_change,
                                     .user = s};
    FV_TRY(fv_engine_kv_dtype(fv_options_string(o, "kv-dtype"), &opt.kv_dtype));
    FV_TRY(fv_engine_open(&engine, &s->engine));
    fv_peer_choice pairs;
    FV_TRY(fv_peer_choose(o, s->engine.be.ops->name, s->engine.be.ops->pairs, &pairs));
    opt.pairs = (fv_peers_options){.ops = pairs.ops,
                                   .most = pairs.most,
                                   .join_s = pairs.join_s,
                                   .late_s = pairs.late_s,
                                   .wait = pairs.wait};
    FV_TRY(fv_prefill_worker_open(&opt, &s->worker));
    s->place.pulse = fv_prefill_worker_pulse(s->worker);
    return FV_OK;
}

static fv_status serve(server *s) {
    FV_TRY(open_worker(s));
    fv_rpc_service service = fv_prefill_worker_service(s->worker);
    fv_daemon_listener listener = {
        .option = "listen", .words = "listening on", .services = &service, .n_service = 1};
    FV_TRY(fv_daemon_serve(s->daemon, &listener, 1));
    return fv_daemon_name(s->daemon, "prefill", s->name);
}

static fv_status open_daemon(server *s) {
    fv_daemon_hooks hooks = {.user = s,
                             .drain = on_drain,
                             .stopped = on_stopped,
                             .signs = signs,
                             .on_health = on_health,
                             .on_lost = on_lost};
    FV_TRY(fv_daemon_open(s->o, &hooks, &s->daemon));
    s->place = (fv_registration){
        .o = s->o, .daemon = s->daemon, .introduce = introduce, .measure = measure, .user = s};
    return FV_OK;
}

static fv_status run(const fv_options *o) {
    server s = {.o = o};
    FV_TRY(open_daemon(&s));
    fv_status st = serve(&s);
    if (st != FV_OK) fv_registration_give_up(&s.place, st);
    fv_daemon_run(s.daemon);
    fv_daemon_close(s.daemon);
    fv_registration_close(&s.place);
    fv_engine_close(&s.engine);
    fv_arena_fini(&s.arena);
    return fv_registration_verdict(&s.place);
}

int main(int argc, char **argv) {
    static const fv_daemon_program self = {
        .name = "fovea-prefill",
        .usage = "fovea-prefill --checkpoint DIR --fleet-token-file FILE --router HOST:PORT "
                 "[options]",
        .about = "Prefills requests: computes the first token from images and prompt, and sends "
                 "the KV to a decode worker.",
        .table = table,
        .n_option = N_OPTION,
        .run = run};
    return fv_daemon_main(&self, argc, argv);
}
